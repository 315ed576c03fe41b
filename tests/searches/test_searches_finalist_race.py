"""Short trainings decide between architectures: rounds, repeats, references, limits of time, resuming."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from archloom.core.errors import ArchloomError
from archloom.core.events import Failure
from archloom.data.augment import Augment
from archloom.data.loader import Loader
from archloom.data.source import InMemory
from archloom.execution.executors import SerialExecutor
from archloom.execution.loop import Interrupted
from archloom.searches.finalist_race import FEW_PASSES, FinalistRace, ShortScore, ShortTraining, pack_bits, unpack_bits
from archloom.searches.race_proposals import DERIVED, LARGEST, PROPOSAL, RANDOM, Entrant
from archloom.searches.race_settings import Round, rounds_of
from archloom.searches.records import FinalistRecord
from archloom.spaces import Architecture
from archloom.supernet import SharedWeights, WeightSettings


def named(name: str) -> Architecture:
    return Architecture({"a": name})


def entrants(*names: str, origin: str = RANDOM) -> list[Entrant]:
    return [Entrant(named(name), origin) for name in names]


def record(name: str, loss: float | None, *, steps: int = 2, origin: str = RANDOM, **others) -> FinalistRecord:
    return FinalistRecord("", named(name), steps, loss, 0.5, others.pop("parameters", 100), origin=origin, **others)


class Losses:
    """Stands for a short training: the loss of a name, less a little for each step; remembers what was trained."""

    def __init__(self, losses: dict[str, float], *, seconds: float = 0.0) -> None:
        self.losses, self.seconds = losses, seconds
        self.trained: list[tuple[str, int, int]] = []

    def __call__(self, entrant: Entrant, steps: int, repeat: int, stop) -> FinalistRecord:
        if stop():
            raise Interrupted
        name = entrant.architecture["a"]
        self.trained.append((name, steps, repeat))
        loss = self.losses[name] + 0.01 * repeat
        return record(name, loss, steps=steps, origin=entrant.origin, repeat=repeat, seconds=self.seconds)


@pytest.mark.parametrize(("contestants", "later"), [(6, 1), (11, 1), (12, 1), (24, 1), (99, 1), (100, 2), (120, 2)])
def test_fewer_are_trained_for_longer_round_by_round(contestants: int, later: int) -> None:
    rounds = rounds_of(contestants)
    assert len(rounds) == later
    survivors = [contestants, *(one.survivors for one in rounds)]
    assert survivors == sorted(set(survivors), reverse=True)
    assert sum(one.cost for one in rounds) <= 3 * contestants


def test_references_are_trained_before_time_is_kept_for_later_rounds() -> None:
    losses = Losses(dict.fromkeys("abcdefgh", 0.5), seconds=1.0)
    race(losses, contestants=8, rounds=(Round(8, 9),)).run(entrants(*"abcdefgh"), time_left=Timer(6.0, losses).left)
    assert "".join(name for name, steps, _ in losses.trained if steps == 2) == "abcd"  # a tenth of the time is for one


def test_the_first_round_goes_on_until_later_rounds_need_the_time() -> None:
    losses = Losses(dict(zip("abcdefghijklmnopqrst", range(20), strict=True)), seconds=1.0)
    race(losses, contestants=20, rounds=(Round(2, 3),)).run(
        entrants(*losses.losses), time_left=Timer(18.0, losses).left
    )  # later: 2 trainings of 3 seconds, with some slack
    first = [name for name, steps, _ in losses.trained if steps == 2]
    assert len(first) == 12
    assert [steps for _, steps, _ in losses.trained].count(6) == 2


def test_the_mean_over_the_later_rounds_decides() -> None:
    changed = {("a", 6): 0.9, ("a", 12): 0.10, ("b", 6): 0.2, ("b", 12): 0.11}

    class Turning(Losses):
        def __call__(self, entrant, steps, repeat, stop):
            found = super().__call__(entrant, steps, repeat, stop)
            return replace(found, valid_loss=changed.get((entrant.architecture["a"], steps), found.valid_loss))

    losses = Turning({"a": 0.1, "b": 0.2, "c": 0.3})
    outcome = race(losses, rounds=(Round(3, 3), Round(2, 6))).run(entrants("a", "b", "c"))
    assert [one for one in losses.trained if one[1] == 12] == [("b", 12, 0), ("c", 12, 0)]
    assert outcome.winner == named("b")


def test_one_contestant_is_not_trained_again() -> None:
    assert len(race(Losses({"a": 0.1})).run(entrants("a")).records) == 1


def test_a_short_score_ranks_as_the_race_does() -> None:
    class Sized(Losses):
        def __call__(self, entrant, steps, repeat, stop):
            found = super().__call__(entrant, steps, repeat, stop)
            return replace(found, parameters={"a": 10, "b": 1000, "c": 1000}[entrant.architecture["a"]])

    losses = Sized({"a": 1.0, "b": 1.2, "c": math.inf})
    score = ShortScore(losses, 9, size=0.2, largest=1000)
    scores = {name: [one.score for one in score(named(name))] for name in "abc"}
    assert scores["b"] == [pytest.approx(100 * math.exp(-1.2))]
    assert scores["a"] == [pytest.approx(100 * math.exp(-1.0) * 0.01**0.2)]  # learns faster, and is smaller
    assert scores["c"] == [0.0]  # diverged
    assert [(one.epochs, one.score) for one in ShortScore(losses, 9, every_rung=True)(named("a"))] == [
        (part, pytest.approx(100 * math.exp(-1.0))) for part in (1, 3, 9)
    ]
    assert [steps for _, steps, _ in losses.trained][-3:] == [1, 3, 9]


def race(losses, *, contestants: int = 10, rounds=(Round(2, 3),), executor=None, **options) -> FinalistRace:
    return FinalistRace(losses, executor or SerialExecutor(), 2, contestants, rounds=rounds, **options)


def test_the_best_of_the_last_round_wins() -> None:
    losses = Losses({"a": 0.3, "b": 0.1, "c": 0.2})
    outcome = race(losses).run(entrants("a", "b", "c"))
    assert outcome.winner == named("b")
    assert losses.trained == [("a", 2, 0), ("b", 2, 0), ("c", 2, 0), ("b", 6, 0), ("c", 6, 0)]
    assert [(one.architecture["a"], one.steps) for one in outcome.records] == [
        ("b", 6), ("c", 6), ("b", 2), ("c", 2), ("a", 2),
    ]  # fmt: skip
    assert not outcome.cut_short


def test_a_repeated_round_decides_by_the_mean_over_seeds() -> None:
    class Lucky(Losses):
        def __call__(self, entrant, steps, repeat, stop):
            found = super().__call__(entrant, steps, repeat, stop)
            lucky = entrant.architecture["a"] == "a" and steps == 6 and repeat == 0
            return record(entrant.architecture["a"], 0.05 if lucky else found.valid_loss, steps=steps, repeat=repeat)

    outcome = race(Lucky({"a": 0.4, "b": 0.2}), rounds=(Round(2, 3, repeats=2),)).run(entrants("a", "b"))
    assert outcome.winner == named("b")  # 0.205 on average; `a` has 0.05 and 0.41


def test_size_counts_by_the_logarithm_of_the_parameters() -> None:
    small, large = record("s", 0.50, parameters=100), record("l", 0.55, parameters=200)
    ranked = race(None, size=0.1).rank([small, large])
    assert [one.architecture["a"] for one in ranked] == ["l", "s"]  # 0.1 ln 2 = 0.07 outweighs 0.05
    assert [one.architecture["a"] for one in race(None, size=0.05).rank([small, large])] == ["s", "l"]


def test_a_training_that_diverged_is_last() -> None:
    assert race(None, size=1.0).rank([record("x", None, parameters=10**9), record("y", 9.0)])[-1].valid_loss is None


@pytest.mark.parametrize("origin", [LARGEST, "ResNet block"])
def test_the_best_reference_reaches_the_last_round(origin: str) -> None:
    losses = Losses({"a": 0.1, "b": 0.2, "r": 0.8, "q": 0.9})
    race(losses).run([*entrants("a", "b"), *entrants("r", "q", origin=origin)])
    assert [name for name, steps, _ in losses.trained if steps == 6] == ["a", "r"]


@pytest.mark.parametrize("origin", [DERIVED, RANDOM, PROPOSAL, "sample", ""])
def test_no_other_contestant_is_kept_for_its_origin(origin: str) -> None:
    losses = Losses({"a": 0.1, "b": 0.2, "r": 0.8})
    race(losses).run([*entrants("a", "b"), *entrants("r", origin=origin)])
    assert [name for name, steps, _ in losses.trained if steps == 6] == ["a", "b"]


def test_proposals_follow_the_records_until_there_are_enough_contestants() -> None:
    losses = Losses({name: 0.1 * place for place, name in enumerate("abcdef")})
    seen: list[int] = []

    def propose(records):
        seen.append(len(records))
        return entrants(*"abcdef"[len(records) : len(records) + 2], origin=PROPOSAL)

    race(losses, contestants=5, rounds=()).run(entrants("a", "b"), propose)
    assert [name for name, _, _ in losses.trained] == list("abcde")
    assert seen == [2, 4, 5]


def test_the_first_round_ends_where_nothing_is_proposed() -> None:
    losses = Losses({"a": 0.1, "b": 0.2})
    assert len(race(losses, contestants=50, rounds=()).run(entrants("a", "b")).records) == 2


class Timer:
    """Seconds that pass with every training."""

    def __init__(self, seconds: float, losses: Losses) -> None:
        self.seconds, self.losses = seconds, losses

    def left(self) -> float:
        return self.seconds - sum(self.losses.seconds * steps / 2 for _, steps, _ in self.losses.trained)


def test_with_little_time_the_first_round_trains_few_and_leaves_the_rest_to_the_later_ones() -> None:
    losses = Losses({name: 0.1 * place for place, name in enumerate("abcdefghij")}, seconds=1.0)
    timer = Timer(8.0, losses)  # ten contestants and 2 x 3 more would take 16 seconds
    outcome = race(losses).run(entrants(*"abcdefghij"), time_left=timer.left)
    first = [name for name, steps, _ in losses.trained if steps == 2]
    assert len(first) == 4
    assert outcome.winner == named("a")
    assert timer.left() >= -3.0  # at most the training that was running


def test_a_round_whose_seeds_do_not_all_fit_runs_with_fewer() -> None:
    losses = Losses({"a": 0.3, "b": 0.1}, seconds=1.0)
    outcome = race(losses, contestants=2, rounds=(Round(2, 3, repeats=2),)).run(
        entrants("a", "b"), time_left=Timer(9.0, losses).left
    )  # 2 seconds for the first round; then 6 for each seed
    assert [one for one in losses.trained if one[1] == 6] == [("b", 6, 0), ("a", 6, 0)]
    assert not outcome.cut_short


def test_a_round_that_does_not_fit_is_left_out_and_what_is_trained_decides() -> None:
    losses = Losses({"a": 0.3, "b": 0.1}, seconds=1.0)
    outcome = race(losses, contestants=2, rounds=(Round(2, 50),)).run(
        entrants("a", "b"), time_left=Timer(60.0, losses).left
    )
    assert outcome.winner == named("b")
    assert outcome.cut_short
    assert {steps for _, steps, _ in losses.trained} == {2}


def test_a_resumed_race_trains_nothing_twice_and_ends_the_same() -> None:
    losses, notes = Losses({"a": 0.3, "b": 0.1, "c": 0.2}), []
    count = iter(range(100))
    with pytest.raises(Interrupted):
        race(losses).run(entrants("a", "b", "c"), note=notes.append, stop=lambda: next(count) >= 7)
    assert 0 < len(notes) < 5
    again = Losses(losses.losses)
    known = [FinalistRecord.from_json(note) for note in notes]
    outcome = race(again, known=known).run(entrants("a", "b", "c"))
    assert outcome.winner == named("b")
    assert len(again.trained) == 5 - len(notes)
    assert set(again.trained).isdisjoint({(n["architecture"]["a"], n["steps"], n["repeat"]) for n in notes})


def test_a_training_that_fails_is_one_clear_line() -> None:
    class Broken(SerialExecutor):
        def run(self, jobs, **_):
            return {jobs[0].name: Failure("out of memory")}

    with pytest.raises(ArchloomError, match="failed twice: out of memory; resume the run"):
        race(Losses({"a": 0.1, "b": 0.2}), executor=Broken()).run(entrants("a", "b"))


# --- one short training


def loader(indices: torch.Tensor, batch_size: int, side: int = 2) -> Loader:
    images = torch.randn(20, 1, side, side, generator=torch.Generator().manual_seed(0))
    labels = (images.sum(dim=(1, 2, 3)) > 0).long()
    source = InMemory(images, labels)
    return Loader(source, indices, batch_size=batch_size, mean=(0.0,), std=(1.0,), augment=Augment(), seed=0)


class Linear(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.linear, self.seen = nn.Linear(inputs, 2), []

    def forward(self, images: torch.Tensor, gates: object) -> torch.Tensor:
        if torch.is_grad_enabled():
            self.seen.append(images)
        logits: torch.Tensor = self.linear(images.flatten(1))
        return logits


class Begun:
    """Begins linear classifiers and keeps them."""

    def __init__(self, inputs: int = 4) -> None:
        self.inputs, self.networks, self.rates = inputs, [], []

    def __call__(self, architecture: Architecture, repeat: int) -> SharedWeights:
        torch.manual_seed(repeat)
        self.networks.append(Linear(self.inputs))
        weights = SharedWeights(self.networks[-1], WeightSettings(learning_rate=0.1, learning_rate_end=0.0))
        fit = weights.fit
        weights.fit = lambda *args: (self.rates.append(weights.learning_rate), fit(*args))[1]
        return weights


def train(begin: Begun, *, steps: int = 12, repeat: int = 0, side: int = 2, shrink: int = 1) -> FinalistRecord:
    held = loader(torch.arange(12, 20), 4, side)
    training = ShortTraining(begin, train=loader(torch.arange(12), 4, side), evaluation=held, shrink=shrink)
    return training(Entrant(named("a"), "largest"), steps, repeat, lambda: False)


def test_loss_accuracy_and_correct_images_agree() -> None:
    begin = Begun()
    found = train(begin)
    network, images = begin.networks[0], loader(torch.arange(12, 20), 4)
    batches = list(images.epoch(0))
    with torch.no_grad():
        logits = [network(batch.images, {}) for batch in batches]
    right = torch.cat([out.argmax(1) == batch.labels for out, batch in zip(logits, batches, strict=True)])
    losses = [float(nn.functional.cross_entropy(o, b.labels)) for o, b in zip(logits, batches, strict=True)]
    assert unpack_bits(found.correct) == right.tolist()
    assert found.valid_score == pytest.approx(right.float().mean().item())
    assert found.valid_loss == pytest.approx(sum(losses) / 2)
    assert (found.steps, found.origin, found.parameters) == (12, "largest", 10)


@pytest.mark.parametrize(("passes", "seen"), [(FEW_PASSES, "plain"), (FEW_PASSES + 1, "augmented")])
def test_only_a_training_of_many_passes_sees_augmented_examples(passes: int, seen: str) -> None:
    augmented, plain, held = (loader(torch.arange(start, start + 4), 4) for start in (0, 4, 8))
    begin = Begun()
    training = ShortTraining(begin, train=augmented, plain=plain, evaluation=held)
    training(Entrant(named("a"), "largest"), passes * augmented.steps, 0, lambda: False)
    wanted = {"plain": plain, "augmented": augmented}[seen]
    assert torch.equal(begin.networks[0].seen[0], wanted.batch(0, 0).images)


def test_the_learning_rate_rises_for_a_sixth_and_falls_to_zero() -> None:
    begin = Begun()
    train(begin)
    assert begin.rates[0] < begin.rates[1] < begin.rates[2] == pytest.approx(0.1)
    assert begin.rates[2:] == sorted(begin.rates[2:], reverse=True)
    assert begin.rates[-1] < 0.01


def test_repeats_see_other_batches_and_the_same_repeat_the_same_ones() -> None:
    first, again, other = Begun(), Begun(), Begun()
    assert train(first).valid_loss == train(again).valid_loss
    assert train(other, repeat=1).valid_loss != train(Begun()).valid_loss
    assert not torch.equal(first.networks[0].seen[0], other.networks[0].seen[0])


def test_images_are_shrunk_by_their_means() -> None:
    begin = Begun()
    train(begin, side=4, shrink=2, steps=1)
    whole = loader(torch.arange(12), 4, 4).batch(0, 0).images
    assert torch.allclose(begin.networks[0].seen[0], nn.functional.avg_pool2d(whole, 2))


def test_a_loss_that_is_not_finite_is_none() -> None:
    class Huge(Begun):
        def __call__(self, architecture, repeat):
            weights = super().__call__(architecture, repeat)
            with torch.no_grad():
                self.networks[-1].linear.weight.fill_(math.nan)
            weights.fit = lambda *args: None
            return weights

    assert train(Huge()).valid_loss is None


@pytest.mark.parametrize("flags", [[], [True], [False, False, True], [True] * 9, [False] * 5])
def test_bits_survive_packing(flags: list[bool]) -> None:
    assert unpack_bits(pack_bits(torch.tensor(flags, dtype=torch.bool))) == flags
