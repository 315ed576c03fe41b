"""`archloom compare`: several strategies, several seeds, one table, and a verdict with error bars."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from archloom.cli.attend import stopping_cleanly
from archloom.cli.console import facts_of, messages, results, say, table_of
from archloom.cli.search import said
from archloom.core.errors import SettingError
from archloom.core.events import JobEnded, JobEvent, JobListener, JobProgressed, JobStarted

if TYPE_CHECKING:
    from archloom.comparisons.results import ComparisonResult

FAILED = 1
WIDEST = 1000
LINES_OF_A_LOG = 40  # how many searches a log tells one by one; of more, every so many


def compare(
    comparison: Annotated[
        str,
        typer.Argument(
            metavar="FILE|FOLDER",
            help="A TOML file, a shipped one (archloom list recipes), or the folder of one begun.",
        ),
    ],
    *,
    out: Annotated[Path | None, typer.Option(help="Its folder. Default: runs/compare-NAME.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Of every entry: 0-4, or 0-4,9.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Searches side by side. Default: as cores allow.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Run this entry, as often as needed.")] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Any setting, for every entry.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="The folder of data sets and benchmark tables. Default: $ARCHLOOM_DATA.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the searches and how far each is.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the table.")] = False,
) -> None:
    """Run several strategies with several seeds, and say which is better than random search.

    What is finished is not run again, what was interrupted goes on, one that fails is tried once more.
    """
    from archloom.comparisons.run import run_comparison
    from archloom.comparisons.spec import jobs_that_fit, open_comparison
    from archloom.core.settings import merge, parse_assignments
    from archloom.execution.executors import ProcessExecutor
    from archloom.searches.run import RUNS

    assigned, problems = parse_assignments(assignments or [])
    if problems:
        raise SettingError(problems)
    folder_of_data = None if data_dir is None else str(data_dir.expanduser().absolute())
    settings = merge(said({"data": {"directory": folder_of_data}}), assigned)
    resolved, folder = open_comparison(comparison, RUNS, out=out, seeds=seeds, assigned=settings)
    searches = resolved.jobs(folder, only=only or ())
    states = Counter(search.state for search in searches)
    if dry_run:
        results().print(table_of(("search", "state"), [(search.name, search.state) for search in searches]))
        say(f"{_counted(states)}; folder {folder}", console=results())
        return
    if not quiet:
        say(f"{len(searches):,} searches, {states['finished']:,} of them finished; folder {folder}", console=messages())
    left = len(searches) - states["finished"]
    with stopping_cleanly("compare", folder) as stop, shown_progress(messages(), total=left, quiet=quiet) as listen:
        executor = ProcessExecutor(jobs or jobs_that_fit(resolved))
        result = run_comparison(resolved, folder, executor=executor, only=only or (), emit=listen, stop=stop)
    print_comparison(result, folder, results())
    if result.failures:
        raise typer.Exit(FAILED)


def _counted(states: Counter[Any]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in states.items())


# --- progress


@contextmanager
def shown_progress(console: Console, *, total: int, quiet: bool = False) -> Iterator[JobListener]:
    """A listener that shows what it hears in the way that suits the console."""
    if quiet or total == 0:
        yield lambda event: None
    elif not console.is_terminal:
        yield Log(console, total)
    else:
        bars = Bars(console, total)
        with Live(console=console, get_renderable=bars.drawn, transient=True, refresh_per_second=4):
            yield bars


class Log:
    """A line per search, or per so many of them; every failure is told."""

    def __init__(self, console: Console, total: int) -> None:
        self._console, self._total, self._done = console, total, 0

    def __call__(self, event: JobEvent) -> None:
        if not isinstance(event, JobEnded):
            return
        self._done += not event.retrying and not event.stopped
        due = self._done % -(-self._total // LINES_OF_A_LOG) == 0 or self._done == self._total
        if due or event.failure or event.stopped:
            say(f"{ended_line(event)} ({self._done:,} of {self._total:,})", console=self._console)


def ended_line(event: JobEnded) -> str:
    """Return how a search ended."""
    if event.failure is not None:
        return f"{event.job}: failed{', retrying' if event.retrying else ''}: {event.failure.message}"
    return f"{event.job}: {'stopped and saved' if event.stopped else 'finished'}"


class Bars:
    """A bar for all, and a line for each search that is running; another thread draws them."""

    def __init__(self, console: Console, total: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._console, self._total, self._done = console, total, 0
        self._clock, self._begun = clock, clock()
        self._running: dict[str, float] = {}

    def __call__(self, event: JobEvent) -> None:
        running = {name: share for name, share in self._running.items() if name != event.job}
        if isinstance(event, JobStarted | JobProgressed):
            running[event.job] = event.share if isinstance(event, JobProgressed) else 0.0
        else:
            self._done += not event.retrying and not event.stopped
            if event.failure is not None:
                say(ended_line(event), console=self._console)
        self._running = dict(sorted(running.items()))  # replaced, not changed: it may be drawn right now

    def drawn(self) -> RenderableType:
        seconds = round(self._clock() - self._begun)
        lines = Table.grid(padding=(0, 1, 0, 0))
        lines.add_row(
            f"{self._done:,} of {self._total:,}",
            ProgressBar(total=self._total, completed=self._done, width=30),
            f"{seconds // 60}:{seconds % 60:02d} elapsed",
        )
        for name, share in self._running.items():
            lines.add_row(Text(name), ProgressBar(total=1.0, completed=share, width=30), f"{100 * share:.0f} %")
        return Group(lines)


# --- the table


def print_comparison(result: ComparisonResult, folder: Path, console: Console) -> None:
    """The whole result. The table is as wide as it is: figures broken over lines cannot be read or copied."""
    from archloom.comparisons.report import FILES, explain_figures, list_verdicts

    table = result.to_table()
    say(result.title, console=console)
    say("", console=console)
    shown = table_of(table.columns, table.rows)
    unbounded = Console(file=console.file, width=WIDEST, markup=False, highlight=False, emoji=False)
    unbounded.width = unbounded.measure(shown).maximum
    unbounded.print(shown)
    for line in explain_figures(result):
        console.print(line, style="dim")
    if result.verdicts:
        say(f"\nVerdict against {result.against}:", console=console)
        console.print(facts_of(list_verdicts(result)))
    for name, failure in result.failures.items():
        say(f"failed: {name}: {failure}", console=console)
    if result.missing > len(result.failures):
        say(f"not finished: {result.missing - len(result.failures):,} searches", console=console)
    say(f"\n{', '.join(FILES)} in {folder}", console=console)
