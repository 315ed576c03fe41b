"""One-shot searches on NAS-Bench-201 with real CIFAR-10: what each strategy finds, how long it takes, what it needs.

    python benchmarks/nb201_cifar10.py --data-dir DIR gdas:10:0,1,2 rsps:20:0,1,2 darts:5:0 --out runs/nb201-cifar10

Each argument is STRATEGY:EPOCHS:SEEDS. The supernet is small (C=8, N=1), the split the benchmark's own.
Searches that are complete are not run again, interrupted ones go on; a table and `summary.json` come last.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from rich.console import Console
from rich.table import Table

import archloom
from archloom.benchmarks.nb201 import Nb201Table
from archloom.engine.events import Event, Recorded

DATASETS = ("cifar10", "cifar100", "imagenet16")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("searches", nargs="+", metavar="STRATEGY:EPOCHS:SEEDS")
    arguments.add_argument("--data-dir", type=Path, required=True)
    arguments.add_argument("--out", type=Path, required=True)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--channels", type=int, default=8)
    options = arguments.parse_args()
    console, rows = Console(), []
    table = Nb201Table.open(options.data_dir)
    for text in options.searches:
        strategy, epochs, seeds = text.split(":")
        for seed in map(int, seeds.split(",")):
            path = options.out / f"{strategy}-{epochs}-{seed}"
            result = run(path, strategy, int(epochs), seed, options, console)
            rows.append(row(result, table, strategy, int(epochs), seed))
    (options.out / f"summary-{'-'.join(sorted({r['strategy'] for r in rows}))}.json").write_text(
        json.dumps(rows, indent=1)
    )
    console.print(as_table(rows))


def run(path: Path, strategy: str, epochs: int, seed: int, options: argparse.Namespace, console: Console):
    def listen(event: Event) -> None:
        if isinstance(event, Recorded):
            record = event.record
            console.print(
                f"{path.name} epoch {record['epoch']}: {record['seconds']:.0f} s, {record['standing']['test']:.2f} %"
            )

    if (path / "config.toml").exists():
        return archloom.resume(path, listeners=[listen])
    settings = {
        "space": {"cells_per_stage": 1},
        "network": {"channels": options.channels},
        "data": {"directory": str(options.data_dir), "split": "nb201"},
        "machine": {"threads": options.threads},
    }
    return archloom.search(
        "nb201", strategy, "cifar10", epochs=epochs, seed=seed, out=path, settings=settings, listeners=[listen]
    )


def row(result, table: Nb201Table, strategy: str, epochs: int, seed: int) -> dict:
    standing = result.standing
    return {
        "strategy": strategy,
        "epochs": epochs,
        "seed": seed,
        "seconds_per_epoch": statistics.mean(record["seconds"] for record in result.history),
        "seconds": result.details["run"]["seconds"],
        "peak_memory_mb": result.details["run"]["peak_memory_mb"],
        "text": result.text,
        "test": {name: table.query(result.architecture, name) for name in DATASETS},
        "rank": standing["rank"],
        "regret": standing["regret"],
        "curve": [record["standing"]["test"] for record in result.history],
    }


def as_table(rows: list[dict]) -> Table:
    table = Table("strategy", "epochs", "seed", "s/epoch", "peak MB", *DATASETS, "rank", "regret", "cell")
    for found in rows:
        table.add_row(
            found["strategy"],
            str(found["epochs"]),
            str(found["seed"]),
            f"{found['seconds_per_epoch']:.1f}",
            f"{found['peak_memory_mb']:.0f}",
            *(f"{found['test'][name]:.2f}" for name in DATASETS),
            str(found["rank"]),
            f"{found['regret']:.2f}",
            found["text"],
        )
    return table


if __name__ == "__main__":
    main()
