"""The gradient of every strategy that has one, against the exact one; and that the check sees mistakes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from archloom.core.errors import ArchloomError
from archloom.policies import Logits
from archloom.searches.gradient_check import DECAY, Problem, check_gradient
from archloom.spaces import Nb201
from archloom.strategies import STRATEGIES
from archloom.strategies.amended_darts import AmendedDarts
from archloom.strategies.darts import Darts
from archloom.strategies.differentiable import Differentiable

SPACE = Nb201(nodes=3)
EXACT = {"inverse": "conjugate_gradient:300", "products": "exact", "limit": 0.0}
WITH_LOGITS = [name for name, entry in STRATEGIES.items() if issubclass(entry.load(), Differentiable)]
DIRECT = ("darts", "pc_darts", "gibbs", "setn")  # take the direct part and nothing else


def checked(kind: Any, *, samples: int = 1, seed: int = 0, **settings: Any) -> Any:
    return check_gradient(
        "it", lambda space, generator: kind(space, generator, **settings), SPACE, samples=samples, seed=seed
    )


@pytest.mark.parametrize("name", WITH_LOGITS)
def test_every_strategy_computes_what_it_says(name: str) -> None:
    kind = STRATEGIES[name].load()
    found = checked(kind, samples=1 if name in ("darts", "pc_darts", "amended_darts", "gibbs") else 100)
    assert found.on_validation == (name != "snas")
    if name in DIRECT:
        assert found.direct_cosine > 0.999
        assert found.cosine < 0.99, "the problem tells the direct part from the whole"
    elif name == "amended_darts":
        assert found.cosine > checked(Darts).cosine + 0.001
    elif name == "gdas":  # samples of paths: another quantity, but one of the same sign
        assert found.direct_cosine > 0.3


def test_the_implicit_gradient_is_found_and_named() -> None:
    found = checked(AmendedDarts, **EXACT)
    assert found.cosine > 1 - 1e-6
    assert found.size == pytest.approx(1, abs=1e-4)
    assert found.verdict == "the exact gradient"
    assert "direct part alone" in checked(Darts).verdict


def test_the_exact_gradient_is_that_of_the_loss_with_the_weights_settled_anew() -> None:
    """By moving the logits a little, and letting the weights settle again."""
    problem = Problem(SPACE)
    policy = Logits(SPACE, torch.Generator()).double()
    problem.settle(policy.mixture)
    direct, total = problem.exact(policy.mixture)
    logits, slopes = problem.logits.clone(), []
    generator = torch.Generator().manual_seed(3)
    directions = torch.randn(3, len(logits), generator=generator, dtype=torch.float64)
    for direction in directions:
        values = []
        for sign in (1.0, -1.0):
            problem.logits = logits + sign * 1e-3 * direction
            problem.settle(policy.mixture)
            with torch.no_grad():
                found = problem.network(problem.valid.images, policy.mixture(problem.logits))
                values.append(float(F.cross_entropy(found, problem.valid.labels)))
        slopes.append((values[0] - values[1]) / 2e-3)
    assert torch.tensor(slopes, dtype=torch.float64) == pytest.approx(directions @ total, rel=0.02, abs=1e-6)
    assert torch.tensor(slopes, dtype=torch.float64) != pytest.approx(directions @ direct, rel=0.1)


class WrongSign(AmendedDarts):
    def gradients(self, weights: Any, batch: Any) -> tuple[Tensor, Tensor, Any]:
        direct, second, judged = super().gradients(weights, batch)
        return direct, -second, judged


class LostFactor(AmendedDarts):
    def gradients(self, weights: Any, batch: Any) -> tuple[Tensor, Tensor, Any]:
        direct, second, judged = super().gradients(weights, batch)
        return direct, second / 2, judged


@pytest.mark.parametrize("kind", [WrongSign, LostFactor])
def test_a_mistake_shows(kind: type) -> None:
    found = checked(kind, **EXACT)
    assert found.cosine < 0.98 or abs(found.size - 1) > 0.05
    assert found.verdict != "the exact gradient"


def test_a_strategy_without_logits_is_refused() -> None:
    with pytest.raises(ArchloomError, match="strategy 'it' has no gradient by logits"):
        checked(STRATEGIES["rsps"].load())


def test_the_decay_takes_part() -> None:
    assert DECAY > 0
    assert checked(AmendedDarts, **{**EXACT, "damping": 0.0}).cosine < 1 - 1e-6
