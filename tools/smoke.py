"""A first minute with an installed wheel, in any supported Python: search, train, export, predict, all kernels loaded.

The test suite runs on one version of Python. This script runs on the others, in an environment that holds the wheel and
its dependencies alone: no checkout, no test runner. It needs the machine's own kernels, or `--without-kernels`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

import archloom
from archloom.fast.native import loader

SEARCH = ("--space", "nb201_mini", "--data", "digits", "--epochs", "1", "--seed", "0", "--quiet")
SMALL = ("data.train_images=64", "data.valid_images=64", "search.random_baseline_samples=2", "race.contestants=0")


def run(*arguments: str | Path) -> str:
    """Run a command of the installed script, and return what it printed; leave at the first that fails."""
    command = [sys.executable, "-m", "archloom", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        sys.exit(f"{' '.join(command)}: exit code {ended.returncode}\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def main() -> None:
    """Take the steps of the README in a folder of their own."""
    if (Path(archloom.__file__).parents[2] / "pyproject.toml").is_file():
        sys.exit("this tests an installed wheel, and archloom is imported from a checkout")
    if "--without-kernels" not in sys.argv and not loader.available_levels():
        sys.exit("the native kernels of the wheel cannot be loaded")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        given = [part for text in SMALL for part in ("--set", text)]
        run("search", *SEARCH, *given, "--out", place / "found")
        retrain = ("--recipe", "nb201_12", "--epochs", "1", "--set", "data.split=random", "--set", "network.channels=4")
        run("retrain", place / "found", *retrain, "--set", "data.train_images=64", "--quiet", "--out", place / "model")
        run("export", place / "model", "--format", "standalone")
        Image.new("L", (8, 8), 128).save(place / "picture.png")
        printed = run("predict", place / "model", place / "picture.png")
    if "picture.png" not in printed:
        sys.exit(f"predict printed no label:\n{printed}")
    levels = ", ".join(loader.available_levels()) or "none"
    print(f"archloom {archloom.__version__} works on Python {sys.version.split()[0]}; kernels: {levels}")


if __name__ == "__main__":
    main()
