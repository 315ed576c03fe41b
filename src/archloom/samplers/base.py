"""Posterior sampling as a torch optimizer: a quasi-Newton step towards the mode, and noise with the inverse curvature.

The posterior is exp(-N (L + decay/2 |theta|^2)) for a mean loss L on N observations. Where it is Gaussian its mean lies
one Newton step away and its covariance is the inverse Hessian over N (Xue et al., 2021, Eq. 15 and 16, with the sign
that their Eq. 7 asks for). A step with an estimate P of the inverse Hessian of the mean loss is therefore

    theta <- theta - lr P g + sqrt(s2 T / N) P^(1/2) xi,        g = gradient of L + decay theta,  xi ~ N(0, I)

N appears in the noise only. `s2` depends on the learning rate, see `NOISE_RULES`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Literal, Required, TypedDict

import torch
from torch import Tensor

from archloom.core.errors import DivergedError, require
from archloom.core.state import StateDict

NoiseRule = Literal["exact", "lr", "sgld", "one"]

NOISE_RULES: Mapping[str, Callable[[float], float]] = {
    "exact": lambda rate: rate * (2 - rate),  # a Gaussian posterior is kept exactly, whatever the learning rate
    "lr": lambda rate: rate,  # the learning rate scales mean and covariance alike
    "sgld": lambda rate: 2 * rate,  # preconditioned Langevin dynamics
    "one": lambda rate: 1.0,  # the learning rate scales the mean only
}
"""Variance of the noise by learning rate, in units of the posterior's covariance."""

Closure = Callable[[], Tensor]
"""Sets the gradients of the mean loss on one batch, and returns the loss; it is called again on the same batch."""


class SamplerOptions(TypedDict, total=False):
    """The keywords of `PosteriorSampler`, which every sampler passes on."""

    generator: Required[torch.Generator]
    observations: Required[float]
    lr: float
    decay: float
    temperature: float
    noise_rule: NoiseRule
    noise_limit: float
    sample: bool


