"""`archloom posterior`: what the draws of a run say, or those of several parallel chains."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from archloom.cli.console import messages, results, say, table_of

MOST_DECISIONS = 8  # told at the end of a search; the report and the command have all
COLUMNS = 80
LONGEST_TEXT = 2 * COLUMNS  # of an architecture in a summary


def posterior(
    runs: Annotated[list[Path], typer.Argument(help="The folders of runs: one chain, or several parallel ones.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for another program.")] = False,
) -> None:
    """How sure a search is that draws from a posterior (--strategy gibbs): each option's probability of being the best.

    A credible set holds the fewest options that are the best in 95 % of the draws: a single one is a clear choice.

    Runs that differ in their seed only are parallel chains: their draws are taken together, and R-hat compares them.

        archloom search --strategy gibbs --seed 0 --out runs/a

        archloom search --strategy gibbs --seed 1 --out runs/b

        archloom posterior runs/a runs/b
    """
    from archloom.searches.posterior import posterior

    found = posterior(runs, warn=lambda message: say(f"warning: {message}", console=messages()))
    if as_json:
        typer.echo(json.dumps(found, allow_nan=False, indent=2))
    else:
        print_posterior(found, results())


def print_posterior(found: Mapping[str, Any], console: Console) -> None:
    """All of it, readable in 80 columns."""
    from archloom.searches.report_posterior import belief_table, listed_architectures, rounded, sentences

    table = belief_table(found)
    console.print(table_of(table.columns, table.rows))
    console.print()
    architectures = listed_architectures(found)
    say("the most frequent architectures:", console=console)
    for row in architectures:  # each whole and at the end of its line, to be copied
        say(f"{rounded(row['frequency']):>5}  {row['text']}", console=console)
    console.print()
    for sentence in sentences(found):
        console.print(sentence)


def summary(found: Mapping[str, Any], *, result: str) -> Iterator[str]:
    """The same in a few lines, for the end of a search; `result` is the text of the architecture it returned."""
    from archloom.searches.report_posterior import beliefs, drawn, listed_architectures, rounded

    amount = f"{found['draws']:,} {'draws' if drawn(found) else 'positions'}"
    yield f"Posterior ({amount}{_trust(found)}):"
    known = beliefs(found)
    shown = known[:MOST_DECISIONS]
    name_width = max((len(belief.decision) for belief in shown), default=0)
    option_width = max((len(belief.option) for belief in shown), default=0)
    for belief in shown:
        line = f"  {belief.decision:<{name_width}}  {belief.option:<{option_width}}  {rounded(belief.probability):>5}"
        yield line + _also(belief.others, COLUMNS - len(line))
    if len(known) > len(shown):
        yield f"  ... and {len(known) - len(shown)} more in the report"
    for row in listed_architectures(found)[:1]:
        whole = row["text"] if len(row["text"]) <= LONGEST_TEXT else "another one, in the report"
        text = "the result" if row["text"] == result else whole
        yield f"most probable architecture: {text} ({rounded(row['frequency'])} of {amount})"


def _trust(found: Mapping[str, Any]) -> str:
    """How far the shares are probabilities, where there is something to say."""
    from archloom.searches.report_posterior import drawn, mixed

    if not drawn(found):
        return " of a path without noise: no probabilities"
    known = {True: "", False: "; not mixed: a rough indication", None: "; not known how well they mixed"}
    return known[mixed(found)]


def _also(options: Sequence[str], width: int) -> str:
    """The rest of a credible set, as far as it fits into a line."""
    if not options:
        return ""
    for count in range(len(options), 0, -1):
        rest = f" and {len(options) - count} more" if count < len(options) else ""
        text = f"  or {', '.join(options[:count])}{rest}"
        if len(text) <= width:
            return text
    return f"  or {len(options)} more"
