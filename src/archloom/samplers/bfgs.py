"""Posterior samples with the full inverse Hessian, estimated by BFGS: for up to some hundred parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, Literal, Unpack

import torch
from torch import Tensor

from archloom.core.errors import require
from archloom.core.state import StateDict
from archloom.samplers.base import Closure, PosteriorSampler, SamplerOptions
from archloom.samplers.batch_noise import BatchedClosure, BatchNoise, persisting_share

DAMPING = 0.2  # Powell's: the least curvature along a step that is accepted, relative to the estimate
SMALLEST_COSINE = 1e-10  # between a step and the change of the gradient; below it a pair says nothing
JITTERS = (
    0.0,
    1e-8,
    1e-7,
    1e-6,
    1e-5,
    1e-4,
    1e-3,
    1e-2,
)  # tried one after another, relative to the mean of the diagonal


class InverseHessian:
    """A symmetric positive definite estimate P of an inverse Hessian that learns from steps and changes of gradient."""

    def __init__(self, size: int, *, smallest: float, largest: float, device: torch.device | None = None) -> None:
        self._smallest, self._largest = smallest, largest
        self._unit = torch.eye(size, dtype=torch.float64, device=device)
        self.reset()

    def reset(self) -> None:
        """Start again with the allowed value nearest to one, in all directions."""
        self.matrix = self._unit * min(max(1.0, self._smallest), self._largest)  # replaced, never written to
        self.has_learned = False  # before the first pair, P is only a scale

    def learn(self, step: Tensor, change: Tensor) -> Literal["plain", "damped", "skipped"]:
        """Apply the BFGS update, with Powell's damping where the curvature is too small or negative."""
        size = step.norm()
        if not bool(size > 0):
            return "skipped"
        before = self.matrix if self.has_learned else self._first_scale(step, change)
        along = torch.linalg.solve(before, step)
        expected, seen = step @ along, step @ change
        damped = bool(seen < DAMPING * expected)
        if damped:
            share = (1 - DAMPING) * expected / (expected - seen)
            change = share * change + (1 - share) * along
            seen = step @ change
        if not bool(seen > SMALLEST_COSINE * size * change.norm()):
            return "skipped"
        keep = self._unit - torch.outer(step, change / seen)
        self.matrix = self._bound_eigenvalues(keep @ before @ keep.T + torch.outer(step, step / seen))
        self.has_learned = True
        return "damped" if damped else "plain"

    def _first_scale(self, step: Tensor, change: Tensor) -> Tensor:
        """Return P with the size of the inverse curvature along the first step, in all directions."""
        size = step @ change / change.square().sum()
        if not bool(size > 0):
            return self.matrix
        return self._unit * size.clamp(self._smallest, self._largest)

    def _bound_eigenvalues(self, matrix: Tensor) -> Tensor:
        """Return the matrix made symmetric, with its eigenvalues within the bounds."""
        values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
        bounded = values.clamp(self._smallest, self._largest)
        result: Tensor = vectors @ (bounded.unsqueeze(1) * vectors.T)
        return result

    def root(self) -> tuple[Tensor, bool]:
        """Return R with R R' = P, and whether P was reset because it has no such root."""
        level = self.matrix.diagonal().mean()
        for jitter in JITTERS:
            factor, failure = torch.linalg.cholesky_ex(self.matrix + jitter * level * self._unit)
            if int(failure) == 0 and bool(torch.isfinite(factor).all()):
                return factor, False
        self.reset()
        return self.matrix.sqrt(), True

    def extremes(self) -> tuple[float, float]:
        """Return the smallest and the largest eigenvalue of P."""
        values = torch.linalg.eigvalsh(self.matrix)
        return float(values[0]), float(values[-1])


def _persisting_share(closure: Closure, rates: Tensor) -> Tensor | float:
    """Return the share of the noise of the batches that remains in the chain."""
    if not isinstance(closure, BatchedClosure) or not closure.in_turn:
        return 1.0
    return persisting_share(rates, batches=len(closure.gradients), unseen=closure.unseen)


