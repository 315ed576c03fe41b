"""From the section `target` of an experiment to the target: where its cost comes from, and whether it fits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from archloom.benchmarks import Benchmark
from archloom.data import Facts
from archloom.errors import DataError, SettingError, one_line
from archloom.files import reading, write_atomically
from archloom.objectives import CostTable
from archloom.objectives.cost_source import CostSource, Counted, Modelled
from archloom.objectives.latency import Measured
from archloom.objectives.linear_cost import Fit, LinearCost
from archloom.objectives.target import Target, TargetSettings, made
from archloom.spaces import SearchSpace

KIND = "archloom cost model"


def find_target(
    settings: Mapping[str, Any],
    space: SearchSpace,
    *,
    table: Benchmark | None,
    facts: Facts,
    network: Mapping[str, Any],
) -> Target | None:
    """The target that is asked for, if any."""
    asked = TargetSettings(**settings)
    if asked.metric == "none":
        return None
    if asked.metric == "latency":
        return made(settings, _latency(asked, space, table))
    costs = CostTable(space, classes=facts.classes, image_shape=facts.image_shape, **network)
    return made(settings, Counted(space, costs, asked.metric, provenance="counted in the network that is searched"))


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
        return Measured.in_file(space, table, asked.file)
    return Measured.on_device(space, table, asked.source)


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


def read_model(path: Path, space: SearchSpace) -> Modelled:
    """The model in a file, for a space with the decisions that it was fitted on."""
    with reading(path):
        data = path.read_bytes()
    try:
        content = json.loads(data)
        if content["kind"] != KIND:
            raise ValueError("it is of another kind")
        rows = [(tuple((str(name), str(option)) for name, option in row), float(w)) for *row, w in content["weights"]]
        intercept, unit = float(content["intercept"]), str(content["unit"])
        machine = f"{content['device']}, {content['threads']} threads, batch {content['batch']}"
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path} is no model of archloom latency fit: {one_line(error)}") from error
    if {name: list(options) for name, options in content.get("decisions", {}).items()} != decisions_of(space):
        raise SettingError(f"target.source {path} was fitted for other decisions than this space has; fit one for it")
    return Modelled(LinearCost(space, intercept, dict(rows)), unit=unit, provenance=f"{path.name} ({machine})")


def settings_of(space: SearchSpace) -> dict[str, Any]:
    """All that a space was made with."""
    return {field.name: getattr(space, field.name) for field in fields(space)}


def decisions_of(space: SearchSpace) -> dict[str, list[str]]:
    return {decision.name: list(decision.options) for decision in space.decisions}


__all__ = ["decisions_of", "find_target", "read_model", "settings_of", "write_model"]
