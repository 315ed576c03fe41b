"""Compare the architecture gradient of a strategy with the exact one, on a small smooth problem.

The validation loss at the weights that are optimal for the logits has a gradient with two parts: a direct one, and one
through those weights. On a small smooth network the second part can be computed exactly, by solving with the Hessian of
the training loss. Strategies omit it, approximate it, or get it wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.nn import functional as F

from archloom.core.errors import ArchloomError
from archloom.data.loader import Batch
from archloom.families import OperationKind, family_of
from archloom.fast import use_kernels
from archloom.searches.short_training import seeded
from archloom.spaces import NONE, SearchSpace
from archloom.strategies.base import Plan, SearchBatch
from archloom.strategies.differentiable import Differentiable
from archloom.supernet import Choice, Gates, SharedWeights, WeightSettings, to_vector

FEATURES, CLASSES, IMAGES = 4, 3, 24
DECAY = 0.03  # of the weights: it makes their optimum unique and the Hessian there invertible
LEARNING_RATE = 0.1  # of the virtual steps that some strategies take
SPREAD = 0.5  # of the logits


@dataclass(frozen=True)
class GradientCheck:
    """The gradient of a strategy compared with the exact one."""

    strategy: str
    cosine: float  # with the exact gradient
    size: float  # relative to it
    direct_cosine: float  # with its direct part alone
    samples: int  # draws that were averaged, where a strategy draws
    on_validation: bool = True  # whether the strategy takes its gradient there

    @property
    def verdict(self) -> str:
        """Return what the figures say of the gradient, in words."""
        if not self.on_validation:
            return "that of the training loss, which is another quantity"
        if self.cosine > 0.999 and abs(self.size - 1) < 0.01:
            return "the exact gradient"
        if self.direct_cosine > 0.999:
            return "the direct part alone, without the part through the weights"
        if self.cosine < 0:
            return "points away from the exact gradient"
        return "an approximation" if self.cosine > 0.7 else "a rough approximation, or another quantity"


class Chain(nn.Module):
    """Every decision of a space in sequence, each with a residual connection: a small and smooth network."""

    def __init__(self, space: SearchSpace) -> None:
        super().__init__()
        kind_of = family_of(space).kind_of
        self.choices = nn.ModuleList(
            Choice(decision, {o: _build_candidate(kind_of(o), n) for n, o in enumerate(decision.options) if o != NONE})
            for decision in space.decisions
        )
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor, gates: Gates) -> Tensor:
        for choice in self.choices:
            result = choice(x, gates)
            x = x if result is None else x + result / len(self.choices)
        logits: Tensor = self.head(F.softplus(x))
        return logits


def _build_candidate(kind: OperationKind, place: int) -> nn.Module:
    if kind is OperationKind.SKIP:
        return nn.Identity()
    hidden = 1 + place % 3
    return nn.Sequential(nn.Linear(FEATURES, hidden), nn.Tanh(), nn.Linear(hidden, FEATURES))


class Problem:
    """Training and validation data, and weights that are optimal for some logits."""

    def __init__(self, space: SearchSpace, *, seed: int = 0, logits: int | None = None) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.space = space
        teacher = 2 * torch.randn(FEATURES, CLASSES, generator=generator, dtype=torch.float64)
        self.train, self.valid = (_batch(teacher, generator) for _ in range(2))
        count = sum(len(decision.options) for decision in space.decisions)  # unless a policy has logits of edges, too
        self.logits = SPREAD * torch.randn(logits or count, generator=generator, dtype=torch.float64)
        with seeded(seed):
            self.network = Chain(space).double()

    def settle(self, mixture: Callable[[Tensor], Gates]) -> None:
        """Move the weights to the minimum of the training loss with its decay."""
        parameters = list(self.network.parameters())
        optimizer = torch.optim.LBFGS(
            parameters, max_iter=2000, tolerance_grad=1e-10, tolerance_change=0.0, line_search_fn="strong_wolfe"
        )

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(self.network(self.train.images, mixture(self.logits)), self.train.labels)
            loss = loss + DECAY / 2 * torch.stack([parameter.square().sum() for parameter in parameters]).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        optimizer.step(closure)  # type: ignore[no-untyped-call]
        optimizer.zero_grad()

    def exact(self, mixture: Callable[[Tensor], Gates]) -> tuple[Tensor, Tensor]:
        """Return the direct part of the gradient, and the whole gradient."""
        named = {name: value.detach() for name, value in self.network.named_parameters()}
        sizes = [value.numel() for value in named.values()]

        def loss(batch: Batch, weights: Tensor, logits: Tensor) -> Tensor:
            parts = torch.split(weights, sizes)
            shaped = {name: part.view(named[name].shape) for name, part in zip(named, parts, strict=True)}
            return F.cross_entropy(functional_call(self.network, shaped, (batch.images, mixture(logits))), batch.labels)

        def by_weights(weights: Tensor, logits: Tensor) -> Tensor:
            found: Tensor = grad(loss, argnums=1)(self.train, weights, logits)
            return found

        weights = to_vector(named.values())
        vector, direct = grad(loss, argnums=(1, 2))(self.valid, weights, self.logits)
        solved = _solve(lambda v: grad(lambda w: by_weights(w, self.logits) @ v)(weights) + DECAY * v, vector)
        through = grad(lambda logits: by_weights(weights, logits) @ solved)(self.logits)
        return direct, direct - through


def check_gradient(
    name: str, make: Callable[[SearchSpace, torch.Generator], Any], space: SearchSpace, *, samples: int, seed: int = 0
) -> GradientCheck:
    """Compare the gradient of a strategy, averaged over its samples, with the exact one."""
    generator = torch.Generator().manual_seed(seed)
    strategy = make(space, generator)
    if not isinstance(strategy, Differentiable):
        raise ArchloomError(f"strategy '{name}' has no gradient by logits to check; 'darts' has")
    problem = Problem(space, seed=seed, logits=strategy.policy.values.numel())
    strategy.policy.double()
    with torch.no_grad():
        strategy.policy.values.copy_(problem.logits)
    with use_kernels("plain"):  # the exact side differentiates twice
        problem.settle(strategy.policy.mixture)
        direct, total = problem.exact(strategy.policy.mixture)
        found = torch.stack(list(_gradients(strategy, problem, samples))).mean(dim=0)
    return GradientCheck(
        name,
        cosine=float(F.cosine_similarity(found, total, dim=0)),
        size=float(found.norm() / total.norm()),
        direct_cosine=float(F.cosine_similarity(found, direct, dim=0)),
        samples=samples,
        on_validation=strategy.validation.batches > 0,
    )


def _gradients(strategy: Differentiable, problem: Problem, samples: int) -> list[Tensor]:
    """Return the gradients that the strategy steps along at the same weights and logits, one per sample."""
    start = {name: value.clone() for name, value in problem.network.state_dict().items()}
    weights = SharedWeights(
        problem.network, WeightSettings(learning_rate=LEARNING_RATE, momentum=0.0, weight_decay=DECAY, clip=0.0)
    )
    strategy.begin(weights, Plan(IMAGES, IMAGES, IMAGES, IMAGES, steps=samples))
    seen = _GradientRecorder(strategy.policy.values)
    strategy.optimizer = seen  # type: ignore[assignment]
    valids = (problem.valid,) if strategy.validation.batches else ()
    batch = SearchBatch(problem.train, valids, epoch=0, epochs=1)
    if strategy.is_warming_up(batch):
        batch = replace(batch, epoch=99, epochs=100)
    for _ in range(samples):
        problem.network.load_state_dict(start)
        weights.set_learning_rate(LEARNING_RATE)  # small: the step of the weights must not matter
        strategy.step(weights, batch)
    return seen.gradients


class _GradientRecorder:
    """Replaces an optimizer: records the gradient and changes nothing."""

    def __init__(self, values: nn.Parameter) -> None:
        self._values = values
        self.param_groups: list[dict[str, Any]] = [{"lr": 0.0}]
        self.gradients: list[Tensor] = []

    def step(self, closure: Callable[[], Tensor] | None = None) -> None:
        if closure is not None:
            closure()
        assert self._values.grad is not None
        self.gradients.append(self._values.grad.detach().clone())


def _batch(teacher: Tensor, generator: torch.Generator) -> Batch:
    """Return points with labels, most of which can be learned."""
    images = torch.randn(IMAGES, FEATURES, generator=generator, dtype=torch.float64)
    logits = torch.sin(images) @ teacher + torch.randn(IMAGES, CLASSES, generator=generator, dtype=torch.float64)
    return Batch(images, logits.argmax(dim=1))


def _solve(product: Callable[[Tensor], Tensor], vector: Tensor) -> Tensor:
    """Return the solution of a linear system whose matrix is known by its products."""
    from scipy.sparse.linalg import LinearOperator, cg  # slow to import

    size = len(vector)
    operator = LinearOperator((size, size), lambda v: product(torch.from_numpy(v).reshape(-1)).numpy(), dtype="float64")
    found, failed = cg(operator, vector.numpy(), rtol=1e-12, maxiter=10 * size)
    if failed:
        raise ArchloomError("the small problem has no best weights to speak of; try another seed")
    return torch.from_numpy(found)
