"""Searches that look like real ones: their records and results, made up from a fixed seed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from archloom.benchmarks import TableEntry
from archloom.execution.run_facts import RunFacts
from archloom.objectives import Cost
from archloom.searches.race_certainty import Certainty
from archloom.searches.race_verdict import RaceResult
from archloom.searches.records import EpochRecord, TrialRecord
from archloom.searches.report import ReportData
from archloom.searches.result import SearchResult
from archloom.spaces import SPACES, Architecture, SearchSpace

MakeRun = Callable[..., ReportData]
RUN = RunFacts(
    seconds=61.0,
    seconds_since_start=62.0,
    peak_memory_mb=700.0,
    records=20,
    device="cpu",
    threads=2,
    versions={"archloom": "0.1.0", "torch": "2.13.0", "python": "3.11"},
    finished="2026-01-02T03:04:05+00:00",
)


def make_entry(score: float = 93.1) -> TableEntry:
    regret = 94.37 - score
    return TableEntry("cifar10", score, score - 2.9, rank=1 + int(regret * 100), count=15625, regret=regret)


def make_epoch(epoch: int = 0, **changes: Any) -> EpochRecord:
    """Return a record with figures that a test may change."""
    values: dict[str, Any] = {
        "epoch": epoch,
        "seconds": 3.0,
        "images_per_second": 1200.0,
        "memory_mb": 512.0,
        "metrics": {"train_loss": 1.0},
        "learning_rate": 0.025,
        "derived_score": 0.5,
        "probabilities": None,
        "architecture": Architecture({"edge": "a"}),
        "text": "a",
        "table_entry": None,
    }
    return EpochRecord(**{**values, **changes})


def make_trial(trial: int = 0, score: float = 90.0, **changes: Any) -> TrialRecord:
    """Return a record with figures that a test may change."""
    values: dict[str, Any] = {
        "trial": trial,
        "score": score,
        "best": score,
        "epochs": 12,
        "trainings": trial + 1.0,
        "seconds": 0.01,
        "architecture": Architecture({"edge": "a"}),
        "text": "a",
        "table_entry": None,
    }
    return TrialRecord(**{**values, **changes})


def make_result(space: SearchSpace, history: tuple[Any, ...], **changes: Any) -> SearchResult:
    """Return the result of a search that found the architecture of its last record."""
    last = history[-1]
    values: dict[str, Any] = {
        "architecture": last.architecture,
        "text": last.text,
        "verdict": "Better than 95 of 100 architectures sampled uniformly.",
        "table_entry": last.table_entry,
        "space": space,
        "space_name": "nb201",
        "strategy": "gdas",
        "data": "cifar10",
        "seed": 0,
        "cost": Cost(802426, 113951370),
        "run": RUN,
        "history": history,
        "folder": Path("runs/a"),
    }
    return SearchResult(**{**values, **changes})


def make_race(*, probability: float) -> RaceResult:
    """Return what a race of 24 contestants shows, with this probability that its winner is the best of them."""
    return RaceResult(
        derived=None,
        winner_origin="proposal",
        trained=39,
        contestants=24,
        beaten_random=6,
        random=6,
        best_by_score="",
        references=(),
        certainty=Certainty(probability=probability, contestants=24, trainings=39),
    )


def _softmax(values: list[float]) -> list[float]:
    weights = [math.exp(value) for value in values]
    return [weight / sum(weights) for weight in weights]


def _epoch(
    space: SearchSpace, epoch: int, probabilities: dict[str, list[float]], rng: random.Random, table: bool
) -> EpochRecord:
    architecture = space.decode(probabilities)
    gain = 1 - math.exp(-epoch / 8)
    return make_epoch(
        epoch,
        seconds=3.0 + rng.random(),
        images_per_second=1200.0 + 50 * rng.random(),
        memory_mb=512.0 + epoch,
        metrics={
            "train_loss": 2.3 - 1.5 * gain + 0.05 * rng.random(),
            "train_accuracy": 0.1 + 0.6 * gain,
            "valid_loss": 2.3 - 1.3 * gain + 0.1 * rng.random(),
            "valid_accuracy": 0.1 + 0.5 * gain,
            "temperature": 10.0 - 0.4 * epoch,
        },
        architecture=architecture,
        text=space.format(architecture),
        derived_score=0.1 + 0.45 * gain + 0.03 * rng.random(),
        probabilities=probabilities,
        table_entry=make_entry(84 + 9 * gain + rng.random()) if table else None,
    )


def _settings(name: str) -> dict[str, Any]:
    return {
        "seed": 0,
        "space": {"name": name, "operations": ["none", "skip_connect"]},
        "strategy": {"name": "gdas", "temperature": {"start": 10.0, "end": 0.1}, "second_order": False},
        "data": {"name": "cifar10", "batch_size": 64, "download": None, "folder": ""},
        "search": {"epochs": 20, "learning_rate": 0.025},
    }


def _report(name: str, space: SearchSpace, history: list[Any]) -> ReportData:
    result = make_result(space, tuple(history), space_name=name)
    return ReportData(f"Search on {name}", f"gdas on {name}, seed 0", _settings(name), history, result, space)


@pytest.fixture
def make_run() -> MakeRun:
    """Return a function that makes a finished one-shot search on a named space."""

    def make(name: str, *, epochs: int = 20, table: bool = False) -> ReportData:
        entry = SPACES.find(name)
        space = entry.load()(**entry.settings)
        rng = random.Random(3)
        logits = {decision.name: [0.0] * len(decision.options) for decision in space.decisions}
        history = []
        for epoch in range(epochs):
            for values in logits.values():
                values[:] = [1.06 * value + rng.gauss(0, 0.12) for value in values]
            probabilities = {decision: _softmax(values) for decision, values in logits.items()}
            history.append(_epoch(space, epoch, probabilities, rng, table))
        return _report(name, space, history)

    return make


@pytest.fixture
def make_trials() -> MakeRun:
    """Return a function that makes a finished black-box search on NB201."""

    def make(*, trials: int = 40) -> ReportData:
        space = SPACES.find("nb201").load()()
        rng = random.Random(5)
        history: list[TrialRecord] = []
        for trial in range(trials):
            architecture = space.sample(rng)
            score = 93 - 12 * rng.random() ** 2
            record = make_trial(trial, score, architecture=architecture, text=space.format(architecture))
            best = max([score, *(other.score for other in history)])
            history.append(replace(record, best=best, table_entry=make_entry(score)))
        return _report("nb201", space, history)

    return make
