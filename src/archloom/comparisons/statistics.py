"""Are results over some seeds better than others? Difference, interval, test and effect size, and a sentence.

Seeds are independent samples, not pairs. The test decides: results are exchanged between the two sides in every way, or
in many ways drawn by chance (permutation test), and p is corrected for how many comparisons are made (Holm, 1979). The
interval comes from resampling (bootstrap, BCa) and says how large the difference may be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from archloom.core import bootstrap
from archloom.core.bootstrap import CONFIDENCE

RESAMPLES = 9999
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Pair:
    """Results of one entry, higher is better, and those that it is judged against."""

    own: Sequence[float]
    other: Sequence[float]
    note: str = ""  # how cost was matched, and what did not count


@dataclass(frozen=True)
class Verdict:
    """What can be said of one entry; figures are None where there are too few results to say anything."""

    sentence: str
    difference: float | None = None  # of the means, above 0 is better
    low: float | None = None  # the confidence interval of the difference
    high: float | None = None
    p: float | None = None  # of this comparison alone
    corrected: float | None = None  # for all comparisons that are made
    superiority: float | None = None  # how often one result beats one of the others; ties count half


def judge(pairs: Mapping[str, Pair], *, against: str, unit: str = "points") -> dict[str, Verdict]:
    """A verdict for every entry, p corrected for all of them."""
    tested = {name: permutation_p(pair.own, pair.other) for name, pair in pairs.items() if is_testable(pair)}
    corrected = dict(zip(tested, holm(list(tested.values())), strict=True))
    verdicts = {}
    for name, pair in pairs.items():
        if name not in tested:
            verdicts[name] = _untested(pair, against=against, unit=unit)
            continue
        low, high = (float(bound) for bound in interval(pair.own, pair.other))
        verdict = Verdict(
            sentence="",
            difference=difference(pair),
            low=low,
            high=high,
            p=tested[name],
            corrected=corrected[name],
            superiority=superiority(pair.own, pair.other),
        )
        hopeless = _hopeless({**tested, name: smallest_p(len(pair.own), len(pair.other))}, name)
        verdicts[name] = _with_sentence(verdict, pair, against, unit, comparisons=len(tested), hopeless=hopeless)
    return verdicts


# --- statistics


def is_testable(pair: Pair) -> bool:
    """Whether there are several results on both sides, and they vary on one of them at least."""
    several = len(pair.own) > 1 and len(pair.other) > 1
    return several and (len(set(pair.own)) > 1 or len(set(pair.other)) > 1)


def difference(pair: Pair) -> float | None:
    return float(np.mean(pair.own) - np.mean(pair.other)) if pair.own and pair.other else None


def interval(own: ArrayLike, other: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> NDArray[np.float64]:
    """Lower and upper bound of the difference of means; samples lie along the last axis."""
    return bootstrap.interval(
        (own, other), _difference_of_means, resamples=resamples, seed=seed, vectorized=True, axis=-1
    )


def permutation_p(own: Sequence[float], other: Sequence[float], *, resamples: int = RESAMPLES, seed: int = 0) -> float:
    """Two-sided p of the difference of means; exact where there are no more ways to exchange seeds than resamples."""
    from scipy import stats  # late, as in `bootstrap`

    found = stats.permutation_test(
        (np.asarray(own), np.asarray(other)),
        _difference_of_means,
        permutation_type="independent",
        vectorized=True,
        n_resamples=resamples,
        batch=max(1, 2_000_000 // (len(own) + len(other))),
        axis=-1,
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def _difference_of_means(own: Any, other: Any, axis: int = -1) -> Any:
    return np.mean(own, axis=axis) - np.mean(other, axis=axis)


def smallest_p(own: int, other: int, *, resamples: int = RESAMPLES) -> float:
    """The smallest p that so many seeds can give, whatever their results."""
    ways = math.comb(own + other, own)
    return min(1.0, 2 / (ways if ways <= resamples else resamples + 1))


def holm(values: Sequence[float]) -> list[float]:
    """Each p corrected for all of them: the smallest times their number, the next times one less, never falling."""
    corrected, least = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        least = max(least, min(1.0, (len(values) - rank) * values[place]))
        corrected[place] = least
    return corrected


def superiority(own: Sequence[float], other: Sequence[float]) -> float:
    """How probably one result is above one of the others, ties counted half: 0.5 is no difference."""
    ours, theirs = np.asarray(own)[:, None], np.asarray(other)[None, :]
    return float(np.mean((ours > theirs) + 0.5 * (ours == theirs)))


def _hopeless(values: Mapping[str, float], name: str) -> bool:
    """Whether even the smallest p possible, given those of the others, would not have been significant."""
    return dict(zip(values, holm(list(values.values())), strict=True))[name] >= SIGNIFICANT


# --- words


def _with_sentence(
    verdict: Verdict, pair: Pair, against: str, unit: str, *, comparisons: int, hopeless: bool
) -> Verdict:
    assert verdict.difference is not None and verdict.corrected is not None
    assert verdict.low is not None and verdict.high is not None
    bounds = (verdict.low, verdict.high)
    if verdict.corrected >= SIGNIFICANT:
        beginning = f"no difference shown from {against}: {verdict.difference:+.2f} {unit}"
    elif verdict.difference > 0:
        beginning = f"better than {against} by {verdict.difference:.2f} {unit}"
    else:
        beginning, bounds = f"worse than {against} by {-verdict.difference:.2f} {unit}", (-bounds[1], -bounds[0])
    share = f"{100 * CONFIDENCE:.0f} % CI {bounds[0]:.2f} to {bounds[1]:.2f}"
    many = f" (corrected for {comparisons} comparisons)" if comparisons > 1 else ""
    parts = [f"{beginning}, {share}, {_p_text(verdict.corrected)}{many}, {_seeds(pair)}"]
    if hopeless:
        least = smallest_p(len(pair.own), len(pair.other))
        parts.append(f"so few seeds cannot show a difference: the smallest possible p is {least:.2g} before correction")
    return _told(verdict, parts, pair)


def _untested(pair: Pair, *, against: str, unit: str) -> Verdict:
    """What can be said without a test, and why there is none."""
    found = difference(pair)
    if found is None:
        missing = "no result of its own" if not pair.own else f"no result of {against}"
        return _told(Verdict(""), [f"not compared with {against}: there is {missing}"], pair)
    if min(len(pair.own), len(pair.other)) < 2:
        reason = "one seed cannot tell a difference from chance"
    else:
        reason = "no spread on either side, so that there is nothing to test"
    verdict = Verdict("", difference=found, superiority=superiority(pair.own, pair.other))
    return _told(verdict, [f"not tested against {against}: {found:+.2f} {unit}, {_seeds(pair)}; {reason}"], pair)


def _told(verdict: Verdict, parts: Sequence[str], pair: Pair) -> Verdict:
    sentence = "; ".join([*parts, *([pair.note] if pair.note else [])])
    return Verdict(**{**vars(verdict), "sentence": sentence})


def _p_text(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def _seeds(pair: Pair) -> str:
    return f"{len(pair.own)} {'seed' if len(pair.own) == 1 else 'seeds'} against {len(pair.other)}"
