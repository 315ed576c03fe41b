"""The result of a search: its file in both editions, and what users see of it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import archloom
from archloom.core.errors import ArchloomError, CheckpointError
from archloom.execution.run_folder import RunFolder
from archloom.policies.posterior import ArchitectureFrequency, DecisionPosterior, Mixing, Posterior
from archloom.searches.records import EarlyStop, FinalistRecord, StrictSteps, TargetResult
from archloom.searches.result import VERSION, SearchResult, read_history, read_result
from archloom.spaces import Nb201
from search_runs import make_entry, make_epoch, make_result, make_trial

SPACE = Nb201(nodes=2)
CELL = SPACE.parse("|skip_connect~0|")
TEXT = SPACE.format(CELL)
EPOCH = make_epoch(architecture=CELL, text=TEXT, table_entry=make_entry())


def make(**changes: Any) -> SearchResult:
    """Return a result that has something in every field."""
    target = TargetResult(
        value=10.0, unit="ms", source="here.json", cost=12.0, miss=0.2, met=False, reward="absolute", beta=-0.1,
        binding_beta=-0.3, sentence="target missed", strict=StrictSteps(4, 4, -0.2, met=False),
    )  # fmt: skip
    posterior = Posterior(
        draws=3,
        different_architectures=1,
        decisions={"0->1": DecisionPosterior({"none": 0.0, "skip_connect": 1.0}, ("skip_connect",), 0.5)},
        architectures=(ArchitectureFrequency(TEXT, CELL, 1.0),),
        mixing=Mixing(1, 3, 2.0, 2.5, 1.1, 1.0),
    )
    result = make_result(
        SPACE,
        (EPOCH,),
        shared_score=0.5,
        random_baseline=(0.25, 0.5),
        target=target,
        finalists=(FinalistRecord(TEXT, CELL, 3, None, 0.5, 100),),
        finalists_seconds=1.5,
        early_stop=EarlyStop("too many skips", 3, 2),
        posterior=posterior,
        findings={"acceptance": {"rate": 0.5}},
    )
    return replace(result, **changes)


def write(folder: Path, result: SearchResult, **changes: Any) -> RunFolder:
    run = RunFolder(folder)
    folder.mkdir()
    run.write_metrics([record.to_json() for record in result.history])
    run.write_result({**result.to_json(), **changes})
    return run


def test_a_result_survives_its_file(tmp_path: Path) -> None:
    result = make(folder=tmp_path / "run")
    run = write(result.folder, result)
    assert read_result(run, SPACE) == result
    assert read_history(run) == result.history
    assert json.loads(run.architecture_path.read_text())["version"] == VERSION


def test_a_result_of_the_first_edition_is_read(tmp_path: Path) -> None:
    result = make(folder=tmp_path / "run")
    run = write(result.folder, result)
    value = json.loads(run.architecture_path.read_text())
    for new, old in {"table_entry": "standing", "random_baseline": "chance", "early_stop": "stopped"}.items():
        value[old] = value.pop(new)
    value["target"]["pursued"] = value["target"].pop("strict")
    del value["version"]
    run.write_result(value)
    assert read_result(run, SPACE) == result


def test_a_result_whose_scores_are_called_accuracies_is_read(tmp_path: Path) -> None:
    result = make(folder=tmp_path / "run")
    run = write(result.folder, result)
    text = run.architecture_path.read_text()
    assert '"shared_score"' in text
    run.architecture_path.write_text(text.replace('_score"', '_accuracy"').replace('"version": 3', '"version": 2'))
    assert read_result(run, SPACE) == result


def test_a_search_without_a_result_has_none(tmp_path: Path) -> None:
    assert read_result(RunFolder(tmp_path), SPACE) is None
    assert read_history(RunFolder(tmp_path)) == ()


def test_files_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    later = write(tmp_path / "later", make(), version=VERSION + 1)
    with pytest.raises(CheckpointError, match=r"has version 4, expected 3 or less; update archloom$"):
        read_result(later, SPACE)
    damaged = write(tmp_path / "damaged", make(), cost=None)
    with pytest.raises(CheckpointError, match=r"architecture\.json is damaged \(TypeError: .*\)$"):
        read_result(damaged, SPACE)


# --- what users see


@pytest.mark.parametrize(
    "changes",
    [
        {"cost": {"parameters": "many", "multiply_adds": 1}},
        {"cost": {"parameters": float("inf"), "multiply_adds": 1}},
        {"cost": {"parameters": [], "multiply_adds": {}}},
        {"version": [3]},
        {"seed": None},
        {"early_stop": {"reason": "x", "after_epoch": None, "as_of_epoch": 1}},
    ],
)
def test_figures_that_are_no_numbers_are_damage(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"architecture\.json is damaged \(\w+: .*\)$"):
        read_result(write(tmp_path / "damaged", make(), **changes), SPACE)


def test_repr_has_five_lines() -> None:
    lines = repr(make()).splitlines()
    assert [line.split(":")[0] for line in lines] == ["architecture", "verdict", "cost", "time", "folder"]
    assert lines[0] == f"architecture: {TEXT} (gdas on nb201, cifar10, seed 0)"
    assert lines[2] == "cost: 802,426 parameters, 113,951,370 multiply-adds"
    assert lines[3] == "time: 1 min 1 s for 20 epochs on cpu"


def test_a_notebook_shows_cells_verdict_and_curve_and_escapes_text() -> None:
    page = make(verdict="<script>evil</script>")._repr_html_()
    assert page.count("<svg") == 2
    assert "&lt;script&gt;evil" in page
    assert "<script" not in page
    assert "Score of every trial" in make(history=(make_trial(architecture=CELL, text=TEXT),))._repr_html_()


def test_plot_is_a_figure() -> None:
    (axes,) = make().plot().axes
    assert axes.get_xlabel() == "epoch"


def test_a_frame_needs_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ArchloomError, match=r"^to_frame\(\) needs pandas, .*; use: pip install pandas$"):
        make().to_frame()


def test_a_frame_has_a_row_per_record(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pandas:
        DataFrame = staticmethod(lambda rows: rows)

    monkeypatch.setitem(sys.modules, "pandas", Pandas)
    (row,) = make().to_frame()
    assert (row["epoch"], row["train_loss"], row["table_test"]) == (0, 1.0, 93.1)


def test_retraining_passes_the_folder_and_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archloom, "retrain", lambda *given, **options: (given, options), raising=False)
    assert make().retrain(recipe="cifar") == (("runs/a",), {"recipe": "cifar"})


def test_a_search_has_no_model_to_export_and_says_how_to_get_one() -> None:
    with pytest.raises(ArchloomError, match=r"use: result\.retrain\(\)\.export\(\)"):
        make().export()


def test_the_report_is_in_the_folder() -> None:
    assert make().report == Path("runs/a/report.html")
