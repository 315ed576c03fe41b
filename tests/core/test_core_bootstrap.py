from __future__ import annotations

import numpy as np
import pytest

from archloom.core.bootstrap import bootstrap_interval


def mean(values: np.ndarray, axis: int = -1) -> np.ndarray:
    return np.mean(values, axis=axis)


def test_interval_of_a_mean_agrees_with_the_normal_distribution() -> None:
    sample = np.random.default_rng(0).normal(3.0, 2.0, size=400)
    error = 1.96 * sample.std(ddof=1) / np.sqrt(len(sample))
    low, high = bootstrap_interval((sample,), mean, resamples=4999, seed=1)
    assert low == pytest.approx(sample.mean() - error, abs=0.1 * error)
    assert high == pytest.approx(sample.mean() + error, abs=0.1 * error)


def test_percentiles_replace_undefined_bca_bounds() -> None:
    """The jackknife of a constant has no skewness, so BCa is undefined."""
    assert bootstrap_interval((np.full(5, 7.0),), mean, resamples=99, seed=0).tolist() == [7.0, 7.0]


def test_same_seed_gives_the_same_interval() -> None:
    sample = np.arange(10.0)
    first, again, other = (bootstrap_interval((sample,), mean, resamples=99, seed=seed).tolist() for seed in (0, 0, 1))
    assert first == again != other
