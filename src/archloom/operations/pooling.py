"""Pooling, with the border left out of averages."""

from __future__ import annotations

from torch import nn

from archloom.operations.place import Place


def average_pool(place: Place) -> nn.Module:
    """Return a 3x3 average pool that leaves the border out."""
    return nn.AvgPool2d(3, place.stride, padding=1, count_include_pad=False)


def max_pool(place: Place) -> nn.Module:
    """Return a 3x3 max pool."""
    return nn.MaxPool2d(3, place.stride, padding=1)


def _normalized(pool: nn.Module, place: Place) -> nn.Module:
    # never scaled: the published networks count no parameters for a pool
    return nn.Sequential(pool, place.normalize(place.channels_out, scaled=False))


def normalized_average_pool(place: Place) -> nn.Module:
    """Return a 3x3 average pool and a normalisation without scale."""
    return _normalized(average_pool(place), place)


def normalized_max_pool(place: Place) -> nn.Module:
    """Return a 3x3 max pool and a normalisation without scale."""
    return _normalized(max_pool(place), place)
