"""What draws from a posterior say, in sentences and tables: for the page and for the terminal."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from archloom.core.json_object import number
from archloom.reports.tables import Table, decimal, percent, whole

if TYPE_CHECKING:  # reports need no torch
    from archloom.policies.posterior import DecisionPosterior, Mixing, Posterior

CREDIBLE = "95 %"  # what a credible set holds
FEWEST_EFFECTIVE = 50.0  # draws, of the logit that mixed worst; with fewer, probabilities are a rough indication
LARGEST_R_HAT = 1.05  # above it, parts of the chains disagree
NO_SHARES = "their shares are no probabilities and are left out"


def has_mixed(posterior: Posterior) -> bool | None:
    """Return whether the chains converged, so that their shares are probabilities; None where that was not measured."""
    mixing = posterior.mixing
    return None if mixing is None else mixing.effective_draws >= FEWEST_EFFECTIVE and mixing.r_hat <= LARGEST_R_HAT


def not_converged(posterior: Posterior) -> str:
    """Return `not converged (R-hat 1.54, 12 effective draws)`."""
    mixing = posterior.mixing
    if mixing is None:
        return "not converged, as far as is known (R-hat was not measured)"
    return f"not converged (R-hat {decimal(mixing.r_hat)}, {_count_text(mixing.effective_draws, 'effective draw')})"


def share_text(posterior: Posterior, share: float) -> str:
    """Return a share as a percentage; nothing where chains did not converge, and shares are no probabilities."""
    return round_share(share) if not posterior.sampled or has_mixed(posterior) else ""


# --- sentences


def describe_posterior(posterior: Posterior) -> list[str]:
    """Return sentences: how many draws there are, what they settle, and how far to trust them."""
    sentences = [_amount_sentence(posterior), _settled_sentence(posterior), *excluded_sentences(posterior)]
    if not posterior.sampled:
        return [*sentences, "The logits moved without noise: these are positions of a deterministic path, not "
                            "probabilities. They show where the path went, not how certain the result is."]  # fmt: skip
    return [*sentences, *_mixing_sentences(posterior)]


def _amount_sentence(posterior: Posterior) -> str:
    """Return `480 draws of the logits from 2 chains; the first 480 are left out as burn-in.`"""
    count = _count_text(posterior.draws, "draw" if posterior.sampled else "position")
    given = " given the shared weights, which are frozen" if posterior.given_weights else ""
    source = f" from {len(posterior.runs)} chains" if len(posterior.runs) > 1 else ""
    return f"{count} of the logits{source}{given}; the {whole(posterior.burn_in)} before are left out as burn-in."


def _settled_sentence(posterior: Posterior) -> str:
    single = sum(len(decision.credible_set) == 1 for decision in posterior.decisions.values())
    return (
        f"Decisions with a single option in their {CREDIBLE} credible set: {single} of {len(posterior.decisions)}. "
        f"Different architectures among all draws: {whole(posterior.different_architectures)}."
    )


def excluded_sentences(posterior: Posterior) -> list[str]:
    """Return a sentence on options that cannot win; none where every option can."""
    names = " and ".join(posterior.excluded)
    return [f"Shares leave out {names}, which cannot win here (strategy.keep_none)."] if names else []


def _mixing_sentences(posterior: Posterior) -> list[str]:
    mixing = posterior.mixing
    if mixing is None:
        return [_unknown_mixing()]
    parts, which = ("the chains", "chains have") if mixing.chains > 1 else ("the two halves of the chain", "chain has")
    sentence = _effective_sentence(mixing, parts)
    return [sentence] if has_mixed(posterior) else [sentence, f"The {which} not converged: {NO_SHARES}."]


def _effective_sentence(mixing: Mixing, parts: str) -> str:
    return (
        f"Successive draws are correlated: for the logit that mixed worst they count as "
        f"{_count_text(mixing.effective_draws, 'independent draw')} (effective draws; "
        f"{whole(mixing.effective_draws_median)} for the median logit). R-hat, which is 1 where {parts} agree, is "
        f"{decimal(mixing.r_hat)} at worst."
    )


def _unknown_mixing() -> str:
    if importlib.util.find_spec("arviz_stats") is None:
        return f"Install archloom[chains] to measure effective sample size and R-hat. Without them, {NO_SHARES}."
    return (
        "How well the chain mixed was not measured: too few draws that differ, or no ArviZ when the search ended "
        f"(archloom posterior RUN measures it now). Until it is, {NO_SHARES}."
    )


def _count_text(count: float, unit: str) -> str:
    """Return `1 draw`, `1,200 draws`."""
    text = whole(count)
    return f"{text} {unit}" if text == "1" else f"{text} {unit}s"


# --- tables


def decision_table(posterior: Posterior) -> Table:
    """Return a row per decision: its best option with its probability, and the rest of the credible set."""
    if posterior.sampled and not has_mixed(posterior):
        leading = tuple((name, one.option, ", ".join(one.alternatives)) for name, one in posterior.decisions.items())
        return Table("", leading, ("decision", "leading option", "others that led in some draws"))
    share = "probability" if posterior.sampled else "share"
    rows = tuple(
        (name, decision.option, round_share(decision.probability), ", ".join(_with_shares(decision)))
        for name, decision in posterior.decisions.items()
    )
    return Table("", rows, ("decision", "best option", share, f"others in the {CREDIBLE} set"))


def _with_shares(decision: DecisionPosterior) -> Sequence[str]:
    return [f"{option} {round_share(decision.best[option])}" for option in decision.alternatives]


def round_share(share: float) -> str:
    """Return `62 %`; `<1 %` and `>99 %` for what is neither never nor always."""
    if 0 < share < 0.005:
        return "<1 %"
    return ">99 %" if 0.995 <= share < 1 else whole(100 * number(share), unit=" %")


def architecture_table(
    posterior: Posterior, *, derived: str | None = None, tested: Mapping[str, float] | None = None
) -> Table:
    """Return the most probable architectures; `tested` has test accuracies of a table, by text form."""
    tested = tested or {}
    is_known = not posterior.sampled or has_mixed(posterior)
    columns = (
        *(["frequency"] if is_known else []),
        "architecture",
        *(["test accuracy in the table"] if tested else []),
    )
    rows = []
    for row in posterior.architectures:
        own = f"{row.text} (the result)" if row.text == derived else row.text
        score = [decimal(tested.get(row.text), unit=" %")] if tested else []
        rows.append((*([percent(row.frequency)] if is_known else []), own, *score))
    return Table("", tuple(rows), columns)
