"""Families of networks: one file each, for all that is known of it."""

from __future__ import annotations

from typing import Any

from torch import nn

from archloom.families.base import FAMILIES, Depth, Family, OperationKind, Size, Source, family_of
from archloom.families.regularization import select_deployed_settings, select_deployed_weights, set_progress
from archloom.spaces import SearchSpace
from archloom.supernet import Resolve
from archloom.tasks import ImageShape, NetworkShape


def build_network(
    space: SearchSpace,
    resolve: Resolve,
    shape: NetworkShape | None = None,
    *,
    classes: int = 0,
    colours: int = 0,
    **settings: Any,
) -> nn.Module:
    """Build the space's network for data of a shape; `settings` are the network's own.

    Args:
        space: what can be chosen.
        resolve: `EveryOption()` for a supernet, `Only(architecture)` for one architecture.
        shape: what the data need; left out: images of `classes` and `colours`.
        classes: the number of classes of images.
        colours: channels of an image.
        settings: the network's own settings.

    Returns:
        The network, called with (inputs, gates); of text, with (words, gates, state).

    Raises:
        SettingError: a setting breaks a rule of the network.

    Examples:
        >>> import archloom, torch
        >>> space = archloom.Nb201(nodes=3, cells_per_stage=1)
        >>> network = archloom.build_network(space, archloom.EveryOption(), classes=2, colours=3, channels=4)
        >>> gates = archloom.path_gates(space, next(space.enumerate()))
        >>> network(torch.rand(4, 3, 8, 8), gates).shape
        torch.Size([4, 2])
    """
    return family_of(space).build(space, resolve, shape or ImageShape(classes, colours), **settings)


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
