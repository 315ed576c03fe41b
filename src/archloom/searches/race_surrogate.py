"""Predict short trainings that were not run: a Gaussian process over architectures.

Architectures that share decisions share their quality. The covariance counts equal decisions (additive effects) and
equal pairs of decisions (interactions). What the search learned enters as a covariate: the log-probability of an
architecture under the strategy. Its weight is learned from the trainings, so a search that knows nothing counts for
nothing. The scales are chosen by the marginal likelihood.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from archloom.spaces import Architecture, SearchSpace

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

ADDITIVE = (0.3, 1.0, 3.0)  # variances to choose from, in units of the variance of the scores
PAIRS = (0.0, 0.3, 1.0)
NOISE = (0.05, 0.2, 0.6)
CONSTANT, COVARIATE = 1.0, 1.0  # prior variances of the mean and of the covariates' weights
JITTER = 1e-8
DRAWS = 20_000  # of the posterior, for probabilities to be the best: an error of 0.004 at most


@dataclass(frozen=True)
class Observation:
    """One short training: the architecture, its covariates, and its score, where higher is better."""

    architecture: Architecture
    covariates: tuple[float, ...]
    score: float


@dataclass(frozen=True)
class Prediction:
    """The posterior of architectures that were not observed: their means and their covariance."""

    mean: Vector
    covariance: Matrix

    def probabilities_of_best(self) -> Vector:
        """Return for each architecture the probability that it has the highest score of them all."""
        values, vectors = np.linalg.eigh(self.covariance)  # of architectures that cannot differ, it is singular
        root = vectors * np.sqrt(np.clip(values, 0.0, None))
        numbers = np.random.default_rng(0).standard_normal((DRAWS, len(self.mean)))
        winners = np.argmax(self.mean + numbers @ root.T, axis=1)
        return np.bincount(winners, minlength=len(self.mean)) / DRAWS

    def expect_improvement(self, best: float) -> Vector:
        """Return by how much each architecture is expected to exceed a score: the mean of what is above it, else 0."""
        spread = np.sqrt(np.clip(np.diag(self.covariance), JITTER, None))
        ahead = (self.mean - best) / spread
        return np.asarray(spread * (ahead * norm.cdf(ahead) + norm.pdf(ahead)))


@dataclass(frozen=True)
class _Scales:
    additive: float
    pairs: float
    noise: float


class Surrogate:
    """A Gaussian process fitted to the scores of short trainings."""

    def __init__(self, space: SearchSpace, observations: Sequence[Observation]) -> None:
        assert observations, "a surrogate needs at least one training"
        self._names = [decision.name for decision in space.decisions]
        self._choices = self._encode([one.architecture for one in observations])
        covariates = np.array([one.covariates for one in observations], dtype=float).reshape(len(observations), -1)
        self._centre, self._spread = covariates.mean(axis=0), _spread(covariates, axis=0)
        self._covariates = self._standardize(covariates)
        scores = np.array([one.score for one in observations], dtype=float)
        self._offset, self._unit = float(scores.mean()), float(_spread(scores))
        self._scores = (scores - self._offset) / self._unit
        scales = [_Scales(*values) for values in itertools.product(ADDITIVE, PAIRS, NOISE)]
        self.scales = max(scales, key=self._log_likelihood)
        self._factor = self._factorize(self.scales)
        self._weights = _solve(self._factor, self._scores)

    @property
    def best(self) -> float:
        """Return the best score that an observed architecture would have without noise."""
        known = self._kernel(self._choices, self._choices, self._covariates, self._covariates, self.scales)
        return float(self._offset + self._unit * (known @ self._weights).max())

    @property
    def noise(self) -> float:
        """Return the standard deviation of one training around its prediction, in units of the scores."""
        return self._unit * math.sqrt(self.scales.noise)

    def predict(self, architectures: Sequence[Architecture], covariates: Sequence[tuple[float, ...]]) -> Prediction:
        """Return the posterior of the scores that trainings without noise would have."""
        choices = self._encode(architectures)
        values = self._standardize(np.array(covariates, dtype=float).reshape(len(architectures), -1))
        across = self._kernel(choices, self._choices, values, self._covariates, self.scales)
        own = self._kernel(choices, choices, values, values, self.scales)
        half = np.linalg.solve(self._factor, across.T)
        return Prediction(self._offset + self._unit * (across @ self._weights), self._unit**2 * (own - half.T @ half))

    def _encode(self, architectures: Sequence[Architecture]) -> NDArray[np.str_]:
        return np.array([[one[name] for name in self._names] for one in architectures], dtype=np.str_)

    def _standardize(self, covariates: Matrix) -> Matrix:
        return np.asarray((covariates - self._centre) / self._spread)

    def _kernel(
        self, one: NDArray[np.str_], other: NDArray[np.str_], own: Matrix, others: Matrix, scales: _Scales
    ) -> Matrix:
        shared = (one[:, None, :] == other[None, :, :]).mean(axis=2)
        linear = CONSTANT + COVARIATE * own @ others.T
        return np.asarray(linear + scales.additive * shared + scales.pairs * shared**2)

    def _factorize(self, scales: _Scales) -> Matrix:
        kernel = self._kernel(self._choices, self._choices, self._covariates, self._covariates, scales)
        return np.asarray(np.linalg.cholesky(kernel + (scales.noise + JITTER) * np.eye(len(kernel))), dtype=float)

    def _log_likelihood(self, scales: _Scales) -> float:
        factor = self._factorize(scales)
        return float(-0.5 * self._scores @ _solve(factor, self._scores) - np.log(np.diag(factor)).sum())


def _spread(values: Matrix, axis: int | None = None) -> Vector:
    """Return standard deviations; 1 where all values are equal, which then say nothing."""
    spread = np.asarray(values.std(axis=axis))
    return np.where(spread > 0, spread, 1.0)


def _solve(factor: Matrix, values: Vector) -> Vector:
    """Return the solution of K x = values for K = factor factor^T."""
    return np.asarray(np.linalg.solve(factor.T, np.linalg.solve(factor, values)))