class BfgsPosterior(PosteriorSampler):
    """Draw from the joint posterior of a few parameters; curvature is learned from pairs on the same batch.

    Each step calls the closure twice: before and after the move. Both must see the same batch. Otherwise the difference
    of their gradients is noise and not curvature (`pairs="different"` learns from successive batches, to show it).
    With `curvature="fixed"` nothing is learned, one call suffices, and P is what `inverse.matrix` was set to.
    `identity` is the same with P = 1; without noise it is gradient descent. `project` maps every movement to what is
    allowed, for directions that the loss cannot see. Parameters without gradient are not updated.

    A `BatchedClosure` shows how noisy its batches are. With `subtract_batch_noise` this noise replaces part of what
    would be injected (`batch_noise.py`). A pair repeats only `pair_share` of the batches.
    """

    counters: ClassVar[tuple[str, ...]] = ("draws", "clipped", "damped", "skipped", "failed")

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        curvature: Literal["bfgs", "fixed", "identity"] = "bfgs",
        pairs: Literal["same", "different"] = "same",
        smallest: float = 1e-3,  # bounds of the eigenvalues of P
        largest: float = 100.0,
        step_clip: float = 1.0,  # largest norm of the mean step; 0 is off
        learn_every: int = 1,  # draws to each pair; between them the closure is called once
        reset_every: int = 0,  # forget the curvature after so many draws; 0 is never
        pair_share: float = 1.0,  # of the batches of a draw that its pair repeats, where there are several
        subtract_batch_noise: bool = False,
        project: Callable[[Tensor], Tensor] | None = None,
        **common: Unpack[SamplerOptions],
    ) -> None:
        super().__init__(parameters, **common)
        require(
            {
                f"the bounds of P must be 0 < smallest <= largest, got {smallest} and {largest}": (
                    0 < smallest <= largest
                ),
                f"step_clip must be 0 (off) or more, got {step_clip}": step_clip >= 0,
                f"learn_every must be at least 1, got {learn_every}": learn_every >= 1,
                f"reset_every must be 0 (never) or more, got {reset_every}": reset_every >= 0,
                f"pair_share must lie in (0, 1], got {pair_share}": 0 < pair_share <= 1,
                f"curvature must be bfgs, fixed or identity, got '{curvature}'": (
                    curvature in ("bfgs", "fixed", "identity")
                ),
                f"subtract_batch_noise must go with the noise rule exact, got '{common.get('noise_rule')}'": (
                    not subtract_batch_noise or common.get("noise_rule", "exact") == "exact"
                ),
                f"pairs must be same or different, got '{pairs}'": pairs in ("same", "different"),
            }
        )
        self._identity, self._learning, self._same_batch = curvature == "identity", curvature == "bfgs", pairs == "same"
        self._step_clip, self._project = step_clip, project
        self._learn_every, self._reset_every, self._pair_share = learn_every, reset_every, pair_share
        size, device = sum(parameter.numel() for parameter in self.parameters), self.parameters[0].device
        bounds = (1.0, 1.0) if self._identity else (smallest, largest)
        self.inverse = InverseHessian(size, smallest=bounds[0], largest=bounds[1], device=device)
        self._last: tuple[Tensor, Tensor] | None = None  # the step and gradient before, for pairs of different batches
        self.batch_noise = BatchNoise(size, device=device) if subtract_batch_noise else None
        self._basis = self._allowed_directions(size) if subtract_batch_noise else None

    def _allowed_directions(self, size: int) -> Tensor:
        """Return an orthonormal basis of the directions that `project` keeps, as columns."""
        unit = torch.eye(size, dtype=torch.float64, device=self.parameters[0].device)
        if self._project is None:
            return unit
        values, vectors = torch.linalg.eigh(torch.stack([self._project(row) for row in unit]))
        kept: Tensor = vectors[:, values > 0.5]
        return kept

    @torch.no_grad()
    def step(self, closure: Closure) -> Tensor:  # type: ignore[override]
        """Update the parameters once and return the loss before the update."""
        loss, parts = self._regularized_gradient(closure)
        self._begin_draw()
        self._check({"the loss": loss})
        if self._identity and not self.noise_scale():
            self._descend(parts)
            return loss
        gradient = self._flat(parts)
        if self.batch_noise is not None and isinstance(closure, BatchedClosure):
            self.batch_noise.observe(closure.gradients, closure.unseen)
        if self._learning and self._last is not None:
            self._learn(self._last[0], gradient - self._last[1])
        active = self._flat([None if part is None else torch.ones_like(part) for part in parts])
        mean, noise = (part * active for part in self._movement(gradient, closure))
        self._check({"the mean step": mean, "the noise": noise})
        before = self._flat(self.parameters)
        self._move(mean + noise)
        moved = self._flat(self.parameters) - before  # as it was after rounding
        self.draw |= {"step_norm": float(mean.norm()), "noise_norm": float(noise.norm())}
        if self._learning and self._same_batch and (self.counts["draws"] - 1) % self._learn_every == 0:
            self._learn(moved, self._change_of_gradient(closure, gradient, moved))
        elif not self._same_batch:
            self._last = (moved, gradient)
        self.draw["smallest"], self.draw["largest"] = self.inverse.extremes()
        if self._learning and self._reset_every and self.counts["draws"] % self._reset_every == 0:
            self.inverse.reset()
        return loss

    def start_from(self, inverse: Tensor) -> None:
        """Start with a curvature that was learned elsewhere."""
        self.inverse.matrix, self.inverse.has_learned = inverse.to(self.inverse.matrix), True

    def freeze_curvature(self) -> None:
        """Learn no more: a chain whose curvature changes with its position is not exactly that of its posterior."""
        self._learning = False

    def _change_of_gradient(self, closure: Closure, before: Tensor, moved: Tensor) -> Tensor:
        """Return how the gradient changed by a move, on the same batches or on the first ones of them."""
        if not isinstance(closure, BatchedClosure) or self._pair_share == 1:
            return self._flat(self._regularized_gradient(closure)[1]) - before
        count = max(1, round(self._pair_share * len(closure.gradients)))
        with torch.enable_grad():
            after = closure.repeat(count).double()
        first = torch.stack([gradient.double() for gradient in closure.gradients[:count]]).mean(dim=0)
        change: Tensor = after - first + self.param_groups[0]["decay"] * moved
        return change

    def _movement(self, gradient: Tensor, closure: Closure) -> tuple[Tensor, Tensor]:
        """Return the mean step and the noise, both projected."""
        noise, scale = torch.zeros_like(gradient), self.noise_scale()
        if scale:
            root, failed = self.inverse.root()  # before the mean, which must not use a P that is reset here
            self._count("failed", int(failed))
            if self.batch_noise is not None and self.batch_noise.is_known:
                return self._movement_beside_batches(gradient, self.batch_noise, closure)
            noise = scale * (root @ self._sample_normal(gradient))
        mean = self._clip_step(-self.param_groups[0]["lr"] * (self.inverse.matrix @ gradient))
        return (mean, noise) if self._project is None else (self._project(mean), self._project(noise))

    def _movement_beside_batches(
        self, gradient: Tensor, batch_noise: BatchNoise, closure: Closure
    ) -> tuple[Tensor, Tensor]:
        """Return the mean step and as much noise as the batches leave room for, both projected."""
        group, basis = self.param_groups[0], self._basis
        assert basis is not None
        root = basis @ torch.linalg.cholesky(basis.T @ self.inverse.matrix @ basis)
        tempered = group["observations"] / group["temperature"]
        spectrum = batch_noise.spectrum(root, observations=tempered)
        rates = spectrum.limit_rates(group["lr"])
        injected = spectrum.left_to_inject(rates, share=_persisting_share(closure, rates))
        along = root @ spectrum.directions
        mean = self._clip_step(-along @ (rates * (along.T @ gradient)))
        noise = along @ ((injected / tempered).sqrt() * self._sample_normal(injected))
        own = rates * (2 - rates)
        self.draw |= {"rate": float(rates.mean()), "batch_share": float(1 - injected.sum() / own.sum())}
        return mean, noise

    def _clip_step(self, mean: Tensor) -> Tensor:
        """Return the mean step, no longer than the limit."""
        length = float(mean.norm())
        if not self._step_clip or length <= self._step_clip:
            return mean
        self._count("clipped")
        return mean * (self._step_clip / length)

    def _learn(self, step: Tensor, change: Tensor) -> None:
        outcome = self.inverse.learn(step, change)
        if outcome != "plain":
            self._count(outcome)

    def _flat(self, tensors: Iterable[Tensor | None]) -> Tensor:
        """Return all tensors as one vector in double precision; zero where there is no gradient."""
        pairs = zip(tensors, self.parameters, strict=True)
        return torch.cat([(torch.zeros_like(p) if t is None else t).flatten().double() for t, p in pairs])

    def _move(self, movement: Tensor) -> None:
        start = 0
        for parameter in self.parameters:
            part = movement[start : start + parameter.numel()].view_as(parameter)
            parameter.copy_(parameter.double() + part)
            start += parameter.numel()

    def _curvature_state(self) -> StateDict:
        last = None if self._last is None else list(self._last)
        state = {"matrix": self.inverse.matrix, "learnt": self.inverse.has_learned, "last": last}
        return state if self.batch_noise is None else {**state, "batch_noise": self.batch_noise.state_dict()}

    def _load_curvature(self, state: StateDict) -> None:
        self.inverse.matrix = state["matrix"].to(self.inverse.matrix)
        self.inverse.has_learned = state["learnt"]
        if self.batch_noise is not None and "batch_noise" in state:
            self.batch_noise.load_state_dict(state["batch_noise"])
        last = state["last"]
        self._last = None if last is None else (last[0].to(self.inverse.matrix), last[1].to(self.inverse.matrix))
