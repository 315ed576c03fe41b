"""The one-shot loop: a strategy and shared weights get batch after batch; every epoch ends with a record."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from archloom.core.errors import DivergedError, ParseError, SettingError
from archloom.core.events import Advanced, Deriving, Noted
from archloom.core.json_object import JsonObject
from archloom.core.metrics import additive, from_additive
from archloom.core.state import StateDict
from archloom.data.loader import Batch, Batches
from archloom.execution.checkpoint import digest_state
from archloom.execution.machine import peak_memory_mb
from archloom.objectives.limits import Limit
from archloom.objectives.target import Target
from archloom.policies.posterior import Posterior
from archloom.searches.budget import (
    POSTERIOR_END,
    SHARPNESS_END,
    Budget,
    StepPace,
)
from archloom.searches.cost_rules import CostRules
from archloom.searches.divergence import (
    refuse_bad_probabilities,
    refuse_high_loss,
    refuse_huge_weights,
)
from archloom.searches.health_watch import HealthWatch
from archloom.searches.limit_check import (
    check_limit,
    limit_sentence,
)
from archloom.searches.loop import SearchLoop
from archloom.searches.monitor import Monitor
from archloom.searches.posterior_phase import PosteriorPhase, PosteriorPhaseSettings
from archloom.searches.race_runner import Decision, RaceRunner
from archloom.searches.race_verdict import RaceResult
from archloom.searches.random_baseline import (
    BaselineComparison,
    compare_with_random,
    defect_sentence,
    describe_entry,
    join_sentences,
    training_sentence,
)
from archloom.searches.records import COST_METRIC, EpochRecord, StrictSteps
from archloom.searches.result import SearchOutcome
from archloom.searches.shared_score import SharedScore
from archloom.searches.stages import BuildWeights, StagePlan
from archloom.searches.target_check import check_target, target_sentence
from archloom.searches.threads import ThreadWatch
from archloom.spaces import Architecture, SearchSpace
from archloom.strategies.base import OneShot, Plan, SearchBatch
from archloom.strategies.posterior_strategy import PosteriorStrategy
from archloom.supernet import SharedWeights
from archloom.supernet.ranks import ALONE
from archloom.tasks import CLASSIFICATION, Task

_REMEDY = "lower weights.learning_rate (now {:.3g}) or set weights.clip"


class OneShotLoop(SearchLoop[EpochRecord]):
    """Search with shared weights."""

    unit = "step"

    def __init__(
        self,
        space: SearchSpace,
        strategy: OneShot,
        weights: SharedWeights,
        *,
        train: Batches,
        valid: Batches,
        evaluation: Batches,
        comparison: Batches,
        epochs: int,
        task: Task = CLASSIFICATION,
        random_baseline_samples: int = 30,
        race: RaceRunner | None = None,
        budget: Budget | None = None,
        monitor: Monitor | None = None,
        posterior: PosteriorPhaseSettings | None = None,
        target: Target | None = None,
        limit: Limit | None = None,
        build_weights: BuildWeights | None = None,  # of later stages; needed where a strategy has several
        strict_share: float = 0.0,  # extra steps at most, as a share of all steps, if the target is missed
        **common: Any,
    ) -> None:
        super().__init__(space, **common)
        self.strategy, self.weights, self._task = strategy, weights, task
        self._costs = CostRules(strategy=strategy, target=target, limit=limit, strict_share=strict_share)
        self._costs.begin()
        self._posterior = posterior
        self._stages, self._stage, self._build_weights = StagePlan(strategy.stages(epochs)), 0, build_weights
        self._train, self._valid, self._epochs = train, valid, self._stages.epochs
        self._steps = self._epochs * train.steps  # fewer where the time is over before
        self._budget = budget
        self._pace: StepPace | None = None
        self._threads = None if budget is None else ThreadWatch()
        self.train, self.evaluation = train, evaluation  # `archloom rank` evaluates trained weights with them
        self._comparison = comparison
        self._random_baseline_samples, self._race = random_baseline_samples, race
        self._health = HealthWatch(monitor, strategy)
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
        self._evaluate = SharedScore(self.space, weights, self.evaluation, gates=gates)
        self._compare = SharedScore(self.space, weights, self._comparison, gates=gates)
        self.strategy.begin(
            weights,
            Plan(
                train_images=train.examples,
                valid_images=valid.examples,
                batch_size=train.batch_size,
                valid_batch_size=valid.batch_size,
                steps=self._stages.epochs_of(self._stage) * train.steps,
            ),
        )

    def _enter_stage(self, number: int) -> None:
        """Build the supernet of a stage for the space that the strategy has now."""
        assert self._build_weights is not None, "a search of several stages needs `build_weights`"
        self._stage, self._health.kept = number, []  # states of an earlier stage do not fit this supernet
        self.strategy.to(self.weights.device)
        self._use(self._build_weights(self.strategy.supernet_space, self.strategy.resolve(), number))

    @property
    def total(self) -> int:
        """Return the number of steps of all epochs, or of those that the budget leaves time for."""
        return self._steps

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
        steps = self.total if self._stages.is_single else at.epochs * self._train.steps
        epochs = -(-steps // self._train.steps)
        self.weights.set_progress(at.epoch / epochs)
        done = self.position - self._stages.first_epoch(at.stage) * self._train.steps
        batch = SearchBatch(train, valids, at.epoch, epochs, done / steps)
        metrics = self.strategy.step(self.weights, batch)
        self.position += 1
        self._refuse_infinite(metrics)
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + additive(name, value)
            self._counts[name] = self._counts.get(name, 0) + 1
        self._images += len(train)
        seconds = self._clock() - start
        self._seconds += seconds
        if self._threads is not None:
            self._threads.count(seconds)
        self.emit(Advanced(self.position, len(train), metrics))
        self._keep_to_budget()
        ends = self.position % self._train.steps == 0 or self.position == self.total
        return self._record(epoch) if ends else None

    def _keep_to_budget(self) -> None:
        """End the training of the shared weights earlier if the machine is slower than planned."""
        if self._budget is not None and self._stages.is_single:  # several stages need all of their epochs
            self._pace = self._pace or StepPace(self._budget, end=self._budget.end_of_supernet())
            fitting = self._pace.steps_that_fit(self._steps - self.position)
            self._steps = self.position + fitting

    def _valid_batches(self, position: int) -> Iterator[tuple[Batch, ...]]:
        """Yield the validation batches of each step from a position on."""
        plan = self.strategy.validation
        batches = _stream(self._valid, plan.before(position))
        while True:
            yield tuple(next(batches) for _ in range(plan.at(position)))
            position += 1

    def later_draws(self) -> Iterator[tuple[Batch, ...]]:
        """Yield the validation batches of one draw after another, from the end of the search on."""
        return (batches for batches in self._valid_batches(self.total) if batches)

    def _refuse_infinite(self, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            if not math.isfinite(value):
                raise DivergedError(
                    f"{name} became {value} at step {self.position} of {self.total}; "
                    f"{_REMEDY.format(self.weights.learning_rate)}"
                )

    def _record(self, epoch: int) -> EpochRecord:
        """Return the record of an epoch, with the architecture that the search would return now."""
        self._refuse_different_ranks()
        architecture = self._derive(final=False)
        probabilities = self.strategy.probabilities()
        record = EpochRecord(
            epoch=epoch,
            seconds=self._seconds,
            images_per_second=self._images / self._seconds if self._seconds > 0 else 0.0,
            memory_mb=peak_memory_mb(self.weights.device),
            metrics={name: from_additive(name, total / self._counts[name]) for name, total in self._sums.items()}
            | self._cost_of(architecture),
            learning_rate=self.weights.learning_rate,
            derived_score=self._evaluate(architecture),
            probabilities=probabilities and {name: list(values) for name, values in probabilities.items()},
            stage=self._stages.describe(self._stage),
            metric=self._task.metric.name,
            **self.describe(architecture),
        )
        self._sums, self._counts, self._images, self._seconds = {}, {}, 0, 0.0
        self._refuse_diverged(record)
        return self._health.add_health(
            record,
            self.history,
            weights=self.weights,
            examples=self._evaluate.batches[0],
            has_time=self._has_time_for_products,
        )

    def _has_time_for_products(self, count: int) -> bool:
        """Return whether the budget has time for so many curvature products; each takes about two steps."""
        return self._pace is None or self._pace.has_time_for(2 * count, until=SHARPNESS_END)

    def _cost_of(self, architecture: Architecture) -> dict[str, float]:
        """Return the cost of the derived architecture in the unit of the target, as a metric; nothing without one."""
        target = self._costs.target
        return {} if target is None else {COST_METRIC: target.cost(architecture)}

    def _refuse_different_ranks(self) -> None:
        """Raise a DivergedError unless all ranks have the same architecture parameters and weights."""
        ranks = self.weights.ranks
        if ranks.count > 1:
            ranks.refuse_difference("architecture parameters", digest_state(self.strategy.state_dict()))
            ranks.refuse_difference("shared weights", digest_state(list(self.weights.parameters.values())))

    def leave_ranks(self) -> None:
        """Continue alone: rank 0 races, compares and writes by itself."""
        self.weights.ranks = ALONE

    def _refuse_diverged(self, record: EpochRecord) -> None:
        """Raise a DivergedError for an epoch whose figures are numbers, but beyond reason."""
        epoch, remedy = record.epoch, _REMEDY.format(self.weights.learning_rate)
        loss = record.metrics.get("train_loss")
        classes, outputs = len(self._evaluate.class_counts), self._task.outputs
        refuse_high_loss(loss, classes=classes, outputs=outputs, epoch=epoch, remedy=remedy)
        refuse_bad_probabilities(record.probabilities, epoch=epoch, remedy=remedy)
        refuse_huge_weights(self.weights.parameters.values(), epoch=epoch, remedy=remedy)

    @property
    def ended(self) -> bool:
        """Return whether the monitor stops the search early."""
        return self._health.find_end(self.history) is not None

    # --- the end

    def conclude(self) -> SearchOutcome:
        """Choose the final architecture and return what is known of it."""
        self.emit(Deriving("choosing the final architecture"))
        early_stop, strict = self._health.roll_back(self.history, self.weights), self._enforce_target()
        derived = self._costs.fit(self._derive(final=True), self._evaluate) if self.total else None
        sampled = self._sample_posterior()
        start = self._clock()
        decided = self._decide(derived)
        race_seconds = None if decided.race is None else self._clock() - start
        architecture, race = decided.architecture, decided.race
        described = self.describe(architecture)
        baseline = self._compare_with_random(architecture)
        target = self._costs.target
        checked = None if target is None else check_target(target, architecture, self._sample_costs, strict)
        findings, limit = self.strategy.findings(), check_limit(self._costs.limit, architecture)
        hardly_trained = training_sentence(self.position) if self.total else ""
        sentences = (
            decided.remark,
            hardly_trained if race is None else "",  # else the race decided, which comes first
            self._describe_quality(baseline, race),
            hardly_trained if race is not None else "",
            defect_sentence(self.space, architecture),
            describe_entry(described["table_entry"]),
            self._undecided_sentence(race),
            "" if baseline is None or race is not None else baseline.sentence,
            self.strategy.remark(),
            target_sentence(checked),
            limit_sentence(limit),
        )
        return SearchOutcome(
            **described,
            verdict=join_sentences(sentences),
            derived=derived,
            shared_score=None if baseline is None else baseline.shared_score,
            random_baseline=() if baseline is None else baseline.random_baseline,
            target=checked,
            race=race,
            limit=limit,
            finalists=decided.finalists,
            finalists_seconds=race_seconds,
            early_stop=early_stop,
            posterior=sampled or findings.posterior,
            findings=findings.others,
        )

    def _sample_posterior(self) -> Posterior | None:
        """Return what parallel chains under the frozen weights say, where that is asked for."""
        settings, start = self._posterior, self._clock()
        if settings is None or not settings.phase or not self.total:
            return None
        assert isinstance(self.strategy, PosteriorStrategy), "the settings were checked"
        self.emit(Deriving("drawing from the posterior given the shared weights"))
        most = settings.most_time * sum(record.seconds for record in self.history)

        def is_over() -> bool:
            self.stop_if_asked()
            late = self._budget is not None and self._budget.is_past(POSTERIOR_END)
            return late or self._clock() - start >= most

        return PosteriorPhase(self.strategy, settings).run(self.weights, self.later_draws(), stop=is_over)

    def _describe_quality(self, baseline: BaselineComparison | None, race: RaceResult | None) -> str:
        """Return what comes first in a verdict: the race, or a warning that shared weights learned nothing."""
        if race is not None:
            return race.sentence
        if baseline is None:
            return ""
        return self._task.chance_sentence(baseline.shared_score, self._compare.class_counts)

    def _compare_with_random(self, architecture: Architecture) -> BaselineComparison | None:
        """Compare with random architectures under the shared weights; None where they have no such path."""
        if not self.total or not self.has_path(architecture):
            return None
        self.emit(Deriving("comparing it with a random baseline"))
        if self._budget is not None:
            self._budget.forget_load()
        samples, rng = self._random_baseline_samples, self.strategy.python_random()
        return compare_with_random(
            self.strategy.path_space,
            architecture,
            self._compare,
            samples=samples,
            rng=rng,
            metric=self._task.metric,
            is_late=self._is_late,
        )

    def _is_late(self) -> bool:
        """Return whether the time that is left is that of the result and the report."""
        if self._budget is None:
            return False
        self._budget.watch_load()
        return self._budget.left_until(1.0) <= 0

    def has_path(self, architecture: Architecture) -> bool:
        """Return whether the present supernet holds an architecture: a stage may have dropped an option of it."""
        try:
            self.strategy.path_space.check(architecture)
        except ParseError:
            return False
        return True

    def _undecided_sentence(self, race: RaceResult | None) -> str:
        """Return a warning if the probabilities have not moved."""
        undecided = self.strategy.undecided() if self.total else None
        if undecided is None:
            return ""
        saved = " The finalist race decided instead." if race is not None else ""
        return f"The search did not decide: {undecided}.{saved}"

    def _decide(self, derived: Architecture | None) -> Decision:
        """Return what the finalist race decides; without one, what the search derived."""
        raced = self._run_race(derived)
        if raced is not None:
            return raced
        if derived is None and self._is_late():  # a race alone
            raise SettingError("search.budget was over before the first short training of the race; use a larger one")
        if derived is None:
            raise SettingError("no architecture was found that meets the limit or target; use a higher one")
        reference = None if self._race is None else self._race.first_reference(self._costs.allow)
        if reference is None or not training_sentence(self.position):
            return Decision(derived)
        remark = f"No short training ended in time: the result is a reference ({reference.origin}), not a choice."
        return Decision(reference.architecture, remark=remark)

    def _run_race(self, derived: Architecture | None) -> Decision | None:
        """Return what the finalist race decides; None if there is none, or it had no time for a training."""
        if self._race is None:
            return None
        return self._race.run(
            self.strategy,
            derived,
            known=self.notes,
            allowed=self._costs.allow,
            describe=lambda what: self.emit(Deriving(what)),
            note=lambda record: self.emit(Noted(record)),
            stop=self._stop,
            budget=self._budget,
        )

    # --- costs

    def _derive(self, *, final: bool) -> Architecture:
        """Return the architecture that the strategy would choose, by scores that count what it costs."""
        return self.strategy.best(self._reward, final=final)

    def _reward(self, architecture: Architecture) -> float:
        return self._costs.compute_reward(self._evaluate(architecture), architecture)

    def _sample_costs(self) -> list[tuple[float, float]]:
        return self._costs.sample_costs(self._evaluate)

    def _enforce_target(self) -> StrictSteps | None:
        """Run `step` with frozen weights until the target is met, if it is missed and `target.strict` is set."""
        return self._costs.enforce(
            total=self.total,
            sample=self._sample_costs,
            begin=self._begin_strict_steps,
            derive=partial(self._derive, final=False),
        )

    def _begin_strict_steps(self) -> Callable[[float], object]:
        """Return a function that takes a step of the architecture parameters, given the share that is done."""
        self.emit(Deriving("target missed: training the architecture parameters further"))
        weights, epochs = self.weights.frozen(), self._stages.epochs_of(self._stage)
        batches = zip(_stream(self._train, self.total), self._valid_batches(self.total), strict=False)

        def step(share: float) -> None:
            self.stop_if_asked()
            train, valids = next(batches)
            progress = (1 + share) / 2  # as in the second half of a search: rates that begin moderately, no warm-up
            self.strategy.step(weights, SearchBatch(train, valids, epochs - 1, epochs, progress))

        return step

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
            "kept": self._health.kept,
            "steps": self._steps,
            "spent": 0.0 if self._budget is None else self._budget.elapsed,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state)
        self.restore_stage(state)
        self.strategy.load_state_dict(state["strategy"])
        self.weights.load_state_dict(state["weights"])
        partial = state["partial"]
        self._sums = {name: float(value) for name, value in partial["sums"].items()}
        self._counts = {name: int(partial["counts"][name]) for name in self._sums}
        self._images, self._seconds = partial["images"], partial["seconds"]
        self._health.kept = list(state.get("kept", []))
        steps = state.get("steps", self._steps)
        self.refuse_more_units(steps)
        self._steps = steps
        if self._budget is not None:
            self._budget.spent = state.get("spent", 0.0)
        self._batches = None

    def restore_stage(self, state: StateDict) -> None:
        """Build the supernet of the stage that a state was saved in; its weights can be loaded then."""
        number = state.get("stage", 0)  # states of older versions have none
        if number or self._stage:
            self.strategy.restore_stage(state["strategy"])
            self._enter_stage(number)


def _stream(loader: Batches, position: int) -> Iterator[Batch]:
    """Yield batches from a position on, epoch after epoch without end."""
    epoch, start = loader.locate(position)
    while True:
        yield from loader.epoch(epoch, start)
        epoch, start = epoch + 1, 0
