"""Latency measured on a device, for every architecture: in a benchmark table or in a file of the user."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from archloom.benchmarks.base import Benchmark, plain_number
from archloom.benchmarks.latency_file import read_latencies
from archloom.core.errors import BenchmarkError
from archloom.objectives.cost_source import CostSource, Probabilities
from archloom.spaces import SearchSpace


class MeasuredLatency(CostSource):
    """Milliseconds by the rows of a benchmark table; NaN where there is no measurement."""

    unit = "ms"

    def __init__(self, space: SearchSpace, table: Benchmark, column: np.ndarray, *, provenance: str) -> None:
        self._space, self._table, self._column, self.provenance = space, table, column, provenance

    @classmethod
    def on_device(cls, space: SearchSpace, table: Benchmark, device: str) -> MeasuredLatency:
        """Return the latencies of a device in the table."""
        return cls(space, table, table.latencies(device), provenance=f"{device} in the {table.name} table")

    @classmethod
    def in_file(cls, space: SearchSpace, table: Benchmark, path: Path) -> MeasuredLatency:
        """Return the latencies in a file of the user."""
        column = read_latencies(path, table, dataset=table.datasets[0])
        return cls(space, table, column, provenance=path.name)

    def measure(self, architecture: Mapping[str, str]) -> float:
        """Return the latency of an architecture, in milliseconds."""
        latency = plain_number(self._column[self._table.row(architecture)])
        if math.isnan(latency):
            text = self._space.format(self._space.check(architecture))
            raise BenchmarkError(f"{self.provenance} has no latency of {text}; measure it, or fit a model")
        return latency

    @cached_property
    def _grid(self) -> Tensor:
        """Return latencies with one axis per decision, as long as it has options."""
        sizes = [len(decision.options) for decision in self._space.decisions]
        values = [self.measure(architecture) for architecture in self._space.enumerate()]
        return torch.tensor(values, dtype=torch.float64).view(sizes)

    def expected_cost(self, probabilities: Probabilities) -> Tensor:
        """Return the expected latency under the probabilities, with a gradient."""
        first = probabilities[self._space.decisions[0].name]
        mean = self._grid.to(first)
        for decision in reversed(self._space.decisions):  # the last axis goes first
            mean = mean @ probabilities[decision.name]
        return mean
