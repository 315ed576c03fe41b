"""The result of a pipeline: written and read back, also from the first edition, and shown to users."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from archloom.core.errors import ArchloomError, CheckpointError
from archloom.pipelines.results import ModelSummary, PipelineResult, SearchSummary

FIRST_EDITION = Path(__file__).parents[1] / "data_files" / "first_edition" / "pipeline"
SEARCHES = (SearchSummary(0, Path("s0"), "|cell|", 60.0, "shared", 12.0, 1000),)
MODELS = tuple(ModelSummary(0, seed, Path(f"m{seed}"), 90.0 + seed, None, 60.0, 2000) for seed in range(2))
RESULT = PipelineResult("<b>Mine", "repeats", 1, 3, SEARCHES, None, MODELS, {"m2": "no memory"}, (Path("m.onnx"),))


def write(folder: Path, content: object) -> Path:
    (folder / "pipeline.json").write_text(json.dumps(content))
    return folder


def test_result_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    assert PipelineResult.read(write(tmp_path, RESULT.to_json())) == replace(RESULT, folder=tmp_path)
    assert RESULT.to_json()["version"] == 2


def test_first_edition_file_is_read(tmp_path: Path) -> None:
    result = PipelineResult.read(FIRST_EDITION)
    assert (result.search_count, result.model_count, result.picked, result.complete) == (2, 1, 0, True)
    assert [search.figure for search in result.searches] == [12.5, 3.125]
    assert result.best is not None and result.best.test == pytest.approx(9.577464788732394)
    unfinished = {**json.loads((FIRST_EDITION / "pipeline.json").read_text()), "complete": False}
    again = PipelineResult.read(write(tmp_path, unfinished))
    assert again.model_count is None and not again.complete


def test_damaged_and_later_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"pipeline\.json is damaged"):
        PipelineResult.read(write(tmp_path, {"title": "Mine"}))
    with pytest.raises(CheckpointError, match="has version 3, expected 2 or less"):
        PipelineResult.read(write(tmp_path, {"version": 3}))


def test_repr_names_counts_models_and_failures() -> None:
    assert repr(replace(RESULT, folder=Path("runs/mine"))).splitlines() == [
        "<b>Mine: 1 of 1 searches, 2 of 3 retrainings finished",
        "Test accuracy 90.50 ± 0.71 % over 2 retrainings of 1 search.",
        "Retrainings of one architecture differ by ±0.71 points (standard deviation of 2). "
        "Only one search was retrained, so the spread of searches is unknown.",
        "Use the model of search 0, retraining 0 (the first: there are no validation images); "
        "its test accuracy is 90.00 %.",
        "failed: m2: no memory",
        "folder: runs/mine",
    ]


def test_html_shows_tables_and_plot_with_everything_escaped() -> None:
    html = RESULT._repr_html_()
    assert "&lt;b&gt;Mine" in html and "<b>" not in html
    assert "search 0, retraining 1" in html and "|cell|" in html and "<svg" in html


def test_plot_has_a_line_per_search() -> None:
    (axes,) = RESULT.plot().axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["search 0"]
    with pytest.raises(ArchloomError, match="needs a model with a test accuracy"):
        replace(RESULT, models=()).plot()


def test_frame_has_a_row_per_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    rows = RESULT.to_frame()
    assert [(row["search"], row["seed"], row["test"], row["text"]) for row in rows] == [
        (0, 0, 90.0, "|cell|"),
        (0, 1, 91.0, "|cell|"),
    ]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ArchloomError, match="pip install pandas"):
        RESULT.to_frame()


def test_on_text_the_lowest_perplexity_is_best_and_nothing_is_a_percentage() -> None:
    models = tuple(ModelSummary(0, seed, Path(f"m{seed}"), 90.0 + seed, 80.0 + seed, 60.0, 2000) for seed in range(2))
    result = PipelineResult("Text", "repeats", 1, 2, SEARCHES, None, models, metric="perplexity")
    assert result.best == models[0]
    assert result.sentences == [
        "Test perplexity 90.50 ± 0.71 over 2 retrainings of 1 search.",
        "Retrainings of one architecture differ by ±0.71 in perplexity (standard deviation of 2). Only one search was "
        "retrained, so the spread of searches is unknown.",
        "Use the model of search 0, retraining 0 (best by validation, 80.00); its test perplexity is 90.00.",
    ]
    assert result.tabulate_models().columns[1:3] == ("test, perplexity", "validation, perplexity")
    assert PipelineResult.from_json(result.to_json()).metric == "perplexity"
