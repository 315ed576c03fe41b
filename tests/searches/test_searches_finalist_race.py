"""Short trainings at full depth: changes that help are kept, and the best are trained again, for longer."""

from __future__ import annotations

import json
import math

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
from archloom.searches.finalist_race import FinalistRace, ShortTraining
from archloom.searches.records import FinalistRecord
from archloom.spaces import Architecture, Nb201
from archloom.supernet import SharedWeights, WeightSettings

SKIP, NARROW, WIDE, POOL = Nb201().operations[1:]
FIRST = Architecture({"a": NARROW, "b": NARROW, "c": NARROW})


def changes(*pairs: tuple[str, str]) -> list[Architecture]:
    return [FIRST, *(FIRST.with_option(*pair) for pair in pairs)]


def loader(indices: torch.Tensor, batch_size: int) -> Loader:
    images = torch.randn(20, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    labels = (images.sum(dim=(1, 2, 3)) > 0).long()
    source = InMemory(images, labels)
    return Loader(source, indices, batch_size=batch_size, mean=(0.0,), std=(1.0,), augment=Augment(), seed=0)


class Slow(nn.Module):
    """A linear classifier whose gradient is scaled: one that learns faster or more slowly, or not at all."""

    def __init__(self, speed: float) -> None:
        super().__init__()
        self.linear, self.speed, self.seen = nn.LazyLinear(2), speed, []

    def forward(self, images: torch.Tensor, gates: object) -> torch.Tensor:
        if torch.is_grad_enabled():
            self.seen.append(images.sum().item())
        logits: torch.Tensor = self.linear(images.flatten(1)) * self.speed
        return logits


class Race:
    """A race of networks that learn as fast as `speed` says, and what it trained at which learning rates."""

    def __init__(self, speed, *, steps: int = 2, side: int = 2, shrink: int = 1, executor=None, **options) -> None:
        self.begun: list[tuple[Architecture, Slow]] = []
        self.rates: list[float] = []
        self._speed, self._side = speed, side
        train, evaluation = loader(torch.arange(12), 4), loader(torch.arange(12, 20), 4)
        training = ShortTraining(self._begin, train=train, evaluation=evaluation, shrink=shrink)
        self.run = FinalistRace(training, executor or SerialExecutor(), steps=steps, **options).run

    def _begin(self, architecture: Architecture) -> SharedWeights:
        network = Slow(self._speed(architecture))
        network.linear.initialize_parameters(torch.zeros(1, self._side**2))
        for parameter in network.parameters():
            nn.init.zeros_(parameter)
        self.begun.append((architecture, network))
        weights = SharedWeights(network, WeightSettings(learning_rate=0.1, learning_rate_end=0.0))
        fit = weights.fit
        weights.fit = lambda *args: (self.rates.append(weights.learning_rate), fit(*args))[1]
        return weights

    @property
    def tried(self) -> list[str]:
        """The architectures in the order of their trainings, a letter for each operation."""
        return ["".join(option[len("nor_conv_")] if "conv" in option else option[0] for option in one.values())
                for one, _ in self.begun]  # fmt: skip


def speed_by(**worth: float):
    """A speed that changes by so much for each operation named, as in a_skip_connect."""
    return lambda one: 1.0 + sum(worth.get(f"{name}_{option}", 0.0) for name, option in one.items())


def test_a_change_that_helps_is_kept_and_the_next_are_tried_on_top_of_it():
    race = Race(speed_by(a_nor_conv_3x3=1.0, b_skip_connect=-0.6, c_skip_connect=0.5))
    winner, rows = race.run(changes(("a", WIDE), ("b", SKIP), ("c", SKIP)))
    assert dict(winner) == {"a": WIDE, "b": NARROW, "c": SKIP}  # two changes away from where it began
    first_sweep, back, second_sweep = ["111", "311", "3s1", "31s"], ["11s"], ["3ss"]
    assert race.tried[:6] == [*first_sweep, *back, *second_sweep]  # nothing twice
    assert rows[0].architecture == winner


def test_the_best_six_are_trained_three_times_as_long_and_two_of_them_nine_times():
    race = Race(speed_by(a_nor_conv_3x3=0.2, b_nor_conv_3x3=0.1, c_nor_conv_3x3=0.06, c_skip_connect=0.04), sweeps=3)
    winner, rows = race.run(changes(("a", WIDE), ("b", WIDE), ("c", WIDE), ("c", SKIP)))
    assert [row.steps for row in rows] == [18] * 2 + [6] * 4 + [2] * (len(rows) - 6)
    short, long, longest = race.tried[:-8], race.tried[-8:-2], race.tried[-2:]
    assert len(short) == len(set(short)) == len(rows) > 6
    assert (long[:2], longest) == (["333", "33s"],) * 2  # the best first
    assert dict(winner) == {"a": WIDE, "b": WIDE, "c": WIDE}
    for group in (rows[:2], rows[2:6], rows[6:]):
        assert [row.valid_loss for row in group] == sorted(row.valid_loss for row in group)


class SeveralWorkers(SerialExecutor):
    """Stands for an executor with several workers; counts the jobs of each call."""

    def __init__(self, workers: int) -> None:
        self.workers, self.counts = workers, []

    def run(self, jobs, **options):
        self.counts.append(len(jobs))
        return super().run(jobs, **options)


@pytest.mark.parametrize("workers", [2, 3, 20])
def test_the_result_does_not_depend_on_the_number_of_workers(workers):
    speed = speed_by(a_nor_conv_3x3=1.0, b_skip_connect=-0.6, b_nor_conv_3x3=0.2, c_skip_connect=0.5)
    named = changes(("b", SKIP), ("a", WIDE), ("c", SKIP), ("b", WIDE), ("a", POOL), ("c", POOL))
    executor = SeveralWorkers(workers)
    alone, together = Race(speed), Race(speed, executor=executor)
    assert together.run(named) == alone.run(named)
    assert max(executor.counts) == min(workers, len(named)) > 1
    assert len(executor.counts) < len(alone.tried)


def test_what_helped_at_first_can_be_taken_back():
    def speed(one):  # the change of a helps, that of b helps more, and without that of a most
        return {(NARROW, NARROW): 1.0, (WIDE, NARROW): 2.0, (WIDE, SKIP): 3.0, (NARROW, SKIP): 4.0}[one["a"], one["b"]]

    winner, _ = Race(speed).run(changes(("a", WIDE), ("b", SKIP)))
    assert dict(winner) == {"a": NARROW, "b": SKIP, "c": NARROW}


def test_sweeps_end_when_none_helps_and_at_their_number():
    def speed(one):  # c helps only after b has, b only after a
        a, b, c = (one[name] == WIDE for name in "abc")
        return 1.0 + 0.3 * (a + a * b * (1 + c))

    order = changes(("c", WIDE), ("b", WIDE), ("a", WIDE))
    found = [Race(speed, sweeps=sweeps).run(order)[0] for sweeps in (1, 2, 3, 9)]
    kept = [sum(option == WIDE for option in one.values()) for one in found]
    assert kept == [1, 2, 3, 3]


def test_the_longer_training_decides_between_the_best():
    def speed(one):
        return math.inf if long and one["a"] == WIDE else 1.0 + (one["a"] == WIDE)

    long: list[bool] = []
    race = Race(speed)
    winner, rows = race.run(changes(("a", WIDE)), describe=lambda what: long.extend([True] * ("best" in what)))
    assert winner == FIRST
    assert (rows[-1].architecture, rows[-1].steps) == (FIRST.with_option("a", WIDE), 18)
    assert rows[-1].valid_loss is None


def test_all_see_the_same_batches_at_the_same_rates():
    race = Race(speed_by(a_nor_conv_3x3=1.0))
    race.run(changes(("a", WIDE), ("b", SKIP)))
    longest = race.begun[-1][1].seen
    assert len(set(longest)) == len(longest) == 18  # other batches in every epoch
    assert all(network.seen == longest[: len(network.seen)] for _, network in race.begun)
    assert race.rates[:4] == pytest.approx([0.1, 0.05, 0.1, 0.05])  # each training has a cosine of its own
    falling = [0.05 * (1 + math.cos(math.pi * step / 15)) for step in range(15)]
    rising = [0.05 * (1 + math.cos(math.pi * share)) for share in (0.75, 0.5, 0.25)]
    assert race.rates[-18:] == pytest.approx([*rising, *falling])  # and rises over the first sixth of it


def test_images_are_shrunk_by_the_mean_over_squares():
    race = Race(lambda one: 1.0, side=1, shrink=2)
    race.run(changes(("a", WIDE)))
    plain = Race(lambda one: 1.0)
    plain.run(changes(("a", WIDE)))
    assert race.begun[0][1].seen == pytest.approx([value / 4 for value in plain.begun[0][1].seen])


def test_one_that_diverges_loses_and_a_tie_goes_to_who_came_first():
    winner, rows = Race(speed_by(a_nor_conv_3x3=math.inf)).run(changes(("a", WIDE), ("b", SKIP)))
    assert winner == FIRST
    assert rows[-1].valid_loss is None


def test_size_counts_by_its_logarithm():
    small, large = (FinalistRecord("", FIRST, 2, loss, 0.5, size) for loss, size in ((1.0, 100), (1.1, 200)))
    needed = 0.1 / math.log(2)
    for size, better in ((0.9 * needed, small), (1.1 * needed, large)):
        assert min((small, large), key=lambda one: one.rank_by(size)) == better
    assert small.rank_by(0.1) == pytest.approx(1.0 - 0.1 * math.log(100))
    assert FinalistRecord("", FIRST, 2, 1.0, 0.5, 0).rank_by(1.0) == 1.0  # pools alone


def test_a_larger_network_may_learn_more_slowly_at_every_decision():
    class Large(Slow):
        def __init__(self, speed: float) -> None:
            super().__init__(speed)
            self.more = nn.Parameter(torch.zeros(1000))

    class Sized(Race):
        def _begin(self, architecture: Architecture) -> SharedWeights:
            if architecture["a"] != WIDE:
                return super()._begin(architecture)
            network = Large(self._speed(architecture))
            network.linear.initialize_parameters(torch.zeros(1, self._side**2))
            nn.init.zeros_(network.linear.weight)
            nn.init.zeros_(network.linear.bias)
            self.begun.append((architecture, network))
            return SharedWeights(network, WeightSettings(learning_rate=0.1, learning_rate_end=0.0))

    speed = speed_by(a_nor_conv_3x3=-0.2)
    for size, kept in ((0.0, False), (0.5, True)):
        race = Sized(speed, size=size)
        winner, rows = race.run(changes(("a", WIDE), ("b", SKIP)))
        assert (winner["a"] == WIDE) is kept
        assert race.tried[:3] == (["111", "311", "3s1"] if kept else ["111", "311", "1s1"])
        assert {row.parameters for row in rows} == {10, 1010}


def test_what_is_not_allowed_is_not_trained():
    race = Race(speed_by(a_nor_conv_3x3=1.0, b_skip_connect=1.0))
    both = {"a": WIDE, "b": SKIP}
    winner, _ = race.run(changes(("a", WIDE), ("b", SKIP)), allowed=lambda one: not both.items() <= dict(one).items())
    assert winner == FIRST.with_option("a", WIDE)
    assert not any("3s" in one for one in race.tried)


def after(count):
    """Return a `stop` that is true from the call after `count` on."""
    left = iter(range(count))
    return lambda: next(left, None) is None


def test_it_describes_what_it_does_and_can_be_stopped_before_any_step():
    race, lines = Race(lambda one: 1.0), []
    with pytest.raises(Interrupted):  # one call before each of two trainings, one before each of their steps
        race.run(changes(("a", WIDE), ("b", SKIP)), describe=lines.append, stop=after(5))
    assert [len(network.seen) for _, network in race.begun] == [2, 1]
    assert lines == ["training finalist 1 for 2 steps", "training finalist 2 for 2 steps"]


def test_what_is_known_is_not_trained_again_and_leads_to_the_same_result():
    def speed(one):
        return math.inf if one["c"] == SKIP else 1.0 + 0.3 * (one["a"] == WIDE)

    named, notes = changes(("a", WIDE), ("c", SKIP), ("b", SKIP)), []
    whole, begun, rest = Race(speed), Race(speed), Race(speed)
    expected = whole.run(named)
    with pytest.raises(Interrupted):
        begun.run(named, note=notes.append, stop=after(9))
    known = json.loads(json.dumps(notes))
    assert [row["valid_loss"] is None for row in known] == [False, False, True]
    del known[0]["text"]  # as in notes of the first edition
    assert rest.run(named, known=known, note=notes.append) == expected
    assert rest.tried == whole.tried[3:]
    assert len(notes) == len(whole.tried)


class Failing(SerialExecutor):
    """Stands for workers that die."""

    def run(self, jobs, **options):
        return {jobs[0].name: Failure("its process was ended by SIGKILL; was memory short?")}


def test_a_training_that_fails_twice_ends_the_race_with_one_line():
    with pytest.raises(ArchloomError, match=r"failed twice: its process was ended by SIGKILL.*resume the run"):
        Race(lambda one: 1.0, executor=Failing()).run(changes(("a", WIDE)))
