"""`archloom check`: test whether a strategy computes what it should."""

from __future__ import annotations

from typing import Annotated

import typer

from archloom.cli.console import make_table, open_result_console, print_line
from archloom.cli.options import FAILED
from archloom.core.errors import SettingError
from archloom.core.lazy_imports import lazy_imports
from archloom.core.settings import Settings, parse_assignments
from archloom.searches.architectures import find_space
from archloom.spaces import SearchSpace
from archloom.strategies import STRATEGIES

with lazy_imports():  # help needs no torch
    import archloom.searches.gradient_check as gradient_check
    import archloom.searches.spec as search_spec
    import archloom.strategies.differentiable as differentiable
    import archloom.testing.plugin_report as plugin_report


app = typer.Typer(no_args_is_help=True)


@app.callback()
def check() -> None:
    """Check that a strategy computes the right gradient, or that a plug-in keeps all rules."""


@app.command()
def gradients(
    *,
    strategy: Annotated[
        list[str] | None,
        typer.Option(help="A strategy with logits (archloom list strategies); may be repeated. Default: all."),
    ] = None,
    space: Annotated[str, typer.Option(help="The space (archloom list spaces).")] = "nb201",
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="strategy.NAME=VALUE", help="A setting of the strategy, as often as needed."),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Samples to average over, for strategies that sample.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the small problem.")] = 0,
) -> None:
    """Compare a strategy's architecture gradient with the exact one, on a small smooth problem.

    The exact gradient is that of the validation loss at the best weights for the logits. It has a direct part, and a
    part through those weights. A flipped sign or a lost factor changes the cosine or the size.

        archloom check gradients --strategy darts --set strategy.order=second
    """
    given, problems = parse_assignments(assignments or [])
    problems += [f"--set takes settings of the strategy only, got '{name}'" for name in given if name != "strategy"]
    if problems:
        raise SettingError(problems)
    chosen = find_space(space)
    names = strategy or _differentiable_strategies()
    rows = [_to_row(_check(name, given.get("strategy", {}), chosen, samples, seed)) for name in names]
    console = open_result_console()
    console.print(make_table(("strategy", "cosine", "size", "cosine with the direct part", "verdict"), rows))
    print_line("", console=console)
    print_line("Cosine and size are relative to the exact gradient: both are 1 if it is exact.", console=console)


@app.command()
def plugin(
    name: Annotated[
        str, typer.Argument(metavar="MODULE:CLASS", help="A space, strategy, data set or table of your own.")
    ],
) -> None:
    """Run the contract tests on a plug-in, and say which rules it keeps; exit code 1 if it breaks one.

    archloom check plugin chain:Chain
    """
    report = plugin_report.check_plugin(name)
    console = open_result_console()
    rows = [("broken" if finding.problem else "kept", finding.rule) for finding in report.findings]
    console.print(make_table(("", f"rules for a {report.kind}"), rows))
    print_line("", console=console)
    for finding in report.broken:
        print_line(f"broken: {finding.problem}", console=console)
    print_line(f"{len(report.findings) - len(report.broken)} of {len(report.findings)} rules kept", console=console)
    if report.broken:
        raise typer.Exit(FAILED)


def _differentiable_strategies() -> list[str]:

    return [name for name, entry in STRATEGIES.items() if issubclass(entry.load(), differentiable.Differentiable)]


def _check(name: str, settings: Settings, space: SearchSpace, samples: int, seed: int) -> gradient_check.GradientCheck:

    spec = search_spec.SearchSpec.resolve({"strategy": {**settings, "name": name}, "data": {"name": "given"}})
    kind = type(spec.build_strategy(space))
    return gradient_check.check_gradient(
        name,
        lambda small, generator: kind(small, generator, **spec.strategy.settings),
        space,
        samples=samples,
        seed=seed,
    )


def _to_row(found: gradient_check.GradientCheck) -> tuple[str, ...]:
    return (
        found.strategy,
        f"{found.cosine:.4f}",
        f"{found.size:.4f}",
        f"{found.direct_cosine:.4f}",
        found.verdict,
    )
