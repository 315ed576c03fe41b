"""Train one architecture from scratch: epochs, schedules, an average of the weights, the best model by validation.

A step is a function of (seed, step): batches, dropout and drop path follow from these two numbers. So a training that
was saved after any step and resumed ends with the same bits as one without an interruption.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import torch
from annotated_doc import Doc
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from archloom.core.errors import DivergedError, require
from archloom.core.events import Advanced, Deriving
from archloom.core.json_object import JsonObject
from archloom.core.state import StateDict
from archloom.data.loader import Batch, Batches, Loader
from archloom.execution.checkpoint import digest_state
from archloom.execution.loop import Loop, Save
from archloom.families import select_deployed_weights, set_progress
from archloom.retrainings.evaluation import MOST_MISTAKES, Evaluation, evaluate
from archloom.retrainings.optimization import OptimizerSettings, list_parameters
from archloom.retrainings.records import AnyEvaluation, RetrainOutcome, RetrainRecord
from archloom.retrainings.sizes import EVALUATION_COST
from archloom.searches.budget import RECENT, SLACK, Budget, ClockName
from archloom.searches.divergence import refuse_high_loss, refuse_huge_weights
from archloom.searches.short_training import seeded
from archloom.searches.threads import ThreadWatch
from archloom.supernet import Prediction
from archloom.supernet.ranks import ALONE, Ranks

CAREFUL = 1.5  # times the usual time of an evaluation, which cannot be shortened
TRAINING_END = 0.97  # of a budget; the rest is for the test images and the report
SECONDS_BETWEEN_SAVES = 180.0  # within an epoch, which may take an hour

Weights = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How long and how to train one network."""

    epochs: Annotated[int, Doc("passes over the training images, or the training text")] = 600
    batch_size: Annotated[int, Doc("images of a step; of text, columns that are read in parallel")] = 96
    cutout: Annotated[
        int | None, Doc("side of the square blanked out in training images; left out: as the data have it")
    ] = None
    label_smoothing: Annotated[float, Doc("share of the truth that is spread over all classes")] = 0.0
    auxiliary_weight: Annotated[float, Doc("of the auxiliary head's loss, where the network has one")] = 0.4
    averaging: Annotated[
        Literal["off", "triggered", "torch"],
        Doc("of text: the mean of the weights is the model once the loss rises; torch: as torch.optim.ASGD has it"),
    ] = "off"
    patience: Annotated[int, Doc("of averaging: the latest epochs whose losses the trigger leaves out")] = 5
    ema: Annotated[float, Doc("decay of the running mean of the weights, which then is the model; 0 is off")] = 0.0
    keep: Annotated[Literal["best", "last"], Doc("the model of the best validation score, or of the last epoch")] = (
        "best"
    )
    validate_every: Annotated[
        int, Doc("epochs from one validation to the next; the last epoch is always validated")
    ] = 1
    multiply_adds_limit: Annotated[
        int, Doc("where no width is given: the widest network with at most so many; 0: its default")
    ] = 0
    mixed_precision: Annotated[bool, Doc("bfloat16 where it is safe, on a GPU or a processor that has it")] = False
    channels_last: Annotated[bool, Doc("the memory layout that is faster nearly everywhere")] = True
    budget_clock: Annotated[ClockName, Doc("what a budget counts: time, or processor time of one process")] = "wall"

    def __post_init__(self) -> None:
        require(
            {
                f"training.epochs must be at least 1, got {self.epochs}": self.epochs >= 1,
                f"training.batch_size must be at least 2, got {self.batch_size}": self.batch_size >= 2,
                f"training.cutout must be 0 or more, got {self.cutout}": self.cutout is None or self.cutout >= 0,
                f"training.label_smoothing must lie in [0, 1), got {self.label_smoothing}": (
                    0 <= self.label_smoothing < 1
                ),
                f"training.auxiliary_weight must be 0 or more, got {self.auxiliary_weight}": self.auxiliary_weight >= 0,
                f"training.ema must lie in [0, 1), got {self.ema}": 0 <= self.ema < 1,
                f"training.patience must be at least 1, got {self.patience}": self.patience >= 1,
                f"training.validate_every must be at least 1, got {self.validate_every}": self.validate_every >= 1,
                f"training.multiply_adds_limit must be 0 (off) or more, got {self.multiply_adds_limit}": (
                    self.multiply_adds_limit >= 0
                ),
            }
        )


