"""Small runs of every kind, begun or resumed in a folder, and what must be the same at their end."""

from __future__ import annotations

import json
import math
import tempfile
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

import archloom
from archloom.comparisons import report as comparison_reports
from archloom.core.settings import Settings, merge
from archloom.data import digits, strokes
from archloom.execution.executors import Executor, SerialExecutor
from archloom.execution.process_executor import ProcessExecutor
from archloom.execution.run_folder import RunFolder
from archloom.pipelines import run as pipelines
from archloom.retrainings import report as retraining_reports
from archloom.retrainings.folder import RetrainFolder, is_retraining
from archloom.searches import run as searches
from archloom.searches.result import SearchResult
from archloom.strategies import STRATEGIES
from archloom.strategies.base import OneShot

TEXT = "|nor_conv_3x3~0|+|none~0|skip_connect~1|"
SMALL: dict[str, Any] = {
    "data": {"train_images": 64, "valid_images": 64},
    "search": {"batch_size": 32, "evaluation_images": 32, "random_baseline_samples": 2, "trials": 6},
    "network": {"channels": 2},
    "machine": {"torch_threads": 1, "loader_threads": 0},
}
MEASURED = {  # what differs between two runs of the same seed: times, memory, places
    "seconds", "images_per_second", "memory_mb", "peak_memory_mb", "total_seconds", "valid_seconds", "run", "settings",
    "finalists_seconds", "path", "folder", "exported", "seconds_since_start", "average_seconds", "device",
}  # fmt: skip
NEEDED: Mapping[str, Settings] = {  # what some strategies need to be small, or to run at all
    "pc_darts": {"network": {"channels": 4}},
    "p_darts": {"search": {**SMALL["search"], "epochs": 3}},  # an epoch for each stage
}
DRAWS = {"logits": {"images": 32, "weight_steps": 1}, "posterior": {"burn_in": 0.25}}  # one at each step
RACE = {"contestants": 4, "steps": 2, "random": 1, "samples": 1}

Start = Callable[[Path], object]
"""Begins the run in a folder, or resumes it."""


def search(strategy: str, space: str = "nb201_mini", /, **sections: Any) -> Start:
    """Return a search with this strategy."""
    settings = {**SMALL, **NEEDED.get(strategy, {}), **sections}
    if is_one_shot(strategy) and "epochs" not in settings["search"]:
        settings = merge(settings, {"search": {"epochs": 2}})

    def start(folder: Path) -> object:
        if RunFolder(folder).config_path.is_file():
            return archloom.resume(folder)
        return archloom.search(space, strategy, out=folder, settings=settings)

    return start


def is_one_shot(strategy: str) -> bool:
    """Return whether a strategy trains shared weights."""
    return issubclass(STRATEGIES.find(strategy).load(), OneShot)


def draw_from_posterior(folder: Path) -> object:
    """Begin or resume a search that draws at every step; its draws are on disk at the end."""
    result = search("gibbs", strategy=DRAWS, race=RACE)(folder)
    assert isinstance(result, SearchResult) and result.posterior is not None, "the search has no posterior"
    assert archloom.posterior(folder).architectures, "the folder holds no draws"
    return result


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


def compare(folder: Path, *, executor: Executor | None = None) -> object:
    """Begin or resume a comparison."""
    small = {name: value for name, value in SMALL.items() if name != "search"}
    entry = {"space": {"name": "nb201_mini"}, "strategy": {"name": "random_search"}, **small, "search": {"trials": 3}}
    entries = {"random": entry, "evolution": {**entry, "strategy": {"name": "regularized_evolution"}}}
    return archloom.compare({"seeds": "0-1", "entry": entries}, out=folder, executor=executor or SerialExecutor())


def pipeline(folder: Path, *, executor: Executor | None = None) -> object:
    """Begin or resume a pipeline."""
    member = {"space": {"name": "nb201_mini"}, "strategy": {"name": "random_search"}, "search": {"trials": 3}}
    retraining = {
        "recipe": "nb201_12",
        "training": {"epochs": 1},
        "network": {"channels": 2},
        "data": {"split": "random", "train_images": 64},
    }
    given = {"searches": 2, "retrainings": 1, "search": member, "retrain": retraining}
    return archloom.run(given, out=folder, executor=executor or SerialExecutor())


def in_pool(workload: Callable[..., object]) -> Start:
    """Return a workload whose jobs run in two worker processes."""
    return lambda folder: workload(folder, executor=ProcessExecutor(2))


def prepare() -> None:
    """Make runs short: reports are written but not drawn, images are made once, modules and kernels are loaded.

    All file operations stay. Call it in a process that then forks: torch starts no threads where it uses one.
    """
    searches.render = lambda report, **options: "a page"
    retraining_reports._render = lambda run, result, **options: "a page"
    pipelines.render_pipeline = lambda result, folder: "a page"
    comparison_reports.render_page = lambda result: "a page"
    strokes.strokes, digits.digits = cache(strokes.strokes), cache(digits.digits)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("gibbs posterior", "retrain", "compare"):
            WORKLOADS[name](Path(folder) / name)


WORKLOADS: Mapping[str, Start] = {
    **{name: search(name) for name in STRATEGIES},
    "gdas race": search("gdas", race=RACE),
    "gdas roll_back": search("gdas", monitor={"action": "roll_back", "quiet": 0.0, "largest_share": 0.99}),
    "gibbs posterior": draw_from_posterior,
    "tunas, mobile, target": search(
        "tunas", "proxylessnas_32", network={"width_multiplier": 0.25}, target={"metric": "parameters", "value": 1e6}
    ),
    "retrain": retrain,
    "compare": compare,
    "pipeline": pipeline,
}
POOLS: Mapping[str, Start] = {
    "compare, pool": in_pool(compare),
    "pipeline, pool": in_pool(pipeline),
    "gdas race, pool": search("gdas", race=RACE, machine={**SMALL["machine"], "worker_processes": 2}),
}
ALL = {**WORKLOADS, **POOLS}


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
