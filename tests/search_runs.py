"""Runs that look like real ones: what a search writes down, made up from a fixed seed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from archloom.searches.report import ReportData
from archloom.spaces import SPACES, SearchSpace

MakeRun = Callable[..., ReportData]


def _softmax(values: list[float]) -> list[float]:
    weights = [math.exp(value) for value in values]
    return [weight / sum(weights) for weight in weights]


def _standing(score: float) -> dict[str, Any]:
    regret = 94.37 - score
    rank = 1 + int(regret * 100)
    return {"dataset": "cifar10", "test": score, "valid": score - 2.9, "rank": rank, "count": 15625, "regret": regret}


def _epoch(space: SearchSpace, epoch: int, scores: dict[str, list[float]], rng: random.Random, table: bool) -> dict:
    architecture = space.decode(scores)
    gain = 1 - math.exp(-epoch / 8)
    return {
        "epoch": epoch,
        "seconds": 3.0 + rng.random(),
        "images_per_second": 1200.0 + 50 * rng.random(),
        "memory_mb": 512.0 + epoch,
        "metrics": {
            "train_loss": 2.3 - 1.5 * gain + 0.05 * rng.random(),
            "train_accuracy": 0.1 + 0.6 * gain,
            "valid_loss": 2.3 - 1.3 * gain + 0.1 * rng.random(),
            "valid_accuracy": 0.1 + 0.5 * gain,
            "temperature": 10.0 - 0.4 * epoch,
            "learning_rate": 0.025 * (1 - epoch / 30),
        },
        "architecture": dict(architecture),
        "text": space.format(architecture),
        "derived_accuracy": 0.1 + 0.45 * gain + 0.03 * rng.random(),
        "scores": scores,
        "standing": _standing(84 + 9 * gain + rng.random()) if table else None,
    }


def _settings(name: str) -> dict[str, Any]:
    return {
        "seed": 0,
        "space": {"name": name, "operations": ["none", "skip_connect"]},
        "strategy": {"name": "gdas", "temperature": {"start": 10.0, "end": 0.1}, "second_order": False},
        "data": {"name": "cifar10", "batch_size": 64, "download": None, "folder": ""},
        "search": {"epochs": 20, "learning_rate": 0.025},
    }


def _result(name: str, last: dict[str, Any]) -> dict[str, Any]:
    return {
        "space": {"name": name},
        "strategy": "gdas",
        "seed": 0,
        "architecture": last["architecture"],
        "text": last["text"],
        "cost": {"parameters": 802426, "multiply_adds": 113951370},
        "standing": last["standing"],
        "verdict": "Better than 95 of 100 architectures drawn at random, by a margin that chance does not explain.",
        "run": {
            "seconds": 61.0,
            "peak_memory_mb": 700.0,
            "epochs": 20,
            "versions": {"archloom": "0.1.0", "torch": "2.13.0", "python": "3.11"},
            "device": "cpu",
            "threads": 2,
            "finished": "2026-01-02T03:04:05+00:00",
        },
    }


@pytest.fixture
def make_run() -> MakeRun:
    """A finished search of epochs on a named space."""

    def make(name: str, *, epochs: int = 20, table: bool = False) -> ReportData:
        entry = SPACES.find(name)
        space = entry.load()(**entry.settings)
        rng = random.Random(3)
        logits = {decision.name: [0.0] * len(decision.options) for decision in space.decisions}
        history = []
        for epoch in range(epochs):
            for values in logits.values():
                values[:] = [1.06 * value + rng.gauss(0, 0.12) for value in values]
            scores = {decision: _softmax(values) for decision, values in logits.items()}
            history.append(_epoch(space, epoch, scores, rng, table))
        return ReportData(f"Search on {name}", _settings(name), history, _result(name, history[-1]), space)

    return make


@pytest.fixture
def make_trials() -> MakeRun:
    """A finished black-box search on NB201."""

    def make(*, trials: int = 40) -> ReportData:
        space = SPACES.find("nb201").load()()
        rng = random.Random(5)
        history: list[dict[str, Any]] = []
        for trial in range(trials):
            architecture = space.sample(rng)
            score = 93 - 12 * rng.random() ** 2
            best = max([score, *(record["score"] for record in history)])
            history.append(
                {
                    "trial": trial,
                    "seconds": 0.01,
                    "score": score,
                    "best": best,
                    "architecture": dict(architecture),
                    "text": space.format(architecture),
                    "standing": _standing(score),
                }
            )
        return ReportData("Random search", _settings("nb201"), history, _result("nb201", history[-1]), space)

    return make
