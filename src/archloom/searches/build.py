"""Build the loop of a resolved search: loaders, network, strategy, table."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from archloom.benchmarks import Benchmark
from archloom.core.errors import ArchloomError, SettingError
from archloom.core.events import Listener
from archloom.core.seeds import derive_seed
from archloom.core.settings import Component, Settings, settings_of
from archloom.data import DataSet
from archloom.data.loader import Batches
from archloom.execution.executors import Executor, SerialExecutor
from archloom.execution.machine import Machine
from archloom.execution.places import PROCESSES, is_remote, make_executor
from archloom.families import build_network, family_of
from archloom.objectives.limits import Limit, largest
from archloom.objectives.target import Target
from archloom.searches.black_box import BlackBoxLoop, PathScore, TableScore
from archloom.searches.budget import CLOCKS, Budget
from archloom.searches.final_network import FinalNetwork, facts_of
from archloom.searches.finalist_race import Begin, ShortScore, ShortTraining
from archloom.searches.loaders import ImageLoaders, SearchLoaders, TextLoaders
from archloom.searches.loop import SearchLoop, TableLookup
from archloom.searches.monitor import Monitor
from archloom.searches.one_shot import OneShotLoop
from archloom.searches.paths import trained_paths
from archloom.searches.race_proposals import LARGEST, RANDOM, TRIES, Entrant
from archloom.searches.race_runner import RaceRunner
from archloom.searches.short_training import StandaloneScore, build_standalone, seeded
from archloom.searches.spec import SearchSpec, build_space
from archloom.searches.studies import Score, SharedStudy, Study
from archloom.searches.targets import find_limit, find_target
from archloom.searches.trial_jobs import ParallelScore
from archloom.spaces import Architecture, SearchSpace
from archloom.strategies.base import BlackBox
from archloom.supernet import Resolve, SharedWeights, WeightSettings
from archloom.supernet.ranks import ALONE, Ranks
from archloom.tasks import LANGUAGE, Task

SCORE_EPOCHS = 5  # default of a trial that is trained


def build_search(
    spec: SearchSpec,
    *,
    data: DataSet | None = None,
    listeners: Sequence[Listener] = (),
    budget: Budget | None = None,
    jobs: JobPlace | None = None,
    ranks: Ranks = ALONE,
) -> SearchLoop[Any]:
    """Return the loop of a search, ready to run or to load a state; data are read if it needs them."""
    return SearchBuilder(spec, data, jobs=jobs, ranks=ranks).search(listeners, budget)


@dataclass(frozen=True)
class JobPlace:
    """Where the jobs of a search run: short trainings of the finalist race, and trials that are trained."""

    on: str = PROCESSES
    folder: Path = Path()  # for messages, if they run on a cluster

    @property
    def is_remote(self) -> bool:
        """Return whether jobs run on other machines, or may."""
        return is_remote(self.on)


class SearchBuilder:
    """Build the objects of a search from its spec and its data."""

    def __init__(
        self, spec: SearchSpec, data: DataSet | None, *, jobs: JobPlace | None = None, ranks: Ranks = ALONE
    ) -> None:
        self._spec, self._given, self._jobs, self._ranks = spec, data, jobs or JobPlace(), ranks
        self._settings = spec.search
        self._device = spec.machine.prepare()
        self._space = spec.build_space()

    @cached_property
    def _data(self) -> Any:
        return self._given or self._spec.load_data()

    @cached_property
    def _task(self) -> Task:
        """Return the task of the space, which the data must be for."""
        task = family_of(self._space).task
        task.check(self._data)
        return task

    @cached_property
    def _loaders(self) -> SearchLoaders:
        self._task.check(self._data)
        kind = TextLoaders if self._task is LANGUAGE else ImageLoaders
        return kind(self._spec, self._data, self._device)

    def search(self, listeners: Sequence[Listener] = (), budget: Budget | None = None) -> SearchLoop[Any]:
        """Return the loop of the search."""
        strategy = self._spec.build_strategy(self._space)
        name = self._spec.data_set.name  # not that of the files: a folder may be called like a published data set
        found = self._spec.find_table(self._space)
        look_up, target, limit = TableLookup(found, data=name), self._target(found), self._limit(found)
        strict = self._spec.target.strict
        if isinstance(strategy, BlackBox):
            if self._ranks.count > 1:
                raise SettingError(
                    f"strategy '{self._spec.strategy.name}' has no supernet that {self._ranks.count} devices could "
                    "share; use search.trials_at_once and --on instead of --devices"
                )
            if strict:
                raise SettingError(
                    "target.strict is for one-shot strategies; a black box continues with more search.trials"
                )
            score, trials = self._score(strategy, found), self._settings.trials
            return BlackBoxLoop(
                self._space,
                strategy,
                score,
                trials=trials,
                study=self._study(),
                parallel=self._parallel(strategy, score),
                budget=budget,
                look_up=look_up,
                listeners=listeners,
                target=target,
                limit=limit,
                metric=family_of(self._space).task.metric,
            )
        strategy.to(self._device)
        return OneShotLoop(
            self._space,
            strategy,
            self._weights(strategy.supernet_space, strategy.resolve()),
            train=self._loaders.train(),
            valid=self._loaders.valid(),
            evaluation=self._loaders.evaluation(),
            comparison=self._loaders.comparison(),
            task=self._task,
            epochs=self._settings.epochs,
            random_baseline_samples=self._settings.random_baseline_samples,
            race=self._race(limit),
            budget=budget,
            monitor=self._monitor(),
            posterior=self._spec.posterior,
            build_weights=self._weights,
            strict_share=self._spec.target.strict_share if strict else 0.0,
            look_up=look_up,
            listeners=listeners,
            target=target,
            limit=limit,
        )

    @cached_property
    def _final(self) -> FinalNetwork:
        known = self._given is None and self._spec.facts is not None
        return FinalNetwork.of(self._spec, facts_of(self._spec, None if known else self._data))

    def _target(self, found: tuple[Benchmark, str] | None) -> Target | None:
        if self._spec.target.metric == "none":
            return None
        table = None if found is None else found[0]
        return find_target(self._spec.target, self._space, table=table, final=self._final)

    def _limit(self, found: tuple[Benchmark, str] | None) -> Limit | None:
        if self._spec.limit.metric == "none":
            return None
        table = None if found is None else found[0]
        return find_limit(self._spec.limit, self._space, table=table, final=self._final)

    def _monitor(self) -> Monitor | None:
        settings = self._spec.monitor
        return None if settings.action == "off" else Monitor(settings, epochs=self._settings.epochs)

    def _race(self, limit: Limit | None) -> RaceRunner | None:
        """Return the finalist race, or None where the settings have none."""
        settings = self._spec.race
        if not settings.is_on:
            return None
        training = self.short_training()
        executor = self._executor([training])
        return RaceRunner(
            space=self._space,
            settings=settings,
            training=training,
            executor=executor,
            references=self.references(limit),
            seed=self._spec.seed,
            machine=self._machine_of(executor),
        )

    def _executor(self, shared: Sequence[object]) -> Executor:
        """Return what runs the jobs of the search: this process unless the settings or the user say otherwise."""
        count = self._spec.machine.worker_processes or torch.get_num_threads()
        if not self._jobs.is_remote and (count == 1 or self._device.type != "cpu"):  # one training occupies a GPU
            return SerialExecutor()
        return make_executor(self._jobs.on, workers=lambda: count, place=self._jobs.folder, shared=shared)

    def _machine_of(self, executor: Executor) -> Machine | None:
        """Return the machine to prepare where a job runs; None for this process, where it is prepared already."""
        return (
            None
            if isinstance(executor, SerialExecutor)
            else replace(self._spec.machine, torch_threads=1, worker_processes=1)
        )

    def references(self, limit: Limit | None = None) -> dict[str, Architecture]:
        """Return what a user would take without a search: the space's references, and the largest architecture."""
        named = {name: self._space.prune(one) for name, one in self._space.references().items()}
        if not family_of(self._space).costs_differ:
            return named
        costs = self._final.cost_table()
        allowed = (lambda one: True) if limit is None else limit.allows
        found = largest(self._space, lambda one: float(costs.cost(one).multiply_adds), allowed)
        return named if found is None else {**named, LARGEST: found}

    def find_largest(self) -> Architecture:
        """Return the architecture that takes longest to train; any one where all cost the same."""
        return self.references().get(LARGEST) or self._space.sample(random.Random(0))

    def typical_contestants(self, count: int) -> list[Entrant]:
        """Return random architectures that the limit allows: what they cost, a contestant of the race costs."""
        limit, rng = self._limit(self._spec.find_table(self._space)), random.Random(0)
        drawn = (self._space.prune(self._space.sample(rng)) for _ in range(TRIES * count))
        allowed = (one for one in drawn if limit is None or limit.allows(one))
        found = [Entrant(one, RANDOM) for one in islice(allowed, count)]
        return found or [Entrant(self.find_largest(), LARGEST)]

    def short_training(self, evaluation: Batches | None = None) -> ShortTraining:
        """Return what trains a contestant of the race; it learns on all examples that are not held out.

        It is evaluated on those, or on other examples if they are given.
        """
        batches = self._loaders.race()
        return ShortTraining(
            self._contestant(),
            train=batches.train,
            plain=batches.plain,
            evaluation=evaluation or batches.held_out,
            shrink=self._spec.race.shrink,
            clock=CLOCKS[self._settings.budget_clock],
        )

    def _contestant(self) -> Begin:
        """Return what builds a contestant: a network at full depth, or at the depth that the settings say."""
        race = self._spec.race
        space = family_of(self._space).at_full_depth(self._space)
        if race.space:
            space = build_space(Component(self._spec.space.name, {**self._spec.space.settings, **race.space}))
        rate = race.learning_rate
        return self._standalone(
            space,
            "finalists",
            network=race.network,
            weights=replace(self._spec.weights, learning_rate=rate, learning_rate_end=0.0),
        )

    def _standalone(
        self,
        space: SearchSpace,
        purpose: str,
        *,
        network: Settings | None = None,
        weights: WeightSettings | None = None,
    ) -> Begin:
        """Return what builds the network of one architecture; the settings given here override those of the spec."""
        return partial(
            _build_repeat,
            space,
            seed=self._spec.seed,
            purpose=purpose,
            place=partial(_place, device=self._device, layout=self._layout),
            shape=self._task.shape_of(self._data),
            network={**self._spec.network.settings, **(network or {})},
            weights=weights or self._spec.weights,
            task=self._task,
        )

    @property
    def _layout(self) -> torch.memory_format:
        return torch.channels_last if self._settings.channels_last else torch.contiguous_format

    def _weights(self, space: SearchSpace, resolve: Resolve, stage: int = 0) -> SharedWeights:
        """Return the supernet of a stage; each stage has seeds of its own."""
        of_stage = f" of stage {stage}" if stage else ""
        with seeded(derive_seed(self._spec.seed, f"weights{of_stage}")):
            shape = self._task.shape_of(self._data)
            network = build_network(space, resolve, shape, **self._spec.network.settings)
        noise = derive_seed(self._spec.seed, f"noise{of_stage}")
        network = _place(network, device=self._device, layout=self._layout)
        if self._ranks.count > 1 and self._task is LANGUAGE:
            raise SettingError("a search on texts carries a state through them, on one device; leave --devices out")
        return SharedWeights(network, self._spec.weights, noise_seed=noise, task=self._task, ranks=self._ranks)

    def _score(self, strategy: BlackBox, found: tuple[Benchmark, str] | None) -> Score:
        wanted = self._settings.score
        if wanted == "shared":
            return self._path_score()
        prunes = type(strategy).should_continue is not BlackBox.should_continue
        if wanted == "short":
            return self._short_score(every_rung=prunes)
        if wanted == "table" or (wanted == "auto" and self._spec.find_guide(self._space) is not None):
            if found is None:
                name = self._given.name if self._given else self._spec.data_set.name
                raise ArchloomError(
                    f"no benchmark table knows space '{self._spec.space.name}' on "
                    f"{name}; set search.score = 'training', or pass --data-dir with the table"
                )
            return TableScore(*found, epochs=self._settings.score_epochs)
        train, valid = self._loaders.score()
        return StandaloneScore(
            partial(_begin_once, self._standalone(self._space, "weights")),
            train=train,
            valid=valid,
            epochs=self._settings.score_epochs or SCORE_EPOCHS,
            every_epoch=prunes,  # most strategies never look before the end
        )

    def _short_score(self, *, every_rung: bool) -> ShortScore:
        race, largest = self._spec.race, self._contestant()(self.find_largest(), 0).parameter_count
        return ShortScore(
            self.short_training(), race.steps, size=race.size, largest=max(1, largest), every_rung=every_rung
        )

    def _parallel(self, strategy: BlackBox, score: Score) -> ParallelScore | None:
        """Return what scores several trials at once, or None where the settings have one after another."""
        at_once = self._settings.trials_at_once
        if at_once == 1:
            return None
        if type(strategy).should_continue is not BlackBox.should_continue:
            raise SettingError(
                f"search.trials_at_once must be 1 for strategy '{self._spec.strategy.name}', which decides during a "
                f"training whether to continue, got {at_once}"
            )
        executor = self._executor([score])
        return ParallelScore(score, executor, at_once, self._machine_of(executor))

    def _path_score(self) -> Score:
        run = self._settings.shared_run
        assert run is not None, "checked with the settings"
        machine, folder = settings_of(self._spec.machine), self._spec.data.directory
        own = {"machine": machine, **({} if folder is None else {"data": {"directory": folder}})}
        images = self._settings.evaluation_images
        paths = trained_paths(run, build_search, images=images, data=self._given, settings=own)
        if paths.space.decisions != self._space.decisions:
            raise SettingError(
                f"search.shared_run {run} searched other decisions than those of space '{self._spec.space.name}'"
            )
        return PathScore(paths)

    def _study(self) -> Study | None:
        if self._settings.study is None:
            return None
        self._settings.refuse_untrusted_study()
        return SharedStudy.open(
            self._settings.study,
            self._space,
            name=self._settings.study_name,
            experiment=self._spec.determining_settings(),
            trials=self._settings.trials,
            seed_of=lambda number: derive_seed(self._spec.seed, f"trial {number}"),
        )


def _build_repeat(
    space: SearchSpace, architecture: Architecture, repeat: int, *, seed: int, purpose: str, **settings: Any
) -> SharedWeights:
    """Return a network of one architecture with the weights of a repetition; number 0 is the usual one."""
    named = purpose if repeat == 0 else f"{purpose} {repeat}"
    return build_standalone(space, architecture, seed=derive_seed(seed, named), **settings)


def _begin_once(begin: Begin, architecture: Architecture) -> SharedWeights:
    return begin(architecture, 0)


def _place(network: nn.Module, *, device: torch.device, layout: torch.memory_format) -> nn.Module:
    placed: nn.Module = network.to(device=device, memory_format=layout)  # type: ignore[call-overload]
    return placed
