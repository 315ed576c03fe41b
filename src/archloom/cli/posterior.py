"""`archloom posterior`: option probabilities from the draws of a run, or of several parallel chains."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from archloom.cli.console import make_table, open_result_console, print_line, print_warning
from archloom.core.lazy_imports import lazy_imports

with lazy_imports():  # help needs no torch
    import archloom.policies.posterior as posteriors
    import archloom.searches.posterior as search_posterior
    import archloom.searches.report_posterior as report_posterior


MOST_DECISIONS = 8  # printed at the end of a search; the report and the command have all
COLUMNS = 80
LONGEST_TEXT = 2 * COLUMNS  # of an architecture in a summary


def posterior(
    runs: Annotated[list[Path], typer.Argument(help="The folders of runs: one chain, or several parallel ones.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for another program.")] = False,
) -> None:
    """Print each option's probability to be the best, for searches that draw from a posterior (--strategy gibbs).

    A credible set is the smallest set of options that is the best in 95 % of the draws: a single one is a clear choice.

    Runs that differ only in their seed are parallel chains: their draws are pooled, and R-hat compares them.

        archloom search --strategy gibbs --seed 0 --out runs/a

        archloom search --strategy gibbs --seed 1 --out runs/b

        archloom posterior runs/a runs/b
    """
    found = search_posterior.posterior(runs, warn=print_warning)
    if as_json:
        typer.echo(json.dumps(found.to_json(), allow_nan=False, indent=2))
    else:
        print_posterior(found, open_result_console())


def print_posterior(found: posteriors.Posterior, console: Console) -> None:
    """Print all of it, readable in 80 columns."""
    table = report_posterior.decision_table(found)
    console.print(make_table(table.columns, table.rows))
    console.print()
    print_line("the most frequent architectures:", console=console)
    for row in found.architectures:  # each whole and at the end of its line, to be copied
        print_line(f"{report_posterior.round_share(row.frequency):>5}  {row.text}", console=console)
    console.print()
    for sentence in report_posterior.describe_posterior(found):
        console.print(sentence)


def summarize(found: posteriors.Posterior, *, result: str) -> Iterator[str]:
    """Yield a few lines for the end of a search; `result` is the text of the architecture it returned."""
    amount = f"{found.draws:,} {'draw' if found.sampled else 'position'}{'' if found.draws == 1 else 's'}"
    yield f"Posterior ({amount}{_trust(found)}):"
    shown = list(found.decisions.items())[:MOST_DECISIONS]
    name_width = max((len(name) for name, _ in shown), default=0)
    option_width = max((len(decision.option) for _, decision in shown), default=0)
    for name, decision in shown:
        share = report_posterior.round_share(decision.probability)
        line = f"  {name:<{name_width}}  {decision.option:<{option_width}}  {share:>5}"
        yield line + _also(decision.alternatives, COLUMNS - len(line))
    if len(found.decisions) > len(shown):
        yield f"  ... and {len(found.decisions) - len(shown)} more in the report"
    for row in found.architectures[:1]:
        whole = row.text if len(row.text) <= LONGEST_TEXT else "another one, in the report"
        text = "the result" if row.text == result else whole
        yield f"most probable architecture: {text} ({report_posterior.round_share(row.frequency)} of {amount})"


def _trust(found: posteriors.Posterior) -> str:
    """Return a caveat where shares are no reliable probabilities."""
    if not found.sampled:
        return " of a path without noise: no probabilities"
    return {True: "", False: "; not mixed: a rough indication", None: "; mixing not measured"}[
        report_posterior.has_mixed(found)
    ]


def _also(options: Sequence[str], width: int) -> str:
    """Return the rest of a credible set, as far as it fits into a line."""
    if not options:
        return ""
    for count in range(len(options), 0, -1):
        rest = f" and {len(options) - count} more" if count < len(options) else ""
        text = f"  or {', '.join(options[:count])}{rest}"
        if len(text) <= width:
            return text
    return f"  or {len(options)} more"
