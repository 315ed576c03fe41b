"""Where a cost comes from: one interface for what was counted, measured, looked up or modelled."""

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

LOOKS = 3  # networks that are counted to see whether a model tells them

Probabilities = Mapping[str, Tensor]
"""Of the options of every decision, which are drawn independently of each other."""


class CostSource(ABC):
    """What any architecture of a space costs, and what is to be expected of architectures drawn at random."""

    unit: str  # what it is told in: ms, parameters, multiply-adds
    provenance: str  # where the numbers come from, for whoever reads a result
    caveat: str = ""  # why they may be those of other networks

    @abstractmethod
    def measure(self, architecture: Mapping[str, str]) -> float:
        """The cost of one architecture."""

    @abstractmethod
    def expected_cost(self, probabilities: Probabilities) -> Tensor:
        """The mean cost of architectures drawn with these probabilities; gradient passes."""


class ModelledCost(CostSource):
    """By a linear model, such as `archloom latency fit` makes."""

    def __init__(self, model: LinearCost, *, unit: str, provenance: str, caveat: str = "") -> None:
        self._model, self.unit, self.provenance, self.caveat = model, unit, provenance, caveat

    def measure(self, architecture: Mapping[str, str]) -> float:
        return self._model.measure(architecture)

    def expected_cost(self, probabilities: Probabilities) -> Tensor:
        return self._model.expected_cost(probabilities)


class CountedCost(CostSource):
    """Parameters or multiply-adds of the network that is searched.

    Counting takes long where a network has to be built, and a search asks for thousands. So layers are counted, each
    once, and added up. Where that gives another number, networks are, and what is to be expected is not known.
    """

    def __init__(
        self, space: SearchSpace, costs: CostTable, metric: Literal["parameters", "multiply_adds"], *, provenance: str
    ) -> None:
        self._costs, self._metric = costs, metric
        self._sum = DecomposedCost(space, self._count)
        self._is_sum = self._sum.is_exact(looks=LOOKS)
        self.unit, self.provenance = metric.replace("_", "-"), provenance

    def _count(self, architecture: Mapping[str, str]) -> float:
        return float(getattr(self._costs.cost(architecture), self._metric))

    def measure(self, architecture: Mapping[str, str]) -> float:
        return self._sum.measure(architecture) if self._is_sum else self._count(architecture)

    @cached_property
    def _model(self) -> LinearCost:
        if not self._is_sum:
            raise SettingError(
                f"the expected number of {self.unit} is not known: in this space it is no sum over cost_features; take "
                "a strategy that draws architectures, such as tunas"
            )
        return self._sum.whole()

    def expected_cost(self, probabilities: Probabilities) -> Tensor:
        return self._model.expected_cost(probabilities)
