"""A training that can be stopped anywhere: compared by its final state, with all that could be lost on the way."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from archloom.core.errors import DivergedError, SettingError
from archloom.core.events import Advanced, Event, Recorded
from archloom.core.seeds import derive_seed
from archloom.data.augment import Augment
from archloom.data.loader import Loader
from archloom.data.source import InMemory
from archloom.execution.checkpoint import decode, encode
from archloom.execution.loop import Interrupted
from archloom.families import build_network
from archloom.retrainings import loop as module
from archloom.retrainings.evaluation import Evaluation
from archloom.retrainings.loop import RetrainLoop, TrainingSettings
from archloom.retrainings.optimization import OptimizerSettings
from archloom.retrainings.records import RetrainOutcome
from archloom.searches.budget import Budget
from archloom.searches.short_training import seeded
from archloom.spaces import Darts, Nb201
from archloom.supernet import Only

CLASSES, SIDE = 4, 16
SPACES = {"nb201": Nb201(nodes=3, cells_per_stage=1), "darts": Darts(cells=3)}


def source_of(count: int, *, seed: int = 0, colour: float = 0.5) -> InMemory:
    """Noise, brighter in one quarter, which is the class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % CLASSES
    images = torch.rand(count, 3, SIDE, SIDE, generator=generator)
    half = SIDE // 2
    for label in range(CLASSES):
        row, column = divmod(label, 2)
        images[labels == label, :, row * half : (row + 1) * half, column * half : (column + 1) * half] += colour
    return InMemory(images, labels)


def loader(source: InMemory, *, train: bool) -> Loader:
    return Loader(
        source,
        torch.arange(len(source)),
        batch_size=8,
        mean=[0.5] * 3,
        std=[0.5] * 3,
        augment=Augment(crop_padding=1, flip=False) if train else None,
        seed=3,
        shuffle=train,
        drop_last=False,
    )


def training_of(
    *,
    space: str = "nb201",
    network: dict[str, Any] | None = None,
    optimizer: dict[str, Any] | None = None,
    valid: bool = True,
    images: int = 20,
    seed: int = 0,
    clock: Callable[[], float] = lambda: 0.0,
    budget: Budget | None = None,
    **training: Any,
) -> RetrainLoop:
    made = SPACES[space]
    architecture = made.sample(random.Random(5))
    with seeded(1):
        built = build_network(made, Only(architecture), classes=CLASSES, colours=3, channels=4, **(network or {}))
    return RetrainLoop(
        built,
        train=loader(source_of(images), train=True),
        valid=loader(source_of(10, seed=1), train=False) if valid else None,
        test=loader(source_of(12, seed=2), train=False),
        classes=CLASSES,
        budget=budget,
        optimizer=OptimizerSettings(**{"learning_rate": 0.05, **(optimizer or {})}),
        training=TrainingSettings(**{"epochs": 2, "batch_size": 8, **training}),
        seed_of=lambda step: derive_seed(seed, f"step {step}"),
        clock=clock,
    )


