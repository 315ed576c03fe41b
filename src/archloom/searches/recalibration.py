"""Running statistics of a network, estimated anew: what batch normalisation needs before it can judge single images.

Shared weights normalise by the batch at hand, since running statistics of changing paths describe none of them. For one
path they can be had afterwards: a few training batches go through it, and nothing is learned.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from archloom.data.loader import Batch


def recalibrate(network: nn.Module, batches: Iterable[Batch]) -> None:
    """Make running statistics the plain mean over these batches, all with equal weight; leaves evaluation mode on."""
    for module in network.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            module.reset_running_stats()
            module.momentum = None  # a cumulative mean: an exponential one would remember the neutral start
    network.train()
    with torch.no_grad():
        for batch in batches:
            network(batch.images, {})
    network.eval()
