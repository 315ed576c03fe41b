"""Complete a search once its data are read: what follows from the images, the space and the time.

With a budget, the speed of this machine is measured and every phase is planned: size and epochs of the supernet,
then the networks, steps and contestants of the finalist race. The plan is written down as plain settings in
`config.toml`, so that a resumed or repeated run is the same run. What the user wrote stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from archloom.core.durations import format_duration, parse_duration
from archloom.core.errors import SettingError
from archloom.core.settings import Settings, flatten, merge, tables_of
from archloom.data.source import ImageData
from archloom.execution.survey import usable_cores
from archloom.families import family_of
from archloom.searches.budget import CLOCKS, RACE_END, SUPERNET_END, Budget
from archloom.searches.build import SearchBuilder
from archloom.searches.one_shot import OneShotLoop
from archloom.searches.race_proposals import LARGEST, Entrant
from archloom.searches.race_settings import RaceSettings
from archloom.searches.spec import SearchSpec
from archloom.strategies import STRATEGIES
from archloom.strategies.base import BlackBox

SMALL_DATA = 1_000_000  # pixels of all training images, below which the smallest network is large enough
FEWEST_EPOCHS, MOST_EPOCHS = 4, 12  # of a supernet; beyond, shared weights overfit and favour skips and pools
IMAGES_FOR_TEN = 2_000  # training images that get ten epochs; four times as many get half of it
SUPERNET_RATE = 0.1  # of SGD: a supernet of a few hundred steps has to learn fast
STEPS_BEFORE, TIMED_STEPS = 2, 8  # the first steps of a process are slow
WANTED_CONTESTANTS, MOST_CONTESTANTS, FEWEST_CONTESTANTS = 24, 40, 6
ENOUGH = (12, 120)  # contestants and steps for which a more faithful network is preferred
TIMED_TRAINING = (2, 14)  # steps of two trainings; their difference has neither building nor evaluation in it
LEAST_SHARE = 0.4  # of a timed training that its steps take at least: less is a disturbance
WANTED_STEPS, FEWEST_STEPS, MOST_STEPS = 240, 60, 480  # of the first round of a race
RACE_SIDE, LEAST_SIDE = 16, 8  # pixels: images of a race are shrunk to about this
MEAN_COST = 0.75  # of a contestant, relative to the largest architecture
WORKER_START = 6.0  # seconds until a worker process is ready; a race must be longer than a few of them
RACE_SLACK = 0.92  # of the time of a race is planned
DEFAULT_BUDGETS = ((2_000_000, "1m"), (20_000_000, "10m"), (math.inf, "20m"))  # by pixels of all training images

Note = Callable[[str], None]


@dataclass(frozen=True)
class Planned:
    """A completed search, and its budget, which has begun to run."""

    spec: SearchSpec
    budget: Budget | None


def complete_search(spec: SearchSpec, data: ImageData | None, note: Note = lambda line: None) -> Planned:
    """Return the search with everything that depends on its data and its time.

    Args:
        spec: the search as the user wrote it.
        data: the images, where Python code passed them.
        note: receives the plan, line by line.

    Returns:
        The completed search.
    """
    clock = CLOCKS[spec.search.budget_clock]
    start = clock()
    if not has_plan(spec):
        return Planned(spec, None)
    images = data or spec.load_data()
    if _needs_plan(spec):
        text = spec.search.budget or _default_budget(images)
        budget = _begin(parse_duration(text), clock, start)
        return Planned(_Planner(spec, images, budget, note).plan(text), budget)
    seconds = None if spec.search.budget is None else parse_duration(spec.search.budget)
    return Planned(_fit_small_data(spec, images), None if seconds is None else _begin(seconds, clock, start))


def refuse_budget_of_ranks(spec: SearchSpec, ranks: int) -> None:
    """Raise a SettingError where several ranks would have to agree on times that each measures by itself."""
    if ranks > 1 and has_plan(spec) and (_needs_plan(spec) or spec.search.budget is not None):
        raise SettingError(
            f"a search on {ranks} devices needs search.epochs and no search.budget: plans are made for one device"
        )


def has_plan(spec: SearchSpec) -> bool:
    """Return whether settings that the user left out may be planned: those of one-shot searches."""
    return not issubclass(STRATEGIES.find(spec.strategy.name).load(), BlackBox)


def _begin(seconds: float, clock: Callable[[], float], start: float) -> Budget:
    budget = Budget(seconds, clock)
    budget.started = start
    return budget


def _needs_plan(spec: SearchSpec) -> bool:
    given = flatten(spec.given)
    if "race.contestants" in given:
        return False
    return spec.search.budget is not None or not ("search.epochs" in given or "strategy.preset" in given)


def _default_budget(images: ImageData) -> str:
    pixels = len(images.train) * math.prod(images.resolution)
    return next(text for most, text in DEFAULT_BUDGETS if pixels <= most)


@dataclass(frozen=True)
class _Draft:
    """A search as the user wrote it, and settings planned so far, which never override the user's."""

    written: Settings
    planned: Settings = field(default_factory=dict)

    def plan(self, *layers: Settings) -> _Draft:
        """Return the draft with further settings; later ones override earlier ones."""
        return replace(self, planned=merge(self.planned, *layers))

    def is_written(self, name: str) -> bool:
        """Return whether the user wrote a setting, by its dotted name."""
        return name in flatten(self.written)

    def resolve(self) -> SearchSpec:
        """Return the search with all settings."""
        return SearchSpec.resolve(merge(self.planned, self.written))


