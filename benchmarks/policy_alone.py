"""TuNAS' policy without shared weights: it learns from a table's accuracies and a device's latencies.

    python benchmarks/policy_alone.py --data-dir DIR [--device pixel3] [--target 13] [--scores 1500] [--seeds 5]

Its reward is the validation accuracy after 12 epochs, less a penalty for missing the target. The script prints how far
its most probable architecture is from the target, and the test accuracy of that architecture.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.progress import track

from archloom.benchmarks.nb201 import Nb201Table
from archloom.objectives.latency import MeasuredLatency
from archloom.objectives.target import Reward, Target
from archloom.policies.multinomial import sample_architectures
from archloom.spaces import Architecture, Nb201
from archloom.strategies.tunas import PolicySettings, SupernetSettings, Tunas

DATASET = "cifar10"
ROWS: Sequence[tuple[Reward, float, int]] = (
    ("absolute", -0.1, 0),
    ("absolute", -0.1, 32),
    ("absolute", -0.5, 0),
    ("absolute", -0.5, 32),
    ("soft", -0.1, 0),
)


def searched(table: Nb201Table, target: Target, *, cost_paths: int, scores: int, seed: int) -> Architecture:
    space = Nb201()
    column = table.column(DATASET, metric="valid", epochs=12)
    strategy = Tunas(
        space,
        torch.Generator().manual_seed(seed),
        policy=PolicySettings(delay=0.0, cost_paths=cost_paths),
        weights=SupernetSettings(operation_warmup=0.0, width_warmup=0.0),
    )
    strategy.set_target(target)
    for score in range(scores):
        (path,) = sample_architectures(space, strategy.policy, strategy.generator)
        accuracy = float(column[table.row(path)]) / 100
        strategy.learn(path, accuracy, rate=strategy.learning_rate(score / scores))
    return strategy.best(lambda one: 0.0)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--device", default="pixel3")
    parser.add_argument("--target", type=float, default=13.0)
    parser.add_argument("--scores", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    table = Nb201Table.open(given.data_dir)
    source = MeasuredLatency.on_device(Nb201(), table, given.device)
    for reward, beta, cost_paths in ROWS:
        target = Target(source=source, value=given.target, reward=reward, beta=beta)
        found = [
            searched(table, target, cost_paths=cost_paths, scores=given.scores, seed=seed)
            for seed in track(range(given.seeds), description=f"{reward} {beta}", transient=True)
        ]
        misses = ", ".join(f"{100 * target.miss(one):+.1f}" for one in found)
        accuracy = statistics.mean(table.look_up(one, DATASET).test for one in found)
        print(f"{reward}, beta {beta:g}, {cost_paths} further paths: {misses} %; test accuracy {accuracy:.2f}")


if __name__ == "__main__":
    main()
