"""Counts as a source of costs: the same numbers as the table, quickly, and what is to be expected of them."""

from __future__ import annotations

import random

import pytest
import torch

from archloom.core.errors import SettingError
from archloom.objectives import CostTable
from archloom.objectives.cost_source import CountedCost, ModelledCost
from archloom.objectives.linear_cost import LinearCost
from archloom.spaces import Nb201

SPACE = Nb201(nodes=3, cells_per_stage=1)
TABLE = CostTable(SPACE, classes=3, image_shape=(3, 8, 8), channels=2)


@pytest.mark.parametrize("metric", ["parameters", "multiply_adds"])
def test_counts_are_those_of_the_table(metric):
    source = CountedCost(SPACE, TABLE, metric, provenance="here")
    for one in SPACE.enumerate():
        assert source.measure(one) == getattr(TABLE.cost(one), metric)
    assert source.unit == metric.replace("_", "-")


def test_the_expected_count_is_the_mean_over_all_architectures():
    source = CountedCost(SPACE, TABLE, "multiply_adds", provenance="here")
    even = {d.name: torch.full((5,), 0.2, dtype=torch.float64) for d in SPACE.decisions}
    mean = sum(TABLE.cost(one).multiply_adds for one in SPACE.enumerate()) / SPACE.cardinality
    assert source.expected_cost(even).item() == pytest.approx(mean, rel=1e-12)


class Joint:
    """A table whose costs are no sums over decisions."""

    def cost(self, architecture):
        factor = len(set(architecture.values()))
        return type(TABLE.cost(architecture))(factor**3, factor**3)


def test_where_counts_are_no_sum_each_is_counted_and_none_expected():
    source = CountedCost(SPACE, Joint(), "parameters", provenance="here")
    architecture = SPACE.sample(random.Random(0))
    assert source.measure(architecture) == len(set(architecture.values())) ** 3
    with pytest.raises(SettingError, match=r"expected number of parameters is not known.*tunas"):
        source.expected_cost({d.name: torch.full((5,), 0.2) for d in SPACE.decisions})


def test_a_model_says_what_its_weights_add_up_to():
    weights = {((d.name, option),): float(place) for d in SPACE.decisions for place, option in enumerate(d.options)}
    source = ModelledCost(LinearCost(SPACE, 1.0, weights), unit="ms", provenance="a file")
    architecture = SPACE.sample(random.Random(1))
    assert source.measure(architecture) == 1 + sum(d.index(architecture[d.name]) for d in SPACE.decisions)
    sure = {d.name: torch.eye(5)[d.index(architecture[d.name])] for d in SPACE.decisions}
    assert source.expected_cost(sure).item() == source.measure(architecture)
