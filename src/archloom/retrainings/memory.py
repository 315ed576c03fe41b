"""The memory that a retraining needs: two small steps and an evaluation, carried over to whole batches."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from archloom.data.facts import DataSet
from archloom.data.source import ImageData
from archloom.execution.memory import extrapolate_peak, refuse_too_large, resident_memory
from archloom.objectives.cost import Cost
from archloom.retrainings.build import build_retraining, shown_shape
from archloom.retrainings.spec import RetrainSpec
from archloom.searches.loaders import EVALUATION_BATCH
from archloom.searches.memory import is_far_below, limit_of

REMEDY = "use a smaller training.batch_size, network.channels or depth"


def refuse_large_retraining(spec: RetrainSpec, data: DataSet, cost: Cost) -> None:
    """Raise a SettingError if a retraining will not fit into the memory; `cost` is that of its network."""
    limit = limit_of(spec.machine)
    if (
        limit is None
        or not isinstance(data, ImageData)
        or is_far_below(cost, max(spec.training.batch_size, EVALUATION_BATCH), limit)
    ):
        return
    needed = {"this process": resident_memory(), "the network": measure_retraining(spec, data)}
    refuse_too_large(needed, limit, remedy=REMEDY)


def measure_retraining(spec: RetrainSpec, data: ImageData) -> int:
    """Return the bytes that training steps and evaluations need at most."""
    full = spec.training.batch_size

    def run(images: int) -> None:
        loop = build_retraining(replace(spec, training=replace(spec.training, batch_size=images)), data)
        for _ in range(2):  # momentum is there from the second step on
            loop.advance()
        evaluated = math.ceil(EVALUATION_BATCH * images / full)
        with torch.no_grad():
            loop.network.eval()(torch.zeros(evaluated, *shown_shape(data)))

    return extrapolate_peak(run, full)
