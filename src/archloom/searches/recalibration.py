"""Estimate the running statistics of batch normalization again, to evaluate a path on single images.

Shared weights normalize by the statistics of the batch, since running statistics of changing paths describe none of
them. For one path they can be estimated afterwards: a few training batches run through it, and nothing is learned.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from archloom.data.loader import Batch


def recalibrate(network: nn.Module, batches: Iterable[Batch]) -> None:
    """Set running statistics to the mean over these batches, with equal weights; switch to evaluation mode."""
    for module in network.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            module.reset_running_stats()
            module.momentum = None  # a cumulative mean: an exponential one would remember the neutral start
    network.train()
    with torch.no_grad():
        for batch in batches:
            network(batch.inputs, {})
    network.eval()
