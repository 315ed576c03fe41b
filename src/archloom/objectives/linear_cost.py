"""A cost that is a sum over layers: a linear model on the joint choices that make up each of them.

The cost of a layer depends on a few decisions together: its operation, and the widths on both sides. A feature is one
such joint choice. The model has a number for each feature, and adds up those of an architecture.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from archloom.core.errors import SettingError
from archloom.spaces import Architecture, SearchSpace
from archloom.spaces.base import Feature

STRICTNESS = tuple(10.0**exponent for exponent in range(-6, 3))  # of the ridge regression, to choose from
STATE = "state"  # of the machine: the name of a column
SHRINK = 0.5  # scale of a part of a feature, for each of its options
HELD_OUT = 0.2  # of the networks, to evaluate a fit
SAMPLES = 32  # architectures whose features show which decisions have a joint cost
ROUNDING = 1e-9  # relative: sums of floats

Measure = Callable[[Mapping[str, str]], float]


@dataclass(frozen=True)
class LinearCost:
    """The intercept, and the cost that every feature adds to it."""

    space: SearchSpace
    intercept: float
    weights: Mapping[Feature, float]

    def measure(self, architecture: Mapping[str, str]) -> float:
        """Return the cost of an architecture."""
        features = self.space.cost_features(Architecture(architecture))
        unknown = [feature for feature in features if feature not in self.weights]
        if unknown:
            raise SettingError(f"the cost model has no weight for {format_feature(unknown[0])}; fit one for this space")
        return self.intercept + math.fsum(self.weights[feature] for feature in features)

    def expected_cost(self, probabilities: Mapping[str, Tensor]) -> Tensor:
        """Return the mean cost; decisions are independent, so a feature's probability is a product."""
        row = torch.cat([probabilities[decision.name] for decision in self.space.decisions])
        row = torch.cat([row, row.new_ones(1)])  # pads features of few decisions
        places, weights = self._places
        return self.intercept + row[places.to(row.device)].prod(dim=1) @ weights.to(row)

    @cached_property
    def _places(self) -> tuple[Tensor, Tensor]:
        """Return the positions of each feature's options in the row of all probabilities, and its weight."""
        options = [(d.name, option) for d in self.space.decisions for option in d.options]
        place = {pair: number for number, pair in enumerate(options)}
        # an option that cannot be sampled, such as an edge that is not kept, has no probability
        possible = {
            feature: weight for feature, weight in self.weights.items() if all(pair in place for pair in feature)
        }
        longest = max(map(len, possible), default=1)
        rows = [[*map(place.__getitem__, f), *[len(options)] * (longest - len(f))] for f in possible]
        return torch.tensor(rows).view(-1, longest), torch.tensor(list(possible.values()), dtype=torch.float64)


def every_feature(space: SearchSpace) -> Iterator[Feature]:
    """Yield all features that an architecture of the space can have, group by group."""
    some = space.sample(random.Random(0))
    for group in _groups(space):
        for options in itertools.product(*(space.allowed(space.decision(name)) for name in group)):
            feature = tuple(zip(group, options, strict=True))
            if feature in space.cost_features(Architecture({**some, **dict(feature)})):
                yield feature


def _groups(space: SearchSpace) -> list[tuple[str, ...]]:
    """Return the groups of decisions with a joint cost, found in the features of sampled architectures."""
    rng = random.Random(0)
    samples = [space.sample(rng) for _ in range(SAMPLES)]
    return list(dict.fromkeys(_group(feature) for one in samples for feature in space.cost_features(one)))


class DecomposedCost:
    """The exact model of a cost that is a sum over groups of decisions, from one measurement per feature.

    The start is an architecture with as few features as possible. A feature's weight is the change of the cost beyond
    the weights of earlier groups. Groups that are always present come first: the cost of another width must not count
    for a layer that may be absent. A feature is measured when it is first needed.
    """

    def __init__(self, space: SearchSpace, measure: Measure) -> None:
        self._space, self._measure = space, measure
        self._start = _fewest_features(space)
        self._intercept = measure(self._start)
        always = {_group(feature) for feature in space.cost_features(self._start)}
        ordered = sorted(_groups(space), key=lambda group: group not in always)
        self._order = {group: place for place, group in enumerate(ordered)}
        self._weights = dict.fromkeys(space.cost_features(self._start), 0.0)

    def measure(self, architecture: Mapping[str, str]) -> float:
        """Return the cost of an architecture."""
        features = self._space.cost_features(Architecture(architecture))
        return self._intercept + math.fsum(map(self.weight, features))

    def weight(self, feature: Feature) -> float:
        """Return the cost that a feature adds."""
        if feature not in self._weights:
            changed, place = Architecture({**self._start, **dict(feature)}), self._order[_group(feature)]
            earlier = [one for one in self._space.cost_features(changed) if self._order[_group(one)] < place]
            self._weights[feature] = self._measure(changed) - self._intercept - math.fsum(map(self.weight, earlier))
        return self._weights[feature]

    def is_exact(self, *, checks: int) -> bool:
        """Return whether a number of sampled architectures cost what the model says."""
        rng = random.Random(1)
        samples = (self._space.sample(rng) for _ in range(checks))
        return all(math.isclose(self.measure(one), self._measure(one), rel_tol=ROUNDING) for one in samples)

    def to_linear_cost(self) -> LinearCost:
        """Return the model with all its weights."""
        weights = {feature: self.weight(feature) for feature in every_feature(self._space)}
        return LinearCost(self._space, self._intercept, weights)


