"""How to divide the time of a finalist race between its rounds, replayed on the table of NAS-Bench-201.

    python benchmarks/race_rounds.py --data-dir DIR [--races 50] [--most-multiply-adds 60]

Every division trains about 72 units; a unit is a training of the first round. A short training is the recorded
validation accuracy after 12 epochs, as a normal score of its rank, with noise: less of it the longer a training is.
There is no search and no reference. Printed are the validation accuracy after 200 epochs of the winner, its rank among
the cells that are allowed, and the best that was trained at all. Test accuracies are not read.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.stats import norm, rankdata, t

from archloom.execution.executors import SerialExecutor, Stop
from archloom.searches.finalist_race import FinalistRace
from archloom.searches.race_proposals import Entrant, Knowledge, Proposer
from archloom.searches.race_settings import Round
from archloom.searches.records import FinalistRecord
from archloom.spaces import Architecture
from race_rules import Replay, read_replay

# of a normal score, by the length of a training; with 0.6, two trainings agree on good cells as real ones do
NOISE = {1: 0.6, 3: 0.375, 6: 0.3}
RANDOM = 6  # contestants that are sampled uniformly
DIVISIONS: Mapping[str, tuple[int, Sequence[Round]]] = {
    "39, then 5 x 3, 3 x 6": (39, (Round(5, 3), Round(3, 6))),
    "57, then 5 x 3": (57, (Round(5, 3),)),
    "48, then 8 x 3": (48, (Round(8, 3),)),
    "36, then 12 x 3": (36, (Round(12, 3),)),
}


@dataclass(frozen=True)
class NoisyTraining:
    """Stands for a short training: a score from the table, and noise that depends on what is trained."""

    scores: Mapping[Architecture, float]
    seed: int

    def __call__(self, entrant: Entrant, steps: int, repeat: int, stop: Stop) -> FinalistRecord:
        """Return the record of a training."""
        drawn = random.Random(f"{self.seed}/{sorted(entrant.architecture.items())}/{steps}/{repeat}")
        score = self.scores[entrant.architecture] + drawn.gauss(0, NOISE[steps])
        return FinalistRecord("", entrant.architecture, steps, -score, 0.5, 1, origin=entrant.origin, repeat=repeat)


def race(
    replay: Replay, scores: Mapping[Architecture, float], division: tuple[int, Sequence[Round]], seed: int
) -> tuple[float, float]:
    """Return the final accuracy of the winner, and that of the best cell which was trained."""
    contestants, rounds = division
    knowledge = Knowledge(
        space=replay.space,
        derived=None,
        references={},
        sample=replay.space.sample,
        log_probability=lambda architecture: 0.0,
        allowed=replay.allowed,
    )
    entrants = knowledge.entrants(random.Random(seed), samples=0, uniform=RANDOM, most=contestants)
    training: object = NoisyTraining(scores, seed)
    racing = FinalistRace(training, SerialExecutor(), 1, contestants, rounds=rounds)  # type: ignore[arg-type]
    outcome = racing.run(entrants, Proposer(knowledge, size=0.0, seed=seed))
    return replay.final[outcome.winner], max(replay.final[record.architecture] for record in outcome.records)


def main() -> None:
    """Print a line for each division."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--races", type=int, default=50)
    parser.add_argument("--most-multiply-adds", type=float)
    options = parser.parse_args()
    replay = read_replay(options.data_dir, options.most_multiply_adds)
    ranks = rankdata(list(replay.short.values()))
    scores = dict(zip(replay.short, norm.ppf((ranks - 0.5) / len(ranks)).tolist(), strict=True))
    order = -np.sort(-np.array(list(replay.final.values())))
    ranks_of = ("median rank", "geometric mean", "worst rank")
    table = Table("rounds", "accuracy of the winner", *ranks_of, "best that was trained")
    for name, division in DIVISIONS.items():
        found = [race(replay, scores, division, seed) for seed in track(range(options.races), name)]
        winners = [one for one, _ in found]
        error = float(t.ppf(0.975, len(winners) - 1)) * statistics.stdev(winners) / len(winners) ** 0.5
        places = [int(np.searchsorted(-order, -one)) + 1 for one in winners]
        best = statistics.fmean(one for _, one in found)
        mean = f"{statistics.fmean(winners):.2f} ± {error:.2f}"
        middle = (f"{one(places):,.0f}" for one in (statistics.median, statistics.geometric_mean))
        table.add_row(name, mean, *middle, f"{max(places):,}", f"{best:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
