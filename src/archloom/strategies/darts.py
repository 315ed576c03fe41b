"""DARTS: descend on a softmax mixture of all operations, first or second order (Liu et al., 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_doc import Doc
from torch import Tensor

from archloom.core.errors import require
from archloom.data.loader import Batch
from archloom.spaces import SearchSpace
from archloom.strategies.base import RECURRENT_WEIGHTS, Metrics, Preset, SearchBatch, metrics
from archloom.strategies.differentiable import Differentiable
from archloom.supernet import Curvature, Gate, Gates, Parameters, SharedWeights, StepResult, clip_factor, to_vector

LOGITS = "logits"  # its key among the weights, in a gradient by both


class Darts(Differentiable):
    """An architecture step on validation data, then a weight step on training data, both on the full mixture."""

    presets: ClassVar[Mapping[str, Preset]] = {
        "recurrent": {  # of its rows in the table of Penn Treebank, by the public code
            "strategy": {"learning_rate": 3e-3, "weight_decay": 1e-3, "first_beta": 0.9, "clip_virtual": True},
            "weights": RECURRENT_WEIGHTS,
            "search": {"epochs": 50, "batch_size": 256},
        },
    }

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        order: Annotated[Literal["first", "second"], Doc("second: through one virtual training step")] = "first",
        products: Annotated[
            Literal["exact", "differences"], Doc("how second order takes its curvature product")
        ] = "exact",
        difference_step: Annotated[float, Doc("of `differences`, relative to the vector")] = 0.01,
        clip_virtual: Annotated[
            bool, Doc("of second order: clip the gradients of the virtual step and after it, too, as weights.clip says")
        ] = False,
        perturbation: Annotated[
            float, Doc("SDARTS: weights train on a mixture with random noise of up to this size, which rises from 0")
        ] = 0.0,
        **common: Any,
    ) -> None:
        super().__init__(space, generator, **common)
        require(
            {
                f"strategy.difference_step must be above 0, got {difference_step}": difference_step > 0,
                f"strategy.perturbation must lie in [0, 1], got {perturbation}": 0 <= perturbation <= 1,
            }
        )
        self._second, self._perturbation, self._clips = order == "second", perturbation, clip_virtual
        self._difference_step = difference_step if products == "differences" else None

    def step(self, weights: SharedWeights, batch: SearchBatch) -> Metrics:
        """Update the logits on validation images, then the weights on training images."""
        gradient, evaluated = self.gradient(weights, batch)
        self.descend(gradient, batch)
        trained = weights.fit(batch.train, self._perturb_mixture(batch))
        return metrics(trained, evaluated)

    def _perturb_mixture(self, batch: SearchBatch) -> Gates:
        """Return the mixture, or a random one near it: weights trained on these give the logits a flatter loss."""
        mixture = self.policy.mixture()
        if not self._perturbation:
            return mixture
        return {name: Gate(weights=self._perturb_shares(gate, batch.progress)) for name, gate in mixture.items()}

    def _perturb_shares(self, gate: Gate, progress: float) -> Tensor:
        assert gate.weights is not None
        shares = gate.weights.detach()
        noise = 2 * torch.rand(shares.shape, generator=self.generator).to(shares) - 1
        moved = (shares + self._perturbation * progress * noise).clamp_min(0)
        total = moved.sum()
        return moved / total if float(total) > 0 else shares

    def gradient(self, weights: SharedWeights, batch: SearchBatch) -> tuple[Tensor, StepResult]:
        """Return the gradient of the validation loss by the logits, now or after one virtual training step."""
        if not self._second:
            evaluated = weights.step_result(batch.valid, self.policy.mixture())
            return weights.gradient(evaluated.loss, of=self.policy.values), evaluated
        # d/da L_valid(w - rate * dL_train/dw, a) = direct part - rate * (mixed second derivative of L_train) * v
        # a clipped gradient is c * dL_train/dw, and c counts as a constant
        moved, factor = self._step_virtually(weights, batch.train)
        evaluated = weights.step_result(batch.valid, self.policy.mixture(), parameters=moved)
        vector = weights.gradient(evaluated.loss, of={**moved, LOGITS: self.policy.values})
        direct = vector.pop(LOGITS)
        flat = to_vector(vector.values())
        flat = flat * clip_factor(float(flat.norm()), weights.clip) if self._clips else flat
        curvature = Curvature(weights, batch.train, self.policy.mixture, self.policy.values, step=self._difference_step)
        rate = weights.learning_rate * batch.train.rate * factor
        return direct - rate * curvature.multiply_mixed_derivative(flat), evaluated

    def _step_virtually(self, weights: SharedWeights, batch: Batch) -> tuple[Parameters, float]:
        """Return the weights after one training step, and the factor that clipped its gradient."""
        if self._clips:
            return weights.clipped_virtual_step(batch, self.policy.mixture())
        return weights.virtual_step(batch, self.policy.mixture()), 1.0
