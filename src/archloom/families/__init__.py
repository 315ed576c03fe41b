"""Networks: one definition per family, built as a supernet or for one architecture."""

from __future__ import annotations

from typing import Any

from torch import nn

from archloom.core.registry import Entry
from archloom.families.regularization import deployed, deployed_weights, set_progress
from archloom.spaces import SearchSpace
from archloom.supernet import Resolve


def build_network(space: SearchSpace, resolve: Resolve, *, classes: int, colours: int, **settings: Any) -> nn.Module:
    """The space's network for images of so many colours and classes; `settings` are the network's own keywords."""
    network: nn.Module = Entry(space.network).load()(space, resolve, classes, colours, **settings)
    return network


__all__ = ["build_network", "deployed", "deployed_weights", "set_progress"]
