"""The memory that a retraining needs: two small steps and an evaluation, carried over to whole batches."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from archloom.data.facts import DataSet
from archloom.data.source import ImageData
from archloom.data.text import LONGER, TextData
from archloom.execution.memory import SMALL_COLUMNS, extrapolate_peak, refuse_too_large, resident_memory
from archloom.objectives.cost import Cost
from archloom.retrainings.build import build_retraining, shown_shape
from archloom.retrainings.spec import RetrainSpec, RetrainText
from archloom.retrainings.text_build import build_text_retraining
from archloom.searches.loaders import EVALUATION_BATCH
from archloom.searches.memory import is_far_below, limit_of

REMEDY = "use a smaller training.batch_size, network.channels or depth"


def refuse_large_retraining(spec: RetrainSpec, data: DataSet, cost: Cost) -> None:
    """Raise a SettingError if a retraining will not fit into the memory; `cost` is that of its network."""
    limit = limit_of(spec.machine)
    if limit is None:
        return
    if isinstance(data, TextData):
        measured = measure_text_retraining(spec, data)
    elif isinstance(data, ImageData) and not is_far_below(cost, max(spec.training.batch_size, EVALUATION_BATCH), limit):
        measured = measure_retraining(spec, data)
    else:
        return
    refuse_too_large({"this process": resident_memory(), "the network": measured}, limit, remedy=REMEDY)


def measure_text_retraining(spec: RetrainSpec, data: TextData) -> int:
    """Return the bytes that an epoch on a text needs at most, its validation included."""
    return extrapolate_peak(
        lambda columns: run_text_epoch(spec, data, columns), spec.training.batch_size, small=SMALL_COLUMNS
    )


def run_text_epoch(spec: RetrainSpec, data: TextData, columns: int) -> None:
    """Train for an epoch of few segments of so many columns, and validate."""
    assert isinstance(spec.data, RetrainText), "the spec is for text"
    longest = spec.data.segment if spec.data.lengths == "fixed" else spec.data.segment + LONGER
    words = columns * (2 * longest + 1)
    short = replace(
        data, train=_repeat(data.train, words), valid=data.valid[: spec.data.valid_columns * (longest + 1)], test=None
    )
    shorter = replace(spec, training=replace(spec.training, batch_size=columns, epochs=1))
    loop = build_text_retraining(shorter, short)
    while loop.position < loop.total:
        loop.advance()


def _repeat(tokens: Tensor, words: int) -> Tensor:
    return tokens.repeat(math.ceil(words / len(tokens)))[:words]


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
