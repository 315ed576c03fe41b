from __future__ import annotations

import math

import pytest
import torch

from archloom.core.errors import DivergedError
from archloom.core.events import Advanced, Deriving, Noted
from archloom.data.augment import Augment
from archloom.data.loader import Loader
from archloom.data.source import InMemory
from archloom.execution.loop import Interrupted
from archloom.families import build_network
from archloom.searches.finalist_race import RaceOutcome
from archloom.searches.one_shot import OneShotLoop
from archloom.searches.race_runner import Decision
from archloom.searches.race_verdict import summarize_race
from archloom.searches.records import FinalistRecord
from archloom.searches.shared_score import SharedScore
from archloom.spaces import Nb201
from archloom.strategies.base import OneShot, Plan, StrategyFindings, Validation
from archloom.supernet import EveryOption, SharedWeights, WeightSettings

SPACE = Nb201(nodes=2, cells_per_stage=1)
IMAGES = torch.randn(22, 1, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(22) % 2


def loader(indices: torch.Tensor, *, batch_size: int, **options) -> Loader:
    return Loader(
        InMemory(IMAGES, LABELS),
        indices,
        batch_size=batch_size,
        mean=(0.0,),
        std=(1.0,),
        augment=Augment(),
        seed=0,
        **options,
    )


class Noting(OneShot):
    """Notes what it is given; the architecture it favours is the epoch's number."""

    def __init__(self, loss: float = 1.0):
        super().__init__(SPACE, torch.Generator().manual_seed(0))
        self.seen, self.rates, self.finals, self.loss = [], [], [], loss

    def step(self, weights, batch):
        self.seen.append(batch)
        self.rates.append(weights.learning_rate)
        return {"train_loss": self.loss * len(self.seen)}

    def best(self, evaluate, *, final=True):
        self.finals.append(final)
        return SPACE.parse("|skip_connect~0|")


@pytest.fixture
def weights() -> SharedWeights:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = build_network(SPACE, EveryOption(), classes=2, colours=1, channels=2)
    return SharedWeights(network, WeightSettings(learning_rate=1.0, learning_rate_end=0.0))


def make(weights, strategy, *, epochs=2, **options) -> OneShotLoop:
    return OneShotLoop(
        SPACE,
        strategy,
        weights,
        train=loader(torch.arange(12), batch_size=4),
        valid=loader(torch.arange(12, 22), batch_size=5),
        evaluation=loader(torch.arange(12, 17), batch_size=5),
        comparison=loader(torch.arange(17, 22), batch_size=5),
        epochs=epochs,
        random_baseline_samples=3,
        clock=iter(range(10_000)).__next__,
        **options,
    )


def test_every_training_image_comes_once_an_epoch_and_validation_has_its_own_epochs(weights):
    strategy = Noting()
    make(weights, strategy).run()
    assert [len(batch.train) for batch in strategy.seen] == [4] * 6
    for epoch in (0, 1):
        images = torch.cat([batch.train.images for batch in strategy.seen if batch.epoch == epoch])
        assert len({image.sum().item() for image in images}) == 12
    valid = [batch.valid for batch in strategy.seen]
    for start in (0, 2, 4):  # two batches are one round of ten images
        round_ = torch.cat([batch.images for batch in valid[start : start + 2]])
        assert len({image.sum().item() for image in round_}) == 10
    assert {batch.epochs for batch in strategy.seen} == {2}


class Seldom(Noting):
    """Asks for three validation batches at every second step, and has a figure of its own for these."""

    validation = Validation(every=2, batches=3)

    def begin(self, weights, plan):
        self.plan = plan

    def step(self, weights, batch):
        figures = super().step(weights, batch)
        return {**figures, "evaluated": float(len(self.seen))} if batch.valids else figures

    def findings(self):
        return StrategyFindings(others={"rumour": 7})


def test_strategy_gets_the_validation_batches_it_declares(weights):
    strategy = Seldom()
    search = make(weights, strategy)
    search.run()
    assert [len(batch.valids) for batch in strategy.seen] == [0, 3, 0, 3, 0, 3]
    sums = [batch.images.sum().item() for given in strategy.seen for batch in given.valids]
    valid = loader(torch.arange(12, 22), batch_size=5)
    wanted = [batch.images.sum().item() for epoch in range(5) for batch in valid.epoch(epoch)]
    assert sums == wanted[:9]  # none left out, none twice
    first, second = search.history
    assert first.metrics["evaluated"] == 2.0  # the mean of the steps that have it: 2
    assert second.metrics["evaluated"] == 5.0  # 4 and 6


@pytest.mark.parametrize("stop_after", range(6))
def test_a_resumed_search_sees_the_validation_batches_that_were_to_come(weights, stop_after):
    whole, part = Seldom(), Seldom()
    make(weights, whole).run()
    search = make(weights, part)
    for _ in range(stop_after):
        search.advance()
    state = search.state_dict()
    rest = Seldom()
    resumed = make(weights, rest)
    resumed.load_state_dict(state)
    while resumed.position < resumed.total:
        resumed.advance()
    wanted = [batch.images.sum().item() for given in whole.seen[stop_after:] for batch in given.valids]
    assert [batch.images.sum().item() for given in rest.seen for batch in given.valids] == wanted


def test_strategy_gets_the_plan_and_its_findings_are_kept(weights):
    strategy = Seldom()
    outcome = make(weights, strategy).run()
    assert strategy.plan == Plan(train_images=12, valid_images=10, batch_size=4, valid_batch_size=5, steps=6)
    assert outcome.findings == {"rumour": 7}


def test_learning_rate_follows_the_cosine_by_epoch(weights):
    strategy = Noting()
    make(weights, strategy, epochs=4).run()
    wanted = [(1 + math.cos(math.pi * epoch / 4)) / 2 for epoch in range(4) for _ in range(3)]
    assert strategy.rates == pytest.approx(wanted)


def test_a_record_is_the_mean_over_its_epoch(weights):
    search = make(weights, Noting())
    search.run()
    first, second = search.history
    assert first.metrics == {"train_loss": 2.0}  # mean of 1, 2, 3
    assert second.metrics == {"train_loss": 5.0}
    assert (first.epoch, second.epoch) == (0, 1)
    assert first.seconds == 3.0  # three steps, one tick of the clock in each
    assert first.images_per_second == 4.0
    assert first.text == "|skip_connect~0|"
    assert first.probabilities is None
    assert 0 <= first.derived_score <= 1
    assert first.memory_mb > 0


def test_only_the_last_architecture_is_final(weights):
    strategy, events = Noting(), []
    outcome = make(weights, strategy, listeners=[events.append]).run()
    assert strategy.finals == [False, False, True]
    assert outcome.text == "|skip_connect~0|"
    assert len(outcome.random_baseline) == 3
    assert [event.position for event in events if isinstance(event, Advanced)] == [1, 2, 3, 4, 5, 6]
    assert sum(isinstance(event, Deriving) for event in events) == 2


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_infinite_loss_stops_the_search_with_advice(weights, loss):
    with pytest.raises(DivergedError, match=r"train_loss became (nan|inf) at step 1 of 6; lower weights.learning_rate"):
        make(weights, Noting(loss)).run()


def test_random_baseline_is_evaluated_on_images_that_the_search_did_not_use(weights):
    """Otherwise the best of many, chosen on some images, would beat the baseline on them even if all were equal."""

    class Picking(Noting):
        def best(self, evaluate, *, final=True):
            self.own = evaluate(SPACE.parse("|skip_connect~0|"))
            return SPACE.parse("|skip_connect~0|")

    strategy = Picking()
    search = make(weights, strategy)
    outcome = search.run()
    expected = SharedScore(SPACE, weights, loader(torch.arange(17, 22), batch_size=5))
    assert outcome.shared_score == expected(SPACE.parse("|skip_connect~0|"))
    seen, compared = (
        {float(image.sum()) for batch in images for image in batch.images}
        for images in (search._evaluate._batches, search._compare._batches)
    )
    assert not seen & compared


def test_batches_have_the_progress_of_the_search(weights):
    strategy = Noting()
    make(weights, strategy).run()
    assert [batch.progress for batch in strategy.seen] == pytest.approx([step / 6 for step in range(6)])


# --- the finalist race


RACED = [SPACE.parse("|skip_connect~0|"), SPACE.parse("|nor_conv_3x3~0|")]


class Latter:
    """A race that the last contestant wins."""

    derived = "not asked"

    def run(self, strategy, derived, *, known, allowed, describe, note, stop, budget):
        self.derived = derived
        for number, _ in enumerate(RACED):
            if {"number": number} in known:
                continue
            if stop():
                raise Interrupted
            note({"number": number})
            describe(f"training number {number}")
        records = tuple(FinalistRecord(SPACE.format(one), one, 1, 1.0, 0.5, 10, origin="x") for one in reversed(RACED))
        return Decision(RACED[-1], summarize_race(RaceOutcome(RACED[-1], records), derived=None), records)


def test_the_race_decides(weights):
    events: list = []
    race = Latter()
    outcome = make(weights, Noting(), race=race, listeners=[events.append]).run()
    assert outcome.text == "|nor_conv_3x3~0|"
    assert outcome.derived == race.derived != outcome.architecture
    assert [row.text for row in outcome.finalists] == ["|nor_conv_3x3~0|", "|skip_connect~0|"]
    assert outcome.finalists_seconds == 1
    assert outcome.verdict.startswith("By equal short trainings")
    assert Deriving("training number 1") in events
    alone = make(weights, Noting()).run()
    assert (alone.finalists, alone.race, alone.architecture) == ((), None, alone.derived)


def test_without_an_allowed_contestant_the_derived_architecture_is_returned(weights):
    class Nobody(Latter):
        def run(self, *_, **__):
            return None

        def first_reference(self, allowed):
            return None

    outcome = make(weights, Noting(), race=Nobody()).run()
    assert outcome.architecture == outcome.derived
    assert (outcome.race, outcome.finalists) == (None, ())


def test_the_race_receives_what_is_allowed(weights):
    class Asking(Latter):
        def run(self, strategy, derived, *, allowed, **others):
            asked.extend(allowed(one) for one in RACED)
            return super().run(strategy, derived, allowed=allowed, **others)

    asked: list = []
    make(weights, Noting(), race=Asking()).run()
    assert asked == [True, True]  # without a target all are


def test_the_race_stops_when_asked_and_resuming_does_the_rest(weights):
    events: list = []
    search, saved = make(weights, Noting(), race=Latter(), listeners=[events.append]), []
    with pytest.raises(Interrupted):
        search.run(
            save=lambda state, step: saved.append(step),
            stop=lambda: Deriving("training number 0") in events,
        )
    assert saved[-1] == search.total
    assert Noted({"number": 0}) in events
    told: list = []
    again = make(weights, Noting(), race=Latter(), listeners=[told.append])
    again.load_state_dict(search.state_dict())
    again.notes = [event.record for event in events if isinstance(event, Noted)]
    assert again.run().text == "|nor_conv_3x3~0|"
    assert [event for event in told if isinstance(event, Noted)] == [Noted({"number": 1})]
