"""`archloom posterior`: option probabilities from the draws of a run, or of several parallel chains."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from archloom.cli.console import make_table, open_message_console, open_result_console, print_line, print_warning
from archloom.cli.interactive import stop_on_signals
from archloom.core.errors import SettingError
from archloom.core.lazy_imports import lazy_imports

with lazy_imports():  # help needs no torch
    import archloom.policies.posterior as posteriors
    import archloom.searches.posterior as search_posterior
    import archloom.searches.posterior_phase as posterior_phase
    import archloom.searches.report_posterior as report_posterior


MOST_DECISIONS = 8  # printed at the end of a search; the report and the command have all
COLUMNS = 80
LONGEST_TEXT = 2 * COLUMNS  # of an architecture in a summary


def posterior(
    runs: Annotated[list[Path], typer.Argument(help="The folders of runs: one chain, or several parallel ones.")],
    *,
    sample: Annotated[
        bool,
        typer.Option("--sample", help="Draw from parallel chains under the run's frozen weights, until they agree."),
    ] = False,
    chains: Annotated[int, typer.Option(help="Parallel chains, with --sample.")] = 4,
    draws: Annotated[int, typer.Option(help="Draws of each chain at most, with --sample.")] = 200,
    budget: Annotated[
        str | None, typer.Option(help="Time after which the draws so far are the result, such as 10m; with --sample.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for another program.")] = False,
) -> None:
    """Print each option's probability to be the best, for searches that draw from a posterior (--strategy gibbs).

    A credible set is the smallest set of options that is the best in 95 % of the draws: a single one is a clear choice.

    Runs that differ only in their seed are parallel chains: their draws are pooled, and R-hat compares them.

        archloom search --strategy gibbs --seed 0 --out runs/a

        archloom search --strategy gibbs --seed 1 --out runs/b

        archloom posterior runs/a runs/b

    A single chain of a search has rarely mixed. --sample runs parallel chains until R-hat is below 1.05:

        archloom posterior runs/a --sample --budget 10m
    """
    if sample and len(runs) != 1:
        raise SettingError(f"--sample takes one run, got {len(runs)}; name one of them")
    if sample:
        found = _sample(runs[0], chains=chains, draws=draws, budget=budget)
    else:
        found = search_posterior.posterior(runs, warn=print_warning)
    if as_json:
        typer.echo(json.dumps(found.to_json(), allow_nan=False, indent=2))
    else:
        print_posterior(found, open_result_console())


def _sample(run: Path, *, chains: int, draws: int, budget: str | None) -> posteriors.Posterior:
    """Run the posterior phase, with a progress bar; Ctrl-C ends it with the draws so far."""
    console = open_message_console()
    settings = posterior_phase.PosteriorPhaseSettings(chains=chains, draws=draws)
    with stop_on_signals() as stop, Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("opening the run", total=draws)

        def show(done: int, r_hat: float | None) -> None:
            agreement = "" if r_hat is None else f", R-hat {r_hat:.2f}"
            bar.update(task, description=f"drawing from {chains} chains{agreement}", completed=done)

        return search_posterior.sample_posterior(
            run, phase=settings, budget=budget, progress=show, stop=stop, warn=print_warning
        )


def print_posterior(found: posteriors.Posterior, console: Console) -> None:
    """Print all of it, readable in 80 columns."""
    table = report_posterior.decision_table(found)
    console.print(make_table(table.columns, table.rows))
    console.print()
    print_line("the most frequent architectures:", console=console)
    for row in found.architectures:  # each whole and at the end of its line, to be copied
        print_line(f"{report_posterior.share_text(found, row.frequency):>5}  {row.text}", console=console)
    console.print()
    for sentence in report_posterior.describe_posterior(found):
        console.print(sentence)


def summarize(found: posteriors.Posterior, *, result: str, run: str = "RUN") -> Iterator[str]:
    """Yield a few lines for the end of a search; `result` is the text of the architecture it returned."""
    amount = f"{found.draws:,} {'draw' if found.sampled else 'position'}{'' if found.draws == 1 else 's'}"
    if found.sampled and not report_posterior.has_mixed(found):
        yield f"Posterior: {report_posterior.not_converged(found)}."
        yield f"for probabilities of options: archloom posterior {run} --sample"
        return
    yield f"Posterior ({amount}{'' if found.sampled else ' of a path without noise: no probabilities'}):"
    shown = list(found.decisions.items())[:MOST_DECISIONS]
    name_width = max((len(name) for name, _ in shown), default=0)
    option_width = max((len(decision.option) for _, decision in shown), default=0)
    for name, decision in shown:
        share = report_posterior.round_share(decision.probability)
        line = f"  {name:<{name_width}}  {decision.option:<{option_width}}  {share:>5}"
        yield line + _also(decision.alternatives, COLUMNS - len(line))
    yield from report_posterior.excluded_sentences(found)
    if len(found.decisions) > len(shown):
        yield f"  ... and {len(found.decisions) - len(shown)} more in the report"
    for row in found.architectures[:1]:
        whole = row.text if len(row.text) <= LONGEST_TEXT else "another one, in the report"
        text = "the result" if row.text == result else whole
        yield f"most probable architecture: {text} ({report_posterior.round_share(row.frequency)} of {amount})"


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
