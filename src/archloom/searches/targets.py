"""Build the target and the limit of a search from their settings: find the source of the cost, check that it fits."""

from __future__ import annotations

from archloom.benchmarks import Benchmark
from archloom.core.errors import SettingError
from archloom.objectives.cost_model_file import CostModelFile
from archloom.objectives.cost_source import CostSource, CountedCost
from archloom.objectives.latency import MeasuredLatency
from archloom.objectives.limits import Limit, LimitSettings, cheapest
from archloom.objectives.target import Target, TargetSettings, make_target
from archloom.searches.final_network import FinalNetwork
from archloom.spaces import SearchSpace


def find_target(
    asked: TargetSettings, space: SearchSpace, *, table: Benchmark | None, final: FinalNetwork
) -> Target | None:
    """Return the target that the settings describe, if any."""
    return None if asked.metric == "none" else make_target(asked, _find_source("target", asked, space, table, final))


def find_limit(
    settings: LimitSettings, space: SearchSpace, *, table: Benchmark | None, final: FinalNetwork
) -> Limit | None:
    """Return the limit that the settings describe, if any.

    Raises:
        SettingError: If even the cheapest architecture costs more.
    """
    if settings.metric == "none":
        return None
    assert settings.value is not None, "checked with the metric"
    limit = Limit(source=_find_source("limit", settings, space, table, final), value=settings.value, beta=settings.beta)
    least = cheapest(space, limit.cost)
    if least is not None and not limit.allows(least):
        unit, provenance = limit.source.unit, limit.source.provenance
        raise SettingError(
            f"limit.value must be at least {limit.cost(least):,.10g} {unit}, what the cheapest architecture costs "
            f"({provenance}): {space.format(least)}; got {limit.value:,.10g}"
        )
    return limit


def _find_source(
    section: str,
    asked: TargetSettings | LimitSettings,
    space: SearchSpace,
    table: Benchmark | None,
    final: FinalNetwork,
) -> CostSource:
    if asked.metric == "latency":
        return _latency_source(section, asked, table, final)
    assert asked.metric != "none", "checked before"
    provenance = f"counted in the final network: {final.description}"
    return CountedCost(space, final.cost_table(), asked.metric, provenance=provenance)


def _latency_source(
    section: str, asked: TargetSettings | LimitSettings, table: Benchmark | None, final: FinalNetwork
) -> CostSource:
    assert asked.source is not None, "checked with the settings"
    space = final.space
    if asked.file is not None and asked.file.suffix == ".json":
        model = CostModelFile.read(asked.file)
        return model.to_source(space, asked.file, network=final.network, image_shape=final.image_shape)
    if table is None:
        raise SettingError(
            f"{section}.source '{asked.source}' needs a benchmark table that covers this space, and none was found; "
            "pass --data-dir with its folder, or a model made by archloom latency fit"
        )
    if asked.file is not None:
        return MeasuredLatency.in_file(space, table, asked.file)
    return MeasuredLatency.on_device(space, table, asked.source)
