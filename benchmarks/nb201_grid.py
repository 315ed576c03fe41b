"""Recipes x seeds on NAS-Bench-201: what each search finds, with mean and spread over seeds, and how it got there.

    python benchmarks/nb201_grid.py recipes/nb201_proxy/*.toml --seeds 0-4 --data-dir DIR --out runs/grid
    python benchmarks/nb201_grid.py --compared runs/compare-gibbs --data-dir DIR --out runs/grid

Searches run in parallel, one thread each. Finished ones are kept, interrupted ones resume. No seed
is excluded: a search that fails is listed as failed. "Without none" is what the same probabilities give where `none`
may not win. Writes `summary.json` and `curves.png` beside the runs. With `--compared` nothing runs: it summarizes
the one-shot searches of an `archloom compare`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

DATASETS = ("cifar10", "cifar100", "imagenet16")


def main() -> None:
    options = _options()
    console = Console(width=160)
    options.out.mkdir(parents=True, exist_ok=True)
    grouped = _compared(options) if options.compared else _searched(options, console)
    (options.out / "summary.json").write_text(json.dumps(grouped, indent=1))
    draw_curves(grouped, options.out / "curves.png")
    console.print(_table(grouped))


def _options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("recipes", nargs="*", type=Path)
    arguments.add_argument("--compared", type=Path, metavar="FOLDER", help="of a comparison, instead of recipes")
    arguments.add_argument("--seeds", type=seeds, default=seeds("0-4"), help="such as 0-4 or 0,3,7")
    arguments.add_argument("--data-dir", type=Path, required=True)
    arguments.add_argument("--out", type=Path, required=True)
    arguments.add_argument("--jobs", type=int, default=2, help="searches in parallel")
    arguments.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for all recipes")
    options = arguments.parse_args()
    if bool(options.recipes) == bool(options.compared):
        arguments.error("give recipes, or the folder of a comparison")
    if options.compared and not (options.compared / "runs").is_dir():
        arguments.error(f"--compared {options.compared} is not the folder of a comparison: it has no folder 'runs'")
    return options


def seeds(text: str) -> list[int]:
    """Numbers with commas, or the first and the last with a dash."""
    first, dash, last = text.partition("-")
    return list(range(int(first), int(last) + 1)) if dash else [int(part) for part in text.split(",")]


def _searched(options: argparse.Namespace, console: Console) -> dict[str, list[dict[str, Any]]]:
    jobs = [(recipe, seed) for seed in options.seeds for recipe in options.recipes]
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda job: _search(*job, options, console), jobs))
    return {recipe.stem: [row for row in rows if row["recipe"] == recipe.stem] for recipe in options.recipes}


def _compared(options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    grouped: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((options.compared / "runs").iterdir()):
        name, _, seed = path.name.rpartition("-")
        if (path / "checkpoints").exists():  # one-shot: others have no curve
            complete = (path / "architecture.json").exists()
            found = _summarize(path, options.data_dir) if complete else {"failed": "not finished"}
            grouped.setdefault(name, []).append({"recipe": name, "seed": int(seed), "failed": None, **found})
    return grouped


def _search(recipe: Path, seed: int, options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """One search in a process of its own, and its row of the table."""
    path = options.out / f"{recipe.stem}-{seed}"
    if (path / "config.toml").exists():
        command = ["resume", str(path)]
    else:
        given = ["machine.torch_threads=1", f"data.directory={options.data_dir}", *options.set]
        sets = [part for setting in given for part in ("--set", setting)]
        command = ["search", str(recipe), "--seed", str(seed), "--out", str(path), *sets]
    done = subprocess.run([sys.executable, "-m", "archloom", *command], capture_output=True, text=True, check=False)
    row: dict[str, Any] = {"recipe": recipe.stem, "seed": seed, "failed": None}
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()[-1]
        console.print(f"{path.name}: failed: {said}")
        return {**row, "failed": said}
    row |= _summarize(path, options.data_dir)
    console.print(f"{path.name}: {row['test']['cifar10']:.2f} in {row['seconds']:.0f} s  {row['text']}")
    return row


def _summarize(path: Path, data: Path) -> dict[str, Any]:
    """Return what a finished search found, also if the first edition wrote it."""
    from archloom.benchmarks.nb201 import Nb201Table
    from archloom.execution.run_folder import RunFolder
    from archloom.searches.result import read_result

    table = Nb201Table.open(data)
    result = read_result(RunFolder(path), table.space)
    assert result is not None and result.table_entry is not None
    return {
        "text": result.text,
        "valid": table.query(result.architecture, "cifar10", metric="valid"),
        "test": {name: table.query(result.architecture, name) for name in DATASETS},
        "without_none": _test_without_none(table, result.history[-1].probabilities),
        "regret": result.table_entry.regret,
        "rank": result.table_entry.rank,
        "seconds": result.run.seconds,
        "peak_memory_mb": result.run.peak_memory_mb,
        "curve": [record.table_entry.test for record in result.history],
        "entropy": [record.metrics.get("entropy") for record in result.history],
    }


def _test_without_none(table: Any, probabilities: Mapping[str, Sequence[float]] | None) -> float | None:
    """Return the test accuracy of what the last probabilities favour except `none`; None without probabilities."""
    if probabilities is None:
        return None
    return table.query(table.space.decode(probabilities, keep_none=False), "cifar10")


def _table(grouped: dict[str, list[dict[str, Any]]]) -> Table:
    table = Table("recipe", "seeds", *DATASETS, "regret", "worst", "without none", "valid", "minutes", "cells")
    for name, rows in grouped.items():
        found = [row for row in rows if row["failed"] is None]
        if not found:
            table.add_row(name, f"0 of {len(rows)}")
            continue
        table.add_row(
            name,
            f"{len(found)} of {len(rows)}",
            *(spread([row["test"][dataset] for row in found]) for dataset in DATASETS),
            spread([row["regret"] for row in found]),
            f"{min(row['test']['cifar10'] for row in found):.2f}",
            spread([row["without_none"] for row in found if row["without_none"] is not None]),
            spread([row["valid"] for row in found]),
            f"{statistics.mean(row['seconds'] for row in found) / 60:.1f}",
            str(len({row["text"] for row in found})),
        )
    return table


def spread(values: list[float]) -> str:
    """Mean and standard deviation."""
    if not values:
        return ""
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{deviation}"


def draw_curves(grouped: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Test accuracy of the derived cell after every epoch: the mean of the seeds, and between its best and worst."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    names = [name for name, rows in grouped.items() if any(row["failed"] is None for row in rows)]
    columns = min(4, len(names))
    lines = -(-len(names) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(3.2 * columns, 2.4 * lines), sharey=True, squeeze=False, layout="constrained"
    )
    for place, name in zip(axes.flat, names, strict=False):
        curves = [row["curve"] for row in grouped[name] if row["failed"] is None]
        length = min(map(len, curves))
        epochs, columns_of = range(1, length + 1), list(zip(*(curve[:length] for curve in curves), strict=True))
        place.fill_between(epochs, list(map(min, columns_of)), list(map(max, columns_of)), alpha=0.2, linewidth=0)
        place.plot(epochs, [statistics.mean(column) for column in columns_of], linewidth=2)
        place.axhline(94.37, color="grey", linewidth=0.8, linestyle=":")
        place.set_title(f"{name} ({len(curves)} seeds)", fontsize=9)
        place.set_xlabel("epoch", fontsize=8)
        place.set_ylim(80, 95)
        place.xaxis.get_major_locator().set_params(integer=True)
        place.tick_params(labelsize=8)
    for place in list(axes.flat)[len(names) :]:
        place.remove()
    for row in axes:
        row[0].set_ylabel("test accuracy of the cell, %", fontsize=8)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
