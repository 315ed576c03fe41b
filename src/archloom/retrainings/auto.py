"""Complete a retraining from its images: the stem, the width within a limit, and all that the recipe `auto` chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from archloom.core.durations import parse_duration
from archloom.core.settings import Settings, flatten, merge
from archloom.data.source import ImageData
from archloom.families import family_of
from archloom.retrainings.build import cost_of_model, seconds_per_image, shown_shape, split_of
from archloom.retrainings.sizes import AUTO, DEFAULT_BUDGET, Budget, choose_size
from archloom.retrainings.spec import RetrainSpec
from archloom.retrainings.transfer import Origin, adapt_network, list_differences
from archloom.searches.threads import choose_threads

TIMING_SHARE = 0.03  # of the budget that one timing takes at most, if a step does not take longer

Note = Callable[[str], None]


def complete(
    retrain: RetrainSpec,
    given: Settings,
    overrides: Settings,
    origin: Origin,
    data: ImageData,
    *,
    budget: str | None,
    note: Note,
) -> RetrainSpec:
    """Return the retraining with everything that depends on the images, and what that changed.

    `given` is the whole configuration, `overrides` the part of it that the user wrote: this part stays.
    """
    network, notes = adapt_network(given, retrain, data)
    settings = merge(given, {"network": network})
    if retrain.recipe == AUTO:
        settings = _choose(settings, retrain, overrides, data, budget or DEFAULT_BUDGET, note)
    resolved = RetrainSpec.resolve(settings)
    changed = (*list_differences(origin, resolved, data), *notes)
    for line in changed:
        note(line)
    return replace(resolved, changed=changed)


def _choose(
    given: Settings, retrain: RetrainSpec, overrides: Settings, data: ImageData, time: str, note: Note
) -> Settings:
    """Choose size, epochs and regularization for the recipe `auto`; overrides stay."""
    train, valid = split_of(retrain, data)
    side, space = min(shown_shape(data)[1:]), retrain.build_space()
    budget = Budget(len(train), 0 if valid is None else len(valid), side, parse_duration(time))
    family = family_of(space)
    options = [
        merge(given, _select(budget.regularization_for(place), retrain), size.to_settings(), overrides)
        for place, size in enumerate(family.sizes_of(space))
    ]
    resolved = [RetrainSpec.resolve(option) for option in options]
    costs = [cost_of_model(option, data).multiply_adds for option in resolved]
    order = sorted(range(len(costs)), key=lambda size: costs[size])
    note("measuring how fast this machine trains")
    most = TIMING_SHARE * budget.seconds
    threads = _choose_threads(retrain, overrides)
    choice = choose_size(
        budget,
        [costs[size] for size in order],
        lambda size: seconds_per_image(resolved[order[size]], data, most=most),
        epochs=flatten(overrides).get("training.epochs"),
    )
    best = order[choice.size]
    size = family.describe_size(resolved[best].build_space(), resolved[best].network.settings)
    batch, minutes = resolved[best].training.batch_size, choice.seconds / 60
    note(
        f"auto: {size} ({costs[best] / 1e6:.1f} M multiply-adds), {choice.epochs} epochs of batches of {batch}: "
        f"{minutes:.1f} min of {time} for {budget.images:,} images of {side} pixels"
    )
    note(f"why: {choice.reason}")
    return merge(options[best], {"training": {"epochs": choice.epochs}}, threads)


def _choose_threads(retrain: RetrainSpec, overrides: Settings) -> Settings:
    """Return the number of torch threads that is faster now, unless the user wrote one."""
    if "machine.torch_threads" in flatten(overrides) or retrain.machine.prepare().type != "cpu":
        return {}
    return {"machine": {"torch_threads": choose_threads()}}


def _select(settings: Mapping[str, Settings], retrain: RetrainSpec) -> dict[str, Settings]:
    """Return the settings that the network at hand has."""
    known = retrain.to_settings()
    return {part: {name: v for name, v in values.items() if name in known[part]} for part, values in settings.items()}
