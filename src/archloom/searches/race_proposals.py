"""Who takes part in the finalist race: what the search derived, references, random ones, and what a surrogate proposes.

What is expected to improve most on the best so far is trained next, by all that the trainings and the search know: it
is predicted to be good, or little is known of it. Where nothing is, the better prediction comes first.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from archloom.searches.race_surrogate import Observation, Surrogate
from archloom.searches.records import FinalistRecord
from archloom.spaces import Architecture, SearchSpace

DERIVED, LARGEST, RANDOM, SAMPLE, PROPOSAL = "derived", "largest", "random", "sample", "proposal"
PARENTS = 5  # of the best trained ones, whose changes are considered
CHANGES, DOUBLE_CHANGES, SAMPLES, UNIFORM = 200, 60, 40, 20  # candidates that are considered at once
TRIES = 20  # draws for each architecture wanted: some repeat, some are not allowed
BATCH = 2  # proposals from one fit; fixed, so that the number of workers does not change the race

Allowed = Callable[[Architecture], bool]
Sample = Callable[[random.Random], Architecture]


@dataclass(frozen=True)
class Entrant:
    """An architecture of the race, and why it takes part: `derived`, `random`, the name of a reference, ..."""

    architecture: Architecture
    origin: str


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """What the race knows before its first training."""

    space: SearchSpace
    derived: Architecture | None  # by the search; None where there was none
    references: Mapping[str, Architecture]
    sample: Sample  # from the strategy's distribution
    log_probability: Callable[[Architecture], float]
    allowed: Allowed = lambda architecture: True

    def entrants(self, rng: random.Random, *, samples: int, uniform: int, most: int) -> list[Entrant]:
        """Return the contestants of the first round, without repetitions; `most` cuts samples first."""
        chosen: dict[Architecture, str] = {}
        if self.derived is not None:
            chosen[self.derived] = DERIVED
        for name, one in self.references.items():
            chosen.setdefault(one, name)
        uniform = max(0, min(uniform, most - len(chosen)))
        self._add(chosen, self.space.sample, RANDOM, rng, len(chosen) + uniform)
        self._add(chosen, self.sample, SAMPLE, rng, min(most, len(chosen) + samples))
        return [Entrant(one, origin) for one, origin in chosen.items()]

    def covariates(self, architecture: Architecture) -> tuple[float, ...]:
        """Return what the search says of an architecture."""
        return (self.log_probability(architecture),)

    def observe(self, records: Sequence[FinalistRecord], *, size: float) -> list[Observation]:
        """Return short trainings as observations for a surrogate; one that diverged was as bad as the worst."""
        worst = max((one.rank_by(size) for one in records if one.valid_loss is not None), default=0.0)
        return [
            Observation(one.architecture, self.covariates(one.architecture), -min(one.rank_by(size), worst))
            for one in records
        ]

    def _add(self, chosen: dict[Architecture, str], draw: Sample, origin: str, rng: random.Random, count: int) -> None:
        known = {self.space.canonical(one) for one in chosen}  # isomorphic cells would train the same network twice
        for _ in range(TRIES * count):
            if len(chosen) >= count:
                return
            one = self.space.prune(draw(rng))
            if self.space.canonical(one) not in known and self.allowed(one):
                chosen[one] = origin
                known.add(self.space.canonical(one))


class Proposer:
    """Proposes the next contestants from the short trainings so far."""

    def __init__(self, knowledge: Knowledge, *, size: float, seed: int) -> None:
        self._knowledge, self._size, self._seed = knowledge, size, seed

    def __call__(self, records: Sequence[FinalistRecord]) -> list[Entrant]:
        """Return the next architectures to train; none where everything near has been trained."""
        number = len(records)  # the draws depend on the trainings so far alone: a resumed race proposes the same
        rng = random.Random(f"{self._seed}/{number}")
        trained = {self._knowledge.space.canonical(one.architecture) for one in records}
        best = sorted(records, key=lambda one: one.rank_by(self._size))[:PARENTS]
        pool = self._pool([one.architecture for one in best], trained, rng)
        if not pool:
            return []
        surrogate = Surrogate(self._knowledge.space, self._knowledge.observe(records, size=self._size))
        prediction = surrogate.predict(pool, [self._knowledge.covariates(one) for one in pool])
        order = np.lexsort((-prediction.mean, -prediction.expect_improvement(surrogate.best)))
        return [Entrant(pool[place], PROPOSAL) for place in order[:BATCH]]

    def _pool(self, best: Sequence[Architecture], trained: set[str], rng: random.Random) -> list[Architecture]:
        """Return untrained candidates: changes of the best, samples of the strategy, and random ones."""
        space, know = self._knowledge.space, self._knowledge
        candidates = (
            *(space.mutate(rng.choice(best), rng) for _ in range(CHANGES)),
            *(space.mutate(space.mutate(rng.choice(best), rng), rng) for _ in range(DOUBLE_CHANGES)),
            *(know.sample(rng) for _ in range(SAMPLES)),
            *(space.sample(rng) for _ in range(UNIFORM)),
        )
        pruned = map(space.prune, candidates)
        unique = {space.canonical(one): one for one in pruned}
        return [one for form, one in unique.items() if form not in trained and know.allowed(one)]


def random_proposals(knowledge: Knowledge, *, seed: int) -> Callable[[Sequence[FinalistRecord]], list[Entrant]]:
    """Return what proposes architectures sampled uniformly, whatever the trainings show."""

    def propose(records: Sequence[FinalistRecord]) -> list[Entrant]:
        rng, space = random.Random(f"{seed}/{len(records)}"), knowledge.space
        trained = {space.canonical(one.architecture) for one in records}
        drawn = [space.prune(space.sample(rng)) for _ in range(TRIES * BATCH)]
        unique = {space.canonical(one): one for one in drawn}
        new = [one for form, one in unique.items() if form not in trained and knowledge.allowed(one)]
        return [Entrant(one, RANDOM) for one in new[:BATCH]]

    return propose
