"""Posterior samples with a diagonal of the inverse Hessian, estimated by limited-memory BFGS: for many parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal, Unpack

import torch
from torch import Tensor

from archloom.core.errors import SettingError, require
from archloom.core.state import StateDict
from archloom.samplers.base import Closure, PosteriorSampler, SamplerOptions
from archloom.samplers.closures import SelfLabelling

SMALLEST_COSINE = 1e-4  # between a step and the change of the gradient; below it a pair is skipped
SMALLEST_SIZE = 1e-3  # of a tensor that starts at zero, for clips relative to its size


class CompactInverse:
    """The limited-memory BFGS inverse H over a diagonal start h, without ever forming it.

    With steps S and changes of gradient Y (m rows of n, oldest first), R the upper triangle of S Y', D its diagonal:

        H = diag(h) + S'M S - S'R^-T (Y h) - (h Y)' R^-1 S,      M = R^-T (D + Y diag(h) Y') R^-1

    Its diagonal costs O(n m^2), its product with a vector O(n m).
    """

    def __init__(self, start: Tensor, steps: Sequence[Tensor], changes: Sequence[Tensor]) -> None:
        self._start, self._any = start, bool(steps)
        if not steps:
            return
        self._steps, changed = torch.stack(list(steps)), torch.stack(list(changes))
        self._scaled = start * changed  # Y h
        products = (self._steps @ changed.T).double()
        inner = (changed @ self._scaled.T).double()
        unit = torch.eye(len(products), dtype=torch.float64, device=start.device)
        inverse = torch.linalg.solve_triangular(products.triu(), unit, upper=True)
        middle = inverse.T @ (products.diagonal().diag() + inner) @ inverse
        self._inverse, self._middle = inverse.to(start), middle.to(start)

    def diagonal(self) -> Tensor:
        """Return the diagonal of H."""
        if not self._any:
            return self._start
        squared = ((self._middle @ self._steps) * self._steps).sum(dim=0)
        crossed = ((self._inverse @ self._steps) * self._scaled).sum(dim=0)
        result: Tensor = self._start + squared - 2 * crossed
        return result

    def product(self, vector: Tensor) -> Tensor:
        """Return H times a vector."""
        if not self._any:
            return self._start * vector
        along = self._steps @ vector
        across = self._scaled @ vector
        steps = self._middle @ along - self._inverse.T @ across
        result: Tensor = self._start * vector + steps @ self._steps - (self._inverse @ along) @ self._scaled
        return result


class DiagonalLbfgsPosterior(PosteriorSampler):
    """Draw from the posterior of a network's weights, each by itself, at a cost linear in their number.

    Each step calls the closure before and after the move, on the same batch. The inverse starts, by `start`, from one
    over the Gauss-Newton diagonal (`gnb`: the squared gradient on labels sampled from the model's prediction, which
    needs a closure such as `Classification`), or from the `scalar` of textbook L-BFGS. Mean step and noise are clipped
    per tensor, relative to the tensor. There is no noise in the first `quiet_steps`; then it rises to its full
    size over `ramp_steps`. Parameters without gradient are not updated.
    """

    counters: ClassVar[tuple[str, ...]] = ("draws", "clipped", "noise_clipped", "skipped")

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        curvature: Literal["lbfgs", "identity"] = "lbfgs",
        memory: int = 10,  # pairs of step and change of gradient; 0 keeps the start
        start: Literal["gnb", "scalar"] = "gnb",
        start_every: int = 5,  # steps between updates of the Gauss-Newton diagonal
        start_average: float = 0.9,  # share of the old diagonal that stays
        damping: float = 1e-2,  # added to the diagonal before it is inverted
        mean: Literal["diagonal", "direction"] = "diagonal",  # of the step: by the diagonal, or by all of L-BFGS
        smallest: float = 1e-3,  # bounds of the diagonal of P
        largest: float = 50.0,
        step_clip: float = 0.1,  # largest mean step of a tensor, relative to it; 0 is off
        noise_clip: float = 0.02,  # largest noise of a tensor, relative to it; 0 is off
        quiet_steps: int = 0,
        ramp_steps: int = 0,
        **common: Unpack[SamplerOptions],
    ) -> None:
        super().__init__(parameters, **common)
        require(
            {
                f"memory must be 0 or more, got {memory}": memory >= 0,
                f"start_every must be at least 1, got {start_every}": start_every >= 1,
                f"start_average must lie in [0, 1), got {start_average}": 0 <= start_average < 1,
                f"damping must be 0 or more, got {damping}": damping >= 0,
                f"the bounds of P must be 0 < smallest <= largest, got {smallest} and {largest}": (
                    0 < smallest <= largest
                ),
                f"step_clip must be 0 (off) or more, got {step_clip}": step_clip >= 0,
                f"noise_clip must be 0 (off) or more, got {noise_clip}": noise_clip >= 0,
                f"quiet_steps must be 0 or more, got {quiet_steps}": quiet_steps >= 0,
                f"ramp_steps must be 0 or more, got {ramp_steps}": ramp_steps >= 0,
                f"curvature must be lbfgs or identity, got '{curvature}'": curvature in ("lbfgs", "identity"),
                f"start must be gnb or scalar, got '{start}'": start in ("gnb", "scalar"),
                f"mean must be diagonal or direction, got '{mean}'": mean in ("diagonal", "direction"),
            }
        )
        self._identity, self._along_direction = curvature == "identity", mean == "direction"
        self._memory, self._start, self._start_every = memory, start, start_every
        self._start_average, self._damping = start_average, damping
        self._smallest, self._largest = smallest, largest
        self._step_clip, self._noise_clip = step_clip, noise_clip
        self._quiet_steps, self._ramp_steps = quiet_steps, ramp_steps
        self._sizes = [parameter.numel() for parameter in self.parameters]
        self._lengths = torch.tensor(self._sizes, device=self.parameters[0].device)
        self.curvature: Tensor | None = None  # running mean of the Gauss-Newton diagonal
        self.steps: list[Tensor] = []  # the last moves, oldest first, each as one vector
        self.changes: list[Tensor] = []  # and the changes of the gradient that they caused

    @torch.no_grad()
    def step(self, closure: Closure) -> Tensor:  # type: ignore[override]
        """Update the parameters once and return the loss before the update."""
        loss, parts = self._regularized_gradient(closure)
        self._begin_draw()
        self._check({"the loss": loss})  # before labels are sampled from a prediction that is no longer finite
        if self._identity and not self._current_noise_scale():
            self._descend(parts)
            return loss
        gradient = self._flat(parts)
        mean, noise = self._movement(gradient, self._active_mask(parts), closure)
        before = self._flat(self.parameters)
        self._check({"the mean step": mean, "the noise": noise})
        self._move(mean + noise)
        moved = self._flat(self.parameters) - before  # as it was after rounding
        self.draw |= {"step_norm": float(mean.norm()), "noise_norm": float(noise.norm())}
        if not self._identity and self._memory:
            self._learn(moved, self._flat(self._regularized_gradient(closure)[1]) - gradient)
        return loss

    def _movement(self, gradient: Tensor, active: Tensor, closure: Closure) -> tuple[Tensor, Tensor]:
        """Return the mean step and the noise of the active parameters, clipped."""
        group = self.param_groups[0]
        sizes = self._root_mean_squares(self._flat(self.parameters)).clamp_min(SMALLEST_SIZE)
        if self._identity:
            spread, mean = torch.ones_like(gradient), gradient
        else:
            if self._start == "gnb" and (self.counts["draws"] - 1) % self._start_every == 0:
                self._update_diagonal(closure)
            inverse = CompactInverse(self._initial_diagonal(gradient), self.steps, self.changes)
            spread = inverse.diagonal().clamp(self._smallest, self._largest)
            mean = active * inverse.product(gradient) if self._along_direction else spread * gradient
        self.draw |= {"smallest": float(spread.min()), "largest": float(spread.max())}
        mean = self._clip(-group["lr"] * mean, self._step_clip * sizes, "clipped")
        scale = self._current_noise_scale()
        if not scale:
            return mean, torch.zeros_like(mean)
        noise = scale * spread.sqrt() * self._sample_normal(mean) * active
        clipped = self._clip(noise, self._noise_clip * sizes, "noise_clipped")
        self.draw["noise_clipped_share"] = self.draw["noise_clipped"] / len(self._sizes)
        return mean, clipped

    @property
    def noise_clipped_share(self) -> float:
        """Return the mean share of tensors whose noise was clipped, over all draws with noise; 0 before the first."""
        noisy = self.counts["draws"] - self._quiet_steps
        return self.counts["noise_clipped"] / (noisy * len(self._sizes)) if noisy > 0 else 0.0

    def _current_noise_scale(self) -> float:
        """Return the scale of the noise at this step of the ramp."""
        done = self.counts["draws"] - 1 - self._quiet_steps
        share = 1.0 if self._ramp_steps == 0 else min(1.0, done / self._ramp_steps)
        return 0.0 if done < 0 else share * self.noise_scale()

    def _update_diagonal(self, closure: Closure) -> None:
        """Update the Gauss-Newton diagonal (Bartlett): observations times the squared mean gradient."""
        if not isinstance(closure, SelfLabelling):
            raise SettingError(
                "start 'gnb' must have a closure with backward_on_sampled_labels, such as samplers.Classification"
            )
        with torch.enable_grad():
            observations = closure.backward_on_sampled_labels(self.generator)
        gradients = [parameter.grad for parameter in self.parameters]
        seen = observations * self._flat(gradients).square_()
        if self.curvature is None:
            self.curvature = seen
        else:  # parameters without gradient keep their estimate
            self.curvature.lerp_(seen, (1 - self._start_average) * self._active_mask(gradients))

    def _initial_diagonal(self, gradient: Tensor) -> Tensor:
        """Return the diagonal that L-BFGS starts from."""
        if self._start == "gnb":
            assert self.curvature is not None
            return (self.curvature + self._decays() + self._damping).reciprocal()
        newest = float(self.steps[-1] @ self.changes[-1] / self.changes[-1].square().sum()) if self.steps else 1.0
        return torch.full_like(gradient, newest)

    def _decays(self) -> Tensor | float:
        """Return the decay of each parameter; one number if all have the same."""
        if len(self.param_groups) == 1:
            return float(self.param_groups[0]["decay"])
        decays = [group["decay"] for group in self.param_groups for _ in group["params"]]
        return self._repeat_per_element(self.parameters[0].new_tensor(decays))

    def _learn(self, step: Tensor, change: Tensor) -> None:
        if not bool(step @ change > SMALLEST_COSINE * step.norm() * change.norm()):
            self._count("skipped")
            return
        self.steps, self.changes = [*self.steps, step][-self._memory :], [*self.changes, change][-self._memory :]

    # --- all parameters as one vector

    def _flat(self, tensors: Iterable[Tensor | None]) -> Tensor:
        pairs = zip(tensors, self.parameters, strict=True)
        return torch.cat([(torch.zeros_like(p) if t is None else t).flatten() for t, p in pairs])

    def _active_mask(self, gradients: list[Tensor | None]) -> Tensor:
        """Return one for the parameters that have a gradient, zero for the others."""
        moving = torch.tensor([gradient is not None for gradient in gradients], device=self._lengths.device)
        return self._repeat_per_element(moving.to(self.parameters[0].dtype))

    def _root_mean_squares(self, vector: Tensor) -> Tensor:
        """Return the root mean square of each tensor, as one vector."""
        norms = torch._foreach_norm(torch.split(vector, self._sizes))
        return torch.stack(norms) / self._lengths.to(vector.dtype).sqrt()

    def _repeat_per_element(self, values: Tensor) -> Tensor:
        """Return one value per tensor, repeated for each of its elements."""
        return values.repeat_interleave(self._lengths, output_size=sum(self._sizes))

    def _clip(self, vector: Tensor, most: Tensor, counter: str) -> Tensor:
        """Return the vector with no tensor's root mean square above its bound; a bound of zero is off."""
        sizes = self._root_mean_squares(vector)
        over = (sizes > most) & (most > 0)
        if not bool(over.any()):
            return vector
        self._count(counter, int(over.sum()))
        return vector * self._repeat_per_element(torch.where(over, most / sizes, torch.ones_like(sizes)))

    def _move(self, movement: Tensor) -> None:
        parts = [part.view_as(p) for part, p in zip(torch.split(movement, self._sizes), self.parameters, strict=True)]
        torch._foreach_add_(self.parameters, parts)

    def _curvature_state(self) -> StateDict:
        return {"diagonal": self.curvature, "steps": list(self.steps), "changes": list(self.changes)}

    def _load_curvature(self, state: StateDict) -> None:
        like = self.parameters[0]
        self.curvature = None if state["diagonal"] is None else state["diagonal"].to(like, copy=True)
        self.steps, self.changes = ([vector.to(like) for vector in state[name]] for name in ("steps", "changes"))
