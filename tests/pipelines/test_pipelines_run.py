"""The whole way in one call: searches, the pick, trainings, the page; interrupted and gone on with."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from archloom.core.errors import ArchloomError, SettingError
from archloom.execution.executors import SerialExecutor
from archloom.execution.loop import Interrupted
from archloom.execution.run_folder import RunFolder
from archloom.pipelines import run as module
from archloom.pipelines.evaluation import evaluate_pipeline
from archloom.pipelines.run import run
from archloom.pipelines.spec import PipelineSpec
from archloom.searches.jobs import SearchJob
from search_runs import make_entry, make_epoch, make_result, make_trial

TINY: dict[str, Any] = {
    "searches": 2,
    "retrainings": 2,
    "search": {
        "space": {"name": "nb201_mini"},
        "data": {"train_images": 64, "valid_images": 64},
        "search": {"epochs": 1, "batch_size": 32, "evaluation_images": 32, "random_baseline_samples": 2},
    },
    "retrain": {
        "recipe": "nb201_12",
        "space": {"cells_per_stage": 1},
        "network": {"channels": 4},
        "data": {"split": "random", "train_images": 64, "valid_images": 64},
        "training": {"epochs": 1, "batch_size": 32},
    },
}


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "make_executor", lambda *on, **options: SerialExecutor())
    monkeypatch.setattr(
        module, "write_search_report", lambda run, **options: run.report_path
    )  # drawn elsewhere, and slow
    monkeypatch.setattr("archloom.retrainings.run.write_retrain_report", lambda path, **options: path)
    yield


def _some(job: Any) -> Any:
    return job.spec.build_space().sample(random.Random(0))


def facts(folder: Path) -> Any:
    """What came out, without how long it took."""
    content = json.loads((folder / "pipeline.json").read_text())
    for row in (*content["found"], *content["trained"]):
        del row["seconds"], row["path"]
    del content["best"]
    return content


def test_best_search_by_validation_is_trained(tmp_path: Path) -> None:
    result = run(TINY, out=tmp_path / "out")
    assert result.complete and len(result.searches) == 2
    best = max(result.searches, key=lambda found: found.figure or 0.0)
    assert result.picked == best.seed
    assert {(trained.search, trained.seed) for trained in result.models} == {(best.seed, 0), (best.seed, 1)}
    assert result.best is not None and result.best.valid == max(t.valid or 0.0 for t in result.models)
    assert (tmp_path / "out" / "report.html").is_file()
    before = (tmp_path / "out" / "pipeline.json").read_text()
    assert run(tmp_path / "out") == result  # nothing is done again
    assert (tmp_path / "out" / "pipeline.json").read_text() == before


def test_a_page_of_a_model_that_a_kill_left_out_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(path: Path, **options: Any) -> None:
        (path / "report.html").write_text("a page")

    monkeypatch.setattr("archloom.retrainings.run.write_retrain_report", write)
    page = run(TINY, out=tmp_path / "out").models[0].path / "report.html"
    page.unlink()
    run(tmp_path / "out")
    assert page.read_text() == "a page"


def test_pipeline_resumed_after_any_interruption_ends_the_same(tmp_path: Path) -> None:
    run(TINY, out=tmp_path / "whole")
    interruptions = 0
    while interruptions < 40:  # many more than there are: only a pipeline that makes no progress gets there
        asked = iter(range(100))
        try:
            run(TINY, out=tmp_path / "parts", stop=lambda asked=asked: next(asked) >= 2)
            break
        except Interrupted:
            interruptions += 1
            assert not json.loads((tmp_path / "parts" / "pipeline.json").read_text())["complete"]
    assert 3 <= interruptions < 40
    assert facts(tmp_path / "parts") == facts(tmp_path / "whole")


def test_repeats_train_the_architecture_of_every_search(tmp_path: Path) -> None:
    result = run({**TINY, "protocol": "repeats"}, out=tmp_path / "out")
    assert result.picked is None and len(result.models) == 4
    assert result.spread is not None and result.spread.between is not None
    assert "searches differ" in (tmp_path / "out" / "report.html").read_text().lower()


def test_short_trainings_decide_and_keep_validation_images(tmp_path: Path) -> None:
    """The recipe trains on all images; to compare searches some are held back all the same."""
    given = {**TINY, "pick_epochs": 1, "retrainings": 1, "retrain": {**TINY["retrain"], "data": {"split": "none"}}}
    result = run(given, out=tmp_path / "out")
    for found in result.searches:
        short = json.loads((tmp_path / "out" / "picking" / f"search-{found.seed}" / "result.json").read_text())
        assert (found.figure, found.figure_kind) == (short["valid"]["top1"], "short")
    assert result.picked == max(result.searches, key=lambda found: found.figure or 0.0).seed
    assert result.models[0].valid is None and result.best == result.models[0]


def write_search(job: SearchJob, history: tuple[Any, ...], **more: Any) -> None:
    folder = RunFolder.create(job.folder, settings=job.spec.to_settings())
    folder.write_metrics([record.to_json() for record in history])
    result = make_result(job.spec.build_space(), history, architecture=history[0].architecture, **more)
    folder.write_result(result.to_json())


def test_table_takes_no_part_in_picking(tmp_path: Path) -> None:
    """A search with the better test score in a table, and the worse validation accuracy, is not picked."""
    pipeline = PipelineSpec.resolve(TINY)
    for job, shared, test in zip(pipeline.searches(tmp_path), (0.8, 0.6), (10.0, 99.0), strict=True):
        history = (make_epoch(architecture=_some(job), derived_score=1 - shared),)
        write_search(job, history, shared_score=shared, table_entry=make_entry(test))
    assert evaluate_pipeline(pipeline, tmp_path).picked == 0


def test_search_without_shared_accuracy_counts_by_its_last_epoch_or_best_trial(tmp_path: Path) -> None:
    pipeline = PipelineSpec.resolve(TINY)
    first, second = pipeline.searches(tmp_path)
    one, other = _some(first), first.spec.build_space().sample(random.Random(1))
    assert one != other
    accuracies, scores = (0.9, 0.5), ((one, 70.0), (other, 90.0))
    epochs = (make_epoch(n, architecture=one, derived_score=value) for n, value in enumerate(accuracies))
    trials = (make_trial(n, score, architecture=choice) for n, (choice, score) in enumerate(scores))
    write_search(first, tuple(epochs), table_entry=make_entry(99.0))
    write_search(second, tuple(trials), table_entry=make_entry(99.0))
    found = evaluate_pipeline(pipeline, tmp_path).searches
    assert [(run.figure, run.figure_kind) for run in found] == [(50.0, "shared"), (70.0, "score")]


def test_mistakes_in_retrain_settings_are_reported_before_the_search(tmp_path: Path) -> None:
    given = {**TINY, "retrain": {**TINY["retrain"], "training": {"epoks": 1}}}
    with pytest.raises(SettingError, match=r"retrain: unknown setting 'training\.epoks'; did you mean 'epochs'"):
        run(given, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("")
    with pytest.raises(SettingError, match="is not a run"):
        run(TINY, out=tmp_path / "out")


def test_failed_export_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise ArchloomError("no space left")

    monkeypatch.setattr(module, "export_model", refuse)
    result = run({**TINY, "searches": 1, "retrainings": 1, "export": ["onnx"]}, out=tmp_path / "out")
    assert result.complete and result.failures == {"export": "no space left"}
