"""Results and records of a retraining: one reader and one writer, and what users look at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import archloom
from archloom.core.errors import ArchloomError, CheckpointError
from archloom.retrainings.folder import RetrainFolder
from archloom.retrainings.records import RetrainRecord
from archloom.retrainings.result import RetrainResult, read_retrain_result

CELL = "|nor_conv_1x1~0|+|none~0|skip_connect~1|"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> RetrainResult:
    settings = {
        "space": {"name": "nb201_mini"},
        "network": {"channels": 2},
        "training": {"epochs": 2, "batch_size": 256},
        "data": {"split": "random"},
    }
    folder = tmp_path_factory.mktemp("runs") / "run"
    return archloom.retrain(CELL, recipe="nb201_12", data="digits", seed=1, out=folder, settings=settings)


def test_a_result_is_read_as_it_was_returned(result: RetrainResult) -> None:
    assert read_retrain_result(RetrainFolder(result.folder)) == result
    assert json.loads((result.folder / "result.json").read_text())["version"] == 3


def test_a_file_of_the_first_edition_is_read(result: RetrainResult) -> None:
    path = result.folder / "result.json"
    whole = path.read_text()
    path.write_text(json.dumps({name: value for name, value in json.loads(whole).items() if name != "version"}))
    try:
        assert read_retrain_result(RetrainFolder(result.folder)) == result
        path.write_text(json.dumps({**json.loads(whole), "version": 2}))
        assert read_retrain_result(RetrainFolder(result.folder)) == result
        path.write_text(json.dumps({**json.loads(whole), "version": 4}))
        with pytest.raises(CheckpointError, match="has version 4, expected 3 or less; update archloom"):
            read_retrain_result(RetrainFolder(result.folder))
    finally:
        path.write_text(whole)


@pytest.mark.parametrize(
    "changes", [{"version": [3]}, {"version": {}}, {"seed": 1e999}, {"cost": {"parameters": "many"}}, {"run": 3}]
)
def test_figures_that_are_no_numbers_are_damage(result: RetrainResult, tmp_path: Path, changes: dict[str, Any]) -> None:
    value = json.loads((result.folder / "result.json").read_text())
    (tmp_path / "result.json").write_text(json.dumps({**value, **changes}))
    with pytest.raises(CheckpointError, match=r"result\.json is damaged \(\w+: .*\)$"):
        read_retrain_result(RetrainFolder(tmp_path))


def test_a_run_without_a_result_has_none(tmp_path: Path) -> None:
    assert read_retrain_result(RetrainFolder(tmp_path)) is None


def test_what_users_see(result: RetrainResult) -> None:
    lines = repr(result).splitlines()
    assert lines[0] == f"architecture: {CELL} (nb201_mini trained on digits, recipe nb201_12, seed 1)"
    assert lines[1].startswith("caution: Hardly trained: 2 epochs of 6 steps.")
    assert lines[2].endswith("% of 355 test images") and "parameters" in lines[-3]
    assert "for 2 epochs on cpu" in lines[-2] and lines[-1] == f"model: {result.folder / 'best.safetensors'}"
    page = result._repr_html_()
    assert page.count("<svg") == 2 and "of 355 test images" in page
    assert [axes.get_title(loc="left") for axes in result.plot().axes] == ["loss", "accuracy, %"]
    assert result.report.is_file() and result.model.is_file()


def test_a_result_exports_its_own_model(result: RetrainResult, tmp_path: Path) -> None:
    written = result.export(["standalone"], out=tmp_path / "here")
    assert {path.name for path in written} == {"model.py", "model.safetensors"}
    assert all(path.parent == tmp_path / "here" and path.is_file() for path in written)


def test_the_history_as_a_frame(result: RetrainResult) -> None:
    try:
        import pandas
    except ImportError:
        with pytest.raises(ArchloomError, match="to_frame\\(\\) needs pandas"):
            result.to_frame()
    else:
        frame = result.to_frame()
        assert isinstance(frame, pandas.DataFrame) and list(frame["epoch"]) == [0, 1]


def test_records_leave_out_what_was_not_measured() -> None:
    line = {"epoch": 3, "seconds": 1.5, "learning_rate": 0.1, "train_loss": 2.0, "train_score": 30.0}
    record = RetrainRecord.from_json({**line, "images_per_second": 10.0})
    assert record.to_json() == {**line, "images_per_second": 10.0}
    assert (record.status, record.best_score, record.total_seconds) == ("", None, 1.5)
    validated = RetrainRecord.from_json(
        {**line, "images_per_second": 1.0, "valid_score": 50.0, "ema_valid_score": 60.0, "valid_seconds": 0.5}
    )
    assert (validated.status, validated.total_seconds) == ("valid 60.00 %", 2.0)
    assert RetrainRecord.from_json(validated.to_json()) == validated
    old = {name.replace("score", "accuracy"): value for name, value in validated.to_json().items()}
    assert "valid_accuracy" in old and RetrainRecord.from_json(old) == validated
    assert validated.to_row() == old  # people read the name of the metric


def test_a_row_of_a_text_has_perplexities() -> None:
    line = {"epoch": 0, "seconds": 1.0, "learning_rate": 20.0, "train_loss": 2.0, "images_per_second": 1.0}
    record = RetrainRecord.from_json({**line, "train_score": 2.5, "valid_score": 1.25, "metric": "perplexity"})
    assert record.to_row() == {**line, "train_perplexity": 40.0, "valid_perplexity": 80.0}
