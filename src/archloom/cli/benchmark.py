"""`archloom benchmark`: look into tables of known scores, and make them from downloads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from archloom.cli.console import make_table, open_message_console, open_result_console, print_line
from archloom.core.errors import BenchmarkError
from archloom.core.lazy_imports import lazy_imports
from archloom.searches.architectures import read_architecture
from archloom.spaces import Architecture

with lazy_imports():  # help needs no torch
    import archloom.benchmarks as benchmarks
    import archloom.benchmarks.converter as converter


app = typer.Typer(no_args_is_help=True)

ACCURACIES = ("test", "valid")
NAMES = {"params": "parameters", "flops_M": "FLOPs, millions"}

TableName = Annotated[
    str, typer.Option("--table", help="Which table: nb201, or strokes or digits (both come with the package).")
]
DataDir = Annotated[
    Path | None, typer.Option(help="The folder of tables, or the file itself. Default: $ARCHLOOM_DATA.")
]


@app.callback()
def benchmark() -> None:
    """Look into tables of known scores."""


@app.command()
def query(
    architecture: Annotated[
        str, typer.Argument(help="Its text form (in quotes), JSON, a JSON file, or the folder of a run.")
    ],
    *,
    table: TableName = "nb201",
    data_dir: DataDir = None,
    device: Annotated[str | None, typer.Option(help="Also the latency on this device (pixel3, raspi4, ...).")] = None,
) -> None:
    """Print what a table knows of one architecture: accuracies, costs, rank and regret."""
    opened = _open(table, data_dir)
    _, chosen = read_architecture(architecture, space=opened.space)
    latency = None if device is None else opened.latency(chosen, device)
    console = open_result_console()
    print_line(opened.space.format(chosen), console=console)
    console.print(make_table(("", *opened.datasets), _facts(opened, chosen)))
    if latency is not None:
        print_line(f"latency on {device}: {latency:.3f} ms", console=console)


def _facts(table: benchmarks.Benchmark, architecture: Architecture) -> Iterator[tuple[str, ...]]:
    """Return a row per metric, with a column per data set."""
    for metric in table.metrics:
        for epochs in table.epochs if metric in ACCURACIES and table.epochs else (None,):
            values = [table.query(architecture, dataset, metric=metric, epochs=epochs) for dataset in table.datasets]
            yield _name(metric, epochs), *(_number(metric, value) for value in values)
    entries = [table.look_up(architecture, dataset) for dataset in table.datasets]
    yield "rank by test", *(f"{entry.rank:,} of {entry.count:,}" for entry in entries)
    yield "regret, points", *(f"{entry.regret:.2f}" for entry in entries)


def _name(metric: str, epochs: int | None) -> str:
    if metric not in ACCURACIES:
        return NAMES.get(metric, metric)
    return f"{metric} accuracy, %" + (f", {epochs} epochs" if epochs else "")


def _number(metric: str, value: float) -> str:
    return f"{value:,.0f}" if metric == "params" else f"{value:.2f}"


@app.command()
def top(
    *,
    dataset: Annotated[str | None, typer.Option(help="By its test accuracy. Default: the table's first.")] = None,
    count: Annotated[int, typer.Option(min=1, help="How many.")] = 10,
    table: TableName = "nb201",
    data_dir: DataDir = None,
) -> None:
    """Print the best architectures of a table."""
    opened = _open(table, data_dir)
    console = open_result_console()
    for architecture, entry in opened.top(dataset or opened.datasets[0], count):
        print_line(f"{entry.test:6.2f} %  {opened.space.format(architecture)}", console=console)


@app.command()
def convert(
    source: Annotated[
        Path, typer.Argument(help="The unpacked download (a folder), or a compact .npz to check and copy.")
    ],
    destination: Annotated[Path, typer.Argument(help="The folder to write into, or a file name ending in .npz.")],
    *,
    partial: Annotated[bool, typer.Option("--partial", help="Accept a download with missing records.")] = False,
) -> None:
    """Make the compact NAS-Bench-201 table from a download (NATS-tss-v1_0-3ffb9-simple, unpacked).

    No code of the download is run: its records are read by names that are known to be harmless.
    """
    console = open_message_console()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("reading records", total=None)
        written = converter.convert(
            source,
            destination,
            partial=partial,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    print_line(str(written), console=open_result_console())


def _open(name: str, directory: Path | None) -> benchmarks.Benchmark:

    kind: type[benchmarks.Benchmark] = benchmarks.BENCHMARKS.find(name).load()
    table = kind.find(directory)
    if table is None:
        raise BenchmarkError(
            f"no {name} table in {directory or '$ARCHLOOM_DATA'}; pass --data-dir with the folder that holds it, or "
            "make one from a download with `archloom benchmark convert`"
        )
    return table
