"""What draws from a posterior say, in words and rows: for the page and for the terminal.

A posterior is read here as `architecture.json` has it, where anything may be missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from archloom.reports.history import find, number
from archloom.reports.tables import Table, decimal, percent, whole

Posterior = Mapping[str, Any]

CREDIBLE = "95 %"  # what a credible set holds
FEWEST_EFFECTIVE = 50.0  # draws, of the logit that mixed worst; with fewer, probabilities are a rough indication
LARGEST_R_HAT = 1.1  # beyond it, parts of the chains tell different things
NOT_MIXED = "read these probabilities as a rough indication"


@dataclass(frozen=True)
class Belief:
    """What the draws say of one decision: how often each option was the best, and the options of the credible set."""

    decision: str
    best: Mapping[str, float]
    credible: tuple[str, ...]

    @property
    def option(self) -> str:
        """The option that was the best most often."""
        return max(self.best, key=lambda option: self.best[option])

    @property
    def probability(self) -> float:
        return self.best[self.option]

    @property
    def others(self) -> tuple[str, ...]:
        """The rest of the credible set, the most probable first."""
        return tuple(option for option in self.credible if option != self.option)


def beliefs(posterior: Posterior | None) -> list[Belief]:
    """The decisions that the draws say something of, in the order of the space."""
    decisions = find(posterior, "decisions")
    rows = decisions.items() if isinstance(decisions, Mapping) else ()
    found = [Belief(str(name), _numbers(find(row, "best")), _texts(find(row, "credible_set"))) for name, row in rows]
    return [belief for belief in found if belief.best]


def _numbers(values: object) -> dict[str, float]:
    known = {str(name): number(value) for name, value in values.items()} if isinstance(values, Mapping) else {}
    return {name: value for name, value in known.items() if not math.isnan(value)}


def _texts(values: object) -> tuple[str, ...]:
    return tuple(str(value) for value in values) if isinstance(values, list | tuple) else ()


def drawn(posterior: Posterior | None) -> bool:
    """Whether noise was part of the path; without it, shares of positions are no probabilities."""
    return find(posterior, "sampled") is not False


def mixed(posterior: Posterior | None) -> bool | None:
    """Whether the chains went round often enough for their shares to be trusted; None where it is not known."""
    effective, ratio = number(find(posterior, "mixing", "effective_draws")), number(find(posterior, "mixing", "r_hat"))
    if math.isnan(effective) or math.isnan(ratio):
        return None
    return effective >= FEWEST_EFFECTIVE and ratio <= LARGEST_R_HAT


# --- in words


def sentences(posterior: Posterior) -> list[str]:
    """How much there is to go by, what it settles, and how far to trust it."""
    said = [_amount(posterior), _settled(posterior)]
    if not drawn(posterior):
        return [*said, "The logits moved without noise: these are positions of a deterministic path and no "
                       "probabilities. They tell where it wandered, not how sure the result is."]  # fmt: skip
    return [*said, *_mixing(posterior)]


def _amount(posterior: Posterior) -> str:
    """`480 draws of the logits from 2 chains; the 480 before them are left out as burn-in.`"""
    unit, chains = "draw" if drawn(posterior) else "position", len(_texts(find(posterior, "runs")))
    counted = _counted(find(posterior, "draws"), unit)
    source = f" from {chains} chains" if chains > 1 else ""
    return f"{counted} of the logits{source}; the {whole(find(posterior, 'burn_in'))} before are left out as burn-in."


def _settled(posterior: Posterior) -> str:
    known = beliefs(posterior)
    single = sum(len(belief.credible) == 1 for belief in known)
    which = f"Decisions with a single option in their {CREDIBLE} credible set: {single} of {len(known)}."
    return f"{which} Different architectures among all draws: {whole(find(posterior, 'different_architectures'))}."


def _mixing(posterior: Posterior) -> list[str]:
    effective, ratio = find(posterior, "mixing", "effective_draws"), find(posterior, "mixing", "r_hat")
    if mixed(posterior) is None:
        return [_unknown_mixing()]
    parts = "the chains" if number(find(posterior, "mixing", "chains")) > 1 else "the two halves of the chain"
    median = find(posterior, "mixing", "effective_draws_median")
    told = (
        f"Neighbouring draws are alike: for the logit that mixed worst they are worth {_counted(effective, 'draw')} "
        f"independent of each other (effective draws; {whole(median)} for the median logit). R-hat, which is 1 where "
        f"{parts} agree, is {decimal(ratio)} at worst."
    )
    which = "chains have" if number(find(posterior, "mixing", "chains")) > 1 else "chain has"
    return [told] if mixed(posterior) else [told, f"The {which} not mixed: {NOT_MIXED}."]


def _unknown_mixing() -> str:
    from importlib.util import find_spec

    if find_spec("arviz_stats") is None:
        return "Install archloom[chains] to see effective sample size and R-hat: without them, " + NOT_MIXED + "."
    return (
        "How well the chain mixed was not measured: too few draws that differ, or no ArviZ when the search ended "
        f"(`archloom posterior RUN` measures it now). Until it is, {NOT_MIXED}."
    )


def _counted(count: object, unit: str) -> str:
    """`1 draw`, `1,200 draws`."""
    text = whole(count)
    return f"{text} {unit}" if text == "1" else f"{text} {unit}s"


# --- in rows


def belief_table(posterior: Posterior) -> Table:
    """A row per decision: its best option with its probability, and the rest of the credible set."""
    share = "probability" if drawn(posterior) else "share"
    rows = tuple(
        (belief.decision, belief.option, rounded(belief.probability), ", ".join(_with_share(belief, belief.others)))
        for belief in beliefs(posterior)
    )
    return Table("", rows, ("decision", "best option", share, f"others in the {CREDIBLE} set"))


def _with_share(belief: Belief, options: Sequence[str]) -> list[str]:
    return [f"{option} {rounded(belief.best.get(option))}" for option in options]


def rounded(share: object) -> str:
    """`62 %`; `<1 %` and `>99 %` for what is neither never nor always."""
    value = number(share)
    if 0 < value < 0.005:
        return "<1 %"
    if 0.995 <= value < 1:
        return ">99 %"
    return whole(100 * value, unit=" %")


def architecture_table(
    posterior: Posterior, *, derived: str | None = None, tested: Mapping[str, float] | None = None
) -> Table:
    """The most probable architectures; `tested` has what a table knows of some, by their text."""
    tested = tested or {}
    columns = ["frequency", "architecture"]
    columns += ["test accuracy in the table"] if tested else []
    rows = []
    for row in listed_architectures(posterior):
        text = str(find(row, "text"))
        own = f"{text} (the result)" if text == derived else text
        score = [decimal(tested.get(text), unit=" %")] if tested else []
        rows.append((percent(find(row, "frequency")), own, *score))
    return Table("", tuple(rows), tuple(columns))


def listed_architectures(posterior: Posterior | None) -> list[Mapping[str, Any]]:
    """Those told by name, the most frequent first."""
    found = find(posterior, "architectures")
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list | tuple) else []
