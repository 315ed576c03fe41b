"""Build an embedded table: train every cell of nb201_mini on a data set, several seeds each, and store the accuracies.

    python benchmarks/build_embedded_table.py strokes --seeds 6 [--out src/archloom/benchmarks/strokes_nb201_mini.json]
    python benchmarks/build_embedded_table.py digits

The same command gives the same accuracies on the same machine. An interrupted build continues: finished trainings are
kept in a file beside the table until the table is complete. More seeds extend a table that is complete.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import Tensor

from archloom.core.files import write_atomically
from archloom.data import load
from archloom.data.augment import Augment
from archloom.data.loader import Loader
from archloom.data.source import ImageData, Source
from archloom.data.splits import random_split
from archloom.searches.short_training import build_standalone, train_epochs
from archloom.spaces import SPACES, Architecture, Nb201
from archloom.supernet import WeightSettings

FOLDER = Path(__file__).parent.parent / "src/archloom/benchmarks"
SPLIT = "random_split(train_fraction=0.5, seed=0): train and valid are its halves, test the images held out"


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How every cell is trained; stored in the table."""

    data: str
    epochs: int
    train_equals_once: bool  # isomorphic cells share one training
    split: str = SPLIT
    channels: int = 8
    batch_size: int = 64
    learning_rate: float = 0.1
    learning_rate_end: float = 0.0
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    clip: float = 5.0

    def weights(self) -> WeightSettings:
        """Return the part that says how weights are trained."""
        return WeightSettings(
            learning_rate=self.learning_rate,
            learning_rate_end=self.learning_rate_end,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
            clip=self.clip,
        )


PROTOCOLS = {
    protocol.data: protocol
    for protocol in (
        Protocol(data="strokes", epochs=10, train_equals_once=True),
        Protocol(data="digits", epochs=12, train_equals_once=False),
    )
}


@dataclass(frozen=True)
class Trained:
    """Accuracies in percent and processor seconds of one training."""

    valid: float
    test: float
    seconds: float


class Trainer:
    """Train single cells by the protocol."""

    def __init__(self, protocol: Protocol, space: Nb201) -> None:
        self._protocol, self._space = protocol, space
        self._data: ImageData = load(protocol.data, directory=None)
        self._split = random_split(len(self._data.train), train_fraction=0.5, seed=0)

    def train(self, cell: Architecture, seed: int) -> Trained:
        """Return what a cell reaches from a seed."""
        protocol, data = self._protocol, self._data
        assert data.test is not None
        start = time.process_time()
        weights = build_standalone(
            self._space,
            cell,
            seed=seed,
            place=lambda network: network,
            network={"classes": len(data.classes), "colours": data.channels, "channels": protocol.channels},
            weights=protocol.weights(),
        )
        for _ in train_epochs(weights, self._for_training(seed), epochs=protocol.epochs):
            pass
        seconds = time.process_time() - start
        valid, test = (
            100 * weights.deployed_score(self._for_evaluation(source, indices).epoch(0))
            for source, indices in ((data.train, self._split.valid), (data.test, torch.arange(len(data.test))))
        )
        return Trained(round(valid, 3), round(test, 3), round(seconds, 2))

    def _for_training(self, seed: int) -> Loader:
        data = self._data
        return Loader(
            data.train,
            self._split.train,
            batch_size=self._protocol.batch_size,
            mean=data.mean,
            std=data.std,
            augment=data.augment,
            seed=seed,
            shuffle=True,
            drop_last=True,
        )

    def _for_evaluation(self, source: Source, indices: Tensor) -> Loader:
        data = self._data
        return Loader(
            source,
            indices,
            batch_size=256,
            mean=data.mean,
            std=data.std,
            augment=Augment(),
            seed=0,
            shuffle=False,
            drop_last=False,
        )


class Finished:
    """The trainings that are done: of the table, and in a file that survives an interruption."""

    def __init__(self, table: Path, protocol: Protocol) -> None:
        self._path, self._protocol = table.with_suffix(".progress"), asdict(protocol)
        self._done: dict[str, Trained] = {}
        if table.exists():
            self._add_table(json.loads(table.read_text(encoding="utf-8")))
        if self._path.exists():
            content = json.loads(self._path.read_text(encoding="utf-8"))
            if content["protocol"] != self._protocol:
                sys.exit(f"{self._path} has trainings of another protocol; delete it to start again")
            self._done |= {key: Trained(*values) for key, values in content["done"].items()}

    def _add_table(self, content: dict[str, Any]) -> None:
        """Take over the trainings of a table, unless it has another protocol and is to be replaced."""
        if content["protocol"] != self._protocol:
            return
        for position, seed in enumerate(content["seeds"]):
            columns = ((row[position] for row in content[name]) for name in ("valid", "test"))
            for row, values in enumerate(zip(*columns, content["seconds"], strict=True)):
                self._done[f"{row} {seed}"] = Trained(*values)

    def get(self, row: int, seed: int) -> Trained | None:
        """Return a training, None if it has to be done."""
        return self._done.get(f"{row} {seed}")

    def add(self, row: int, seed: int, trained: Trained) -> None:
        """Store a training."""
        self._done[f"{row} {seed}"] = trained
        done = {key: [value.valid, value.test, value.seconds] for key, value in self._done.items()}
        write_atomically(self._path, json.dumps({"protocol": self._protocol, "done": done}).encode())

    def of_row(self, row: int, seeds: range) -> Iterator[Trained]:
        """Yield the trainings of a cell by seed."""
        return (self._done[f"{row} {seed}"] for seed in seeds)

    def delete(self) -> None:
        """Delete the file, once the table is written."""
        self._path.unlink(missing_ok=True)


def main() -> None:
    """Train what is not trained yet, then write the table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("data", choices=PROTOCOLS)
    arguments.add_argument("--seeds", type=int, default=5)
    arguments.add_argument("--out", type=Path)
    options = arguments.parse_args()
    torch.set_num_threads(1)  # tiny tensors: a second thread only costs

    protocol, seeds = PROTOCOLS[options.data], range(options.seeds)
    out: Path = options.out or FOLDER / f"{options.data}_nb201_mini.json"
    space = Nb201(**SPACES["nb201_mini"].settings)
    cells = list(space.enumerate())
    finished = Finished(out, protocol)
    trained_rows = _choose_rows(space, cells, protocol)
    trainer = Trainer(protocol, space)
    work = [(row, seed) for seed in seeds for row in sorted(set(trained_rows))]
    for row, seed in track(work, description="training every cell"):
        if finished.get(row, seed) is None:
            finished.add(row, seed, trainer.train(cells[row], seed))
    rows = [list(finished.of_row(row, seeds)) for row in trained_rows]
    table = {
        "space": {"nodes": space.nodes, "operations": list(space.operations)},
        "protocol": asdict(protocol),
        "seeds": list(seeds),
        "valid": [[trained.valid for trained in row] for row in rows],
        "test": [[trained.test for trained in row] for row in rows],
        "seconds": [min(trained.seconds for trained in row) for row in rows],  # the least disturbed by other programs
    }
    write_atomically(out, json.dumps(table).encode())
    finished.delete()
    print(f"{len(cells)} cells x {options.seeds} seeds written to {out}", file=sys.stderr)


def _choose_rows(space: Nb201, cells: list[Architecture], protocol: Protocol) -> list[int]:
    """Return for every cell the row whose training it uses: its own, or the first isomorphic one."""
    if not protocol.train_equals_once:
        return list(range(len(cells)))
    first: dict[str, int] = {}
    return [first.setdefault(space.canonical(cell), row) for row, cell in enumerate(cells)]


if __name__ == "__main__":
    main()