def assert_same(first: Any, second: Any, place: str = "") -> None:
    """Equal to the last bit, tensor by tensor."""
    if isinstance(first, Tensor):
        assert torch.equal(first, second), place
    elif isinstance(first, dict):
        assert first.keys() == second.keys(), place
        for name in first:
            assert_same(first[name], second[name], f"{place}.{name}")
    elif isinstance(first, list | tuple):
        assert len(first) == len(second), place
        for index, (one, other) in enumerate(zip(first, second, strict=True)):
            assert_same(one, other, f"{place}.{index}")
    else:
        assert first == second, place


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "average": {"ema": 0.9},
    "drop path and dropout": {"network": {"drop_path": 0.5, "dropout": 0.5}},
    "auxiliary head": {"space": "darts", "network": {"auxiliary": True, "drop_path": 0.3}, "images": 12},
    "by epochs, without validation": {"valid": False, "optimizer": {"every_step": False, "decay_all": False}},
    "bfloat16": {"mixed_precision": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_interrupted_in_the_middle_of_an_epoch_it_ends_as_if_it_was_not(kind: str) -> None:
    whole = training_of(**KINDS[kind])
    outcome = whole.run()
    first = training_of(**KINDS[kind])
    saved: list[bytes] = []
    stop_at = first.units_per_record + 1  # one step into the second epoch
    with pytest.raises(Interrupted):
        first.run(save=lambda state, _: saved.append(encode(state)), stop=lambda: first.position == stop_at)
    torch.manual_seed(123)  # whatever the process did in between
    second = training_of(**KINDS[kind])
    second.load_state_dict(decode(saved[-1], name="state"))
    assert second.position == stop_at
    assert_same(second.run(), outcome)
    assert_same(second.state_dict(), whole.state_dict())
    assert_same(second.chosen, whole.chosen)


def test_a_lost_average_or_momentum_would_be_noticed() -> None:
    whole = training_of(ema=0.9)
    whole.run()
    for lost in ("average", "optimizer"):
        first = training_of(ema=0.9)
        for _ in range(4):
            record = first.advance()
            first.history += [] if record is None else [record]
        state, second = first.state_dict(), training_of(ema=0.9)
        second.load_state_dict({**state, lost: second.state_dict()[lost]})
        second.run()
        with pytest.raises(AssertionError):
            assert_same(second.state_dict(), whole.state_dict())


def test_dropout_leaves_the_global_generator_alone_and_follows_the_seed() -> None:
    torch.manual_seed(9)
    before = torch.get_rng_state()
    runs = [training_of(network={"dropout": 0.5}, seed=seed) for seed in (0, 0, 1)]
    for run in runs:
        run.run()
    assert torch.equal(torch.get_rng_state(), before)
    assert_same(runs[0].state_dict()["network"], runs[1].state_dict()["network"])
    with pytest.raises(AssertionError):
        assert_same(runs[0].state_dict()["network"], runs[2].state_dict()["network"])


def test_one_step_is_what_a_plain_loop_does() -> None:
    training = training_of(optimizer={"nesterov": True, "weight_decay": 0.01, "clip": 0.0}, label_smoothing=0.1)
    twin = training_of().network
    sgd = torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for step in range(2):
        batch = training._train.batch(0, step)
        sgd.param_groups[0]["lr"] = training.schedule.rate_at(step / 3, epochs=2)
        sgd.zero_grad()
        criterion(twin(batch.images), batch.labels).backward()
        sgd.step()
        training.advance()
    for wanted, got in zip(twin.parameters(), training.network.parameters(), strict=True):
        torch.testing.assert_close(got, wanted)


def test_the_auxiliary_head_weighs_what_it_is_told_to_and_is_no_part_of_the_model() -> None:
    def after_a_step(weight: float) -> RetrainLoop:
        training = training_of(space="darts", network={"auxiliary": True}, auxiliary_weight=weight, images=8)
        training.advance()
        return training

    none, some = after_a_step(0.0), after_a_step(0.4)
    assert not torch.equal(next(none.network.parameters()), next(some.network.parameters()))
    assert any(name.startswith("auxiliary.") for name in some.network.state_dict())
    assert not any(name.startswith("auxiliary.") for name in some.chosen)
    loss = none._sums["loss"]
    assert some._sums["loss"] == loss  # what is told is the loss of the classifier itself


def test_clipping_bounds_the_gradient() -> None:
    free, bound = training_of(optimizer={"clip": 0.0}), training_of(optimizer={"clip": 1e-4, "weight_decay": 0.0})
    start = [p.detach().clone() for p in bound.network.parameters()]
    free.advance(), bound.advance()
    moved = (
        sum(float((p.detach() - s).square().sum()) for p, s in zip(bound.network.parameters(), start, strict=True))
        ** 0.5
    )
    assert moved == pytest.approx(0.05 * 1e-4, rel=1e-2)


def test_the_best_epoch_by_validation_is_kept_and_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    accuracies = iter([50.0, 80.0, 80.0, 60.0, 70.0, 70.0])  # of epochs 1 to 4; then of the test and validation images
    monkeypatch.setattr(
        module,
        "evaluate",
        lambda *_, **__: Evaluation(
            images=1, top1=next(accuracies), top5=0.0, loss=0.0, confusion=((1,),), per_class=(None,)
        ),
    )
    training = training_of(epochs=4)
    kept: list[Any] = []
    training.listen(lambda event: kept.append(training._weights()) if isinstance(event, Recorded) else None)
    outcome = training.run()
    assert outcome.best_epoch == 2  # of equals the later one
    assert_same(training.chosen, kept[2])
    with pytest.raises(AssertionError):
        assert_same(training.chosen, training.last)


def test_without_validation_or_on_request_the_last_epoch_counts() -> None:
    for training in (training_of(valid=False), training_of(keep="last")):
        outcome = training.run()
        assert outcome.best_epoch == 1
        assert_same(training.chosen, training.last)
    assert training_of(valid=False).run().valid is None


def test_epochs_between_validations_change_nothing_but_their_records() -> None:
    every, third = training_of(epochs=5, keep="last"), training_of(epochs=5, keep="last", validate_every=3)
    outcome, seldom = every.run(), third.run()
    assert [record.valid_score is not None for record in third.history] == [False, False, True, False, True]
    assert_same(third.last, every.last)
    assert seldom.valid == outcome.valid
    best = training_of(epochs=4, validate_every=2).run().best_epoch
    assert best in (1, 3)  # of those that were validated


def test_the_average_is_the_model_and_has_statistics_of_its_own() -> None:
    training = training_of(ema=0.99)
    training.run()
    means = {name: value for name, value in training.last.items() if name.endswith("running_mean")}
    own = training.network.state_dict()
    assert means and all(not torch.equal(value, own[name]) for name, value in means.items())
    assert set(training.history[0].to_json()) >= {"valid_score", "ema_valid_score"}
    weights = [value for name, value in training.last.items() if name.endswith("weight")]
    assert all(value.isfinite().all() for value in weights)


@pytest.mark.parametrize("mixed_precision", [False, True])
def test_it_learns_and_says_so(mixed_precision: bool) -> None:
    training = training_of(epochs=6, images=64, optimizer={"learning_rate": 0.1}, mixed_precision=mixed_precision)
    outcome = training.run()
    assert outcome.test.top1 > 70
    losses = [record.train_loss for record in training.history]
    assert losses[-1] < losses[0] / 1.5
    wanted = {"epoch", "seconds", "learning_rate", "train_loss", "train_score", "images_per_second"}
    names = set(training.history[0].to_json())
    assert names == wanted | {"valid_score", "valid_top5", "valid_loss", "valid_seconds"}
    assert training.history[0].train_score > 1  # in percent


def test_bfloat16_computes_convolutions_and_keeps_weights_and_losses() -> None:
    training, seen = training_of(mixed_precision=True), []
    convolution = next(part for part in training.network.modules() if isinstance(part, nn.Conv2d))
    convolution.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    training.run()
    assert seen[0] == torch.bfloat16
    assert all(one.dtype == torch.float32 for one in training.network.state_dict().values() if one.is_floating_point())


@pytest.mark.parametrize(("what", "value"), [("loss", float("nan")), ("gradient", float("inf"))])
def test_what_is_no_number_stops_before_it_spoils_anything(
    what: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = training_of(optimizer={"clip": 0.0})
    saved: list[Any] = []
    if what == "loss":
        plain = training._loss
        monkeypatch.setattr(
            training, "_loss", lambda logits, batch: plain(logits, batch) * (value if training.position == 4 else 1)
        )
    else:
        first = next(training.network.parameters())
        first.register_hook(lambda gradient: gradient * (value if training.position == 4 else 1))
    with pytest.raises(DivergedError, match=rf"the {what} became \S+ at step 5 of 6 .*set optimizer.clip = 5.*0.05"):
        training.run(save=lambda state, _: saved.append(encode(state)))
    assert len(saved) == 1
    assert all(value.isfinite().all() for value in training.network.state_dict().values())


def test_a_long_epoch_is_saved_within() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 60.0
        return now

    training = training_of(clock=clock)
    saved: list[int] = []
    training.run(save=lambda _, step: saved.append(step))
    assert any(step % training.units_per_record for step in saved)
    assert {3, 6} <= set(saved)
    quiet: list[int] = []
    training_of().run(save=lambda _, step: quiet.append(step))
    assert quiet == [3, 6]


class StepClock:
    """A clock that stands still between steps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def train_within(seconds: float, *, slow_after: float, epochs: int = 20) -> tuple[RetrainLoop, StepClock]:
    clock = StepClock()
    training = training_of(clock=clock, budget=Budget(seconds, clock), epochs=epochs, valid=False)
    fit = training._fit

    def timed_fit(batch: Any) -> tuple[float, int]:
        clock.now += 1.0 if clock.now < slow_after else 3.0
        return fit(batch)

    training._fit = timed_fit  # type: ignore[method-assign]
    training.run()
    return training, clock


def test_a_budget_shortens_the_schedule_of_a_machine_that_becomes_slow() -> None:
    training, clock = train_within(66.0, slow_after=30.0)  # 20 epochs of three steps would take 60 seconds
    assert 10 < len(training.history) < 20
    assert clock.now <= 1.1 * 66.0
    assert training.history[-1].learning_rate < 0.1 * training.history[0].learning_rate  # the cosine ends in time
    unhurried, clock = train_within(66.0, slow_after=1e9)
    assert (len(unhurried.history), clock.now) == (20, 60.0)


def test_a_shortened_schedule_survives_a_checkpoint() -> None:
    training, _ = train_within(66.0, slow_after=30.0)
    again = training_of(epochs=20, valid=False)
    again.load_state_dict(decode(encode(training.state_dict()), name="saved"))
    assert again.total == training.total < 60


def test_every_step_and_epoch_is_told() -> None:
    events: list[Event] = []
    training = training_of()
    training.listen(events.append)
    training.run()
    steps = [event for event in events if isinstance(event, Advanced)]
    assert [step.position for step in steps] == list(range(1, 7))
    assert sum(step.images for step in steps) == 2 * 20  # the smaller last batch takes part
    assert all(0 <= step.metrics["train_accuracy"] <= 1 for step in steps)
    assert len([event for event in events if isinstance(event, Recorded)]) == 2


def test_settings_that_break_rules_are_told_at_once() -> None:
    with pytest.raises(SettingError) as caught:
        TrainingSettings(
            epochs=0, batch_size=1, label_smoothing=1.0, ema=1.0, cutout=-1, auxiliary_weight=-1, validate_every=0
        )
    assert len(caught.value.problems) == 7


def test_a_budget_may_end_within_an_epoch_and_the_outcome_says_so() -> None:
    clock = StepClock()
    training = training_of(clock=clock, budget=Budget(24.0, clock), epochs=20, valid=False)
    fit = training._fit

    def timed_fit(batch: Any) -> tuple[float, int]:
        clock.now += 4.0  # an epoch of three steps takes 12 of 24 seconds
        return fit(batch)

    training._fit = timed_fit  # type: ignore[method-assign]
    outcome = training.run()
    assert (outcome.steps, outcome.planned_steps, outcome.steps_per_epoch) == (4, 60, 3)
    assert len(training.history) == 2
    assert outcome.training_caution.startswith("Hardly trained: 1.33 epochs of 3 steps.")
    assert "The time ended after 1.33 of 20 planned epochs." in outcome.training_caution


def test_a_resumed_training_keeps_its_budget() -> None:
    clock = StepClock()
    training = training_of(clock=clock, budget=Budget(20.0, clock, spent=5.0), epochs=2, valid=False)
    training.advance()
    again = training_of(epochs=2, valid=False)
    again.load_state_dict(decode(encode(training.state_dict()), name="saved"))
    assert again._budget is not None
    assert (again._budget.seconds, again._budget.spent) == (20.0, 5.0)


@pytest.mark.parametrize(("epochs", "per_epoch", "hardly"), [(10, 50, False), (9, 100, True), (20, 24, True)])
def test_less_than_the_stated_minimum_is_called_hardly_trained(epochs: int, per_epoch: int, hardly: bool) -> None:
    steps = epochs * per_epoch
    outcome = RetrainOutcome(
        test=None, valid=None, best_epoch=0, steps=steps, planned_steps=steps, steps_per_epoch=per_epoch
    )
    assert outcome.training_caution.startswith("Hardly trained") == hardly
