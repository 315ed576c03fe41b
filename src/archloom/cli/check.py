"""`archloom check`: test whether a strategy computes what it should."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from archloom.cli.console import make_table, open_result_console, print_line
from archloom.core.errors import SettingError
from archloom.searches.architectures import find_space

if TYPE_CHECKING:
    from archloom.core.settings import Settings
    from archloom.searches.gradient_check import GradientCheck
    from archloom.spaces import SearchSpace

app = typer.Typer(no_args_is_help=True)


@app.callback()
def check() -> None:
    """Check that a strategy computes the right gradient."""


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
    from archloom.core.settings import parse_assignments

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


def _differentiable_strategies() -> list[str]:
    from archloom.strategies import STRATEGIES
    from archloom.strategies.base import Differentiable

    return [name for name, entry in STRATEGIES.items() if issubclass(entry.load(), Differentiable)]


def _check(name: str, settings: Settings, space: SearchSpace, samples: int, seed: int) -> GradientCheck:
    from archloom.searches.gradient_check import check_gradient
    from archloom.searches.spec import SearchSpec

    spec = SearchSpec.resolve({"strategy": {**settings, "name": name}, "data": {"name": "given"}})
    kind = type(spec.build_strategy(space))
    return check_gradient(
        name,
        lambda small, generator: kind(small, generator, **spec.strategy.settings),
        space,
        samples=samples,
        seed=seed,
    )


def _to_row(found: GradientCheck) -> tuple[str, ...]:
    return (
        found.strategy,
        f"{found.cosine:.4f}",
        f"{found.size:.4f}",
        f"{found.direct_cosine:.4f}",
        found.verdict,
    )
