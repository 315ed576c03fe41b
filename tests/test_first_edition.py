"""Files of the first edition: run folders, models, comparisons and pipelines still open, report, resume and export.

The stored examples were written by version 0.1.0 on embedded images. Figures of a resumed run depend on the kind of
CPU, so only what was stored before is compared.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import archloom
from archloom.execution.executors import SerialExecutor
from archloom.export import export_model
from archloom.retrainings.model_file import load_model
from archloom.retrainings.records import RetrainRecord

STORED = Path(__file__).parent / "data_files" / "first_edition"
SEARCHES = ("search_gdas", "search_gibbs", "search_random")
PAGES = (*SEARCHES, "search_epochs_interrupted", "search_trials_interrupted", "retrain", "retrain_interrupted")

pytestmark = pytest.mark.filterwarnings("ignore::archloom.core.renames.RenamedSettingWarning")


@pytest.fixture
def stored(tmp_path: Path) -> Any:
    """Return a copy of a stored example, as a run writes to its folder."""

    def copy(name: str) -> Path:
        return shutil.copytree(STORED / name, tmp_path / name)

    return copy


class NoJobs(SerialExecutor):
    """Expects that everything is finished."""

    def run(self, jobs: Any, **options: Any) -> Any:
        assert list(jobs) == []
        return {}


@pytest.mark.parametrize("name", SEARCHES)
def test_the_result_of_a_search_is_read(name: str, stored: Any) -> None:
    folder = stored(name)
    written = json.loads((folder / "architecture.json").read_text())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    result = archloom.resume(folder)
    assert dict(result.architecture) == written["architecture"]
    assert (result.text, result.verdict, result.seed) == (written["text"], written["verdict"], written["seed"])
    assert result.table_entry.test == written["standing"]["test"]
    assert [record.text for record in result.history] == [line["text"] for line in lines]
    assert (result.run.seconds, result.run.records) == (written["run"]["seconds"], len(lines))
    assert (result.posterior is None) == ("posterior" not in written)
    finalists = written.get("finalists", [])
    assert [(row.text, row.valid_score) for row in result.finalists] == [
        (row["text"], row["valid_accuracy"]) for row in finalists
    ]
    assert result.shared_score == written.get("shared_accuracy")
    if "derived_accuracy" in lines[0]:
        assert [record.derived_score for record in result.history] == [line["derived_accuracy"] for line in lines]
    assert result.text in repr(result)


@pytest.mark.parametrize("name", PAGES)
def test_a_report_is_written(name: str, stored: Any) -> None:
    page = archloom.write_report(stored(name)).read_text()
    assert "<svg" in page and ("not finished" in page.lower()) == name.endswith("interrupted")


@pytest.mark.parametrize("name", ["search_epochs_interrupted", "search_trials_interrupted"])
def test_an_interrupted_search_resumes_from_its_checkpoint(name: str, stored: Any) -> None:
    folder = stored(name)
    before = [json.loads(line)["text"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    result = archloom.resume(folder, report=False)
    assert [record.text for record in result.history][: len(before)] == before
    assert len(result.history) == (2 if "epochs" in name else 8) > len(before) > 0
    assert json.loads((folder / "architecture.json").read_text())["version"] == 3
    assert archloom.resume(folder).history == result.history


def test_a_finalist_race_resumes_from_its_notes(stored: Any) -> None:
    folder = stored("search_gibbs")
    (folder / "architecture.json").unlink()
    notes = folder / "finalists.jsonl"
    trained = notes.read_text().splitlines()
    notes.write_text("\n".join(trained[:2]) + "\n")
    result = archloom.resume(folder, report=False)
    assert notes.read_text().splitlines()[:2] == trained[:2]
    assert len(result.finalists) > 1


def test_the_posterior_is_read_from_a_checkpoint(stored: Any) -> None:
    folder = stored("search_gibbs")
    written = json.loads((folder / "architecture.json").read_text())["posterior"]
    found = archloom.posterior(folder)
    assert [row.text for row in found.architectures] == [row["text"] for row in written["architectures"]]


def test_the_result_of_a_retraining_is_read(stored: Any) -> None:
    folder = stored("retrain")
    written = json.loads((folder / "result.json").read_text())
    result = archloom.resume(folder)
    assert result.model == folder / "best.safetensors"
    assert (result.test.top1, result.test.images) == (written["test"]["top1"], written["test"]["images"])
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [record.to_row() for record in result.history] == lines
    card, _ = load_model(result.model)
    assert card.details.test_score == result.test.top1


def test_an_interrupted_retraining_resumes_from_its_checkpoint(stored: Any) -> None:
    folder = stored("retrain_interrupted")
    (before,) = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
    archloom.resume(folder)
    first, second = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
    assert RetrainRecord.from_json(first) == RetrainRecord.from_json(before) and second["epoch"] == 1
    assert first["valid_score"] == before["valid_accuracy"] and "valid_accuracy" not in first
    assert json.loads((folder / "result.json").read_text())["version"] == 3


def test_the_architecture_of_a_search_is_retrained(stored: Any, tmp_path: Path) -> None:
    settings = {
        "network": {"channels": 4},
        "data": {"split": "random", "train_images": 64, "valid_images": 64},
        "training": {"epochs": 1, "batch_size": 32},
    }
    result = archloom.retrain(stored("search_gdas"), recipe="nb201_12", settings=settings, out=tmp_path / "new")
    found = json.loads((STORED / "search_gdas" / "architecture.json").read_text())
    assert json.loads((result.folder / "result.json").read_text())["text"] == found["text"]


def test_a_model_is_loaded_and_exported(stored: Any) -> None:
    folder = stored("retrain")
    assert load_model(folder / "best.safetensors") is not None
    (exported,) = export_model(folder, formats=["standalone"])
    assert all(path.is_file() for path in exported.paths)


def test_a_comparison_is_read_and_its_searches_are_kept(stored: Any) -> None:
    folder = stored("comparison")
    before = json.loads((folder / "comparison.json").read_text())
    archloom.compare(folder, executor=NoJobs())
    after = json.loads((folder / "comparison.json").read_text())
    assert [row["finished"] for row in after["entries"]] == [row["finished"] for row in before["entries"]] == [2, 2]
    assert [row["entry"] for row in after["entries"]] == [row["entry"] for row in before["entries"]]


def test_a_pipeline_is_read_and_its_runs_are_kept(stored: Any) -> None:
    folder = stored("pipeline")
    before = json.loads((folder / "pipeline.json").read_text())
    result = archloom.run(folder, executor=NoJobs())
    assert result.complete and result.picked == before["picked"]
    after = json.loads((folder / "pipeline.json").read_text())
    assert [row["text"] for row in after["found"]] == [row["text"] for row in before["found"]]
    assert [row["test"] for row in after["trained"]] == [row["test"] for row in before["trained"]]
