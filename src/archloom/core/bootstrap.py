"""Confidence intervals by resampling: bias-corrected and accelerated (BCa), by percentiles where BCa is undefined."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy  # loads its parts when they are used
from numpy.typing import ArrayLike, NDArray

CONFIDENCE = 0.95


def bootstrap_interval(
    samples: Sequence[ArrayLike], statistic: Callable[..., Any], *, resamples: int, seed: int, **options: Any
) -> NDArray[np.float64]:
    """Return the lower and upper bound of a statistic of the samples; `options` are those of scipy's bootstrap."""

    def find_bounds(method: str) -> NDArray[np.float64]:
        found = scipy.stats.bootstrap(
            samples,
            statistic,
            n_resamples=resamples,
            confidence_level=CONFIDENCE,
            method=method,
            rng=np.random.default_rng(seed),
            **options,
        ).confidence_interval
        return np.asarray([found.low, found.high])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the bounds already show a degenerate distribution
        bounds = find_bounds("BCa")
        if np.isfinite(bounds).all():
            return bounds
        # resampling hardly changes the statistic: there is nothing to correct
        return np.where(np.isfinite(bounds), bounds, find_bounds("percentile"))
