"""`archloom rank`: how well the shared weights of runs rank architectures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from archloom.cli.console import make_table, open_message_console, open_result_console, print_line, print_warning
from archloom.cli.interactive import stop_on_signals
from archloom.cli.options import data_settings, drop_unset
from archloom.cli.outputs import check_outputs, write_outputs
from archloom.core.lazy_imports import lazy_imports

with lazy_imports():  # help needs no torch
    import archloom.searches.ranking as ranking
    import archloom.searches.report_ranking as report_ranking


def rank(
    runs: Annotated[list[Path], typer.Argument(help="The folders of one-shot runs, finished or not.")],
    *,
    samples: Annotated[int, typer.Option(help="Architectures to evaluate, sampled uniformly.")] = 100,
    seed: Annotated[int, typer.Option(help="Of the sample, which is the same for all runs.")] = 0,
    images: Annotated[int, typer.Option(help="Validation images that each is evaluated on.")] = 1000,
    recalibrate: Annotated[
        int,
        typer.Option(help="Training batches for running statistics of each path. 0: the batch's own statistics."),
    ] = 0,
    metric: Annotated[str, typer.Option(help="The column of the table: test or valid.")] = "test",
    data_dir: Annotated[
        Path | None, typer.Option(help="Where data and table lie now. Default: where the run found them.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, ... Default: that of the run.")] = None,
    out: Annotated[
        list[Path] | None, typer.Option(help="Write a plot (.svg) or all figures (.json, .csv); may be repeated.")
    ] = None,
) -> None:
    """Measure how well the shared weights of a run rank architectures: rank correlation with the benchmark table.

    A one-shot search can be no better than the ranking by its shared weights. The table has the accuracy of networks
    trained alone; both rank a uniform sample.

        archloom rank runs/first

        archloom rank runs/a runs/b --samples 200 --recalibrate 20 --out rank.svg --out rank.json
    """
    check_outputs(out or [], (".svg", ".json", ".csv"))
    console = open_message_console()
    settings = drop_unset({"machine": {"device": device}, "data": data_settings(None, data_dir)})
    with stop_on_signals() as stop, _shown(console) as progress:
        found = ranking.rank(
            runs,
            samples=samples,
            seed=seed,
            images=images,
            recalibrate=recalibrate,
            metric=metric,
            settings=settings,
            progress=progress,
            stop=stop,
            warn=print_warning,
        )
    print_ranks(found, open_result_console())
    write_outputs(
        out or [],
        {
            ".svg": lambda: report_ranking.scatter(found),
            ".json": lambda: json.dumps([one.to_json() for one in found], indent=2),
            ".csv": lambda: report_ranking.to_csv(found),
        },
    )
    if stop():
        _print_stopped(found, len(runs), console)
        raise typer.Exit(stop.exit_code)


def print_ranks(found: Sequence[ranking.RankResult], console: Console) -> None:
    """Print one run in sentences, several in a table."""
    if len(found) == 1:
        print_line(found[0].title, console=console)
        for sentence in report_ranking.describe_ranking(found[0]):
            console.print(sentence)
    else:
        table = report_ranking.rank_table(found)
        console.print(make_table(table.columns, table.rows))


def _print_stopped(found: Sequence[ranking.RankResult], runs: int, console: Console) -> None:
    last, left = found[-1], runs - len(found)
    rest = f"; runs that were not begun: {left}" if left else ""
    print_line(
        f"stopped: these are {last.evaluated} of {last.asked} architectures of {last.run}{rest}", console=console
    )


@contextmanager
def _shown(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("opening the run", total=None)

        def show(run: str, done: int, total: int) -> None:
            bar.update(task, description=f"evaluating paths of {Path(run).name}", completed=done, total=total)

        yield show
