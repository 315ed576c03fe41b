"""Build the target of a search from its settings: find the source of the cost, and check that it fits."""

from __future__ import annotations

from archloom.benchmarks import Benchmark
from archloom.core.errors import SettingError
from archloom.core.settings import Settings
from archloom.data import Facts
from archloom.objectives import CostTable
from archloom.objectives.cost_model_file import CostModelFile
from archloom.objectives.cost_source import CostSource, CountedCost
from archloom.objectives.latency import MeasuredLatency
from archloom.objectives.target import Target, TargetSettings, make_target
from archloom.spaces import SearchSpace


def find_target(
    asked: TargetSettings,
    space: SearchSpace,
    *,
    table: Benchmark | None,
    facts: Facts,
    network: Settings,
) -> Target | None:
    """Return the target that the settings describe, if any."""
    if asked.metric == "none":
        return None
    if asked.metric == "latency":
        return make_target(asked, _latency_source(asked, space, table))
    costs = CostTable(space, classes=facts.classes, image_shape=facts.image_shape, **network)
    return make_target(
        asked, CountedCost(space, costs, asked.metric, provenance="counted in the network that is searched")
    )


def _latency_source(asked: TargetSettings, space: SearchSpace, table: Benchmark | None) -> CostSource:
    assert asked.source is not None, "checked with the settings"
    if asked.file is not None and asked.file.suffix == ".json":
        return CostModelFile.read(asked.file).to_source(space, asked.file)
    if table is None:
        raise SettingError(
            f"target.source '{asked.source}' needs a benchmark table that covers this space, and none was found; pass "
            "--data-dir with its folder, or a model made by archloom latency fit"
        )
    if asked.file is not None:
        return MeasuredLatency.in_file(space, table, asked.file)
    return MeasuredLatency.on_device(space, table, asked.source)
