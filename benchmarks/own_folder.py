"""From a folder of pictures to a model within a budget, beside the ResNet block trained in the same way and time.

    python benchmarks/own_folder.py FOLDER --data-dir DIR [--budget 10m] [--seeds 3] [--clock cpu]

Writes 1,000 training images of CIFAR-10 as PNG files, 100 of each class. For every seed, `archloom run` searches and
trains on them. Then the ResNet block is trained by the same recipe: with the time of the retraining of the run, and
with that of the whole run. All models are evaluated on the 10,000 test images, which nothing else reads. Printed are
accuracies, and differences with 95 % intervals over test images. What is finished is not run again. With `--clock cpu`
budgets count processor time of one thread, so that other work on the machine matters less.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch import Tensor

from archloom.core.durations import parse_duration
from archloom.data.cifar import cifar10
from archloom.data.source import ImageData
from archloom.export.prediction import Predictor, open_predictor
from archloom.pipelines.spec import SHARE_FOR_FEW, TOGETHER

EACH, FIRST_SEED, CHUNK = 100, 70, 500
REFERENCE = "nb201_residual"
ERRORS = 1.96  # standard errors to either side of a 95 % interval


@dataclass(frozen=True)
class Control:
    """A training of the reference: its name, and its share of the whole budget."""

    name: str
    share: float


CONTROLS = (Control("as long as the retraining", TOGETHER - SHARE_FOR_FEW), Control("as long as the run", 1.0))


def write_pictures(folder: Path, data: ImageData) -> Path:
    """Write the pictures into one sub-folder per class, and return the folder of these."""
    there = folder / "pictures"
    order = np.random.default_rng(0).permutation(len(data.train))
    labels = data.train.labels.numpy()
    for number, name in enumerate(data.classes):
        (there / name).mkdir(parents=True, exist_ok=True)
        chosen = torch.from_numpy(order[labels[order] == number][:EACH])
        for place, image in enumerate(data.train.fetch(chosen).permute(0, 2, 3, 1).numpy()):
            Image.fromarray(image).save(there / name / f"{place:03}.png")
    return there


def train(command: list[str], out: Path) -> Path:
    """Run a command of archloom unless its folder is there; return the folder."""
    if not out.exists():
        with out.with_suffix(".log").open("w") as log:
            subprocess.run([sys.executable, "-m", "archloom", *command, "--out", str(out)], stdout=log, check=True)
    return out


def answer(predictor: Predictor, data: ImageData) -> Tensor:
    """Return for every test image whether the model is right."""
    assert data.test is not None
    places = [data.classes.index(name) for name in predictor.classes]
    right = []
    for first in range(0, len(data.test), CHUNK):
        index = torch.arange(first, min(first + CHUNK, len(data.test)))
        chosen = torch.as_tensor(predictor.logits(data.test.fetch(index).float() / 255)).argmax(dim=1)
        right.append(torch.tensor(places)[chosen] == data.test.labels[index])
    return torch.cat(right)


def train_models(folder: Path, pictures: Path, budget: str, seed: int, clock: str) -> Iterator[tuple[str, Path]]:
    """Yield the folders of the run and of the controls."""
    command = ["run", str(pictures), "--budget", budget, "--seeds", str(seed)]
    searching = _clock_settings(clock, "search.search", "search.machine")
    training = _clock_settings(clock, "retrain.training", "retrain.machine")
    yield "run", train([*command, *searching, *training], folder / f"run-{seed}")
    for number, control in enumerate(CONTROLS):
        seconds = round(control.share * parse_duration(budget))
        command = ["retrain", REFERENCE, "--path", str(pictures), "--budget", f"{seconds}s", "--seed", str(seed)]
        clocked = [*command, *_clock_settings(clock, "training", "machine")]
        yield control.name, train(clocked, folder / f"control-{number}-{seed}")


def _clock_settings(clock: str, budget: str, machine: str) -> list[str]:
    """Return the options that count a budget by a clock, with one thread for processor time; sections by name."""
    one_thread = [] if clock == "wall" else ["--set", f"{machine}.torch_threads=1"]
    return ["--set", f"{budget}.budget_clock={clock}", *one_thread]


def describe_difference(own: Tensor, other: Tensor) -> str:
    """Return the difference in points with its interval over test images."""
    points = 100 * (own.double() - other.double())
    margin = ERRORS * float(points.std()) / len(points) ** 0.5
    return f"{float(points.mean()):+.2f} ± {margin:.2f}"


def main() -> None:
    """Train, evaluate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--budget", default="10m")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="what budgets count")
    options = parser.parse_args()
    data = cifar10(options.data_dir)
    pictures = write_pictures(options.folder, data)
    table = Table("seed", "model", "test accuracy, %", "run minus it, points")
    for seed in range(FIRST_SEED, FIRST_SEED + options.seeds):
        models = train_models(options.folder, pictures, options.budget, seed, options.clock)
        right = {name: answer(open_predictor(path), data) for name, path in models}
        for name, one in right.items():
            difference = "" if name == "run" else describe_difference(right["run"], one)
            table.add_row(str(seed), name, f"{100 * float(one.double().mean()):.2f}", difference)
    Console().print(table)


if __name__ == "__main__":
    main()
