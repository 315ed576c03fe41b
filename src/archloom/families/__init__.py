"""Families of networks: one file each, for all that is known of it."""

from __future__ import annotations

from typing import Any

from torch import nn

from archloom.families.base import FAMILIES, Depth, Family, OperationKind, Size, Source, family_of
from archloom.families.regularization import select_deployed_settings, select_deployed_weights, set_progress
from archloom.spaces import SearchSpace
from archloom.supernet import Resolve


def build_network(space: SearchSpace, resolve: Resolve, *, classes: int, colours: int, **settings: Any) -> nn.Module:
    """Build the space's network for images of so many colours and classes; `settings` are the network's own."""
    return family_of(space).build(space, resolve, classes=classes, colours=colours, **settings)


__all__ = [
    "FAMILIES",
    "Depth",
    "Family",
    "OperationKind",
    "Size",
    "Source",
    "build_network",
    "family_of",
    "select_deployed_settings",
    "select_deployed_weights",
    "set_progress",
]
