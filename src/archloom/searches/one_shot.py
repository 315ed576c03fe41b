"""The one-shot loop: a strategy and shared weights get batch after batch; every epoch ends with a record."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from archloom.core.errors import DivergedError
from archloom.core.events import Advanced, Deriving, Noted
from archloom.core.json_object import JsonObject
from archloom.core.state import StateDict
from archloom.data.loader import Batch, Loader
from archloom.execution.machine import peak_memory_mb
from archloom.objectives.target import Target, suggest_beta
from archloom.searches.finalist_race import FinalistRace
from archloom.searches.loop import SearchLoop
from archloom.searches.monitor import Monitor
from archloom.searches.random_baseline import compare_with_random, describe_entry, join_sentences
from archloom.searches.records import EarlyStop, EpochRecord, FinalistRecord, StrictSteps
from archloom.searches.result import SearchOutcome
from archloom.searches.stages import BuildWeights, StagePlan
from archloom.searches.target_check import check_target, enforce_target, target_sentence
from archloom.spaces import Architecture, SearchSpace
from archloom.strategies.base import Differentiable, OneShot, Plan, SearchBatch
from archloom.supernet import Gates, SharedWeights, path_gates

SLOPE_SAMPLES = 30  # architectures that a beta is suggested from


class SharedAccuracy:
    """Evaluates single paths under the shared weights, always on the same validation images."""

    def __init__(
        self,
        space: SearchSpace,
        weights: SharedWeights,
        images: Loader,
        *,
        gates: Callable[[Architecture], Gates] | None = None,  # of a path; left out: those of the space
    ) -> None:
        self._gates, self._weights, self._images = gates or partial(path_gates, space), weights, images
        self._batches: list[Batch] = []

    @property
    def batches(self) -> Sequence[Batch]:
        """Return the validation batches, read once and kept."""
        self._batches = self._batches or list(self._images.epoch(0))
        return self._batches

    def __call__(self, architecture: Architecture) -> float:
        gates = self._gates(architecture)
        right = sum(float(self._weights.score(batch, gates)) * len(batch) for batch in self.batches)
        return right / sum(len(batch) for batch in self.batches)

    def likelihood(self, architecture: Architecture) -> float:
        """Return minus the mean loss: the objective of strategies that follow gradients."""
        gates = self._gates(architecture)
        with torch.no_grad():
            lost = sum(float(self._weights.loss(batch, gates)) * len(batch) for batch in self.batches)
        return -lost / sum(len(batch) for batch in self.batches)


class OneShotLoop(SearchLoop[EpochRecord]):
    """Search with shared weights."""

    unit = "step"

    def __init__(
        self,
        space: SearchSpace,
        strategy: OneShot,
        weights: SharedWeights,
        *,
        train: Loader,
        valid: Loader,
        evaluation: Loader,
        comparison: Loader,
        epochs: int,
        random_baseline_samples: int = 30,
        race: FinalistRace | None = None,
        monitor: Monitor | None = None,
        target: Target | None = None,
        build_weights: BuildWeights | None = None,  # of later stages; needed where a strategy has several
        strict_share: float = 0.0,  # extra steps at most, as a share of all steps, if the target is missed
        **common: Any,
    ) -> None:
        super().__init__(space, **common)
        self.strategy, self.weights = strategy, weights
        self._target, self._strict_share = target, strict_share
        if target is not None:
            strategy.set_target(target)
        self._stages, self._stage, self._build_weights = StagePlan(strategy.stages(epochs)), 0, build_weights
        self._train, self._valid, self._epochs = train, valid, self._stages.epochs
        self.train, self.evaluation = train, evaluation  # `archloom rank` evaluates trained weights with them
        self._comparison = comparison
        self._random_baseline_samples, self._race, self._monitor = random_baseline_samples, race, monitor
        self._kept: list[StateDict] = []  # states of the last epochs, to roll back to
        self._batches: Iterator[tuple[Batch, tuple[Batch, ...]]] | None = None
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}  # not every step reports every metric
        self._images = 0
        self._seconds = 0.0
        self._use(weights)

    def _use(self, weights: SharedWeights) -> None:
        """Search with these weights from now on: those of the present stage."""
        self.weights, train, valid = weights, self._train, self._valid
        gates = self.strategy.path_gates
        self._evaluate = SharedAccuracy(self.space, weights, self.evaluation, gates=gates)
        self._compare = SharedAccuracy(self.space, weights, self._comparison, gates=gates)
        self.strategy.begin(
            weights,
            Plan(
                train_images=len(train.indices),
                valid_images=len(valid.indices),
                batch_size=train.batch_size,
                valid_batch_size=valid.batch_size,
                steps=self._stages.epochs_of(self._stage) * train.steps,
            ),
        )

    def _enter_stage(self, number: int) -> None:
        """Build the supernet of a stage for the space that the strategy has now."""
        assert self._build_weights is not None, "a search of several stages needs `build_weights`"
        self._stage, self._kept = number, []  # states of an earlier stage do not fit this supernet
        self.strategy.to(self.weights.device)
        self._use(self._build_weights(self.strategy.supernet_space, self.strategy.resolve(), number))

    @property
    def total(self) -> int:
        """Return the number of steps of all epochs."""
        return self._epochs * self._train.steps

    @property
    def units_per_record(self) -> int:
        """Return the number of steps of an epoch."""
        return self._train.steps

    def read_record(self, value: JsonObject) -> EpochRecord:
        """Return the record of an epoch that a line holds."""
        return EpochRecord.from_json(value)

    def advance(self) -> EpochRecord | None:
        """Run one step; return the record of the epoch after its last step, else None."""
        start = self._clock()
        if self._batches is None:
            self._batches = zip(_stream(self._train, self.position), self._valid_batches(self.position), strict=False)
        epoch = self.position // self._train.steps
        train, valids = next(self._batches)
        at = self._stages.at(epoch)
        if at.stage != self._stage:
            self.strategy.begin_stage(at.stage)
            self._enter_stage(at.stage)
        self.weights.set_progress(at.start)
        done = self.position - self._stages.first_epoch(at.stage) * self._train.steps
        batch = SearchBatch(train, valids, at.epoch, at.epochs, done / (at.epochs * self._train.steps))
        metrics = self.strategy.step(self.weights, batch)
        self.position += 1
        self._refuse_infinite(metrics)
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
            self._counts[name] = self._counts.get(name, 0) + 1
        self._images += len(train)
        self._seconds += self._clock() - start
        self.emit(Advanced(self.position, len(train), metrics))
        return self._record(epoch) if self.position % self._train.steps == 0 else None

    def _valid_batches(self, position: int) -> Iterator[tuple[Batch, ...]]:
        """Yield the validation batches of each step from a position on."""
        plan = self.strategy.validation
        batches = _stream(self._valid, plan.before(position))
        while True:
            yield tuple(next(batches) for _ in range(plan.at(position)))
            position += 1

    def _refuse_infinite(self, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            if not math.isfinite(value):
                raise DivergedError(
                    f"{name} became {value} at step {self.position} of {self.total}; "
                    f"lower weights.learning_rate (now {self.weights.learning_rate:.3g}) or set weights.clip"
                )

    def _record(self, epoch: int) -> EpochRecord:
        """Return the record of an epoch, with the architecture that the search would return now."""
        architecture = self.strategy.best(self._reward, final=False)
        probabilities = self.strategy.probabilities()
        record = EpochRecord(
            epoch=epoch,
            seconds=self._seconds,
            images_per_second=self._images / self._seconds if self._seconds > 0 else 0.0,
            memory_mb=peak_memory_mb(self.weights.device),
            metrics={name: total / self._counts[name] for name, total in self._sums.items()},
            learning_rate=self.weights.learning_rate,
            derived_accuracy=self._evaluate(architecture),
            probabilities=probabilities and {name: list(values) for name, values in probabilities.items()},
            stage=self._stages.describe(self._stage),
            **self.describe(architecture),
        )
        self._sums, self._counts, self._images, self._seconds = {}, {}, 0, 0.0
        return record if self._monitor is None else self._add_health(record, self._monitor)

    # --- health

    def _add_health(self, record: EpochRecord, monitor: Monitor) -> EpochRecord:
        """Return the record with the health of the search, and with an alarm if something is wrong."""
        health = monitor.measure(
            self.space,
            record.architecture,
            record.probabilities,
            policy=self.strategy.policy if isinstance(self.strategy, Differentiable) else None,
            weights=self.weights,
            images=self._evaluate.batches[0],
            derived_accuracy=record.derived_accuracy,
        )
        alarm = monitor.alarm([*self.history, replace(record, health=health)])
        if monitor.settings.action == "roll_back":
            state = copy.deepcopy({"strategy": self.strategy.state_dict(), "weights": self.weights.state_dict()})
            self._kept = [*self._kept, state][-1 - monitor.settings.window :]
        return replace(record, health=replace(health, alarm=None if alarm is None else alarm.reason))

    @property
    def ended(self) -> bool:
        """Return whether the monitor stops the search early."""
        if self._monitor is None or self._monitor.settings.action not in ("stop", "roll_back"):
            return False
        return self._monitor.alarm(self.history) is not None

    def _roll_back(self) -> EarlyStop | None:
        """Restore the last healthy epoch if the monitor stopped the search and is to roll back."""
        alarm = self._monitor.alarm(self.history) if self._monitor is not None and self.ended else None
        if alarm is None or self._monitor is None:
            return None
        epoch = last = len(self.history) - 1
        if self._monitor.settings.action == "roll_back":
            epoch = max(alarm.healthy, last + 1 - len(self._kept))
            state = self._kept[epoch - last - 1]
            self.strategy.load_state_dict(state["strategy"])
            self.weights.load_state_dict(state["weights"])
        return EarlyStop(alarm.reason, after_epoch=last + 1, as_of_epoch=epoch + 1)

    # --- the end

    def conclude(self) -> SearchOutcome:
        """Choose the final architecture and return what is known of it."""
        self.emit(Deriving("choosing the final architecture"))
        early_stop, strict = self._roll_back(), self._enforce_target()
        architecture, finalists, race_seconds = self._choose_architecture()
        described = self.describe(architecture)
        self.emit(Deriving("comparing it with a random baseline"))
        rng = self.strategy.python_random()
        samples = self._random_baseline_samples
        baseline = compare_with_random(self.strategy.path_space, architecture, self._compare, samples=samples, rng=rng)
        checked = None if self._target is None else check_target(self._target, architecture, self._sample_costs, strict)
        findings = self.strategy.findings()
        remark = self.strategy.remark()
        sentences = (describe_entry(described["table_entry"]), baseline.sentence, remark, target_sentence(checked))
        return SearchOutcome(
            **described,
            verdict=join_sentences(sentences),
            shared_accuracy=baseline.shared_accuracy,
            random_baseline=baseline.random_baseline,
            target=checked,
            finalists=finalists,
            finalists_seconds=race_seconds,
            early_stop=early_stop,
            posterior=findings.posterior,
            findings=findings.others,
        )

    def _choose_architecture(self) -> tuple[Architecture, tuple[FinalistRecord, ...], float | None]:
        """Return the final architecture, and the finalists and seconds of the finalist race if there was one."""
        derived = self.strategy.best(self._reward, final=True)
        finalists = [one for one in self.strategy.finalists() if self._allowed(one)]
        if self._race is None or len(finalists) < 2:
            return derived, (), None
        start = self._clock()
        winner, records = self._race.run(
            finalists,
            known=self.notes,
            allowed=self._allowed,
            describe=lambda what: self.emit(Deriving(what)),
            note=lambda record: self.emit(Noted(record)),
            stop=self._stop,
        )
        named = tuple(replace(one, text=self.space.format(self.space.check(one.architecture))) for one in records)
        return winner, named, self._clock() - start

    # --- a target

    def _allowed(self, architecture: Architecture) -> bool:
        return self._target is None or self._target.is_met_by(architecture)

    def _reward(self, architecture: Architecture) -> float:
        """Return the accuracy of a path, minus the penalty for missing the target if there is one."""
        accuracy = self._evaluate(architecture)
        return accuracy if self._target is None else self._target.compute_reward(accuracy, architecture)

    def _sample_costs(self) -> list[tuple[float, float]]:
        """Return quality, as the strategy measures it, and cost of architectures sampled uniformly."""
        assert self._target is not None
        rng = self.strategy.python_random()
        architectures = [self.strategy.path_space.sample(rng) for _ in range(SLOPE_SAMPLES)]
        quality = self._evaluate.likelihood if isinstance(self.strategy, Differentiable) else self._evaluate
        return [(quality(architecture), self._target.cost(architecture)) for architecture in architectures]

    def _enforce_target(self) -> StrictSteps | None:
        """Run `step` with frozen weights until the target is met, if it is missed and `target.strict` is set."""
        target, steps = self._target, math.ceil(self._strict_share * self.total)
        if target is None or not steps or target.is_met_by(self.strategy.best(self._reward, final=False)):
            return None
        self.emit(Deriving("target missed: training the architecture parameters further"))
        weights, epochs = self.weights.frozen(), self._stages.epochs_of(self._stage)
        batches = zip(_stream(self._train, self.total), self._valid_batches(self.total), strict=False)

        def step(share: float) -> None:
            self.stop_if_asked()
            train, valids = next(batches)
            progress = (1 + share) / 2  # as in the second half of a search: rates that begin moderately, no warm-up
            self.strategy.step(weights, SearchBatch(train, valids, epochs - 1, epochs, progress))

        return enforce_target(
            target,
            suggested_beta=suggest_beta(self._sample_costs()),
            steps=steps,
            set_target=self.strategy.set_target,
            step=step,
            derive=lambda: self.strategy.best(self._reward, final=False),
        )

    def state_dict(self) -> StateDict:
        """Return everything that a checkpoint must hold."""
        return {
            **super().state_dict(),
            "strategy": self.strategy.state_dict(),
            "weights": self.weights.state_dict(),
            "stage": self._stage,
            "partial": {
                "sums": dict(self._sums),
                "counts": dict(self._counts),
                "images": self._images,
                "seconds": self._seconds,
            },
            "kept": self._kept,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state)
        self.restore_stage(state)
        self.strategy.load_state_dict(state["strategy"])
        self.weights.load_state_dict(state["weights"])
        partial = state["partial"]
        self._sums, self._counts = dict(partial["sums"]), dict(partial["counts"])
        self._images, self._seconds = partial["images"], partial["seconds"]
        self._kept = list(state.get("kept", []))
        self._batches = None

    def restore_stage(self, state: StateDict) -> None:
        """Build the supernet of the stage that a state was saved in; its weights can be loaded then."""
        number = state.get("stage", 0)  # states of older versions have none
        if number or self._stage:
            self.strategy.restore_stage(state["strategy"])
            self._enter_stage(number)


def _stream(loader: Loader, position: int) -> Iterator[Batch]:
    """Yield batches from a position on, epoch after epoch without end."""
    epoch, start = divmod(position, loader.steps)
    while True:
        yield from loader.epoch(epoch, start)
        epoch, start = epoch + 1, 0