class PosteriorSampler(torch.optim.Optimizer):
    """The common part of all samplers: the scale of the noise, the decay, the random numbers, figures of each draw.

    `sample=False` takes the mean only. `draw` has figures of the last step, `counts` has totals since the start.
    """

    counters: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        generator: torch.Generator,
        observations: float,  # N: how many observations the mean loss stands for
        lr: float = 0.1,  # 1 is a full Newton step
        decay: float = 1e-4,  # precision of the prior, in units of the mean loss
        temperature: float = 1.0,  # 0 is the mean only, below 1 a cold posterior
        noise_rule: NoiseRule = "exact",
        noise_limit: float = 3.0,  # largest standard normal number; 0 is off
        sample: bool = True,
    ) -> None:
        require(
            {
                f"observations must be above 0, got {observations}": observations > 0,
                f"lr must lie in (0, 2), where the step converges, got {lr}": 0 < lr < 2,
                f"decay must be 0 or more, got {decay}": decay >= 0,
                f"temperature must be 0 or more, got {temperature}": temperature >= 0,
                f"noise_rule must be one of {', '.join(NOISE_RULES)}, got '{noise_rule}'": noise_rule in NOISE_RULES,
                f"noise_limit must be 0 (off) or more, got {noise_limit}": noise_limit >= 0,
            }
        )
        settings = {"lr": lr, "decay": decay, "temperature": temperature, "observations": observations}
        super().__init__(parameters, {**settings, "noise_rule": noise_rule, "sample": sample, "lr_end": 0.0})
        require(
            {
                f"{name} must be the same for all parameter groups, which are drawn together": (
                    len({group[name] for group in self.param_groups}) == 1
                )
                for name in ("lr", "temperature", "observations", "noise_rule", "sample")
            }
        )
        self.generator = generator
        self.draw: dict[str, float] = {}  # figures of the last step
        self.counts: dict[str, int] = dict.fromkeys(self.counters, 0)
        self._noise_limit = noise_limit

    def _begin_draw(self) -> None:
        self.counts["draws"] += 1
        self.draw = {name: 0.0 for name in self.counters if name != "draws"}

    def _count(self, name: str, times: int = 1) -> None:
        self.counts[name] += times
        self.draw[name] += times

    @abstractmethod
    def step(self, closure: Closure) -> Tensor:  # type: ignore[override]
        """Make one draw and return the loss before it."""

    # --- parts of a step

    @property
    def parameters(self) -> list[Tensor]:
        """Return all parameters that the sampler updates."""
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def _regularized_gradient(self, closure: Closure) -> tuple[Tensor, list[Tensor | None]]:
        """Return the loss, and its gradient with the decay; None where the loss does not depend on a parameter."""
        with torch.enable_grad():
            loss = closure()
        gradients = [
            None if parameter.grad is None else parameter.grad.add(parameter, alpha=group["decay"])
            for group in self.param_groups
            for parameter in group["params"]
        ]
        return loss.detach(), gradients

    def _descend(self, gradients: list[Tensor | None]) -> None:
        """Take a step of gradient descent, with the operations of torch.optim.SGD."""
        sizes = [float(gradient.norm()) for gradient in gradients if gradient is not None]
        self._check({"the gradient": torch.tensor(sizes)})
        remaining = iter(gradients)
        for group in self.param_groups:
            for parameter in group["params"]:
                gradient = next(remaining)
                if gradient is not None:
                    parameter.add_(gradient, alpha=-group["lr"])

    def _check(self, tensors: Mapping[str, Tensor]) -> None:
        """Raise DivergedError with a diagnosis before a parameter becomes NaN or infinite."""
        values = {name: float(tensor.norm()) for name, tensor in tensors.items()}
        wrong = next((name for name, value in values.items() if not math.isfinite(value)), None)
        if wrong is None:
            return
        group = self.param_groups[0]
        settings = ", ".join(f"{name} {group[name]:.4g}" for name in ("lr", "temperature", "observations"))
        raise DivergedError(
            f"{wrong} became {values[wrong]} in draw {self.counts['draws']} of {type(self).__name__} ({settings}, "
            f"noise {self.noise_scale():.3g}; {self._describe_state()}); lower lr or temperature, or raise observations"
        )

    def _describe_state(self) -> str:
        """Return the figures of the draw before and the counts as text."""
        figures = {**{name: f"{value:.3g}" for name, value in self.draw.items()}, **self.counts}
        return ", ".join(f"{name} {value}" for name, value in figures.items())

    def noise_scale(self) -> float:
        """Return the standard deviation of the noise, in units of the square root of P."""
        group = self.param_groups[0]
        if not group["sample"]:
            return 0.0
        variance = NOISE_RULES[group["noise_rule"]](group["lr"]) * group["temperature"] / group["observations"]
        return math.sqrt(variance)

    def _sample_normal(self, like: Tensor) -> Tensor:
        """Sample standard normal numbers, the same on every device, clamped to the limit."""
        numbers = torch.randn(like.shape, generator=self.generator, device=self.generator.device, dtype=like.dtype)
        if self._noise_limit:
            numbers.clamp_(-self._noise_limit, self._noise_limit)
        return numbers.to(like.device)

    # --- state

    def state_dict(self) -> StateDict:
        """Return everything that a checkpoint must hold."""
        return {
            **super().state_dict(),
            "generator": self.generator.get_state(),
            "counts": dict(self.counts),
            "curvature": self._curvature_state(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict({name: state[name] for name in ("state", "param_groups")})
        self.generator.set_state(state["generator"])
        self.counts = dict(state["counts"])
        self._load_curvature(state["curvature"])

    @abstractmethod
    def _curvature_state(self) -> StateDict:
        """Return the curvature estimate for a checkpoint."""

    @abstractmethod
    def _load_curvature(self, state: StateDict) -> None:
        """Restore what `_curvature_state` returned."""
