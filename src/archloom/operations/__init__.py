"""Candidate operations by name. A new one is a class (or function) that takes a Place, and a row in a table.

The two families name some operations alike but build them differently: a pool of the DARTS space is normalised, one of
NAS-Bench-201 is not.
"""

from __future__ import annotations

from functools import partial

from torch import nn

from archloom.operations.convolutions import DilatedConv, FactorizedReduce, ReluConvNorm, SeparableConv
from archloom.operations.place import Make, Normalize, Place, make_operation
from archloom.operations.pooling import average_pool, max_pool, normalized_average_pool, normalized_max_pool
from archloom.operations.reduction import FixedReduction


def skip_connect(place: Place) -> nn.Module:
    """Return the identity; where the resolution halves, the cheapest reduction that reads all pixels."""
    return nn.Identity() if place.stride == 1 else FactorizedReduce(place)


NB201_OPERATIONS: dict[str, Make] = {
    "skip_connect": skip_connect,
    "nor_conv_1x1": partial(ReluConvNorm, kernel=1),
    "nor_conv_3x3": partial(ReluConvNorm, kernel=3),
    "avg_pool_3x3": average_pool,
}

DARTS_OPERATIONS: dict[str, Make] = {
    "max_pool_3x3": normalized_max_pool,
    "avg_pool_3x3": normalized_average_pool,
    "skip_connect": skip_connect,
    "sep_conv_3x3": partial(SeparableConv, kernel=3),
    "sep_conv_5x5": partial(SeparableConv, kernel=5),
    "dil_conv_3x3": partial(DilatedConv, kernel=3),
    "dil_conv_5x5": partial(DilatedConv, kernel=5),
}

# The published retrained networks of the DARTS family have pools without a normalisation; its supernets need it, since
# a pool's result would otherwise be of another size than that of the operations beside it.
BARE_POOLS: dict[str, Make] = {"max_pool_3x3": max_pool, "avg_pool_3x3": average_pool}

__all__ = [
    "BARE_POOLS",
    "DARTS_OPERATIONS",
    "NB201_OPERATIONS",
    "FactorizedReduce",
    "FixedReduction",
    "Make",
    "Normalize",
    "Place",
    "ReluConvNorm",
    "make_operation",
]
