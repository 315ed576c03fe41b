"""The target at the end of a search: whether it is met, and extra steps with frozen weights until it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from archloom.objectives.target import Target, suggest_beta
from archloom.searches.records import StrictSteps, TargetResult
from archloom.spaces import Architecture

CHECK_EVERY = 10  # steps between two checks whether the target is met
RAISES = 4  # how often at most beta is doubled while it is not


def enforce_target(
    target: Target,
    *,
    suggested_beta: float | None,
    steps: int,
    set_target: Callable[[Target], None],
    step: Callable[[float], object],
    derive: Callable[[], Architecture],
) -> StrictSteps:
    """Take steps until the derived architecture meets the target; start at the suggested beta and double it.

    `step` receives the share of the steps that is done.
    """
    beta = min(target.beta, suggested_beta or target.beta)
    set_target(target.with_beta(beta))
    done = 0
    while done < steps and not (done % CHECK_EVERY == 0 and target.is_met_by(derive())):
        if done and done % max(1, steps // RAISES) == 0:
            beta *= 2
            set_target(target.with_beta(beta))
        step(done / steps)
        done += 1
    return StrictSteps(done, steps, beta, target.is_met_by(derive()))


def check_target(
    target: Target,
    architecture: Architecture,
    sample: Callable[[], Sequence[tuple[float, float]]],
    strict: StrictSteps | None = None,
) -> TargetResult:
    """Return how an architecture does by the target.

    `sample` gives (quality, cost) of architectures; it is called only if the target is missed.
    """
    met = target.is_met_by(architecture)
    suggested = None if met else suggest_beta(sample())
    return TargetResult(
        value=target.value,
        unit=target.source.unit,
        source=target.source.provenance,
        cost=target.cost(architecture),
        miss=target.miss(architecture),
        met=met,
        reward=target.reward,
        beta=target.beta,
        binding_beta=suggested,
        sentence=_sentence(target, architecture, suggested) + _strict_sentence(strict),
        strict=strict,
    )


def _sentence(target: Target, architecture: Architecture, suggested: float | None) -> str:
    """Return `target missed: 60.2 ms for a target of 54.0 ms (+11.5 %, tolerance 2 %); beta = -0.1 is too weak, ...`"""
    unit, miss, met = target.source.unit, target.miss(architecture), target.is_met_by(architecture)
    cost, value = format_cost(target.cost(architecture), unit), format_cost(target.value, unit)
    tolerance = "" if met else f", tolerance {100 * target.tolerance:g} %"
    caveat = f", {target.source.caveat}" if target.source.caveat else ""
    advice = "" if met else _advice(target, miss, suggested)
    percent = round(100 * miss, 1) + 0.0  # no "-0.0 %" for a miss by rounding
    figures = f"{cost} for a target of {value} ({percent:+.1f} %{tolerance})"
    return f"target {'met' if met else 'missed'}: {figures}{caveat}{advice}"


def _advice(target: Target, miss: float, suggested: float | None) -> str:
    if target.reward == "soft" or (target.reward == "hard" and miss < 0):
        return f"; the {target.reward} reward does not enforce a target, use target.reward='absolute'"
    if suggested is None:
        return ""
    if suggested < target.beta:
        return f"; beta = {target.beta:.3g} is too weak, sampled architectures suggest about {suggested:.3g}"
    return (
        f"; beta = {target.beta:.3g} should suffice (sampled architectures suggest about {suggested:.3g}), so search "
        "for longer"
    )


def _strict_sentence(strict: StrictSteps | None) -> str:
    if strict is None:
        return ""
    steps = f"{strict.steps:,} extra {'step' if strict.steps == 1 else 'steps'} of the architecture parameters"
    end = "met it" if strict.met else f"did not meet it (at most {strict.most_steps:,})"
    return f"; strict: {steps}, up to beta = {strict.beta:.3g}, {end}"


def format_cost(cost: float, unit: str) -> str:
    """Return `54.0 ms`, `1.25M multiply-adds`, `60,000 parameters`."""
    if unit == "ms":
        return f"{cost:.{1 if cost >= 10 else 3}f} ms"
    return f"{cost / 1e6:.2f}M {unit}" if cost >= 1e6 else f"{cost:,.0f} {unit}"


def target_sentence(checked: TargetResult | None) -> str:
    """Return the sentence of a verdict on the target."""
    return "" if checked is None else f"{checked.sentence[0].upper()}{checked.sentence[1:]}."
