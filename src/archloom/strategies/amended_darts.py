"""Amended-DARTS: the architecture gradient with the part that goes through the best weights (Bi et al., 2019).

At the weights that are best for the logits, the gradient of the validation loss by the logits has a second part,
-C H^-1 v: v is its gradient by the weights, H the Hessian of the training loss by them, C the mixed derivative of that.
The paper puts eta H in the place of H^-1. The angle between the two is NOT bounded as it claims (a test has a
counterexample of two weights), and where curvature is large H v exceeds the first part by far. Inverses that converge
to H^-1 are therefore offered as well, and the second part is by default no longer than the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_doc import Doc
from torch import Tensor

from archloom.core.errors import SettingError, require
from archloom.data.loader import Batch
from archloom.families import family_of
from archloom.spaces import SearchSpace
from archloom.strategies.base import Metrics, Preset, SearchBatch, metrics
from archloom.strategies.differentiable import Differentiable
from archloom.supernet import Curvature, SharedWeights, StepResult, to_vector

Product = Callable[[Tensor], Tensor]
LOGITS = "logits"  # its key among the weights, in a gradient by both
INVERSES = ("hessian", "identity", "neumann", "conjugate_gradient")
COUNTED = ("neumann", "conjugate_gradient")
SMALLEST_NORM = 1e-12


class AmendedDarts(Differentiable):
    """An architecture step on validation data with the amended gradient, then a weight step on training data."""

    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": {
            "strategy": {"eta": 0.1, "inverse": "hessian", "limit": 0.0, "learning_rate": 3e-4},
            "search": {"epochs": 100, "batch_size": 96},
        },
    }

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        eta: Annotated[
            float, Doc("weight of the second part; for neumann the step of the series; conjugate_gradient has none")
        ] = 0.1,
        inverse: Annotated[
            str, Doc("in the place of H^-1: hessian, identity, neumann:K or conjugate_gradient:K")
        ] = "neumann:3",
        limit: Annotated[float, Doc("largest second part, relative to the first; 0 is off")] = 1.0,
        damping: Annotated[
            float | None, Doc("added to H; left out: 0 for hessian, else the decay of the weights")
        ] = None,
        products: Annotated[Literal["exact", "differences"], Doc("how curvature products are taken")] = "differences",
        difference_step: Annotated[float, Doc("of `differences`, relative to the vector")] = 0.01,
        independent: Annotated[
            bool, Doc("H and C from two halves of the training batch: one batch for both is biased")
        ] = False,
        **common: Any,
    ) -> None:
        super().__init__(space, generator, **common)
        task = family_of(space).task
        self._inverse, self._terms = parse_inverse(inverse)
        require(
            {
                f"strategy.eta must be 0 or more, got {eta}": eta >= 0,
                f"strategy.limit must be 0 (off) or more, got {limit}": limit >= 0,
                f"strategy.damping must be 0 or more, got {damping}": damping is None or damping >= 0,
                f"strategy.difference_step must be above 0, got {difference_step}": difference_step > 0,
                f"strategy.independent must be false for {task.name}, whose batches cannot be halved": (
                    task.are_independent or not independent
                ),
            }
        )
        self._eta, self._limit, self._damping, self._independent = eta, limit, damping, independent
        self._difference_step = difference_step if products == "differences" else None

    def step(self, weights: SharedWeights, batch: SearchBatch) -> Metrics:
        """Update the logits by the amended gradient, then the weights."""
        direct, second, evaluated = self.gradients(weights, batch)
        share = float(second.norm() / direct.norm().clamp_min(SMALLEST_NORM))
        self.descend(direct + second * (min(1.0, self._limit / share) if self._limit and share else 1.0), batch)
        trained = weights.fit(batch.train, self.policy.mixture())
        return metrics(trained, evaluated, correction=share)

    def gradients(self, weights: SharedWeights, batch: SearchBatch) -> tuple[Tensor, Tensor, StepResult]:
        """Return both parts of the gradient at the present weights, without a virtual step."""
        evaluated = weights.step_result(batch.valid, self.policy.mixture())
        vector = weights.gradient(evaluated.loss, of={**weights.parameters, LOGITS: self.policy.values})
        direct = vector.pop(LOGITS)
        if self._eta == 0 and self._inverse != "conjugate_gradient":
            return direct, torch.zeros_like(direct), evaluated
        first, second = split_in_halves(batch.train) if self._independent else (batch.train, batch.train)
        by_weights = self._curvature(weights, first)
        mixed = self._curvature(weights, second) if self._independent else by_weights
        damping = self._find_damping(weights)
        solved = approximate_inverse(
            self._inverse,
            self._terms,
            lambda direction: by_weights.multiply_weight_hessian(direction) + damping * direction,
            to_vector(vector.values()),
            eta=self._eta,
        )
        return direct, -mixed.multiply_mixed_derivative(solved), evaluated

    def _curvature(self, weights: SharedWeights, batch: Batch) -> Curvature:
        return Curvature(weights, batch, self.policy.mixture, self.policy.values, step=self._difference_step)

    def _find_damping(self, weights: SharedWeights) -> float:
        if self._damping is not None:
            return self._damping
        return 0.0 if self._inverse == "hessian" else weights.weight_decay


def approximate_inverse(name: str, terms: int, product: Product, vector: Tensor, *, eta: float) -> Tensor:
    """Return the approximation of H^-1 v, where `product` multiplies by H."""
    match name:
        case "hessian":
            return eta * product(vector)
        case "identity":
            return eta * vector
        case "neumann":
            return neumann_series(product, vector, terms=terms, rate=eta)
        case _:
            return conjugate_gradient(product, vector, steps=terms)


def neumann_series(product: Product, vector: Tensor, *, terms: int, rate: float) -> Tensor:
    """Return rate * sum of (I - rate H)^k v. It converges to H^-1 v for eigenvalues within (0, 2 / rate)."""
    term = rate * vector
    total = term
    for _ in range(terms - 1):
        term = term - rate * product(term)
        total = total + term
    return total


def conjugate_gradient(product: Product, vector: Tensor, *, steps: int) -> Tensor:
    """Solve H x = v by a number of steps from 0; at negative curvature, return the last solution before."""
    solution, residual = torch.zeros_like(vector), vector.clone()
    direction, size = residual, residual @ residual
    for _ in range(steps):
        image = product(direction)
        curvature = direction @ image
        if float(curvature) <= 0 or float(size) == 0:
            break
        distance = size / curvature
        solution, residual = solution + distance * direction, residual - distance * image
        smaller = residual @ residual
        direction, size = residual + smaller / size * direction, smaller
    return solution


def parse_inverse(text: str) -> tuple[str, int]:
    """Return the name of an inverse, and its number of terms or steps if it has one."""
    name, colon, count = text.partition(":")
    right = name in INVERSES and (count.isdecimal() and 1 <= int(count) < 10**6 if name in COUNTED else not colon)
    if not right:
        raise SettingError(
            f"strategy.inverse must be hessian, identity, neumann:K or conjugate_gradient:K with K from 1, got {text!r}"
        )
    return name, int(count) if colon else 0


def split_in_halves(batch: Batch) -> tuple[Batch, Batch]:
    """Return the two halves of a batch."""
    middle = len(batch) // 2
    return (
        Batch(batch.images[:middle], batch.labels[:middle]),
        Batch(batch.images[middle:], batch.labels[middle:]),
    )
