"""What a search says at its end: the architecture, how it fares, what it costs, and where to go from here."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from archloom.cli.console import facts_of, say
from archloom.cli.posterior import summary
from archloom.searches.architectures import find_space
from archloom.spaces import SPACES, SearchSpace

if TYPE_CHECKING:  # the command line shows results without importing what makes them
    from archloom.searches.run import SearchResult

MOST_FINALISTS = 3  # told in a terminal
MOST_CELLS = 4  # drawn in a terminal; spaces without sharing have twenty


def print_outcome(result: SearchResult, console: Console) -> None:
    """The whole end of a search, readable in 80 columns."""
    details = result.details
    heading = f"{details['strategy']} on {details['space']['name']}, {details['data']}, seed {details['seed']}"
    console.print(Rule(Text(heading, style="bold"), align="left", characters="─"))
    say(result.text, console=console)  # whole and on a line of its own, to be copied
    console.print()
    for line in _drawings(result):
        say(line, console=console)
    console.print()
    console.print(facts_of(_facts(result)))
    console.print()
    console.print(result.verdict)
    if result.standing is None:
        console.print(table_hint(result.space, str(details["data"])))
    if stopped := details.get("stopped"):
        from archloom.searches.report_health import stop_sentence

        console.print(stop_sentence(stopped))
    console.print()
    for line in _finalists(result):
        say(line, console=console)
    if result.posterior is not None:
        for line in summary(result.posterior, result=result.text):
            say(line, console=console)
        console.print()
    say(f"report: {result.directory / 'report.html'}", console=console)
    again = shlex.quote(str(result.directory / "config.toml"))
    say(f"the same with another seed: archloom search {again} --seed N", console=console)
    say(f"a trained model of it: archloom retrain {shlex.quote(str(result.directory))}", console=console)


def _drawings(result: SearchResult) -> Iterator[str]:
    from archloom.reports.cells import draw_text

    graphs = result.space.graphs(result.architecture)
    yield from (draw_text(graph) for graph in graphs[:MOST_CELLS])
    if len(graphs) > MOST_CELLS:
        yield f"... and {len(graphs) - MOST_CELLS} more cells, all of them in the report"


def _finalists(result: SearchResult) -> Iterator[str]:
    """Who was trained for a short while to decide, and how they did."""
    from archloom.reports.tables import decimal, duration, whole

    finalists = result.details.get("finalists") or []
    if not finalists:
        return
    spent = duration(result.details.get("finalists_seconds"))
    yield f"Finalists, each trained at full depth for a short while ({spent} in all), by loss and size:"
    for row in finalists[:MOST_FINALISTS]:
        loss = decimal(row["valid_loss"], digits=3)
        size = whole(row["parameters"])
        yield f"  validation loss {loss} after {row['steps']} steps, {size} parameters  {row['text']}"
    if len(finalists) > MOST_FINALISTS:
        yield f"  ... and {len(finalists) - MOST_FINALISTS} more in the report"
    yield ""


def _facts(result: SearchResult) -> Iterator[tuple[str, str]]:
    from archloom.reports.history import has_trials
    from archloom.reports.tables import cost_facts, duration, standing_facts, whole

    if result.standing is not None:
        yield from standing_facts(result.standing)
    yield from cost_facts(result.details["cost"])
    run = result.details["run"]
    unit = ("trial" if has_trials(result.history) else "epoch") + ("" if run["records"] == 1 else "s")
    yield "Time", f"{duration(run['seconds'])} for {run['records']:,} {unit} on {run['device']}"
    yield "Peak memory", whole(run["peak_memory_mb"], unit=" MB")


def table_hint(space: SearchSpace, data: str) -> str:
    """Why there is no rank and no regret, and how to see one."""
    from archloom.benchmarks import BENCHMARKS

    for name, entry in BENCHMARKS.items():
        table = entry.load()
        if table.knows(space) and table.stands_for(data) is not None:
            return (
                f"The {name} table knows the test accuracy, rank and regret of this architecture: to see them, pass "
                f"--data-dir with the folder that holds it (archloom benchmark convert makes it).{_instead(data)}"
            )
    return f"No table of known scores covers this space, so that rank and regret are not known.{_instead(data)}"


def _instead(data: str) -> str:
    """Another space whose table is at hand for these data."""
    from archloom.benchmarks import BENCHMARKS

    tables = [entry.load() for entry in BENCHMARKS.values()]
    ready = [table for table in tables if data in table.datasets and table.find(None) is not None]
    names = [name for name in SPACES if any(table.knows(find_space(name)) for table in ready)]
    return f" --space {names[0]} has a table that is there already." if names else ""
