"""What a search prints at its end: the architecture, how good it is, its cost, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from archloom.cli.console import make_fact_table, print_line
from archloom.cli.posterior import summarize
from archloom.core.errors import (
    escape_controls,
)
from archloom.core.lazy_imports import (
    lazy_imports,
)
from archloom.searches.architectures import find_space
from archloom.spaces import SPACES, SearchSpace

with lazy_imports():  # help needs no torch
    import archloom.benchmarks as benchmarks
    import archloom.reports.cells as cells
    import archloom.reports.tables as tables
    import archloom.searches.report as search_report
    import archloom.searches.result as search_result


MOST_FINALISTS = 3  # printed in a terminal
MOST_CELLS = 4  # drawn in a terminal; spaces without sharing have twenty


def print_outcome(result: search_result.SearchResult, console: Console) -> None:
    """Print the result of a search, readable in 80 columns."""
    console.print(Rule(Text(escape_controls(result.title), style="bold"), align="left", characters="─"))
    print_line(result.text, console=console)  # whole and on a line of its own, to be copied
    console.print()
    for line in _drawings(result):
        print_line(line, console=console)
    console.print()
    console.print(make_fact_table(_facts(result)))
    console.print()
    console.print(result.verdict)
    if result.table_entry is None:
        console.print(table_hint(result.space, result.data))
    if result.early_stop is not None:
        console.print(result.early_stop.sentence)
    console.print()
    for line in _finalists(result):
        print_line(line, console=console)
    if result.posterior is not None:
        for line in summarize(result.posterior, result=result.text, run=shlex.quote(str(result.folder))):
            print_line(line, console=console)
        console.print()
    print_line(f"report: {result.report}", console=console)
    again = shlex.quote(str(result.folder / "config.toml"))
    print_line(f"repeat it with another seed: archloom search {again} --seed N", console=console)
    print_line(f"train a model of it: archloom retrain {shlex.quote(str(result.folder))}", console=console)


def _drawings(result: search_result.SearchResult) -> Iterator[str]:
    graphs = result.space.graphs(result.architecture)
    yield from (cells.draw_text(graph) for graph in graphs[:MOST_CELLS])
    if len(graphs) > MOST_CELLS:
        yield f"... and {len(graphs) - MOST_CELLS} more cells, all of them in the report"


def _finalists(result: search_result.SearchResult) -> Iterator[str]:
    """Yield the best of the finalist race."""
    if not result.finalists:
        return
    spent = tables.duration(result.finalists_seconds)
    if result.race is not None:
        yield result.race.trained_text
    yield f"Finalists, each trained briefly ({spent} in all), ranked by loss and size:"
    for finalist in result.finalists[:MOST_FINALISTS]:
        loss, size = tables.decimal(finalist.valid_loss, digits=3), tables.whole(finalist.parameters)
        yield f"  validation loss {loss} after {finalist.steps} steps, {size} parameters  {finalist.text}"
    if len(result.finalists) > MOST_FINALISTS:
        yield f"  ... and {len(result.finalists) - MOST_FINALISTS} more in the report"
    yield ""


def _facts(result: search_result.SearchResult) -> Iterator[tuple[str, str]]:
    if result.table_entry is not None:
        yield from search_report.table_facts(result.table_entry)
    yield from tables.cost_facts(result.cost, final_network=result.final_network)
    yield "Time", result.time_text
    yield "Peak memory", tables.whole(result.run.peak_memory_mb, unit=" MB")


def table_hint(space: SearchSpace, data: str) -> str:
    """Return why there is no rank and no regret, and how to get them."""
    for name, entry in benchmarks.BENCHMARKS.items():
        table = entry.load()
        known = table.dataset_for(data)
        if table.knows(space) and known is not None:
            where = "" if known == data else f" on {known}, not on your data"
            return (
                f"The {name} table has the test accuracy, rank and regret of this architecture{where}: to see them, "
                f"pass --data-dir with its folder (archloom benchmark convert makes it).{_instead(data)}"
            )
    return f"No benchmark table covers this space, so rank and regret are not known.{_instead(data)}"


def _instead(data: str) -> str:
    """Return the name of another space whose table is installed for these data."""
    known = [entry.load() for entry in benchmarks.BENCHMARKS.values()]
    ready = [table for table in known if data in table.datasets and table.find(None) is not None]
    names = [name for name in SPACES if any(table.knows(find_space(name)) for table in ready)]
    return f" --space {names[0]} has a table that is installed." if names else ""
