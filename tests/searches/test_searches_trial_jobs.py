"""Trials that are scored together: the same results on every executor, also after an interruption."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import archloom
from archloom.core.errors import ArchloomError, SettingError
from archloom.execution.executors import SerialExecutor
from archloom.execution.loop import Interrupted
from archloom.execution.process_executor import ProcessExecutor
from archloom.searches import build
from archloom.searches.trial_jobs import ScoreJob

TRAINED = {
    "search": {"trials": 4, "trials_at_once": 2, "score": "training", "score_epochs": 1, "batch_size": 32},
    "network": {"channels": 4},
    "machine": {"torch_threads": 1},
    "data": {"train_images": 64, "valid_images": 32},
}


def search(out: Path, strategy: str = "random_search", **options: Any) -> Any:
    settings = {"search": {"trials": 24, "trials_at_once": 5}}
    return archloom.search("nb201_mini", strategy, "digits", seed=3, out=out, **{"settings": settings, **options})


def trials(folder: Path) -> list[tuple[int, float, str]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [(one["trial"], one["score"], one["text"]) for one in map(json.loads, lines)]


@pytest.mark.parametrize("strategy", ["random_search", "regularized_evolution", "reinforce", "tpe"])
def test_an_interrupted_group_is_resumed_to_the_same_end(strategy: str, tmp_path: Path) -> None:
    whole = search(tmp_path / "whole", strategy)
    assert [number for number, _, _ in trials(tmp_path / "whole")] == list(range(24))
    for broken_after in (1, 7, 12):
        folder = tmp_path / f"broken-{broken_after}"
        asked = iter(range(broken_after))
        with pytest.raises(Interrupted):
            search(folder, strategy, stop=lambda asked=asked: next(asked, None) is None)
        assert archloom.resume(folder).text == whole.text
        assert trials(folder) == trials(tmp_path / "whole")


def test_a_group_is_asked_for_before_any_of_it_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from archloom.strategies.regularized_evolution import RegularizedEvolution as Rea

    seen: list[str] = []
    ask, tell = Rea.ask, Rea.tell
    monkeypatch.setattr(Rea, "ask", lambda self, number: (seen.append(f"ask {number}"), ask(self, number))[1])
    monkeypatch.setattr(
        Rea, "tell", lambda self, one, score: (seen.append(f"tell {one.number}"), tell(self, one, score))[1]
    )
    search(tmp_path / "run", "regularized_evolution", settings={"search": {"trials": 5, "trials_at_once": 3}})
    assert seen == [f"ask {n}" for n in (0, 1, 2)] + [f"tell {n}" for n in (0, 1, 2)] + ["ask 3", "ask 4"] + [
        "tell 3",
        "tell 4",
    ]


def test_trainings_in_processes_give_what_those_in_this_process_give(tmp_path: Path) -> None:
    search(tmp_path / "serial", settings=TRAINED)
    parallel = {**TRAINED, "machine": {"torch_threads": 1, "worker_processes": 2}}
    search(tmp_path / "parallel", settings=parallel)
    assert trials(tmp_path / "serial") == trials(tmp_path / "parallel")


def test_what_was_scored_before_an_interruption_is_not_scored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[int] = []
    run = ScoreJob.run
    monkeypatch.setattr(
        ScoreJob, "run", lambda self, emit, stop: (scored.append(self.trial.number), run(self, emit, stop))[1]
    )
    with pytest.raises(Interrupted):
        search(tmp_path / "run", stop=lambda: len(scored) >= 7)
    assert scored == list(range(7))
    archloom.resume(tmp_path / "run")
    assert sorted(scored) == list(range(24))


def test_a_trial_that_fails_twice_ends_the_search_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: ScoreJob, emit: Any, stop: Any) -> None:
        raise RuntimeError("no images")

    monkeypatch.setattr(ScoreJob, "run", fail)
    with pytest.raises(ArchloomError, match=r"^trial 0 failed twice: RuntimeError: no images; resume"):
        search(tmp_path / "run")


def test_strategies_that_stop_trainings_score_one_at_a_time(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="trials_at_once must be 1 for strategy 'bohb'"):
        search(tmp_path / "run", "bohb", settings=TRAINED)
    with pytest.raises(SettingError, match=r"trials_at_once must be 1 with search\.study, got 2"):
        search(tmp_path / "run", settings={"search": {"trials_at_once": 2, "study": str(tmp_path / "study.db")}})


def test_the_executor_follows_from_settings_and_place(tmp_path: Path) -> None:
    spec = archloom.searches.spec.SearchSpec.resolve(
        {"space": {"name": "nb201_mini"}, "machine": {"worker_processes": 2}}
    )
    builder = build.SearchBuilder(spec, None)
    assert isinstance(builder._executor([]), ProcessExecutor)
    spec = archloom.searches.spec.SearchSpec.resolve({"space": {"name": "nb201_mini"}})
    assert isinstance(build.SearchBuilder(spec, None)._executor([]), SerialExecutor)