class BestEpoch(TypedDict):
    """The epoch with the best validation score, in percent, as a checkpoint holds it."""

    epoch: int
    score: float
    weights: StateDict


class RetrainLoop(Loop[RetrainRecord, RetrainOutcome]):
    """The training of one network, in steps, with a record for every epoch."""

    unit = "step"

    def __init__(
        self,
        network: nn.Module,
        *,
        train: Batches,
        valid: Batches | None,
        test: Batches | None,
        classes: int,
        optimizer: OptimizerSettings,
        training: TrainingSettings,
        seed_of: Callable[[int], int],  # of the random numbers of a step
        ranks: Ranks = ALONE,  # the processes that compute a part of every batch each
        budget: Budget | None = None,  # shortens the schedule if the machine is slower than planned
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self._planned = sum(map(train.steps_of, range(training.epochs)))
        self._steps, self._budget = self._planned, budget
        self.network, self._ranks = network, ranks
        self.schedule, self.settings = optimizer, training
        self.optimizer = optimizer.build_optimizer(network)
        self._train, self._valid, self._test = train, valid, test
        self._classes, self._seed_of = classes, seed_of
        self._average = _build_average(network, training.ema) if training.ema else None
        self._parameters = list(list_parameters(self.optimizer))
        self.best: BestEpoch | None = None  # where validation picks the weights
        self._batches: Iterator[Batch] | None = None
        self._recent: deque[float] = deque(maxlen=RECENT)  # seconds of the last steps, by the clock of budgets
        self._threads = None if budget is None else ThreadWatch()
        self._sums = {"loss": 0.0, "right": 0.0, "images": 0.0, "seconds": 0.0}
        self._validated: tuple[int, AnyEvaluation] | None = None  # the last validation, and its step
        self._save: Save | None = None
        self._saved = 0.0

    @property
    def total(self) -> int:
        """Return the number of steps of all epochs, or of those that the budget leaves time for."""
        return self._steps

    @property
    def units_per_record(self) -> int:
        """Return the number of steps of an epoch."""
        return self._train.steps

    @property
    def batch_size(self) -> int:
        """Return the number of training images per step."""
        return self._train.batch_size

    @property
    def model(self) -> nn.Module:
        """Return the model: the network itself, or the mean of its weights."""
        return self.network if self._average is None else self._average.module

    def run_units(self, *, save: Save | None = None, stop: Callable[[], bool] = lambda: False) -> None:
        """Train until the last epoch, or until asked to stop."""
        self._save, self._saved = save, self._clock()
        super().run_units(save=save, stop=stop)

    def read_record(self, value: JsonObject) -> RetrainRecord:
        """Return the record of an epoch that a line holds."""
        return RetrainRecord.from_json(value)

    # --- one step

    def advance(self) -> RetrainRecord | None:
        """Train for one step; return the record of the epoch after its last step, else None."""
        start, budget_clock = self._clock(), self._clock if self._budget is None else self._budget.clock
        begun = budget_clock()
        epoch, step = self._train.locate(self.position)
        if self._batches is None:
            self._batches = self._train.epoch(epoch, step)
        batch = next(self._batches)
        self._set_progress(epoch, step)
        self.network.train()
        loss, right = self._fit(batch)
        self._ranks.average_statistics(self.network)
        if self._average is not None:
            self._average.update_parameters(self.network)
        self.position += 1
        for name, value in (("loss", loss * len(batch)), ("right", right), ("images", len(batch))):
            self._sums[name] += value
        self._recent.append(budget_clock() - begun)
        self._count_seconds(self._clock() - start)
        self.emit(Advanced(self.position, len(batch), self._step_figures(loss, right, batch)))
        self._keep_to_budget()
        if step + 1 < self._train.steps_of(epoch) and self.position < self.total:
            self._save_if_due()
            return None
        self._batches = None
        return self._record(epoch)

    def _step_figures(self, loss: float, right: float, batch: Batch) -> dict[str, float]:
        """Return what a step reports."""
        return {"train_loss": loss, "train_accuracy": right / len(batch)}

    def _count_seconds(self, seconds: float) -> None:
        self._sums["seconds"] += seconds
        if self._threads is not None:
            self._threads.count(seconds)

    def _keep_to_budget(self) -> None:
        """Take only the steps that fit into the time left, by the last ones; the schedule ends with them."""
        if self._budget is None:
            return
        self._budget.watch_load()
        step = statistics.fmean(self._recent)
        image = CAREFUL * EVALUATION_COST * step / self._train.batch_size  # of an evaluation
        valid, test = (0 if part is None else part.examples for part in (self._valid, self._test))
        left = self._budget.left_until(TRAINING_END) - image * (valid + test)  # of the last epoch
        each = step + image * valid / (self._train.steps * self.settings.validate_every)
        wanted = self._steps - self.position
        if each * wanted > SLACK * max(0.0, left):
            self._steps = self.position + max(0, int(left / each))

    @property
    def _epochs(self) -> float:
        """Return the epochs of all steps; the last one may be shortened."""
        return self._steps / self._train.steps

    def _set_progress(self, epoch: int, step: int) -> None:
        rate = self.schedule.rate_at(epoch + step / self._train.steps_of(epoch), epochs=self._epochs)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        set_progress(self.network, min(1.0, epoch / self._epochs))

    def _fit(self, batch: Batch) -> tuple[float, float]:
        """Take one step; return the loss of the classifier itself, and how many images it classified rightly."""
        device, own, ranks = batch.images.device.type, self._ranks.take(batch), self._ranks
        with seeded(self._seed_of(self.position) + ranks.rank):
            with torch.autocast(device, torch.bfloat16, enabled=self.settings.mixed_precision):
                predicted = self.network(own.images)
            logits, extra = predicted if isinstance(predicted, Prediction) else (predicted, None)
            loss = self._loss(logits, own)
            whole = loss if extra is None else loss + self.settings.auxiliary_weight * self._loss(extra, own)
            loss, whole = (ranks.average_loss(one, len(batch)) for one in (loss, whole))
        self._descend(whole, batch)
        right = (logits.detach().argmax(dim=1) == own.labels).double().mean()
        return float(loss.detach()), round(float(ranks.average_score(right, len(batch))) * len(batch))

    def _descend(self, whole: Tensor, batch: Batch) -> None:
        """Take an optimizer step on a loss, by its clipped gradient, which is the mean over all ranks."""
        self._refuse_unbounded("the loss", float(whole.detach()))
        self.optimizer.zero_grad(set_to_none=True)
        whole.backward()  # type: ignore[no-untyped-call]
        gradients = self._ranks.average_gradients([one.grad for one in self._parameters], self._parameters)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        # without a limit too: a gradient that is no number must be noticed before it has spoiled the weights
        norm = nn.utils.clip_grad_norm_(self._parameters, self.schedule.clip or math.inf, foreach=True)
        self._refuse_unbounded("the gradient", float(norm))
        self._step_optimizer(batch)

    def _step_optimizer(self, batch: Batch) -> None:
        self.optimizer.step()

    def _loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return F.cross_entropy(logits.float(), batch.labels, label_smoothing=self.settings.label_smoothing)

    def _refuse_unbounded(self, what: str, value: float) -> None:
        if math.isfinite(value):
            return
        last = f"{self._sums['loss'] / self._sums['images']:.3g}" if self._sums["images"] else "not known yet"
        rate, clip = self.optimizer.param_groups[0]["lr"], self.schedule.clip
        remedy = "" if clip else "set optimizer.clip = 5, "
        raise DivergedError(
            f"{what} became {value} at step {self.position + 1} of {self.total} (mean loss so far: {last}; "
            f"learning rate {rate:.3g}); start again with another --out and {remedy}a lower optimizer.learning_rate "
            f"(now {self.schedule.learning_rate:.3g}) or some optimizer.warmup_epochs; what was saved before is kept"
        )

    def _refuse_diverged(self, record: RetrainRecord) -> None:
        """Raise a DivergedError for an epoch whose figures are numbers, but beyond reason."""
        remedy = (
            f"start again with another --out and a lower optimizer.learning_rate (now "
            f"{self.schedule.learning_rate:.3g}), optimizer.clip = 5 or some optimizer.warmup_epochs"
        )
        refuse_high_loss(record.train_loss, classes=self._classes, epoch=record.epoch, remedy=remedy)
        refuse_huge_weights(self._parameters, epoch=record.epoch, remedy=remedy)

    def _save_if_due(self) -> None:
        if self._save is not None and self._clock() >= self._saved + SECONDS_BETWEEN_SAVES:
            self._save(self.state_dict(), self.position)
            self._saved = self._clock()

    # --- one epoch

    def _record(self, epoch: int) -> RetrainRecord:
        if self._ranks.count > 1:
            self._ranks.refuse_difference("weights", digest_state(self.network.state_dict()))
        sums, images = self._sums, self._sums["images"]
        record = RetrainRecord(
            epoch=epoch,
            seconds=sums["seconds"],
            learning_rate=self.optimizer.param_groups[0]["lr"],
            train_loss=sums["loss"] / images,
            train_score=self._train_score(),
            images_per_second=images / sums["seconds"] if sums["seconds"] > 0 else 0.0,
            **self._validate(epoch),
        )
        self._sums = dict.fromkeys(sums, 0.0)
        self._refuse_diverged(record)
        self._saved = self._clock()  # the loop saves a record itself
        self._keep_if_best(record, self.model)
        return record

    def _keep_if_best(self, record: RetrainRecord, model: nn.Module) -> None:
        """Keep the weights of an epoch if no epoch before was better."""
        score = record.best_score
        # of equals the later one is better: it was trained for longer
        best = -math.inf if self.best is None else self.best["score"]
        if self.settings.keep == "best" and score is not None and score >= best:
            self.best = {"epoch": record.epoch, "score": score, "weights": _copy_weights(model)}

    def _train_score(self) -> float:
        """Return the score of an epoch's training examples, in percent."""
        return 100 * self._sums["right"] / self._sums["images"]

    def _is_validated(self, epoch: int) -> bool:
        """Return whether an epoch is followed by a validation."""
        return self.position >= self._steps or (epoch + 1) % self.settings.validate_every == 0

    def _validate(self, epoch: int) -> dict[str, Any]:
        """Return the figures of a record that come from validation examples, where there are any."""
        if self._valid is None or not self._is_validated(epoch):
            return {}
        start = self._clock()
        found = self._evaluate(self.network if self._average is not None else self.model, self._valid)
        assert found is not None
        self._validated = (self.position, found)
        self._refuse_unbounded("the validation loss", found.loss)
        figures = self._list_figures(found)
        if self._average is not None:
            average = self._evaluate(self.model, self._valid)
            assert average is not None
            figures["ema_valid_score"] = average.top1
        return {**figures, "valid_seconds": self._clock() - start}

    def _list_figures(self, found: AnyEvaluation) -> dict[str, float]:
        assert isinstance(found, Evaluation)
        return {"valid_score": found.top1, "valid_top5": found.top5, "valid_loss": found.loss}

    def _weights(self) -> Weights:
        """Return a copy of the model as it is now, without the parts that only training needs."""
        return _copy_weights(self.model)

    # --- the end

    @property
    def chosen(self) -> Weights:
        """Return the weights of the best model, or of the last epoch."""
        return self._weights() if self.best is None else self.best["weights"]

    @property
    def last(self) -> Weights:
        """Return a copy of the weights as they are now."""
        return self._weights()

    def conclude(self) -> RetrainOutcome:
        """Evaluate the chosen weights and return the outcome."""
        self.emit(Deriving("evaluating the model on data that it was not trained on"))
        model = copy.deepcopy(self.model)
        model.load_state_dict(self.chosen, strict=False)  # an auxiliary head takes no part in evaluation
        return RetrainOutcome(
            test=self._evaluate(model, self._test, mistakes=MOST_MISTAKES),
            valid=self._find_validation() or self._evaluate(model, self._valid),
            best_epoch=len(self.history) - 1 if self.best is None else self.best["epoch"],
            steps=self.position,
            planned_steps=self._planned,
            steps_per_epoch=round(self._planned / self.settings.epochs),
        )

    def _find_validation(self) -> AnyEvaluation | None:
        """Return the last validation if it was of the chosen weights."""
        if self._validated is None or self._average is not None or self._validated[0] != self.position:
            return None
        is_last = self.best is None or self.best["epoch"] == len(self.history) - 1
        return self._validated[1] if is_last else None

    def _evaluate(self, network: nn.Module, images: Batches | None, *, mistakes: int = 0) -> AnyEvaluation | None:
        if images is None:
            return None
        assert isinstance(images, Loader)
        return evaluate(network, images, classes=self._classes, mistakes=mistakes)

    # --- state

    def state_dict(self) -> StateDict:
        """Return everything that a checkpoint must hold."""
        return {
            **super().state_dict(),
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": None if self._average is None else self._average.state_dict(),
            "best": self.best,
            "partial": dict(self._sums),
            "steps": self._steps,
            "budget": None
            if self._budget is None
            else {"seconds": self._budget.seconds, "spent": self._budget.elapsed},
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state)
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self._average is not None:
            self._average.load_state_dict(state["average"])
        self.best = _read_best(state["best"])
        self._sums = dict(state["partial"])
        older = state.get("epochs", self.settings.epochs) * self._train.steps  # of older versions
        steps = state.get("steps", older)
        self.refuse_more_units(steps)
        self._steps = steps
        budget = state.get("budget")
        if budget is not None:  # a resumed training keeps to it, too
            self._budget = Budget.begin(budget["seconds"], self.settings.budget_clock, spent=budget["spent"])
            self._threads = ThreadWatch()
        self._batches = None


def _read_best(stored: StateDict | None) -> BestEpoch | None:
    """Return the best epoch that a checkpoint holds; earlier ones call its score an accuracy."""
    if stored is None:
        return None
    score = stored["score"] if "score" in stored else stored["accuracy"]
    return BestEpoch(epoch=stored["epoch"], score=score, weights=stored["weights"])


def _copy_weights(model: nn.Module) -> Weights:
    return {name: value.clone() for name, value in select_deployed_weights(model.state_dict()).items()}


def _build_average(network: nn.Module, decay: float) -> AveragedModel:
    """Return a running mean of a network and of its running statistics.

    The first weights are noise, so the mean is short at first: after n steps it covers a tenth of them.
    """

    def blend(mean: Any, current: Any, steps: Tensor | int) -> None:
        update = get_ema_multi_avg_fn(min(decay, (1 + int(steps)) / (10 + int(steps))))  # type: ignore[no-untyped-call]
        update(mean, current, steps)

    return AveragedModel(network, multi_avg_fn=blend, use_buffers=True)
