"""Small runs of every kind, begun or resumed in a folder, and what must be the same at their end."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import archloom
from archloom.execution.executors import SerialExecutor
from archloom.execution.run_folder import RunFolder
from archloom.retrainings.folder import RetrainFolder, is_retraining

TEXT = "|nor_conv_3x3~0|+|none~0|skip_connect~1|"
SMALL: dict[str, Any] = {
    "data": {"train_images": 64, "valid_images": 64},
    "search": {
        "batch_size": 32, "evaluation_images": 32, "random_baseline_samples": 2, "finalist_steps": 2, "trials": 6,
    },
    "network": {"channels": 2},
    "machine": {"torch_threads": 1, "loader_threads": 0},
}  # fmt: skip
MEASURED = {  # what differs between two runs of the same seed: times, memory, places
    "seconds", "images_per_second", "memory_mb", "peak_memory_mb", "total_seconds", "valid_seconds", "run", "settings",
    "finalists_seconds", "path", "folder", "exported", "seconds_since_start", "average_seconds", "device",
}  # fmt: skip
ONE_SHOT = ("gdas", "darts", "pc_darts", "enas", "rsps", "fair_darts", "gibbs", "amended_darts", "setn", "drnas")
BLACK_BOX = ("random_search", "regularized_evolution", "tpe")

Start = Callable[[Path], object]
"""Begins the run in a folder, or resumes it."""


def search(strategy: str, **sections: Any) -> Start:
    """Return a search with this strategy."""

    def start(folder: Path) -> object:
        if RunFolder(folder).config_path.is_file():
            return archloom.resume(folder)
        settings = {**SMALL, **sections}
        epochs = None if strategy in BLACK_BOX else 2
        return archloom.search("nb201_mini", strategy, epochs=epochs, out=folder, settings=settings)

    return start


def retrain(folder: Path) -> object:
    """Begin or resume a retraining."""
    settings = {
        "space": {"name": "nb201_mini"},
        "training": {"epochs": 2},
        "network": {"channels": 2},
        "data": {"split": "random", "train_images": 64},
        "machine": SMALL["machine"],
    }
    return archloom.retrain(TEXT, recipe="nb201_12", data="digits", out=folder, settings=settings)


def compare(folder: Path) -> object:
    """Begin or resume a comparison."""
    small = {name: value for name, value in SMALL.items() if name != "search"}
    entry = {"space": {"name": "nb201_mini"}, "strategy": {"name": "random_search"}, **small, "search": {"trials": 3}}
    entries = {"random": entry, "evolution": {**entry, "strategy": {"name": "regularized_evolution"}}}
    return archloom.compare({"seeds": "0-1", "entry": entries}, out=folder, executor=SerialExecutor())


def pipeline(folder: Path) -> object:
    """Begin or resume a pipeline."""
    member = {"space": {"name": "nb201_mini"}, "strategy": {"name": "random_search"}, "search": {"trials": 3}}
    retraining = {
        "recipe": "nb201_12",
        "training": {"epochs": 1},
        "network": {"channels": 2},
        "data": {"split": "random", "train_images": 64},
    }
    given = {"searches": 2, "retrainings": 1, "search": member, "retrain": retraining}
    return archloom.run(given, out=folder, executor=SerialExecutor())


def known(strategies: tuple[str, ...]) -> Iterator[str]:
    """Yield those strategies that this version has."""
    from archloom.strategies import STRATEGIES

    return (name for name in strategies if name in STRATEGIES)


def draw_nothing() -> None:
    """Write reports without drawing them, which takes longer than a small run; all file operations stay."""
    from archloom.pipelines import run as pipelines
    from archloom.retrainings import report as retrainings
    from archloom.searches import run as searches

    searches.render = lambda report: "a page"
    retrainings._render = lambda run, result: "a page"
    pipelines.render_pipeline = lambda result, folder: "a page"


WORKLOADS: Mapping[str, Start] = {
    **{name: search(name) for name in (*known(ONE_SHOT), *known(BLACK_BOX))},
    "gdas roll_back": search("gdas", monitor={"action": "roll_back", "quiet": 0.0, "largest_share": 0.99}),
    "retrain": retrain,
    "compare": compare,
    "pipeline": pipeline,
}


def final_state(folder: Path) -> Any:
    """Return everything that a finished run leaves and that must not depend on interruptions."""
    runs = sorted(path.parent for path in folder.rglob("config.toml"))
    assert runs, f"no run in {folder}"
    return {str(run.relative_to(folder)): _state_of_run(run) for run in runs}


def _state_of_run(path: Path) -> Any:
    run = RetrainFolder(path) if is_retraining(path) else RunFolder(path)
    result = run.read_result()
    assert result is not None, f"{path} has no result"
    assert run.report_path.is_file() or path.parent.name == "runs", f"{path} has no report"
    problems: list[str] = []
    state = run.checkpoints.load_latest(warn=problems.append)
    assert not problems, problems
    models = {file.name: archloom_weights(file) for file in sorted(path.glob("*.safetensors"))}
    return {"result": result, "metrics": run.read_metrics(), "checkpoint": state, "models": models}


def archloom_weights(file: Path) -> Any:
    """Return the tensors of a model."""
    from safetensors.torch import load_file

    return load_file(file)


def refuse_differences(wanted: Any, found: Any, place: str = "") -> None:
    """Raise an AssertionError at the first value that differs, tensors bit by bit, without what is measured."""
    if isinstance(wanted, Mapping):
        assert isinstance(found, Mapping) and wanted.keys() == found.keys(), f"{place}: other names"
        for name in wanted:
            if name not in MEASURED:
                refuse_differences(wanted[name], found[name], f"{place}.{name}")
    elif isinstance(wanted, list | tuple):
        assert len(wanted) == len(found), f"{place}: {len(wanted)} and {len(found)} items"
        for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
            refuse_differences(one, other, f"{place}[{number}]")
    elif isinstance(wanted, torch.Tensor):
        assert torch.equal(wanted, found), f"{place}: another tensor"
    elif isinstance(wanted, float) and math.isnan(wanted):
        assert math.isnan(found), f"{place}: {wanted} and {found}"
    else:
        assert wanted == found, f"{place}: {json.dumps(wanted, default=str)} and {json.dumps(found, default=str)}"
