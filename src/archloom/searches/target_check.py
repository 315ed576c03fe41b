"""A target at the end of a search: whether it is met, and going on with the architecture alone until it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from archloom.objectives.target import Target, suggest_beta
from archloom.spaces import Architecture

LOOK_EVERY = 10  # steps between two looks at whether the target is met
RAISES = 4  # how often at most beta is doubled while it is not


def pursue(
    target: Target,
    *,
    binding: float | None,
    steps: int,
    set_target: Callable[[Target], None],
    step: Callable[[float], object],
    derived: Callable[[], Architecture],
) -> dict[str, Any]:
    """Take steps at a beta that binds, and at twice that if it does not, until what is derived meets the target.

    A step hears which share of them lies behind it.
    """
    beta = min(target.beta, binding or target.beta)
    set_target(target.with_beta(beta))
    done = 0
    while done < steps and not (done % LOOK_EVERY == 0 and target.is_met_by(derived())):
        if done and done % max(1, steps // RAISES) == 0:
            beta *= 2
            set_target(target.with_beta(beta))
        step(done / steps)
        done += 1
    return {"steps": done, "most_steps": steps, "beta": beta, "met": target.is_met_by(derived())}


def aimed(
    target: Target,
    architecture: Architecture,
    sampled: Callable[[], list[tuple[float, float]]],
    pursued: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What is told of a target; `sampled` gives (quality, cost) of architectures, asked for only where it is missed."""
    met = target.is_met_by(architecture)
    told = target.told(architecture, binding=None if met else suggest_beta(sampled()))
    if pursued:
        end = "until it was met" if pursued["met"] else f"all of {pursued['most_steps']:,} allowed, and did not meet it"
        steps = "step" if pursued["steps"] == 1 else "steps"
        extra = f"; strict: {pursued['steps']:,} more {steps} of the architecture at beta {pursued['beta']:.3g}, {end}"
        told = {**told, "sentence": told["sentence"] + extra, "pursued": pursued}
    return told


def with_target(verdict: str, told: dict[str, Any] | None) -> str:
    """The verdict of a search, and how it did by its target."""
    return verdict if told is None else f"{verdict} {told['sentence'][0].upper()}{told['sentence'][1:]}.".strip()
