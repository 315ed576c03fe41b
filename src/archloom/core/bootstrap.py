"""Confidence intervals by resampling: bias-corrected and accelerated (BCa), by percentiles where that is undefined."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

CONFIDENCE = 0.95


def interval(
    samples: Sequence[ArrayLike], statistic: Callable[..., Any], *, resamples: int, seed: int, **options: Any
) -> NDArray[np.float64]:
    """Lower and upper bound of a statistic of the samples; `options` are those of scipy's bootstrap."""
    bounds = _bounds(samples, statistic, "BCa", resamples, seed, options)
    if np.isfinite(bounds).all():
        return bounds
    # resampling hardly changes the statistic: there is nothing to correct
    return np.where(np.isfinite(bounds), bounds, _bounds(samples, statistic, "percentile", resamples, seed, options))


def _bounds(
    samples: Sequence[ArrayLike],
    statistic: Callable[..., Any],
    method: str,
    resamples: int,
    seed: int,
    options: dict[str, Any],
) -> NDArray[np.float64]:
    from scipy import stats  # takes a moment to import, which only those who ask for an interval have to wait for

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the distribution is degenerate is seen from the bounds
        found = stats.bootstrap(
            samples,
            statistic,
            n_resamples=resamples,
            confidence_level=CONFIDENCE,
            method=method,
            rng=np.random.default_rng(seed),
            **options,
        ).confidence_interval
    return np.asarray([found.low, found.high])