def _fit_small_data(spec: SearchSpec, images: ImageData) -> SearchSpec:
    """Return the search with the smallest network if there are few pixels to learn from."""
    published = "strategy.preset" in flatten(spec.given)
    if published or len(images.train) * math.prod(images.resolution) >= SMALL_DATA:
        return spec
    smallest = family_of(spec.build_space()).sizes_of(spec.build_space())[0]
    planned = merge(smallest.to_settings(), {"weights": {"learning_rate": SUPERNET_RATE}})
    return _Draft(spec.given).plan(planned).resolve()


class _Planner:
    """Plans the phases of one search."""

    def __init__(self, spec: SearchSpec, images: ImageData, budget: Budget, note: Note) -> None:
        self._spec, self._images, self._budget, self._note = spec, images, budget, note
        self._space = spec.build_space()
        self._family = family_of(self._space)

    def plan(self, text: str) -> SearchSpec:
        """Return the search with the settings of its plan."""
        self._note(f"measuring how fast this machine is, for a budget of {text}")
        cores = usable_cores() if self._spec.search.budget_clock == "wall" else 1
        threads = {"machine": {"torch_threads": 1}} if cores == 1 else {}
        smallest = self._family.sizes_of(self._space)[0].to_settings()
        rate = {"weights": {"learning_rate": SUPERNET_RATE}}
        draft = _Draft(self._spec.given).plan(smallest, threads, rate, {"search": {"budget": text}})
        draft, supernet_seconds = self._plan_supernet(draft)
        return self._plan_race(draft, supernet_seconds, cores).resolve()

    # --- the supernet

    def _plan_supernet(self, draft: _Draft) -> tuple[_Draft, float]:
        """Choose the epochs of the supernet; return them with the seconds that they take."""
        spec = draft.resolve()
        if draft.is_written("search.epochs") and spec.search.epochs == 0:
            return draft, 0.0
        loop = SearchBuilder(spec, self._images).search()
        assert isinstance(loop, OneShotLoop)
        wanted = spec.search.epochs if draft.is_written("search.epochs") else self._wanted_epochs(loop)
        each = self._time_steps(loop) * loop.units_per_record
        epochs = max(1, min(wanted, int(self._budget.left_until(SUPERNET_END) / each)))
        size = self._family.describe_size(loop.space, spec.network.settings)
        advice = "" if epochs >= min(wanted, FEWEST_EPOCHS) else "; this is little, so use a larger budget"
        taken = format_duration(epochs * each)
        self._note(f"supernet: {size}, {epochs} epochs of {loop.units_per_record} steps, about {taken}{advice}")
        return draft.plan({"search": {"epochs": epochs}}), epochs * each

    def _wanted_epochs(self, loop: OneShotLoop) -> int:
        images = loop.units_per_record * self._spec.search.batch_size
        return max(FEWEST_EPOCHS, min(MOST_EPOCHS, round(10 * math.sqrt(IMAGES_FOR_TEN / images))))

    def _time_steps(self, loop: OneShotLoop) -> float:
        """Return the seconds of one step of a search."""
        for _ in range(STEPS_BEFORE):
            loop.advance()
        start = self._budget.elapsed
        for _ in range(TIMED_STEPS):
            loop.advance()
        return max(1e-6, (self._budget.elapsed - start) / TIMED_STEPS)

    # --- the race

    def _plan_race(self, draft: _Draft, supernet_seconds: float, cores: int) -> _Draft:
        """Choose the networks of the race, how many there are, and how long each is trained."""
        seconds = RACE_SLACK * (self._budget.left_until(RACE_END) - supernet_seconds)
        workers = cores if cores > 1 and seconds > 4 * WORKER_START else 1
        usable = workers * (seconds - (WORKER_START if workers > 1 else 0.0))
        race = draft.resolve().race
        for fidelity in self._fidelities():
            tried = draft.plan(fidelity)
            each = MEAN_COST * self._time_training(tried.resolve())
            if usable / each >= race.units(ENOUGH[0]) * ENOUGH[1]:
                break
        contestants, steps = _divide(race, int(usable / each))
        self._note(self._describe_race(tried.resolve(), contestants, steps, usable / workers))
        planned = {"contestants": contestants, "steps": steps}
        return tried.plan({"race": planned, "machine": {"worker_processes": workers}})

    def _time_training(self, spec: SearchSpec) -> float:
        """Return the seconds of one step of the largest contestant."""
        builder = SearchBuilder(spec, self._images)
        training, largest = builder.short_training(), Entrant(builder.references()[LARGEST], LARGEST)
        training(largest, 1, 0, lambda: False)  # the first training of a process is slow
        times = []
        for steps in TIMED_TRAINING:
            start = self._budget.elapsed
            training(largest, steps, 0, lambda: False)
            times.append(self._budget.elapsed - start)
        return seconds_per_step(*times)

    def _fidelities(self) -> Iterator[Settings]:
        """Yield settings of contestants, the most faithful first: full depth, then less; then smaller images."""
        side = min(self._images.resolution)
        shrinks = sorted({max(1, side // RACE_SIDE), max(1, side // LEAST_SIDE)})
        depths = self._depths()
        yield from ({"race": {"space": depth, "shrink": shrinks[0]}} for depth in depths)
        yield from ({"race": {"space": depths[-1], "shrink": shrink}} for shrink in shrinks[1:])

    def _depths(self) -> list[Settings]:
        """Return the settings of depths from full depth down; only the stated one where there is one."""
        if self._family.has_fixed_depth(self._space):
            return [{}]
        names = self._family.depth_settings
        written = {name: value for name, value in self._spec.given.get("space", {}).items() if name in names}
        if written:
            return [written]
        full = tables_of(self._family.at_full_depth(self._space))
        deepest = {name: full[name] for name in names if name in full}
        sizes = [size.space for size in reversed(self._family.sizes_of(self._space))]
        shallower = [space for space in sizes if sum(space.values()) < sum(deepest.values())]
        unique = {tuple(sorted(space.items())): space for space in (deepest, *shallower)}
        return list(unique.values())

    def _describe_race(self, spec: SearchSpec, contestants: int, steps: int, seconds: float) -> str:
        side = min(self._images.resolution) // spec.race.shrink
        space = self._family.at_full_depth(self._space)
        if spec.race.space:
            changed: dict[str, Any] = dict(spec.race.space)
            space = replace(self._space, **changed)
        size = self._family.describe_size(space, {**spec.network.settings, **spec.race.network})
        return (
            f"finalist race: {contestants} networks of {size}, {side} pixels, {steps} steps each; the best again, for "
            f"longer; about {format_duration(seconds)}"
        )


def seconds_per_step(short: float, long: float) -> float:
    """Return the seconds of a step from two timed trainings, and no absurd number if one of them was disturbed."""
    few, many = TIMED_TRAINING
    return max(1e-6, (long - short) / (many - few), LEAST_SHARE * long / many)


def _divide(race: RaceSettings, steps_in_all: int) -> tuple[int, int]:
    """Return how many contestants get how many steps: steps first, up to what is wanted, then contestants."""
    fewest = race.units(FEWEST_CONTESTANTS)
    steps = max(FEWEST_STEPS, min(WANTED_STEPS, steps_in_all // race.units(WANTED_CONTESTANTS)))
    rounds = fewest - FEWEST_CONTESTANTS
    contestants = max(FEWEST_CONTESTANTS, min(MOST_CONTESTANTS, steps_in_all // steps - rounds))
    if contestants == MOST_CONTESTANTS:
        steps = min(MOST_STEPS, steps_in_all // race.units(MOST_CONTESTANTS))
    return contestants, steps
