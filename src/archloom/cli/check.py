"""`archloom check`: whether what a strategy computes is what it should."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from archloom.cli.console import results, say, table_of
from archloom.core.errors import SettingError
from archloom.searches.architectures import find_space

if TYPE_CHECKING:
    from archloom.searches.gradient_check import GradientCheck

app = typer.Typer(no_args_is_help=True)


@app.callback()
def check() -> None:
    """Check that what a strategy computes is right."""


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
    samples: Annotated[int, typer.Option(min=1, help="Draws to average over, where a strategy draws.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Of the small problem.")] = 0,
) -> None:
    """Compare a strategy's architecture gradient with the exact one, on a small smooth problem.

    Exact is the gradient of the validation loss at the weights that are best for the logits: its direct part, and the
    part through those weights. A flipped sign or a lost factor shows as a cosine or a size that is off.

        archloom check gradients --strategy darts --set strategy.order=second
    """
    from archloom.core.settings import parse_assignments

    given, problems = parse_assignments(assignments or [])
    problems += [f"--set takes settings of the strategy only, got '{name}'" for name in given if name != "strategy"]
    if problems:
        raise SettingError(problems)
    chosen = find_space(space)
    names = strategy or _with_logits()
    rows = [_row(_checked(name, given.get("strategy", {}), chosen, samples, seed)) for name in names]
    console = results()
    console.print(table_of(("strategy", "cosine", "size", "cosine with the direct part", "what it is"), rows))
    say("", console=console)
    say("cosine and size are relative to the exact gradient: 1 and 1 is exact.", console=console)


def _with_logits() -> list[str]:
    from archloom.strategies import STRATEGIES
    from archloom.strategies.base import Differentiable

    return [name for name, entry in STRATEGIES.items() if issubclass(entry.load(), Differentiable)]


def _checked(name: str, settings: dict[str, Any], space: Any, samples: int, seed: int) -> GradientCheck:
    from archloom.searches.gradient_check import check_gradient
    from archloom.searches.spec import SearchSpec

    experiment = SearchSpec.resolve({"strategy": {**settings, "name": name}, "data": {"name": "given"}})
    kind = type(experiment.build_strategy(space))
    return check_gradient(
        name,
        lambda the_space, generator: kind(the_space, generator, **experiment.strategy.settings),
        space,
        samples=samples,
        seed=seed,
    )


def _row(found: GradientCheck) -> tuple[str, ...]:
    return (
        found.strategy,
        f"{found.cosine:.4f}",
        f"{found.size:.4f}",
        f"{found.direct_cosine:.4f}",
        found.verdict,
    )
