"""Three rules for what a finalist race trains next, replayed on the table of NAS-Bench-201.

    python benchmarks/race_rules.py --data-dir DIR [--races 100] [--most-multiply-adds 60]

A short training is the recorded validation accuracy after 12 epochs, so a race costs no training at all. `surrogate` is
the rule of the finalist race. `neighbours` tries every single change on top of those that helped, sweep after sweep,
and starts again from a random cell where none helps. `random` samples uniformly. Each starts from what a search
derived, and knows the probabilities that the search gives to options. The quality of a search is its rank correlation
with the table; 0 knows nothing. Printed is the validation accuracy after 200 epochs of the best cell by short
trainings, after so many of them. Test accuracies are not read.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.stats import spearmanr, t

from archloom.benchmarks.nb201 import Nb201Table
from archloom.searches.race_proposals import DERIVED, Entrant, Knowledge, Proposer
from archloom.searches.records import FinalistRecord
from archloom.spaces import Architecture, Nb201

DATASET = "cifar10"
COUNTS = (10, 20, 30, 40, 60)
NOISE = (0.0, 1.0, 3.0, math.inf)  # added to the option scores of a search: less and less is known, at last nothing
SCALE = 3.0  # of the logits: the most probable cell is far ahead of a random one

Vector = NDArray[np.float64]
Prior = Mapping[tuple[str, str], float]  # log-probability of each option of a decision


@dataclass(frozen=True)
class Replay:
    """The table as a race sees it: short trainings, the truth behind them, and which cells are allowed."""

    space: Nb201
    short: Mapping[Architecture, float]
    final: Mapping[Architecture, float]

    def allowed(self, architecture: Architecture) -> bool:
        """Return whether the cell keeps to the limit."""
        return architecture in self.short

    def train(self, architecture: Architecture) -> FinalistRecord:
        """Return the recorded short training; the loss stands for the error."""
        accuracy = self.short[architecture] / 100
        return FinalistRecord("", architecture, 12, 1 - accuracy, accuracy, 1)


def read_replay(data_dir: Path, most_multiply_adds: float | None) -> Replay:
    """Return the replay of all cells, or of those with at most so many million multiply-adds."""
    table, space = Nb201Table.find(data_dir), Nb201()
    columns = (table.column(DATASET, metric="valid", epochs=12), table.column(DATASET, metric="valid"))
    costs = table.column(DATASET, metric="flops_M")
    rows = [row for row in range(len(costs)) if most_multiply_adds is None or costs[row] <= most_multiply_adds]
    cells = [table.architecture(row) for row in rows]
    short, final = ({cell: float(column[row]) for cell, row in zip(cells, rows, strict=True)} for column in columns)
    return Replay(space, short, final)


def score_options(replay: Replay) -> dict[str, Vector]:
    """Return the mean accuracy of the cells with each option, standardised for each decision."""
    scores = {}
    for decision in replay.space.decisions:
        means = np.array(
            [
                statistics.fmean(score for cell, score in replay.final.items() if cell[decision.name] == option)
                for option in decision.options
            ]
        )
        scores[decision.name] = (means - means.mean()) / means.std()
    return scores


def make_prior(replay: Replay, options: Mapping[str, Vector], rng: np.random.Generator, noise: float) -> Prior:
    """Return what a search learned: the scores of options, blurred."""
    scores: dict[tuple[str, str], float] = {}
    known = 1 / (1 + noise)
    for decision in replay.space.decisions:
        blur = rng.standard_normal(len(decision.options))
        logits = SCALE * (known * options[decision.name] + (1 - known) * blur)
        logits -= np.log(np.exp(logits).sum())
        scores |= {(decision.name, option): float(one) for option, one in zip(decision.options, logits, strict=True)}
    return scores


def know(replay: Replay, prior: Prior) -> Knowledge:
    """Return what the race knows before its first training."""

    def log_probability(architecture: Architecture) -> float:
        return sum(prior[name, option] for name, option in architecture.items())

    def sample(rng: random.Random) -> Architecture:
        chosen = {}
        for decision in replay.space.decisions:
            weights = [float(np.exp(prior[decision.name, option])) for option in decision.options]
            chosen[decision.name] = rng.choices(decision.options, weights)[0]
        return Architecture(chosen)

    derived = max(replay.short, key=log_probability)
    return Knowledge(
        space=replay.space,
        derived=derived,
        references={},
        sample=sample,
        log_probability=log_probability,
        allowed=replay.allowed,
    )


# --- the rules: each yields what it trains


def by_surrogate(replay: Replay, knowledge: Knowledge, seed: int) -> Iterator[FinalistRecord]:
    """Yield the trainings of the finalist race: what was derived, random ones, samples, then proposals."""
    propose, records = Proposer(knowledge, size=0.0, seed=seed), []
    waiting = knowledge.entrants(random.Random(seed), samples=4, uniform=6, most=max(COUNTS))
    while waiting:
        for entrant in waiting:
            records.append(replay.train(entrant.architecture))
            yield records[-1]
        waiting = propose(records)


def by_neighbours(replay: Replay, knowledge: Knowledge, seed: int) -> Iterator[FinalistRecord]:
    """Yield the trainings of a climb: the most probable changes first, each on top of those that helped."""
    rng, seen = random.Random(seed), dict[Architecture, FinalistRecord]()
    start = knowledge.derived
    while True:
        assert start is not None
        best = start
        if best not in seen:
            seen[best] = replay.train(best)
            yield seen[best]
        improved = True
        while improved:
            improved = False
            for name, option in list_changes(knowledge, best):
                changed = Architecture({**best, name: option})
                if changed in seen or not replay.allowed(changed):
                    continue
                seen[changed] = replay.train(changed)
                yield seen[changed]
                if seen[changed].rank_by(0.0) < seen[best].rank_by(0.0):
                    best, improved = changed, True
        start = rng.choice(list(replay.short))


def list_changes(knowledge: Knowledge, best: Architecture) -> list[tuple[str, str]]:
    """Return all single changes, the most probable architecture first."""
    changes = [
        (decision.name, option)
        for decision in knowledge.space.decisions
        for option in decision.options
        if option != best[decision.name]
    ]
    return sorted(
        changes,
        key=lambda change: -knowledge.log_probability(Architecture({**best, change[0]: change[1]})),
    )


def by_chance(replay: Replay, knowledge: Knowledge, seed: int) -> Iterator[FinalistRecord]:
    """Yield the trainings of cells sampled uniformly, after the one that was derived."""
    rng, cells = random.Random(seed), list(replay.short)
    assert knowledge.derived is not None
    yield replay.train(Entrant(knowledge.derived, DERIVED).architecture)
    while True:
        yield replay.train(rng.choice(cells))


Rule = Callable[[Replay, Knowledge, int], Iterator[FinalistRecord]]
RULES: Mapping[str, Rule] = {"surrogate": by_surrogate, "neighbours": by_neighbours, "random": by_chance}


def qualities(replay: Replay, rule: Rule, knowledge: Knowledge, seed: int) -> list[float]:
    """Return the accuracy after 200 epochs of the best cell so far, after each of COUNTS trainings."""
    best: FinalistRecord | None = None
    found = []
    for number, record in enumerate(rule(replay, knowledge, seed), start=1):
        if best is None or record.rank_by(0.0) < best.rank_by(0.0):
            best = record
        if number in COUNTS:
            found.append(replay.final[best.architecture])
        if number == max(COUNTS):
            break
    assert best is not None
    return found + [replay.final[best.architecture]] * (len(COUNTS) - len(found))


def half_width(values: Sequence[float]) -> float:
    """Return half of the 95 % interval of a mean."""
    return float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--races", type=int, default=100)
    parser.add_argument("--most-multiply-adds", type=float, help="in millions")
    options = parser.parse_args()
    replay = read_replay(options.data_dir, options.most_multiply_adds)
    best, options_known = max(replay.final.values()), score_options(replay)
    columns = ["search", "rule", "derived", *(f"{count} trainings" for count in COUNTS)]
    table = Table(*columns, title=f"{len(replay.short):,} cells, the best {best:.2f}; means over {options.races} races")
    for place, noise in enumerate(NOISE):
        results: dict[str, list[list[float]]] = {name: [] for name in RULES}
        correlations, derived = [], []
        for race in track(range(options.races), f"noise {noise}", transient=True):
            knowledge = know(replay, make_prior(replay, options_known, np.random.default_rng([race, place]), noise))
            sampled = random.Random(race).sample(list(replay.final), 500)
            pairs = [(knowledge.log_probability(cell), replay.final[cell]) for cell in sampled]
            correlations.append(float(spearmanr(pairs).statistic))
            assert knowledge.derived is not None
            derived.append(replay.final[knowledge.derived])
            for name, rule in RULES.items():
                results[name].append(qualities(replay, rule, knowledge, race))
        for name, rows in results.items():
            means = [f"{statistics.fmean(one):.2f} ± {half_width(one):.2f}" for one in zip(*rows, strict=True)]
            label = f"correlation {statistics.fmean(correlations):.2f}"
            table.add_row(label, name, f"{statistics.fmean(derived):.2f}", *means)
        table.add_section()
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