def _fewest_features(space: SearchSpace) -> Architecture:
    start = Architecture({decision.name: decision.options[0] for decision in space.decisions})
    for decision in space.decisions:
        changed = [start.with_option(decision.name, option) for option in decision.options]
        start = min(changed, key=lambda one: len(space.cost_features(one)))  # the first of equals
    return start


# --- fitting


@dataclass(frozen=True)
class Fit:
    """A model of measured costs, and how well it predicts networks held out."""

    model: LinearCost
    networks: int  # for the fit and its evaluation
    uncovered: int  # features of no network in the fit, predicted from those that share options
    r2: float  # on networks held out
    error: float  # mean absolute error there, relative to their mean


def fit_linear_cost(
    space: SearchSpace,
    architectures: Sequence[Architecture],
    costs: Sequence[float],
    slowness: Sequence[float] | None = None,
) -> Fit:
    """Fit a ridge regression on four fifths of the networks, and evaluate it on the others.

    `slowness` is the state of the machine at each measurement. A common relative change of all costs along it is
    removed from the model.
    """
    count = len(architectures) - max(1, round(HELD_OUT * len(architectures)))
    mean = math.fsum(costs) / len(costs)
    states = [mean * state for state in slowness or [0.0] * len(costs)]
    model, slope, uncovered = _fit_ridge(space, architectures[:count], costs[:count], states[:count])
    held = [cost - slope * state for cost, state in zip(costs[count:], states[count:], strict=True)]
    misses = [model.measure(a) - cost for a, cost in zip(architectures[count:], held, strict=True)]
    mean = math.fsum(held) / len(held)
    spread = math.fsum((cost - mean) ** 2 for cost in held)
    return Fit(
        model,
        networks=len(costs),
        uncovered=uncovered,
        r2=1 - math.fsum(miss**2 for miss in misses) / spread if spread > 0 else -math.inf,
        error=math.fsum(map(abs, misses)) / len(misses) / mean,
    )


def _fit_ridge(
    space: SearchSpace, architectures: Sequence[Architecture], costs: Sequence[float], states: Sequence[float]
) -> tuple[LinearCost, float, int]:
    """Return the model, the cost of a unit of state, and the number of features in none of the architectures.

    There are hardly more measurements than features, and features that share options cost nearly the same. A feature
    is therefore a sum of parts, from the layer alone to all its options together; the more options a part has, the
    stronger its penalty. Leave-one-out cross-validation chooses the strength.
    """
    from sklearn.feature_extraction import DictVectorizer  # late: takes a second, which a search need not wait for
    from sklearn.linear_model import RidgeCV

    numbers: dict[tuple[tuple[str, ...], Feature], str] = {}

    def row(features: Sequence[Feature], state: float = 0.0) -> dict[str, float]:
        parts = {(_group(f), part): SHRINK ** len(part) for f in features for part in _parts(f)}
        return {STATE: state, **{numbers.setdefault(key, str(len(numbers))): value for key, value in parts.items()}}

    vectorizer = DictVectorizer(sparse=False)
    seen = [space.cost_features(one) for one in architectures]
    rows = vectorizer.fit_transform([row(each, state) for each, state in zip(seen, states, strict=True)])
    regression = RidgeCV(alphas=STRICTNESS).fit(rows, costs)
    features = list(every_feature(space))
    added = vectorizer.transform([row([feature]) for feature in features]) @ regression.coef_
    weights = {feature: float(weight) for feature, weight in zip(features, added, strict=True)}
    uncovered = set(features).difference(*seen)
    slope = float(regression.coef_[vectorizer.vocabulary_[STATE]])
    return LinearCost(space, float(regression.intercept_), weights), slope, len(uncovered)


def _parts(feature: Feature) -> Iterator[Feature]:
    """Yield all subsets of a feature's options, from none to all."""
    for count in range(len(feature) + 1):
        yield from itertools.combinations(feature, count)


def _group(feature: Feature) -> tuple[str, ...]:
    return tuple(name for name, _ in feature)


def format_feature(feature: Feature) -> str:
    """Return a feature as text for a message."""
    return " with ".join(f"{name} {option}" for name, option in feature)
