"""`rank`: figures of runs, and what is refused before any path is evaluated."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import archloom
from archloom.benchmarks.digits import DigitsTable
from archloom.core.errors import BenchmarkError, SettingError
from archloom.searches import rank_correlation as engine
from archloom.searches import ranking
from archloom.searches.ranking import rank

TABLE = DigitsTable()
TINY = {
    "data": {"train_images": 64, "valid_images": 64},
    "search": {"batch_size": 32, "evaluation_images": 32, "random_baseline_samples": 2},
    "network": {"channels": 2},
}


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(engine, "RESAMPLES", 20)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranking") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("archloom.searches.run._write_report", lambda *run, **options: None)  # drawing is slow
        archloom.search("nb201_mini", "rsps", "digits", epochs=1, out=folder, settings=TINY)
    return folder


class Knowing:
    """Paths that score what the table says, upside down if asked."""

    space = TABLE.space

    def __init__(self, sign: int = 1) -> None:
        self.sign, self.asked = sign, []

    def __call__(self, architecture) -> float:
        self.asked.append(architecture)
        return self.sign * TABLE.query(architecture, "digits", metric="valid")


@pytest.fixture
def knowing(monkeypatch) -> Knowing:
    paths = Knowing()
    monkeypatch.setattr(ranking, "trained_paths", lambda run, build_search, **options: paths)
    return paths


def test_run_is_evaluated_with_its_own_weights(run):
    (found,) = rank(run, samples=8, images=32)
    assert (found.asked, found.evaluated, found.all.count) == (8, 8, 8)
    assert (found.dataset, found.instead_of, found.metric) == ("digits", None, "test")
    rows = found.architectures
    assert len({row.text for row in rows}) == 8
    for row in rows:
        assert row.table == pytest.approx(TABLE.query(TABLE.space.parse(row.text), "digits"))
        assert 0 <= row.shared <= 100
    assert found.picked.shared == max(row.shared for row in rows)
    assert found.regret == pytest.approx(TABLE.best("digits")[1] - found.picked.table)
    assert rank(run, samples=8, images=32) == [found]
    assert rank([run], samples=8, images=32, recalibrate=2)[0].recalibrate == 2


def test_the_metric_asked_for_is_the_one_compared_with(run, knowing):
    (found,) = rank(run, samples=30, metric="valid")
    assert found.all.kendall.value == pytest.approx(1)
    assert rank(run, samples=30, metric="test")[0].all.kendall.value < 1
    knowing.sign = -1
    assert rank(run, samples=30, metric="valid")[0].all.kendall.value == pytest.approx(-1)


def test_several_runs_are_compared_on_the_same_architectures(run, knowing):
    one, other = rank([run, run], samples=10)
    assert one.architectures == other.architectures
    assert rank(run, samples=10, seed=1)[0].architectures != one.architectures


def test_more_samples_than_architectures_are_all_of_them(run, knowing):
    assert rank(run, samples=10_000)[0].asked == 125


def test_architectures_evaluated_before_a_stop_are_kept(run, knowing):
    calls = []
    found = rank(
        [run, run],
        samples=20,
        stop=lambda: len(knowing.asked) >= 6,
        progress=lambda name, done, total: calls.append((name, done, total)),
    )
    assert [(result.evaluated, result.asked) for result in found] == [(6, 20)]
    assert calls == [(str(run), done, 20) for done in range(7)]


def test_run_without_a_table_is_refused_before_any_is_evaluated(run, knowing, tmp_path):
    other = Path(shutil.copytree(run, tmp_path / "other"))
    config = other / "config.toml"
    config.write_text(config.read_text().replace("nodes = 3", "nodes = 5"))
    with pytest.raises(BenchmarkError, match=r"no benchmark table covers .*other \(space nb201_mini"):
        rank([run, other], samples=5)
    assert knowing.asked == []


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"samples": 1}, "samples must be at least 2, got 1"),
        ({"metric": "params"}, "metric must be test or valid, got 'params'"),
    ],
)
def test_options_out_of_range_are_refused(run, options, line):
    with pytest.raises(SettingError, match=line):
        rank(run, **options)


def test_at_least_one_run_is_named():
    with pytest.raises(SettingError, match="name at least one run"):
        rank([])
