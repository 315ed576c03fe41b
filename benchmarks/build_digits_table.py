"""Build the embedded table: train every cell of nb201_mini on digits, several seeds each, and store the accuracies.

    python benchmarks/build_digits_table.py [--seeds 5] [--out src/archloom/benchmarks/digits_nb201_mini.json]

Takes about a quarter of an hour on one idle core. The same command gives the same table on the same machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
from rich.progress import track

from archloom.core.files import write_atomically
from archloom.data import load
from archloom.data.augment import Augment
from archloom.data.loader import Loader
from archloom.data.splits import random_split
from archloom.searches.short_training import StandaloneScore, build_standalone
from archloom.spaces import SPACES
from archloom.supernet import WeightSettings

DEFAULT = Path(__file__).parent.parent / "src/archloom/benchmarks/digits_nb201_mini.json"
PROTOCOL = {
    "data": "digits",
    "split": "random_split(train_fraction=0.5, seed=0): train and valid are its halves, test the held-out fifth",
    "channels": 8,
    "epochs": 12,
    "batch_size": 64,
    "learning_rate": 0.1,
    "learning_rate_end": 0.0,
    "momentum": 0.9,
    "nesterov": True,
    "weight_decay": 5e-4,
    "clip": 5.0,
}
WEIGHTS = WeightSettings(
    **{
        key: PROTOCOL[key]
        for key in ("learning_rate", "learning_rate_end", "momentum", "nesterov", "weight_decay", "clip")
    }
)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seeds", type=int, default=5)
    arguments.add_argument("--out", type=Path, default=DEFAULT)
    options = arguments.parse_args()
    torch.set_num_threads(1)  # tiny tensors: a second thread only costs

    entry = SPACES["nb201_mini"]
    space = entry.load()(**entry.settings)
    data = load("digits", directory=None)
    assert data.test is not None
    split = random_split(len(data.train), train_fraction=0.5, seed=0)
    whole = torch.arange(len(data.test))

    def loader(source, indices, *, seed: int, training: bool) -> Loader:
        return Loader(
            source,
            indices,
            batch_size=PROTOCOL["batch_size"] if training else 256,
            mean=data.mean,
            std=data.std,
            augment=data.augment if training else Augment(),
            seed=seed,
            shuffle=training,
            drop_last=training,
        )

    cells = list(space.enumerate())
    valid: list[list[float]] = []
    test: list[list[float]] = []
    for cell in track(cells, description="training every cell", console=None):
        of_valid, of_test = [], []
        for seed in range(options.seeds):
            weights = build_standalone(
                space,
                cell,
                seed=seed,
                place=lambda network: network,
                network={"classes": len(data.classes), "colours": data.channels, "channels": PROTOCOL["channels"]},
                weights=WEIGHTS,
            )
            score = StandaloneScore(
                lambda _, weights=weights: weights,
                train=loader(data.train, split.train, seed=seed, training=True),
                valid=loader(data.train, split.valid, seed=seed, training=False),
                epochs=PROTOCOL["epochs"],
                every_epoch=False,
            )
            (scored,) = score(cell)
            of_valid.append(scored.score)
            of_test.append(100 * weights.deployed_score(loader(data.test, whole, seed=seed, training=False).epoch(0)))
        valid.append([round(value, 3) for value in of_valid])
        test.append([round(value, 3) for value in of_test])
    table = {
        "space": {"nodes": space.nodes, "operations": list(space.operations)},
        "protocol": PROTOCOL,
        "seeds": list(range(options.seeds)),
        "valid": valid,
        "test": test,
    }
    write_atomically(options.out, json.dumps(table).encode())
    print(f"{len(cells)} cells x {options.seeds} seeds written to {options.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
