"""Sources of costs: one interface for counted, measured, looked-up and modelled costs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Literal

from torch import Tensor

from archloom.core.errors import SettingError
from archloom.objectives.cost import CostTable
from archloom.objectives.linear_cost import DecomposedCost, LinearCost
from archloom.spaces import SearchSpace

CHECKS = 3  # networks that are counted to test whether the cost is a sum

Probabilities = Mapping[str, Tensor]
"""Of the options of every decision, which are sampled independently of each other."""


class CostSource(ABC):
    """The cost of any architecture of a space, and the expected cost of sampled architectures."""

    unit: str  # of the cost: ms, parameters, multiply-adds
    provenance: str  # where the numbers come from, for readers of a result
    caveat: str = ""  # why they may be those of other networks

    @abstractmethod
    def measure(self, architecture: Mapping[str, str]) -> float:
        """Return the cost of one architecture."""

    @abstractmethod
    def expected_cost(self, probabilities: Probabilities) -> Tensor:
        """Return the mean cost of architectures sampled with these probabilities; it passes gradient."""


class ModelledCost(CostSource):
    """The cost by a linear model, such as `archloom latency fit` makes."""

    def __init__(self, model: LinearCost, *, unit: str, provenance: str, caveat: str = "") -> None:
        self._model, self.unit, self.provenance, self.caveat = model, unit, provenance, caveat

    def measure(self, architecture: Mapping[str, str]) -> float:
        """Return the cost of an architecture."""
        return self._model.measure(architecture)

    def expected_cost(self, probabilities: Probabilities) -> Tensor:
        """Return the expected cost under the probabilities, with a gradient."""
        return self._model.expected_cost(probabilities)


class CountedCost(CostSource):
    """Parameters or multiply-adds of the network in the search.

    Counting is slow where a network must be built, and a search needs thousands of counts. Each layer is therefore
    counted once, and counts are added. If that sum is not exact, whole networks are counted, and the expected cost is
    unknown.
    """

    def __init__(
        self, space: SearchSpace, costs: CostTable, metric: Literal["parameters", "multiply_adds"], *, provenance: str
    ) -> None:
        self._costs, self._metric = costs, metric
        self._sum = DecomposedCost(space, self._count)
        self._is_sum = self._sum.is_exact(checks=CHECKS)
        self.unit, self.provenance = metric.replace("_", "-"), provenance

    def _count(self, architecture: Mapping[str, str]) -> float:
        return float(getattr(self._costs.cost(architecture), self._metric))

    def measure(self, architecture: Mapping[str, str]) -> float:
        """Return the cost of an architecture."""
        return self._sum.measure(architecture) if self._is_sum else self._count(architecture)

    @cached_property
    def _model(self) -> LinearCost:
        if not self._is_sum:
            raise SettingError(
                f"the expected number of {self.unit} is not known: in this space it is no sum over cost_features; use "
                "a strategy that samples architectures, such as tunas"
            )
        return self._sum.to_linear_cost()

    def expected_cost(self, probabilities: Probabilities) -> Tensor:
        """Return the expected cost under the probabilities, with a gradient."""
        return self._model.expected_cost(probabilities)
