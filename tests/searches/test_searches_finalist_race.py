"""Short trainings at full depth: changes that help are kept, and the best are trained again, for longer."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import nn

from archloom.data.augment import Augment
from archloom.data.loader import Loader
from archloom.data.source import InMemory
from archloom.execution.hands import InTurn
from archloom.searches.finalist_race import Finals, ShortTraining, Trained
from archloom.spaces import Architecture, Nb201
from archloom.supernet import SharedWeights, WeightSettings

SKIP, NARROW, WIDE, POOL = Nb201().operations[1:]
FIRST = Architecture({"a": NARROW, "b": NARROW, "c": NARROW})


def changes(*pairs: tuple[str, str]) -> list[Architecture]:
    return [FIRST, *(FIRST.changed(*pair) for pair in pairs)]


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
    """Finals whose networks learn as fast as `speed` says, and what was begun and how fast it was to learn."""

    def __init__(self, speed, *, steps: int = 2, side: int = 2, shrink: int = 1, hands=InTurn, **options) -> None:
        self.begun: list[tuple[Architecture, Slow]] = []
        self.rates: list[float] = []
        self._speed, self._side = speed, side
        train, judge = loader(torch.arange(12), 4), loader(torch.arange(12, 20), 4)
        training = ShortTraining(self._begin, train=train, judge=judge, shrink=shrink)
        self.finals = Finals(hands(training), steps=steps, **options)

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
    winner, rows = race.finals.winner(changes(("a", WIDE), ("b", SKIP), ("c", SKIP)))
    assert dict(winner) == {"a": WIDE, "b": NARROW, "c": SKIP}  # two changes away from where it began
    first_sweep, back, second_sweep = ["111", "311", "3s1", "31s"], ["11s"], ["3ss"]
    assert race.tried[:6] == [*first_sweep, *back, *second_sweep]  # nothing twice
    assert rows[0]["architecture"] == dict(winner)


def test_the_best_six_are_trained_three_times_as_long_and_two_of_them_nine_times():
    race = Race(speed_by(a_nor_conv_3x3=0.2, b_nor_conv_3x3=0.1, c_nor_conv_3x3=0.06, c_skip_connect=0.04), sweeps=3)
    winner, rows = race.finals.winner(changes(("a", WIDE), ("b", WIDE), ("c", WIDE), ("c", SKIP)))
    assert [row["steps"] for row in rows] == [18] * 2 + [6] * 4 + [2] * (len(rows) - 6)
    short, long, longest = race.tried[:-8], race.tried[-8:-2], race.tried[-2:]
    assert len(short) == len(set(short)) == len(rows) > 6
    assert (long[:2], longest) == (["333", "33s"],) * 2  # the best first
    assert dict(winner) == {"a": WIDE, "b": WIDE, "c": WIDE}
    for group in (rows[:2], rows[2:6], rows[6:]):
        assert [row["valid_loss"] for row in group] == sorted(row["valid_loss"] for row in group)


class ManyHands(InTurn):
    """As if several were trained at once; what was handed out together."""

    def __init__(self, work, at_once: int) -> None:
        super().__init__(work)
        self.at_once, self.handed_out = at_once, []

    def do(self, tasks, ask):
        self.handed_out.append(len(tasks))
        return super().do(tasks, ask)


@pytest.mark.parametrize("at_once", [2, 3, 20])
def test_the_way_does_not_depend_on_how_many_are_trained_at_once(at_once):
    speed = speed_by(a_nor_conv_3x3=1.0, b_skip_connect=-0.6, b_nor_conv_3x3=0.2, c_skip_connect=0.5)
    named = changes(("b", SKIP), ("a", WIDE), ("c", SKIP), ("b", WIDE), ("a", POOL), ("c", POOL))
    alone, together = Race(speed), Race(speed, hands=lambda work: ManyHands(work, at_once))
    assert together.finals.winner(named) == alone.finals.winner(named)
    handed_out = together.finals._hands.handed_out
    assert max(handed_out) == min(at_once, len(named)) > 1
    assert len(handed_out) < len(alone.tried)


def test_what_helped_at_first_can_be_taken_back():
    def speed(one):  # the change of a helps, that of b helps more, and without that of a most
        return {(NARROW, NARROW): 1.0, (WIDE, NARROW): 2.0, (WIDE, SKIP): 3.0, (NARROW, SKIP): 4.0}[one["a"], one["b"]]

    winner, _ = Race(speed).finals.winner(changes(("a", WIDE), ("b", SKIP)))
    assert dict(winner) == {"a": NARROW, "b": SKIP, "c": NARROW}


def test_sweeps_end_when_none_helps_and_at_their_number():
    def speed(one):  # c helps only after b has, b only after a
        a, b, c = (one[name] == WIDE for name in "abc")
        return 1.0 + 0.3 * (a + a * b * (1 + c))

    order = changes(("c", WIDE), ("b", WIDE), ("a", WIDE))
    found = [Race(speed, sweeps=sweeps).finals.winner(order)[0] for sweeps in (1, 2, 3, 9)]
    kept = [sum(option == WIDE for option in one.values()) for one in found]
    assert kept == [1, 2, 3, 3]


def test_the_longer_training_decides_between_the_best():
    def speed(one):
        return math.inf if long and one["a"] == WIDE else 1.0 + (one["a"] == WIDE)

    long: list[bool] = []
    race = Race(speed)
    winner, rows = race.finals.winner(changes(("a", WIDE)), tell=lambda what: long.extend([True] * ("best" in what)))
    assert winner == FIRST
    assert (rows[-1]["architecture"], rows[-1]["steps"]) == (dict(FIRST.changed("a", WIDE)), 18)
    assert rows[-1]["valid_loss"] is None


def test_all_see_the_same_batches_at_the_same_rates():
    race = Race(speed_by(a_nor_conv_3x3=1.0))
    race.finals.winner(changes(("a", WIDE), ("b", SKIP)))
    longest = race.begun[-1][1].seen
    assert len(set(longest)) == len(longest) == 18  # other batches in every epoch
    assert all(network.seen == longest[: len(network.seen)] for _, network in race.begun)
    assert race.rates[:4] == pytest.approx([0.1, 0.05, 0.1, 0.05])  # each training has a cosine of its own
    falling = [0.05 * (1 + math.cos(math.pi * step / 15)) for step in range(15)]
    rising = [0.05 * (1 + math.cos(math.pi * share)) for share in (0.75, 0.5, 0.25)]
    assert race.rates[-18:] == pytest.approx([*rising, *falling])  # and rises over the first sixth of it


def test_images_are_shrunk_by_the_mean_over_squares():
    race = Race(lambda one: 1.0, side=1, shrink=2)
    race.finals.winner(changes(("a", WIDE)))
    plain = Race(lambda one: 1.0)
    plain.finals.winner(changes(("a", WIDE)))
    assert race.begun[0][1].seen == pytest.approx([value / 4 for value in plain.begun[0][1].seen])


def test_one_that_diverges_loses_and_a_tie_goes_to_who_came_first():
    winner, rows = Race(speed_by(a_nor_conv_3x3=math.inf)).finals.winner(changes(("a", WIDE), ("b", SKIP)))
    assert winner == FIRST
    assert rows[-1]["valid_loss"] is None


def test_size_counts_by_its_logarithm():
    small, large = (Trained(FIRST, 2, loss, 0.5, size) for loss, size in ((1.0, 100), (1.1, 200)))
    needed = 0.1 / math.log(2)
    for size, better in ((0.9 * needed, small), (1.1 * needed, large)):
        assert min((small, large), key=lambda one: one.standing(size)) == better
    assert small.standing(0.1) == pytest.approx(1.0 - 0.1 * math.log(100))
    assert Trained(FIRST, 2, 1.0, 0.5, 0).standing(1.0) == 1.0  # pools alone


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
        winner, rows = race.finals.winner(changes(("a", WIDE), ("b", SKIP)))
        assert (winner["a"] == WIDE) is kept
        assert race.tried[:3] == (["111", "311", "3s1"] if kept else ["111", "311", "1s1"])
        assert {row["parameters"] for row in rows} == {10, 1010}


def test_what_is_not_allowed_is_not_trained():
    race = Race(speed_by(a_nor_conv_3x3=1.0, b_skip_connect=1.0))
    both = {"a": WIDE, "b": SKIP}
    winner, _ = race.finals.winner(
        changes(("a", WIDE), ("b", SKIP)), allowed=lambda one: not both.items() <= dict(one).items()
    )
    assert winner == FIRST.changed("a", WIDE)
    assert not any("3s" in one for one in race.tried)


def test_it_tells_what_it_does_and_can_be_stopped_before_any_step():
    race, told, left = Race(lambda one: 1.0), [], iter(range(3))

    def ask() -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        race.finals.winner(changes(("a", WIDE), ("b", SKIP)), tell=told.append, ask=ask)
    assert [len(network.seen) for _, network in race.begun] == [2, 1]
    assert told == ["training finalist 1 for 2 steps", "training finalist 2 for 2 steps"]


def test_what_is_known_is_not_trained_again_and_comes_to_the_same():
    def speed(one):
        return math.inf if one["c"] == SKIP else 1.0 + 0.3 * (one["a"] == WIDE)

    named, notes, left = changes(("a", WIDE), ("c", SKIP), ("b", SKIP)), [], iter(range(6))

    def ask() -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    whole, begun, rest = Race(speed), Race(speed), Race(speed)
    expected = whole.finals.winner(named)
    with pytest.raises(KeyboardInterrupt):
        begun.finals.winner(named, note=notes.append, ask=ask)
    known = json.loads(json.dumps(notes))
    assert [row["valid_loss"] is None for row in known] == [False, False, True]
    assert rest.finals.winner(named, known=known, note=notes.append) == expected
    assert rest.tried == whole.tried[3:]
    assert len(notes) == len(whole.tried)
