"""Comparisons on text print perplexities, and lower is better in the table, the verdicts and the plot."""

from __future__ import annotations

from typing import Any

import pytest

from archloom.comparisons.report import explain_figures, render_files
from archloom.comparisons.results import ComparisonResult
from archloom.comparisons.run import run_comparison
from archloom.comparisons.spec import ComparisonSpec
from archloom.core.metrics import PERPLEXITY
from archloom.execution.executors import SerialExecutor
from archloom.execution.run_folder import RunFolder
from archloom.searches.result import read_result
from archloom.spaces import Recurrent

GIVEN: dict[str, Any] = {
    "seeds": "0-1",
    "match": "trials",
    "all": {
        "space": {"name": "recurrent", "nodes": 2},
        "network": {"hidden": 4},
        "data": {"name": "text", "segment": 5},
        "search": {"trials": 2, "epochs": 1, "score_epochs": 1, "batch_size": 4, "random_baseline_samples": 1},
        "race": {"steps": 0},
        "machine": {"torch_threads": 1, "device": "cpu"},
    },
    "entry": {
        "random": {"strategy": {"name": "random_search"}},
        "evolution": {"strategy": {"name": "regularized_evolution", "population": 2, "sample": 2}},
        "gdas": {"strategy": {"name": "gdas"}},
    },
}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> ComparisonResult:
    folder = tmp_path_factory.mktemp("text")
    for part in ("train", "valid", "test"):
        (folder / f"{part}.txt").write_text("one two three four one two five\n" * 30)
    spec = ComparisonSpec.resolve(GIVEN, overrides={"data": {"directory": str(folder)}})
    return run_comparison(spec, folder / "out", executor=SerialExecutor())


def test_values_are_perplexities(result: ComparisonResult) -> None:
    assert not result.failures
    for entry in result.entries:
        assert entry.figure == "perplexity" and "perplexity" in entry.metric and "100" not in entry.metric
        assert entry.best(entry.values) == min(entry.values) and entry.worst(entry.values) == max(entry.values)
        for found in entry.results:
            assert result.folder is not None
            stored = read_result(RunFolder(result.folder / "runs" / f"{entry.name}-{found.seed}"), Recurrent(nodes=2))
            assert stored is not None and found.value is not None and found.value > 1
            if entry.black_box:
                scores = [record.score for record in stored.history]  # type: ignore[union-attr]
                assert found.value == pytest.approx(PERPLEXITY.to_value(max(scores) / 100))
            else:
                assert stored.shared_score is not None
                assert found.value == pytest.approx(1 / stored.shared_score)


def test_lower_is_better_in_table_sentences_and_files(result: ComparisonResult) -> None:
    (first, *_) = explain_figures(result)
    assert first.startswith("Lower is better: random, evolution: best perplexity, by training; gdas: perplexity under")
    assert "percent" not in first and "Higher" not in first
    row = dict(zip(result.to_table().columns, result.to_table().rows[0], strict=True))
    assert float(row["best"].replace(",", "")) <= float(row["worst"].replace(",", ""))
    assert "in perplexity" in result.verdicts["evolution"].sentence
    files = render_files(result)
    assert "accuracy" not in files["comparison.tex"] and "points" not in files["comparison.tex"]


def test_a_stored_comparison_reads_back(result: ComparisonResult) -> None:
    assert ComparisonResult.from_json(result.to_json()).entries == result.entries
