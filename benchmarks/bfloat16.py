"""Retraining in bfloat16 against float32 on this processor: the time of a step, and the accuracy of a short training.

    python benchmarks/bfloat16.py [--rounds 8] [--threads 1]
    python benchmarks/bfloat16.py --data-dir DIR [--seeds 3] [--epochs 6]

Without data, steps of both precisions are timed in turns, in processor time. With data, a cell is trained on 5,000
images of CIFAR-10 in both precisions with the same seeds; printed are test accuracies and the mean of their paired
differences with its 95 % interval.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from scipy.stats import t
from torch.nn import functional as F

import archloom
from archloom.families import build_network
from archloom.spaces import Darts, Nb201, SearchSpace
from archloom.supernet import Only

RESNET, V2 = "ResNet block", "DARTS V2"
CASES: dict[str, tuple[SearchSpace, str, dict[str, int], int]] = {
    "nb201, 16 channels, 5 cells per stage, batch 64": (Nb201(cells_per_stage=5), RESNET, {"channels": 16}, 64),
    "darts_v2, 36 channels, 20 cells, batch 8": (Darts(cells=20), V2, {"channels": 36}, 8),
    "darts_v2, 36 channels, 20 cells, batch 32": (Darts(cells=20), V2, {"channels": 36}, 32),
}


def prepare_step(space: SearchSpace, name: str, settings: dict[str, int], batch: int) -> Callable[[bool], float]:
    """Return what takes a step, in bfloat16 if asked, and returns its processor time."""
    torch.manual_seed(0)
    architecture = space.references()[name]
    network = build_network(space, Only(architecture), classes=10, colours=3, **settings)
    network = network.to(memory_format=torch.channels_last).train()
    images = torch.randn(batch, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (batch,))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)

    def step(low: bool) -> float:
        start = time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            logits = network(images)
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(logits.float(), labels).backward()
        optimizer.step()
        return time.process_time() - start

    return step


def time_steps(rounds: int) -> None:
    """Print the median times of both precisions."""
    table = Table("retraining step", "float32, ms", "bfloat16, ms", "float32 / bfloat16")
    for name, case in CASES.items():
        step = prepare_step(*case)
        step(False), step(True)  # the first ones prepare kernels
        times = [(step(False), step(True)) for _ in range(rounds)]
        exact, low = (1000 * statistics.median(one) for one in zip(*times, strict=True))
        table.add_row(name, f"{exact:.0f}", f"{low:.0f}", f"{exact / low:.2f}")
    Console().print(table)


def compare_accuracies(data_dir: Path, seeds: int, epochs: int) -> None:
    """Print the test accuracies of trainings in both precisions."""
    cell = Nb201().format(Nb201().references()[RESNET])
    results: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(seeds):
            for low, found in results.items():
                settings = {
                    "space": {"name": "nb201", "cells_per_stage": 3},
                    "network": {"channels": 16},
                    "training": {"epochs": epochs, "mixed_precision": low},
                    "data": {"directory": str(data_dir), "train_images": 5_000},
                    "machine": {"torch_threads": torch.get_num_threads()},
                }
                out = Path(folder) / f"{seed}-{low}"
                result = archloom.retrain(
                    cell, recipe="cifar", data="cifar10", seed=seed, out=out, settings=settings, progress=False
                )
                assert result.test is not None
                found.append(result.test.top1)
                print(f"seed {seed}, {'bfloat16' if low else 'float32'}: {found[-1]:.2f} %", flush=True)
    differences = [low - exact for exact, low in zip(results[False], results[True], strict=True)]
    half = float(t.ppf(0.975, seeds - 1)) * statistics.stdev(differences) / seeds**0.5
    print(f"bfloat16 minus float32: {statistics.fmean(differences):+.2f} ± {half:.2f} points")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.data_dir is None:
        time_steps(options.rounds)
    else:
        compare_accuracies(options.data_dir, options.seeds, options.epochs)


if __name__ == "__main__":
    main()
