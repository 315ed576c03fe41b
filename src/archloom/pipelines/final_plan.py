"""Plan the final network of a pipeline before its search: what the time of the retraining allows.

The recipe `auto` fits the size of a network to the time. An architecture that costs more gets a smaller network or
fewer epochs, and a search that does not know this returns one that cannot be trained in time. So the size is planned
before the search, for the first reference of the space: races train networks of its depth, the result may cost at most
what still gets enough epochs, and the retraining keeps to the size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from archloom.core.counts import count_text
from archloom.core.settings import Settings, flatten, merge
from archloom.data.source import ImageData
from archloom.families import family_of
from archloom.objectives.limits import format_amount, largest
from archloom.retrainings.auto import AutoPlan, plan_auto
from archloom.retrainings.run import RetrainRequest
from archloom.retrainings.transfer import adapt_network
from archloom.searches.final_network import FinalNetwork
from archloom.searches.spec import SearchSpec
from archloom.spaces import Architecture

OWN = ("final.", "limit.", "target.")  # settings of the user that leave nothing to plan

Note = Callable[[str], None]
Request = Callable[[Architecture], RetrainRequest]


@dataclass(frozen=True)
class FinalPlan:
    """Settings of a search and of its retraining that follow from the time of the retraining, and why."""

    settings: Settings
    retrain: Settings
    reason: str


def plan_final(search: SearchSpec, data: ImageData, request: Request, time: str) -> FinalPlan | None:
    """Return the size and the highest cost of the network that can be retrained in a time.

    None where the user's settings say it, where the space has no reference, or where nothing would differ.

    Args:
        search: the search as the user wrote it.
        data: the images.
        request: returns the retraining of an architecture.
        time: of one retraining, as 5m.
    """
    references = search.build_space().references()
    if not references or any(name.startswith(OWN) for name in flatten(search.given)):
        return None
    name, reference = next(iter(references.items()))
    asked = request(search.build_space().prune(reference))
    network, _ = adapt_network(asked.given, asked.spec, data)
    plan = plan_auto(merge(asked.given, {"network": network}), asked.spec, asked.overrides, data, time)
    final, retrain = _describe_final(search, plan), _describe_size(plan)
    sized = SearchSpec.resolve(merge(search.given, final))
    if FinalNetwork.of(sized, data.facts).count(asked.spec.architecture).multiply_adds != plan.cost:
        return None  # the section `final` cannot say all that the size has
    size = f"in {time}, {name} can be trained with {plan.description} for {count_text(plan.size.epochs, 'epoch')}"
    if _find_highest_cost(sized, data) <= plan.size.most_cost:
        return FinalPlan(final, retrain, f"{size}, and so can any other architecture")
    most = math.floor(plan.size.most_cost)
    return FinalPlan(
        merge(final, {"limit": {"metric": "multiply_adds", "value": most}}),
        retrain,
        f"{size}; at most {format_amount(most)} multiply-adds get enough epochs",
    )


def _describe_final(search: SearchSpec, plan: AutoPlan) -> Settings:
    space = plan.spec.build_space()
    name = family_of(space).depth_setting(space)
    depth = {} if name is None else {"depth": getattr(space, name)}
    has_width = "channels" in search.network.settings
    return {"final": {**depth, **({"channels": plan.spec.network.settings["channels"]} if has_width else {})}}


def _describe_size(plan: AutoPlan) -> Settings:
    """Return the settings of the retraining that fix the size: its measurement must not choose another one."""
    space = plan.spec.build_space()
    size = family_of(space).sizes_of(space)[0].to_settings()
    return {part: {name: plan.settings[part][name] for name in names} for part, names in size.items()}


def _find_highest_cost(search: SearchSpec, data: ImageData) -> float:
    costs = FinalNetwork.of(search, data.facts).cost_table()
    space = search.build_space()

    def cost(one: Architecture) -> float:
        return float(costs.cost(one).multiply_adds)

    found = largest(space, cost)
    return 0.0 if found is None else cost(found)
