"""The settings of the finalist race: who takes part, how briefly each network is trained, and for how many rounds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from annotated_doc import Doc

from archloom.core.errors import require
from archloom.core.settings import Settings


@dataclass(frozen=True)
class Round:
    """One later round of a race: how many networks are left, how long each is trained, and with how many seeds."""

    survivors: int
    longer: int  # times the steps of the first round
    repeats: int = 1

    @property
    def cost(self) -> int:
        """Return what the round costs, in trainings of the first round."""
        return self.survivors * self.longer * self.repeats


SECOND, LAST = Round(5, 3), Round(3, 6)  # the best reference takes one of the places
SOME, MANY, MOST = 12, 100, 120  # contestants that get a second round, a last one, and a last one of two seeds


def rounds_of(contestants: int) -> tuple[Round, ...]:
    """Return the later rounds of a race; they cost less than the first one, which finds what is good."""
    if contestants < SOME:
        return (Round(2, 3),)
    if contestants < MANY:  # more contestants rather than a last round
        return (SECOND,)
    return (SECOND, LAST if contestants < MOST else replace(LAST, repeats=2))


@dataclass(frozen=True, kw_only=True)
class RaceSettings:
    """The finalist race: short trainings that decide between candidates."""

    contestants: Annotated[
        int | None, Doc("architectures that are trained; 0: no race; left out: as many as the budget allows")
    ] = None
    random: Annotated[int, Doc("contestants sampled uniformly, which the verdict compares with")] = 6
    samples: Annotated[int, Doc("contestants sampled from the strategy, beside what it derived")] = 4
    references: Annotated[bool, Doc("let the space's reference architectures and the largest one take part")] = True
    proposals: Annotated[
        Literal["surrogate", "random"], Doc("the other contestants: predicted to be good, or sampled uniformly")
    ] = "surrogate"
    steps: Annotated[int, Doc("training steps of the first round; 0: no race")] = 240
    batch_size: Annotated[int, Doc("images of a step")] = 32
    space: Annotated[Settings, Doc("settings of the space that differ from the search's; left out: full depth")] = (
        field(default_factory=dict)
    )
    network: Annotated[Settings, Doc("settings of the network that differ from the search's")] = field(
        default_factory=dict
    )
    shrink: Annotated[int, Doc("divide height and width of the images by this")] = 1
    learning_rate: Annotated[float, Doc("of SGD, on a cosine to 0")] = 0.1
    size: Annotated[
        float, Doc("bonus on the logarithm of the parameters, in units of the loss: short trainings favour small ones")
    ] = 0.3
    most_time: Annotated[
        float, Doc("with a budget: of the race, relative to the training of the supernet; 0: what the budget leaves")
    ] = 0.0
    held_out: Annotated[
        int | None, Doc("validation images that only the race and the verdict use; left out: at most half, 2,000")
    ] = None

    def __post_init__(self) -> None:
        least = {"contestants": 0, "random": 0, "samples": 0, "steps": 0, "batch_size": 2, "shrink": 1}
        least |= {"held_out": 2}
        given = {name: getattr(self, name) for name in least}
        values = {name: value for name, value in given.items() if value is not None}
        require(
            {f"race.{n} must be at least {least[n]}, got {v}": v >= least[n] for n, v in values.items()}
            | {
                f"race.learning_rate must be above 0, got {self.learning_rate}": self.learning_rate > 0,
                f"race.most_time must be 0 (no bound) or more, got {self.most_time}": self.most_time >= 0,
                f"race.size must be 0 or more, got {self.size}": self.size >= 0,
            }
        )

    @property
    def is_on(self) -> bool:
        """Return whether there is a race: between at least two, and for at least a step."""
        return bool(self.steps) and (self.contestants or 0) > 1

    def units(self, contestants: int) -> int:
        """Return what a race costs, in trainings of the first round."""
        return contestants + sum(one.cost for one in rounds_of(contestants))
