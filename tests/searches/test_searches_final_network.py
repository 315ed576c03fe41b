"""The final network: its size by family and by the section `final`, and its costs against the published table."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from archloom.benchmarks.nb201 import Nb201Table
from archloom.core.errors import SettingError
from archloom.data import Facts
from archloom.families import family_of
from archloom.objectives import CostTable
from archloom.searches import final_network
from archloom.searches.final_network import FEW, FinalNetwork, FinalSettings
from archloom.searches.spec import SearchSpec
from archloom.spaces import Darts, Nb201

TABLE = Nb201Table.find(Path(__file__).parents[3] / "shared/data") or Nb201Table.find(None)
CIFAR = Facts(10, (3, 32, 32))


def _final(space: str, facts: Facts = CIFAR, **sections: Any) -> FinalNetwork:
    return FinalNetwork.of(SearchSpec.resolve({"space": {"name": space}, **sections}), facts)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ("nb201_mini", "5 cells per stage, 16 channels, 32x32 images"),
        ("darts", "20 cells, 36 channels, 32x32 images"),
        ("darts_gdas", "20 cells, 36 channels, 32x32 images"),
        ("s2", "20 cells, 36 channels, 32x32 images"),
        ("proxylessnas_32", "widths times 1, 32x32 images"),
        ("nats_size", "widths times 1, 32x32 images"),
    ],
)
def test_the_family_knows_the_final_size(space: str, words: str) -> None:
    assert _final(space).description == words


def test_a_deeper_search_keeps_its_depth() -> None:
    assert family_of(Nb201).final_size(Nb201(cells_per_stage=7)).space == {"cells_per_stage": 7}
    assert family_of(Darts).final_size(Darts(cells=24)).space["cells"] == 24


def test_the_section_overrides_width_depth_and_images() -> None:
    final = _final("nb201_mini", final={"channels": 24, "depth": 2, "image_size": 16}, network={"channels": 4})
    assert final.description == "2 cells per stage, 24 channels, 16x16 images"
    assert final.image_shape == (3, 16, 16) and final.network["channels"] == 24
    architecture = final.space.sample(random.Random(0))
    deep = Nb201(nodes=3, cells_per_stage=2)
    wanted = CostTable(deep, classes=10, image_shape=(3, 16, 16), channels=24).cost(architecture)
    assert final.count(architecture) == final.cost_table().cost(architecture) == wanted
    assert final.cost_table() is final.cost_table()


@pytest.mark.parametrize(
    ("space", "final", "message"),
    [
        ("proxylessnas_32", {"channels": 8}, "final.channels must be left out for the family 'mobile'"),
        ("s2", {"depth": 8}, "the depth of Darts must stay as it is"),
        ("nb201", {"depth": 0}, "final.depth must be at least 1, got 0"),
    ],
)
def test_sizes_that_a_family_cannot_have_are_refused(space: str, final: dict[str, int], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        SearchSpec.resolve({"space": {"name": space}, "final": final})


def test_settings_of_the_search_do_not_change_the_final_network() -> None:
    assert _final("nb201_mini", network={"channels": 4}) == _final("nb201_mini", network={"channels": 8})
    assert FinalSettings() == FinalSettings(channels=None, depth=None, image_size=None)


def test_mobile_networks_are_counted_as_searched() -> None:
    """Targets of the shipped recipes for mobile spaces keep their meaning."""
    spec = SearchSpec.resolve({"space": {"name": "proxylessnas_32"}})
    final = FinalNetwork.of(spec, CIFAR)
    assert final.space == spec.build_space() and final.network == spec.network.settings


@pytest.mark.parametrize("space", ["nb201_mini", "nb201", "darts", "s2", "nats_size"])
def test_many_counts_by_a_table_are_those_of_single_networks(space: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(final_network, "_TABLES", {})
    monkeypatch.setattr(final_network, "_COUNTED", Counter())
    final, rng = _final(space, Facts(10, (3, 16, 16)), final={"depth": 3} if space == "darts" else {}), random.Random(1)
    cells = [final.space.sample(rng) for _ in range(FEW)]
    alone = [final.count(cell) for cell in cells]
    assert not final_network._TABLES
    assert [final.count(cell) for cell in cells] == alone
    assert final_network._TABLES


@pytest.mark.skipif(TABLE is None, reason="needs the NAS-Bench-201 table in the data folder")
def test_counts_agree_with_the_published_table() -> None:
    assert TABLE is not None
    costs = _final("nb201", network={"channels": 4}).cost_table()
    millions, parameters = (TABLE.column("cifar10", metric=name) for name in ("flops_M", "params"))
    for row in random.Random(0).sample(range(len(millions)), 300):
        cost = costs.cost(TABLE.architecture(row))
        assert cost.parameters == parameters[row]
        assert cost.multiply_adds / 1e6 == pytest.approx(float(millions[row]), rel=1e-9)
