"""`archloom rank`: how well the shared weights of runs order architectures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from archloom.cli.attend import stop_on_signals
from archloom.cli.console import messages, results, say, table_of
from archloom.cli.outputs import check_outputs, write_outputs


def rank(
    runs: Annotated[list[Path], typer.Argument(help="The folders of one-shot runs, finished or not.")],
    *,
    samples: Annotated[int, typer.Option(help="Architectures to judge, drawn uniformly.")] = 100,
    seed: Annotated[int, typer.Option(help="Of the draw: the same for all runs.")] = 0,
    images: Annotated[int, typer.Option(help="Validation images that judge each.")] = 1000,
    recalibrate: Annotated[
        int,
        typer.Option(help="Training batches for running statistics of each path. 0: the batch's own statistics."),
    ] = 0,
    metric: Annotated[str, typer.Option(help="What the table says: test or valid.")] = "test",
    data_dir: Annotated[
        Path | None, typer.Option(help="Where data and table lie now. Default: where the run found them.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, ... Default: that of the run.")] = None,
    out: Annotated[
        list[Path] | None, typer.Option(help="Write a plot (.svg) or all figures (.json, .csv); may be repeated.")
    ] = None,
) -> None:
    """How well the shared weights of a run order architectures: rank correlation with the table of known scores.

    A search by shared weights can be no better than the order they give. The table knows the order of networks that are
    trained by themselves; a uniform sample is judged by both.

        archloom rank runs/first

        archloom rank runs/a runs/b --samples 200 --recalibrate 20 --out rank.svg --out rank.json
    """
    from archloom.searches.ranking import rank
    from archloom.searches.report_ranking import as_csv, scatter

    check_outputs(out or [], (".svg", ".json", ".csv"))
    console = messages()
    settings: dict[str, Any] = {} if device is None else {"machine": {"device": device}}
    if data_dir is not None:
        settings["data"] = {"directory": str(data_dir.expanduser().absolute())}
    with stop_on_signals() as stop, _shown(console) as progress:
        found = rank(
            runs,
            samples=samples,
            seed=seed,
            images=images,
            recalibrate=recalibrate,
            metric=metric,
            settings=settings,
            progress=progress,
            stop=stop,
            warn=lambda message: say(f"warning: {message}", console=console),
        )
    print_ranks(found, results())
    write_outputs(
        out or [],
        {".svg": lambda: scatter(found), ".json": lambda: json.dumps(found, indent=2), ".csv": lambda: as_csv(found)},
    )
    if stop():
        _tell_stopped(found, len(runs), console)
        raise typer.Exit(stop.exit_code)


def print_ranks(found: Sequence[Mapping[str, Any]], console: Console) -> None:
    """One run in sentences, several in a table."""
    from archloom.searches.report_ranking import rank_table, sentences

    if len(found) == 1:
        say(found[0]["title"], console=console)
        for sentence in sentences(found[0]):
            console.print(sentence)
    else:
        table = rank_table(found)
        console.print(table_of(table.columns, table.rows))


def _tell_stopped(found: Sequence[Mapping[str, Any]], runs: int, console: Console) -> None:
    last, left = found[-1], runs - len(found)
    rest = f"; runs that were not begun: {left}" if left else ""
    say(f"stopped: these are {last['judged']} of {last['asked']} architectures of {last['run']}{rest}", console=console)


@contextmanager
def _shown(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("opening the run", total=None)

        def tell(run: str, done: int, total: int) -> None:
            bar.update(task, description=f"judging paths of {Path(run).name}", completed=done, total=total)

        yield tell
