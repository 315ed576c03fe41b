"""Complete a search once its data are read: what follows from the images, the space and the time.

With a budget, the speed of this machine is measured and every phase is planned: size and epochs of the supernet,
then the networks, steps and contestants of the finalist race. The plan is written down as plain settings in
`config.toml`, so that a resumed or repeated run is the same run. What the user wrote stays as it is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from archloom.core.counts import count_text
from archloom.core.durations import format_duration, parse_duration
from archloom.core.errors import SettingError
from archloom.core.settings import Settings, flatten, merge, tables_of
from archloom.data import DataSet
from archloom.execution.survey import usable_cores
from archloom.families import family_of
from archloom.searches.budget import PLAN_END, RACE_END, Budget, time_steps
from archloom.searches.build import SearchBuilder
from archloom.searches.one_shot import OneShotLoop
from archloom.searches.race_settings import RaceSettings
from archloom.searches.spec import SearchSpec
from archloom.searches.threads import choose_threads
from archloom.spaces import SearchSpace
from archloom.strategies import STRATEGIES
from archloom.strategies.base import BlackBox

SMALL_DATA = (
    1_000_000  # pixels of all training images (`DataSet.amount`), below which the smallest network is large enough
)
FEWEST_EPOCHS, MOST_EPOCHS = 4, 12  # of a supernet; beyond, shared weights overfit and favour skips and pools
IMAGES_FOR_TEN = 2_000  # training images that get ten epochs; four times as many get half of it
SUPERNET_RATE = 0.1  # of SGD: a supernet of a few hundred steps has to learn fast
STEPS_BEFORE, TIMED_STEPS = 2, 8  # the first steps of a process are slow
WANTED_CONTESTANTS, MOST_CONTESTANTS, FEWEST_CONTESTANTS = 24, 120, 6
ENOUGH = (12, 120)  # contestants and steps for which a more faithful network is preferred
TIMED_CONTESTANTS, TIMED_TRAINING = 6, 2  # random contestants, and the steps of each
PROPOSAL_COST = 1.8  # of a contestant that wins rounds, relative to a random one: good networks are larger
LATE = 0.4  # of the budget; after it no race is timed
TIMING_SHARE = 0.03  # of the budget that one timing takes at most, if a step does not take longer
WANTED_STEPS, FEWEST_STEPS, MOST_STEPS = 240, 60, 480  # of the first round of a race
RACE_SIDE, LEAST_SIDE = 16, 8  # pixels: images of a race are shrunk to about this
WORKER_START = 6.0  # seconds until a worker process is ready; a race must be longer than a few of them
RACE_SLACK = 0.92  # of the time of a race is planned
DEFAULT_BUDGETS = ((2_000_000, "1m"), (20_000_000, "10m"), (math.inf, "20m"))  # by pixels of all training images

Note = Callable[[str], None]


@dataclass(frozen=True)
class Planned:
    """A completed search, and its budget, which has begun to run."""

    spec: SearchSpec
    budget: Budget | None


def complete_search(
    spec: SearchSpec, data: DataSet | None, note: Note = lambda line: None, *, spent: float = 0.0
) -> Planned:
    """Return the search with everything that depends on its data and its time.

    Args:
        spec: the search as the user wrote it.
        data: the images, where Python code passed them.
        note: receives the plan, line by line.
        spent: seconds of the budget that have passed already.

    Returns:
        The completed search.
    """
    budget = Budget.begin_with_process(0.0, spec.search.budget_clock, age=spent)  # reading the data counts
    if _needs_plan(spec):
        images = data or spec.load_data()
        text = spec.search.budget or _default_budget(images)
        budget.seconds = parse_duration(text)
        return Planned(_Planner(spec, images, budget, note).plan(text), budget)
    fitted = spec if _is_black_box(spec) else _fit_small_data(spec, data or spec.load_data())
    if spec.search.budget is None:
        return Planned(fitted, None)
    budget.seconds = parse_duration(spec.search.budget)
    return Planned(fitted, budget)


def refuse_budget_of_ranks(spec: SearchSpec, ranks: int) -> None:
    """Raise a SettingError where several ranks would have to agree on times that each measures by itself."""
    if ranks > 1 and has_plan(spec) and (_needs_plan(spec) or spec.search.budget is not None):
        raise SettingError(
            f"a search on {ranks} devices needs search.epochs and no search.budget: plans are made for one device"
        )


def has_plan(spec: SearchSpec) -> bool:
    """Return whether settings that the user left out may be planned: those of all searches that train."""
    return _needs_plan(spec) or not _is_black_box(spec)


def _is_black_box(spec: SearchSpec) -> bool:
    return issubclass(STRATEGIES.find(spec.strategy.name).load(), BlackBox)


def _needs_plan(spec: SearchSpec) -> bool:
    given = flatten(spec.given)
    if _is_black_box(spec):
        length = given.keys() & {"search.trials", "search.score_epochs", "strategy.preset"}
        planned = (spec.search.budget is not None or not length) and "search.score_epochs" not in given
        alone = spec.search.score == "auto" and spec.search.study is None  # processes of a study share its settings
        return planned and alone and spec.find_guide(spec.build_space()) is None
    if "race.contestants" in given:
        return False
    return spec.search.budget is not None or not ("search.epochs" in given or "strategy.preset" in given)


def _default_budget(images: DataSet) -> str:
    return next(text for most, text in DEFAULT_BUDGETS if images.amount <= most)


@dataclass(frozen=True)
class _TrainingTime:
    """The time for short trainings: seconds until they must be over, until a worker is ready, and the workers."""

    seconds: float
    start: float
    workers: int

    @property
    def in_all(self) -> float:
        """Return the seconds of all workers together."""
        return self.workers * (self.seconds - (self.start if self.workers > 1 else 0.0))

    def describe(self) -> str:
        """Return how long the trainings take, in words."""
        return format_duration(self.in_all / self.workers)


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


def _fit_small_data(spec: SearchSpec, images: DataSet) -> SearchSpec:
    """Return the search with the smallest network if there are few pixels to learn from."""
    published = "strategy.preset" in flatten(spec.given)
    if published or images.amount >= SMALL_DATA:
        return spec
    smallest = family_of(spec.build_space()).sizes_of(spec.build_space())[0]
    planned = merge(smallest.to_settings(), {"weights": {"learning_rate": SUPERNET_RATE}})
    return _Draft(spec.given).plan(planned).resolve()


class _Planner:
    """Plans the phases of one search."""

    def __init__(self, spec: SearchSpec, images: DataSet, budget: Budget, note: Note) -> None:
        self._spec, self._images, self._budget, self._note = spec, images, budget, note
        self._space = spec.build_space()
        self._family = family_of(self._space)

    def plan(self, text: str) -> SearchSpec:
        """Return the search with the settings of its plan."""
        self._note(f"measuring how fast this machine is, for a budget of {text}")
        cores = usable_cores() if self._spec.search.budget_clock == "wall" else 1
        threads = {"machine": {"torch_threads": 1 if cores == 1 else choose_threads()}}
        if _is_black_box(self._spec):
            return self._plan_trials(_Draft(self._spec.given).plan(threads, {"search": {"budget": text}}), cores)
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
        each = self._time(loop.advance, before=STEPS_BEFORE, count=TIMED_STEPS) * loop.units_per_record
        epochs = max(1, min(wanted, int(self._budget.left_until(self._budget.end_of_supernet()) / each)))
        size = self._family.describe_size(loop.space, spec.network.settings)
        advice = "" if epochs >= min(wanted, FEWEST_EPOCHS) else "; this is little, so use a larger budget"
        taken = format_duration(epochs * each)
        length = f"{count_text(epochs, 'epoch')} of {count_text(loop.units_per_record, 'step')}"
        self._note(f"supernet: {size}, {length}, about {taken}{advice}")
        return draft.plan({"search": {"epochs": epochs}}), epochs * each

    def _wanted_epochs(self, loop: OneShotLoop) -> int:
        images = loop.units_per_record * self._spec.search.batch_size
        return max(FEWEST_EPOCHS, min(MOST_EPOCHS, round(10 * math.sqrt(IMAGES_FOR_TEN / images))))

    def _time(self, step: Callable[[], object], *, before: int, count: int, share: float = 1.0) -> float:
        """Return the seconds of a step; `share` of the time for one timing may pass."""
        seconds = time_steps(step, self._clock, before=before, count=count, most=share * self._most_seconds)
        self._budget.watch_load()
        return seconds

    def _clock(self) -> float:
        return self._budget.elapsed

    @property
    def _most_seconds(self) -> float:
        return TIMING_SHARE * self._budget.seconds

    # --- short trainings: the race, and the trials of a black box

    def _plan_race(self, draft: _Draft, supernet_seconds: float, cores: int) -> _Draft:
        """Choose the networks of the race, how many there are, and how long each is trained."""
        race = draft.resolve().race
        most = race.most_time * supernet_seconds if race.most_time else 0.0
        time = self._plan_time(supernet_seconds, cores, most=most or math.inf)
        tried, each = self._try_fidelities(draft, time, units=race.units(ENOUGH[0]))
        contestants, steps = _divide(race, int(time.in_all / each))
        networks = self._describe_networks(tried.resolve(), contestants, steps)
        self._note(f"finalist race: {networks}; the best again, for longer; about {time.describe()}")
        planned = {"contestants": contestants, "steps": steps}
        return tried.plan({"race": planned, "machine": {"worker_processes": time.workers}})

    def _plan_trials(self, draft: _Draft, cores: int) -> SearchSpec:
        """Choose how briefly each trial of a black box is trained, and how many there are."""
        strategy = STRATEGIES.find(self._spec.strategy.name).load()
        decides_early = strategy.should_continue is not BlackBox.should_continue
        time = self._plan_time(0.0, 1 if decides_early else cores)
        tried, each = self._try_fidelities(draft, time, units=ENOUGH[0])
        in_all = int(time.in_all / each)
        steps = max(FEWEST_STEPS, min(WANTED_STEPS, in_all // WANTED_CONTESTANTS))
        trials = max(FEWEST_CONTESTANTS, min(self._space.cardinality, in_all // steps))
        networks = self._describe_networks(tried.resolve(), trials, steps)
        self._note(f"trials: {networks}; about {time.describe()}")
        search = {"score": "short", "trials": trials, "trials_at_once": time.workers}
        return tried.plan(
            {"search": search, "race": {"steps": steps}, "machine": {"worker_processes": time.workers}}
        ).resolve()

    def _plan_time(self, before: float, cores: int, *, most: float = math.inf) -> _TrainingTime:
        """Return the time for short trainings after a phase that takes so many seconds, at most `most`."""
        seconds = min(most, RACE_SLACK * (self._budget.left_until(RACE_END) - before))
        start = WORKER_START / self._budget.core_share
        return _TrainingTime(seconds, start, cores if cores > 1 and seconds > 4 * start else 1)

    def _try_fidelities(self, draft: _Draft, time: _TrainingTime, *, units: int) -> tuple[_Draft, float]:
        """Return the most faithful networks of which enough fit, and the seconds of a step."""
        fidelities = [draft.plan(fidelity) for fidelity in self._fidelities()]
        if self._budget.left_until(LATE) > 0:
            return self._choose_fidelity(fidelities, time.in_all / (units * ENOUGH[1]))
        return fidelities[-1], math.inf  # the cheapest, as short as can be: there is no time to measure

    def _choose_fidelity(self, fidelities: Sequence[_Draft], enough: float) -> tuple[_Draft, float]:
        """Return the first whose steps take at most `enough` seconds, else the last, and the seconds of its steps."""
        for number, tried in enumerate(fidelities, start=1):
            if number < len(fidelities) and self._budget.is_past(PLAN_END):
                continue  # the last one is the cheapest
            each = self._time_training(tried.resolve())
            if each <= enough:
                break
        return tried, each

    def _time_training(self, spec: SearchSpec) -> float:
        """Return the mean seconds that one step of a contestant will take."""
        builder = SearchBuilder(spec, self._images)
        training, typical = builder.short_training(), builder.typical_contestants(TIMED_CONTESTANTS)
        times, start = [], self._clock()
        for one in typical:
            times.append(self._time(training.begin(one), before=1, count=TIMED_TRAINING, share=1 / len(typical)))
            if self._clock() - start > 2 * self._most_seconds:  # to build a network takes time, too
                break
        return PROPOSAL_COST * statistics.fmean(times)

    def _fidelities(self) -> Iterator[Settings]:
        """Yield settings of contestants, the most faithful first: full depth, then less; then smaller images."""
        side = self._images.side
        shrinks = sorted({max(1, side // RACE_SIDE), max(1, side // LEAST_SIDE)}) if side else [1]
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
        full = tables_of(self._full_space())
        deepest = {name: full[name] for name in names if name in full}
        sizes = [size.space for size in reversed(self._family.sizes_of(self._space))]
        shallower = [space for space in sizes if sum(space.values()) < sum(deepest.values())]
        unique = {tuple(sorted(space.items())): space for space in (deepest, *shallower)}
        return list(unique.values())

    def _full_space(self) -> SearchSpace:
        """Return the space with networks as deep as the final one."""
        depth, full = self._spec.final.depth, self._family.at_full_depth(self._space)
        deep: SearchSpace = full if depth is None else self._family.with_depth(full, depth)
        return deep

    def _describe_networks(self, spec: SearchSpec, count: int, steps: int) -> str:
        side = self._images.side // spec.race.shrink
        pixels = f", {side} pixels" if side else ""
        space = self._full_space()
        if spec.race.space:
            changed: dict[str, Any] = dict(spec.race.space)
            space = replace(self._space, **changed)
        size = self._family.describe_size(space, {**spec.network.settings, **spec.race.network})
        return f"{count} networks of {size}{pixels}, {count_text(steps, 'step')} each"


def _divide(race: RaceSettings, steps_in_all: int) -> tuple[int, int]:
    """Return how many contestants get how many steps: steps up to what is wanted, then contestants, then more steps."""
    steps = max(FEWEST_STEPS, min(WANTED_STEPS, steps_in_all // race.units(WANTED_CONTESTANTS)))
    fitting = (n for n in range(FEWEST_CONTESTANTS, MOST_CONTESTANTS + 1) if race.units(n) * steps <= steps_in_all)
    contestants = max(fitting, default=FEWEST_CONTESTANTS)
    return contestants, max(steps, min(MOST_STEPS, steps_in_all // race.units(contestants)))
