"""Complete a retraining from its images: the stem, the width within a limit, and all that the recipe `auto` chooses."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from archloom.core.counts import count_text
from archloom.core.durations import parse_duration
from archloom.core.settings import Settings, flatten, merge
from archloom.data import DataSet
from archloom.data.source import ImageData
from archloom.data.text import TextData
from archloom.families import family_of
from archloom.retrainings.build import cost_of_model, seconds_per_image, shown_shape, split_of
from archloom.retrainings.sizes import AUTO, DEFAULT_BUDGET, Budget, SizeChoice, choose_size
from archloom.retrainings.spec import RetrainSpec
from archloom.retrainings.text_build import choose_text_size
from archloom.retrainings.transfer import Origin, adapt_network, list_differences, list_text_differences
from archloom.searches.threads import choose_threads

TIMING_SHARE = 0.03  # of the budget that one timing takes at most, if a step does not take longer

Note = Callable[[str], None]


def complete(
    retrain: RetrainSpec,
    given: Settings,
    overrides: Settings,
    origin: Origin,
    data: DataSet,
    *,
    budget: str | None,
    note: Note,
) -> RetrainSpec:
    """Return the retraining with everything that depends on the data, and what that changed.

    `given` is the whole configuration, `overrides` the part of it that the user wrote: this part stays.
    """
    if isinstance(data, TextData):
        return _complete_for_text(retrain, given, overrides, origin, data, budget=budget, note=note)
    assert isinstance(data, ImageData)
    network, notes = adapt_network(given, retrain, data)
    settings = merge(given, {"network": network})
    if retrain.recipe == AUTO:
        settings = _choose(settings, retrain, overrides, data, budget or DEFAULT_BUDGET, note)
    resolved = RetrainSpec.resolve(settings)
    changed = (*list_differences(origin, resolved, data), *notes)
    for line in changed:
        note(line)
    return replace(resolved, changed=changed)


def _complete_for_text(
    retrain: RetrainSpec,
    given: Settings,
    overrides: Settings,
    origin: Origin,
    data: TextData,
    *,
    budget: str | None,
    note: Note,
) -> RetrainSpec:
    settings = given
    if retrain.recipe == AUTO:
        settings = choose_text_size(given, retrain, overrides, data, budget or DEFAULT_BUDGET, note)
    resolved = RetrainSpec.resolve(settings)
    changed = tuple(list_text_differences(origin, resolved))
    for line in changed:
        note(line)
    return replace(resolved, changed=changed)


@dataclass(frozen=True)
class AutoPlan:
    """The network that the recipe `auto` trains in a time, and what another one of its size may cost."""

    spec: RetrainSpec
    settings: Settings
    cost: int  # multiply-adds
    size: SizeChoice

    @property
    def description(self) -> str:
        """Return depth and width in words."""
        space = self.spec.build_space()
        return family_of(space).describe_size(space, self.spec.network.settings)


def _choose(
    given: Settings, retrain: RetrainSpec, overrides: Settings, data: ImageData, time: str, note: Note
) -> Settings:
    """Choose size, epochs and regularization for the recipe `auto`; overrides stay."""
    note("measuring how fast this machine trains")
    threads = _choose_threads(retrain, overrides)
    plan = plan_auto(given, retrain, overrides, data, time)
    batch, minutes = plan.spec.training.batch_size, plan.size.seconds / 60
    images, side = len(split_of(retrain, data)[0]), min(shown_shape(data)[1:])
    note(
        f"auto: {plan.description} ({plan.cost / 1e6:.1f} M multiply-adds), {count_text(plan.size.epochs, 'epoch')} "
        f"of batches of {batch}: {minutes:.1f} min of {time} for {images:,} images of {side} pixels"
    )
    note(f"why: {plan.size.reason}")
    return merge(plan.settings, {"training": {"epochs": plan.size.epochs}}, threads)


def plan_auto(given: Settings, retrain: RetrainSpec, overrides: Settings, data: ImageData, time: str) -> AutoPlan:
    """Return the size that fits a time, by measured steps; `overrides` of the user stay."""
    train, valid = split_of(retrain, data)
    side, space = min(shown_shape(data)[1:]), retrain.build_space()
    budget = Budget(len(train), 0 if valid is None else len(valid), side, parse_duration(time))
    sizes = [size.to_settings() for size in family_of(space).sizes_of(space)]
    usual = [_count(merge(given, size), data) for size in sizes]
    written = [merge(given, size, overrides) for size in sizes]  # the user may have fixed depth or width
    places = [bisect.bisect_right(usual, _count(option, data)) - 1 for option in written]
    options = [
        merge(given, _select(budget.regularization_for(max(0, place)), retrain), size, overrides)
        for place, size in zip(places, sizes, strict=True)
    ]
    if len(set(map(repr, options))) == 1:  # they did
        options = options[:1]
    resolved = [RetrainSpec.resolve(option) for option in options]
    costs = [cost_of_model(option, data).multiply_adds for option in resolved]
    order = sorted(range(len(costs)), key=lambda size: costs[size])
    most = TIMING_SHARE * budget.seconds
    choice = choose_size(
        budget,
        [costs[size] for size in order],
        lambda size: seconds_per_image(resolved[order[size]], data, most=most),
        epochs=flatten(overrides).get("training.epochs"),
    )
    best = order[choice.size]
    return AutoPlan(resolved[best], options[best], costs[best], choice)


def _count(settings: Settings, data: ImageData) -> int:
    return cost_of_model(RetrainSpec.resolve(settings), data).multiply_adds


def _choose_threads(retrain: RetrainSpec, overrides: Settings) -> Settings:
    """Return the number of torch threads that is faster now, unless the user wrote one."""
    if "machine.torch_threads" in flatten(overrides) or retrain.machine.prepare().type != "cpu":
        return {}
    alone = retrain.training.budget_clock == "cpu"  # a second thread would spend the budget, too
    return {"machine": {"torch_threads": 1 if alone else choose_threads()}}


def _select(settings: Mapping[str, Settings], retrain: RetrainSpec) -> dict[str, Settings]:
    """Return the settings that the network at hand has."""
    known = retrain.to_settings()
    return {part: {name: v for name, v in values.items() if name in known[part]} for part, values in settings.items()}
