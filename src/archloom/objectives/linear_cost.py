"""A cost that is a sum over layers: a linear model on the joint choices that make up each of them.

What a layer costs depends on a few decisions together: its operation, and the widths on both sides. A feature is one
such joint choice; the model has a number for each, and adds up those of an architecture.
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
SHRINK = 0.5  # scale of what a part of a feature adds, for each of its options
HELD_OUT = 0.2  # of the networks, to judge a fit by
SAMPLES = 32  # architectures whose features tell which decisions cost something together
ROUNDING = 1e-9  # relative: sums of floats

Measure = Callable[[Mapping[str, str]], float]


@dataclass(frozen=True)
class LinearCost:
    """The intercept, and what every feature adds to it."""

    space: SearchSpace
    intercept: float
    weights: Mapping[Feature, float]

    def measure(self, architecture: Mapping[str, str]) -> float:
        features = self.space.cost_features(Architecture(architecture))
        unknown = [feature for feature in features if feature not in self.weights]
        if unknown:
            raise SettingError(f"the cost model does not know {format_feature(unknown[0])}; fit one for this space")
        return self.intercept + math.fsum(self.weights[feature] for feature in features)

    def expected_cost(self, probabilities: Mapping[str, Tensor]) -> Tensor:
        """Decisions are independent: a feature is as probable as the product of its options."""
        row = torch.cat([probabilities[decision.name] for decision in self.space.decisions])
        row = torch.cat([row, row.new_ones(1)])  # what fills features of few decisions up
        places, weights = self._places
        return self.intercept + row[places.to(row.device)].prod(dim=1) @ weights.to(row)

    @cached_property
    def _places(self) -> tuple[Tensor, Tensor]:
        """Where the options of each feature stand in the row of all probabilities, and its weight."""
        options = [(d.name, option) for d in self.space.decisions for option in d.options]
        place = {pair: number for number, pair in enumerate(options)}
        # an option that cannot be drawn, such as an edge that is not kept, has no probability
        drawn = {feature: weight for feature, weight in self.weights.items() if all(pair in place for pair in feature)}
        longest = max(map(len, drawn), default=1)
        rows = [[*map(place.__getitem__, f), *[len(options)] * (longest - len(f))] for f in drawn]
        return torch.tensor(rows).view(-1, longest), torch.tensor(list(drawn.values()), dtype=torch.float64)


def every_feature(space: SearchSpace) -> Iterator[Feature]:
    """All features that an architecture of the space can have, group by group."""
    some = space.sample(random.Random(0))
    for group in _groups(space):
        for options in itertools.product(*(space.allowed(space.decision(name)) for name in group)):
            feature = tuple(zip(group, options, strict=True))
            if feature in space.cost_features(Architecture({**some, **dict(feature)})):
                yield feature


def _groups(space: SearchSpace) -> list[tuple[str, ...]]:
    """Decisions that cost something together, as the features of some architectures show them."""
    rng = random.Random(0)
    drawn = [space.sample(rng) for _ in range(SAMPLES)]
    return list(dict.fromkeys(_group(feature) for one in drawn for feature in space.cost_features(one)))


class DecomposedCost:
    """The model of a cost that is a sum over groups of decisions, from one look at each feature: exact, no fit.

    Beginning with an architecture that leaves out what it can, a feature's weight is what it changes beyond what those
    of earlier groups do. What is always there comes first: what it gains by another width must not count for a layer
    that may be left out. A feature is looked at when it is first asked for.
    """

    def __init__(self, space: SearchSpace, measure: Measure) -> None:
        self._space, self._look = space, measure
        self._start = _fewest_features(space)
        self._intercept = measure(self._start)
        always = {_group(feature) for feature in space.cost_features(self._start)}
        ordered = sorted(_groups(space), key=lambda group: group not in always)
        self._order = {group: place for place, group in enumerate(ordered)}
        self._weights = dict.fromkeys(space.cost_features(self._start), 0.0)

    def measure(self, architecture: Mapping[str, str]) -> float:
        features = self._space.cost_features(Architecture(architecture))
        return self._intercept + math.fsum(map(self.weight, features))

    def weight(self, feature: Feature) -> float:
        if feature not in self._weights:
            changed, place = Architecture({**self._start, **dict(feature)}), self._order[_group(feature)]
            earlier = [one for one in self._space.cost_features(changed) if self._order[_group(one)] < place]
            self._weights[feature] = self._look(changed) - self._intercept - math.fsum(map(self.weight, earlier))
        return self._weights[feature]

    def is_exact(self, *, looks: int) -> bool:
        """Whether so many architectures cost what the model says: whether the cost is such a sum at all."""
        rng = random.Random(1)
        drawn = (self._space.sample(rng) for _ in range(looks))
        return all(math.isclose(self.measure(one), self._look(one), rel_tol=ROUNDING) for one in drawn)

    def whole(self) -> LinearCost:
        """The model with all its weights."""
        weights = {feature: self.weight(feature) for feature in every_feature(self._space)}
        return LinearCost(self._space, self._intercept, weights)


def _fewest_features(space: SearchSpace) -> Architecture:
    start = Architecture({decision.name: decision.options[0] for decision in space.decisions})
    for decision in space.decisions:
        changed = [start.changed(decision.name, option) for option in decision.options]
        start = min(changed, key=lambda one: len(space.cost_features(one)))  # the first of equals
    return start


# --- fitting


@dataclass(frozen=True)
class Fit:
    """A model of measured costs, and how well it tells those that it has not seen."""

    model: LinearCost
    networks: int  # that it learnt from and was judged by
    uncovered: int  # features of no network it learnt from, which are told by their nearest
    r2: float  # on networks held out
    error: float  # mean absolute error there, relative to their mean


def fit_linear_cost(
    space: SearchSpace,
    architectures: Sequence[Architecture],
    costs: Sequence[float],
    slowness: Sequence[float] | None = None,
) -> Fit:
    """Ridge regression on four networks of five, judged by the fifth.

    `slowness` says in which state of the machine each was measured: what costs change along it, by a common share, is
    no part of the model.
    """
    count = len(architectures) - max(1, round(HELD_OUT * len(architectures)))
    mean = math.fsum(costs) / len(costs)
    states = [mean * state for state in slowness or [0.0] * len(costs)]
    model, slope, uncovered = _regressed(space, architectures[:count], costs[:count], states[:count])
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


def _regressed(
    space: SearchSpace, architectures: Sequence[Architecture], costs: Sequence[float], states: Sequence[float]
) -> tuple[LinearCost, float, int]:
    """The model, what a unit of state adds to it, and how many of its features were in none of the architectures.

    There are hardly more measurements than features, and features that share options cost nearly the same. So a
    feature is the sum of what all parts of it add, from the layer alone to all its options together; the more options
    a part has, the less it may add. Its strictness is the one that tells each network best from all the others.
    """
    from sklearn.feature_extraction import DictVectorizer  # takes a second, which a search need not wait for
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
    """All choices of its options, from none of them to all."""
    for count in range(len(feature) + 1):
        yield from itertools.combinations(feature, count)


def _group(feature: Feature) -> tuple[str, ...]:
    return tuple(name for name, _ in feature)


def format_feature(feature: Feature) -> str:
    return " with ".join(f"{name} {option}" for name, option in feature)
