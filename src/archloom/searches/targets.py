"""From the section `target` of an experiment to the target: where its cost comes from, and whether it fits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from archloom.benchmarks import Benchmark
from archloom.core.errors import DataError, SettingError, one_line
from archloom.core.files import write_atomically
from archloom.core.settings import settings_of
from archloom.core.tagged_json import read_tagged
from archloom.data import Facts
from archloom.objectives import CostTable
from archloom.objectives.cost_source import CostSource, CountedCost, ModelledCost
from archloom.objectives.latency import MeasuredLatency
from archloom.objectives.linear_cost import Fit, LinearCost
from archloom.objectives.target import Target, TargetSettings, make_target
from archloom.searches.architectures import find_space
from archloom.spaces import SPACES, SearchSpace

KIND = "archloom cost model"


def find_target(
    asked: TargetSettings,
    space: SearchSpace,
    *,
    table: Benchmark | None,
    facts: Facts,
    network: Mapping[str, Any],
) -> Target | None:
    """The target that is asked for, if any."""
    if asked.metric == "none":
        return None
    if asked.metric == "latency":
        return make_target(asked, _latency(asked, space, table))
    costs = CostTable(space, classes=facts.classes, image_shape=facts.image_shape, **network)
    return make_target(
        asked, CountedCost(space, costs, asked.metric, provenance="counted in the network that is searched")
    )


def _latency(asked: TargetSettings, space: SearchSpace, table: Benchmark | None) -> CostSource:
    assert asked.source is not None, "checked with the settings"
    if asked.file is not None and asked.file.suffix == ".json":
        return read_model(asked.file, space)
    if table is None:
        raise SettingError(
            f"target.source '{asked.source}' needs a benchmark table that knows this space, and none is at hand; pass "
            "--data-dir with its folder, or a model made by archloom latency fit"
        )
    if asked.file is not None:
        return MeasuredLatency.in_file(space, table, asked.file)
    return MeasuredLatency.on_device(space, table, asked.source)


# --- models in files


def write_model(path: Path, fit: Fit, about: Mapping[str, Any]) -> None:
    """A fitted model, with all that its figures depend on."""
    weights = [[*map(list, feature), weight] for feature, weight in fit.model.weights.items()]
    content = {
        "kind": KIND,
        "unit": "ms",
        **about,
        "networks": fit.networks,
        "uncovered_features": fit.uncovered,
        "held_out_r2": fit.r2,
        "held_out_error": fit.error,
        "intercept": fit.model.intercept,
        "weights": weights,
    }
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())


def read_model(path: Path, space: SearchSpace) -> ModelledCost:
    """The model in a file, for a space with the decisions that it was fitted on."""
    content = _content(path)
    if {name: list(options) for name, options in content.get("decisions", {}).items()} != decisions_of(space):
        raise SettingError(f"target.source {path} was fitted for other decisions than this space has; fit one for it")
    machine = f"{content['device']}, {content['threads']} threads, batch {content['batch']}"
    model = LinearCost(space, content["intercept"], content["weights"])
    caveat = _caveat(content["space_settings"], space)
    return ModelledCost(model, unit=content["unit"], provenance=f"{path.name} ({machine})", caveat=caveat)


@dataclass(frozen=True)
class Timed:
    """How the networks of a model were made and timed."""

    space_name: str
    space: SearchSpace
    made: Mapping[str, Any]  # classes, image_shape, batch, network
    device: str
    threads: int
    seed: int
    constant_ms: float


def read_timed_model(path: Path) -> tuple[ModelledCost, Timed]:
    """The model in a file, with all that timing another network as its own takes."""
    content = _content(path)
    try:
        name, settings = str(content["space"]), content["space_settings"]
        made = {
            "classes": int(content["classes"]),
            "image_shape": tuple(map(int, content["image_shape"])),
            "batch": content["batch"],
            "network": dict(content["network"]),
        }
        timing = {"device": content["device"], "threads": content["threads"], "seed": int(content["seed"])}
        constant_ms = float(content["constant_ms"])
        if name not in SPACES:  # a file from elsewhere must not choose what is imported
            raise ValueError(f"space '{name}' is a plug-in")
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} does not say how its networks were timed: {one_line(error)}; fit it again") from error
    space = find_space(name, **settings)
    return read_model(path, space), Timed(name, space, made, constant_ms=constant_ms, **timing)


def _content(path: Path) -> dict[str, Any]:
    """What a file of a model says, with its numbers checked."""
    return read_tagged(path, KIND, _parsed, otherwise="is no model of archloom latency fit")


def _parsed(content: Mapping[str, Any]) -> dict[str, Any]:
    rows = [(tuple((str(name), str(option)) for name, option in row), float(w)) for *row, w in content["weights"]]
    told = {kind: str(content[kind]) for kind in ("unit", "device")}
    counts = {name: int(content[name]) for name in ("threads", "batch")}
    settings = dict(content.get("space_settings", {}))
    numbers = {"intercept": float(content["intercept"]), "weights": dict(rows)}
    return {**content, **told, **counts, **numbers, "space_settings": settings}


def _caveat(fitted_on: Mapping[str, Any], space: SearchSpace) -> str:
    """In what the networks of a model differ from those of a space with the same decisions."""
    own = json.loads(json.dumps(settings_of(space)))  # as a file tells it
    other = sorted(name for name, value in fitted_on.items() if own.get(name) != value)
    return f"of networks with another space.{', space.'.join(other)}" if other else ""


def decisions_of(space: SearchSpace) -> dict[str, list[str]]:
    return {decision.name: list(decision.options) for decision in space.decisions}


__all__ = ["decisions_of", "find_target", "read_model", "read_timed_model", "write_model"]
