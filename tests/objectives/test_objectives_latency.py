"""Latencies of a table as costs: looked up, and their mean under independent choices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from archloom.benchmarks.digits import DigitsTable
from archloom.core.errors import BenchmarkError
from archloom.objectives.latency import MeasuredLatency
from archloom.spaces import SPACES

ENTRY = SPACES["nb201_mini"]
SPACE = ENTRY.load()(**ENTRY.settings)


@pytest.fixture
def table() -> DigitsTable:
    found = DigitsTable.find(None)
    assert found is not None
    return found


def column(table: DigitsTable) -> np.ndarray:
    return np.random.default_rng(0).uniform(1, 9, len(table.column("digits")))


def test_a_latency_is_that_of_its_row(table):
    values = column(table)
    source = MeasuredLatency(SPACE, table, values, provenance="a phone")
    for one in SPACE.enumerate():
        assert source.measure(one) == pytest.approx(values[table.row(one)], abs=1e-5)


def test_the_expected_latency_is_the_mean_and_its_gradient_is_right(table):
    source = MeasuredLatency(SPACE, table, column(table), provenance="a phone")
    generator = torch.Generator().manual_seed(0)
    logits = [torch.randn(5, dtype=torch.float64, generator=generator).requires_grad_() for _ in SPACE.decisions]
    names = [d.name for d in SPACE.decisions]

    def expected(rows):
        return source.expected_cost({name: row.softmax(dim=0) for name, row in zip(names, rows, strict=True)})

    probabilities = [row.softmax(dim=0) for row in logits]
    mean = sum(
        source.measure(one)
        * torch.stack([p[d.index(one[d.name])] for d, p in zip(SPACE.decisions, probabilities, strict=True)]).prod()
        for one in SPACE.enumerate()
    )
    assert expected(logits).item() == pytest.approx(mean.item(), rel=1e-12)
    assert torch.autograd.gradcheck(lambda *rows: expected(rows), logits)


def test_a_file_of_ones_own_may_lack_some_and_says_which(table, tmp_path: Path):
    one, other = list(SPACE.enumerate())[:2]
    path = tmp_path / "phone.csv"
    path.write_text(f"architecture,ms\n{SPACE.format(one)},3.5\n", encoding="utf-8")
    source = MeasuredLatency.in_file(SPACE, table, path)
    assert source.measure(one) == 3.5
    with pytest.raises(BenchmarkError, match=r"phone.csv has no latency of "):
        source.measure(other)


def test_a_device_of_the_published_table(nb201_dir: Path):
    from archloom.benchmarks.nb201 import Nb201Table
    from archloom.spaces import Nb201

    published, space = Nb201Table.open(nb201_dir), Nb201()
    source = MeasuredLatency.on_device(space, published, "pixel3")
    even = {d.name: torch.full((5,), 0.2, dtype=torch.float64) for d in space.decisions}
    assert source.expected_cost(even).item() == pytest.approx(float(published.latencies("pixel3").mean()), rel=1e-6)
    with pytest.raises(BenchmarkError, match="has no device 'pixel33'; did you mean 'pixel3'"):
        MeasuredLatency.on_device(space, published, "pixel33")
