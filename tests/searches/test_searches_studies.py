from __future__ import annotations

import json
import multiprocessing
import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import archloom
from archloom.core.errors import SettingError, StorageError
from archloom.searches.black_box import BlackBoxLoop, TableScore
from archloom.searches.records import TrialRecord
from archloom.searches.studies import SILENCE, Scored, SharedStudy
from archloom.spaces import Nb201
from archloom.strategies import STRATEGIES
from archloom.strategies.base import BlackBox

optuna = pytest.importorskip("optuna")

SPACE = Nb201(nodes=3)
EXPERIMENT = {"space.name": "nb201", "strategy.name": "random_search"}


class ByConvolutions:
    """Three epochs, each a little better, for every 3x3 convolution."""

    epochs = 3

    def __call__(self, architecture):
        for done in (1, 2, 3):
            yield Scored(done, done * sum(option == "nor_conv_3x3" for option in architecture.values()))


def open_study(path: Path, trials: int = 6, **options) -> SharedStudy:
    settings = {"name": "archloom", "experiment": EXPERIMENT, "seed_of": lambda number: 100 + number, **options}
    return SharedStudy.open(str(path / "study.db"), SPACE, trials=trials, **{"sleep": lambda seconds: None, **settings})


def make(path: Path, name: str = "random_search", trials: int = 6, seed: int = 0, **settings) -> BlackBoxLoop:
    kind: type[BlackBox] = STRATEGIES[name].load()
    strategy = kind(SPACE, torch.Generator().manual_seed(seed), **settings)
    return BlackBoxLoop(SPACE, strategy, ByConvolutions(), trials=trials, study=open_study(path, trials))


def without_seconds(history) -> list[TrialRecord]:
    return [replace(record, seconds=0.0) for record in history]


def trial_states(path: Path) -> list[str]:
    with sqlite3.connect(path / "study.db") as database:
        return [state for (state,) in database.execute("SELECT state FROM trials ORDER BY number")]


def let_time_pass(path: Path) -> None:
    """Make all heartbeats so far older than a process may be silent."""
    with sqlite3.connect(path / "study.db") as database:
        database.execute(f"UPDATE trial_heartbeats SET heartbeat = datetime(heartbeat, '-{SILENCE + 60} seconds')")
        database.execute(f"UPDATE trials SET datetime_start = datetime(datetime_start, '-{SILENCE + 60} seconds')")


@pytest.mark.parametrize(
    ("name", "settings"),
    [("regularized_evolution", {"population": 2}), ("bohb", {})],
)
def test_two_searches_report_the_same_trials_to_their_strategies(tmp_path, name, settings):
    first, second = (make(tmp_path, name, trials=8, **settings) for _ in range(2))
    while first.position < 8 or second.position < 8:
        for search in (first, second):
            record = search.advance() if search.position < 8 else None
            if record is not None:
                search.history.append(record)
    assert sorted(record.trial for record in first.history) == list(range(8))
    by_number = [sorted(search.history, key=lambda record: record.trial) for search in (first, second)]
    for one, other in zip(*by_number, strict=True):
        assert (one.score, one.text, one.epochs, one.pruned) == (other.score, other.text, other.epochs, other.pruned)
    assert first.history[-1].trainings == second.history[-1].trainings
    assert len({record.text for record in first.history}) > 4  # of equal seed, but no two draw the same stream


def test_processes_with_the_same_seed_sample_different_architectures(tmp_path):
    first, second = make(tmp_path), make(tmp_path)
    drawn = [search._study.begin(search.strategy, 0) for search in (first, second)]
    assert [trial.number for trial in drawn] == [0, 1]
    assert drawn[0].architecture != drawn[1].architecture


def test_foreign_trials_are_in_the_state_of_a_strategy(tmp_path):
    make(tmp_path, "bohb", trials=6).run()
    late = make(tmp_path, "bohb", trials=6, seed=9)
    late.run()
    told = late.strategy.trials.state_dict()["trials"]
    assert [trial["score"] for trial in told] == [record.score for record in late.history]
    assert [len(trial["reports"]) for trial in told] == [min(record.epochs, 2) for record in late.history]


def test_search_resumed_from_an_old_state_reads_the_other_trials_again(tmp_path):
    search = make(tmp_path)
    for _ in range(2):
        search.history.append(search.advance())
    state = search.state_dict()
    search.run()
    resumed = make(tmp_path)
    resumed.load_state_dict(state)
    resumed.run()
    assert without_seconds(resumed.history) == without_seconds(search.history)
    assert trial_states(tmp_path) == ["COMPLETE"] * 6


def test_trial_of_a_dead_process_fails_and_is_replaced(tmp_path):
    dead = make(tmp_path)
    assert dead._study.begin(dead.strategy, 0).number == 0
    alive = make(tmp_path)
    for _ in range(5):
        alive.history.append(alive.advance())
    assert alive.advance() is None  # perhaps it is only slow
    let_time_pass(tmp_path)
    alive.run()
    assert trial_states(tmp_path) == ["FAIL", *["COMPLETE"] * 6]
    assert [record.trial for record in alive.history] == [1, 2, 3, 4, 5, 6]


def test_late_result_does_not_count(tmp_path):
    slow = make(tmp_path, trials=2)
    scores = slow.score

    class WhileOthersGiveItUp:
        epochs = 3

        def __call__(self, architecture):
            other = make(tmp_path, trials=2)
            other._study = open_study(tmp_path, 2, sleep=lambda seconds: let_time_pass(tmp_path))
            other.run()
            return scores(architecture)

    slow.score = WhileOthersGiveItUp()
    assert slow.advance() is None
    slow.run()
    assert trial_states(tmp_path) == ["FAIL", "COMPLETE", "COMPLETE"]
    assert [record.trial for record in slow.history] == [1, 2]


def test_trial_without_any_heartbeat_fails_too(tmp_path):
    search = make(tmp_path, trials=1)
    search._study._study.ask()
    assert search.advance() is None
    let_time_pass(tmp_path)
    search.run()
    assert trial_states(tmp_path) == ["FAIL", "COMPLETE"]


def test_trial_above_the_limit_is_given_up(tmp_path, monkeypatch):
    search = make(tmp_path, trials=1)
    study, count = search._study, search._study._count_before
    other = study._study.ask()  # another process, between our count and our ask
    monkeypatch.setattr(study, "_count_before", lambda number: 0 if number is None else count(number))
    assert search.advance() is None
    assert trial_states(tmp_path) == ["RUNNING", "FAIL"]
    assert other.number == 0


def test_an_error_while_scoring_frees_the_trial_at_once(tmp_path):
    search = make(tmp_path, trials=1)

    class Broken:
        epochs = 3

        def __call__(self, architecture):
            raise KeyboardInterrupt

    search.score = Broken()
    with pytest.raises(KeyboardInterrupt):
        search.advance()
    assert trial_states(tmp_path) == ["FAIL"]


def test_a_study_of_another_experiment_is_refused_by_the_setting_that_differs(tmp_path):
    open_study(tmp_path)
    with pytest.raises(SettingError, match=r"strategy\.sample is None there and 4 here; choose another search\.study"):
        open_study(tmp_path, experiment={**EXPERIMENT, "strategy.sample": 4})
    open_study(tmp_path, name="another", experiment={**EXPERIMENT, "strategy.sample": 4})


def test_bad_database_is_one_line_without_its_password(tmp_path):
    with pytest.raises(StorageError, match=r"search\.study: .*missing/study\.db cannot be used: .*unable to open"):
        open_study(tmp_path / "missing")
    (tmp_path / "study.db").write_text("no database at all, but long enough to be read as one" * 20)
    with pytest.raises(StorageError, match=r"cannot be used: .*not a database"):
        open_study(tmp_path)
    with pytest.raises(StorageError, match=r"^search\.study: nosuch://\.\.\.@host/base cannot be used") as caught:
        SharedStudy.open("nosuch://me:secret@host/base", SPACE, name="a", experiment={}, trials=1, seed_of=int)
    assert "secret" not in str(caught.value)


# --- real processes


def search_slowly(path: Path, name: str, seconds: float, scored) -> None:
    query = TableScore.__call__

    def slowly(self, architecture):
        scored.send(name)
        time.sleep(seconds)
        yield from query(self, architecture)

    TableScore.__call__ = slowly  # in this process only
    archloom.search("nb201_mini", "random_search", "digits", out=path / name, settings=shared(path))


def shared(path: Path) -> dict:
    return {"search": {"trials": 8, "study": str(path / "study.db")}, "machine": {"torch_threads": 1}}


def start(path: Path, name: str, *, seconds: float):
    """Fork a search, which need not import everything again; return it with the messages it sends while it scores."""
    heard, said = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=search_slowly, args=(path, name, seconds, said))
    process.start()
    said.close()
    return process, heard


def trials_of(run: Path) -> list[tuple[int, str]]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return sorted((record["trial"], record["text"]) for record in map(json.loads, lines))


def test_killed_process_loses_only_its_trial(tmp_path):
    doomed, heard = start(tmp_path, "doomed", seconds=600)
    assert heard.recv() == "doomed"
    doomed.kill()
    doomed.join()
    let_time_pass(tmp_path)
    both = [start(tmp_path, name, seconds=0.02) for name in ("one", "two")]
    for process, _ in both:
        process.join(timeout=100)
    assert [process.exitcode for process, _ in both] == [0, 0]
    assert sum(len(list(everything(heard))) for _, heard in both) == 8  # nothing was done twice
    assert trials_of(tmp_path / "one") == trials_of(tmp_path / "two")
    assert [number for number, _ in trials_of(tmp_path / "one")] == list(range(1, 9))
    resumed = archloom.resume(tmp_path / "doomed", plugins=True)  # finds everything done by the others
    assert [record.trial for record in resumed.history] == list(range(1, 9))
    with pytest.raises(SettingError, match=r"strategy\.\w+ is .* there and .* here"):
        archloom.search("nb201_mini", "regularized_evolution", settings=shared(tmp_path), out=tmp_path / "three")
    assert not (tmp_path / "three").exists()


def everything(heard):
    while heard.poll():
        try:
            yield heard.recv()
        except EOFError:
            return


def test_a_study_with_the_older_name_of_a_setting_is_the_same_study(tmp_path, monkeypatch):
    with monkeypatch.context() as first_edition:
        first_edition.setattr("archloom.searches.studies.new_name", lambda name: name)
        open_study(tmp_path, experiment={**EXPERIMENT, "search.chance_samples": 30})
    open_study(tmp_path, experiment={**EXPERIMENT, "search.random_baseline_samples": 30})
