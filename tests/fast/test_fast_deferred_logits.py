"""Deferred logits look like any other tensor, and a language model learns the same with them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from archloom.data.text import TextLoader
from archloom.families import build_network
from archloom.families.recurrent import RecurrentNetwork
from archloom.fast import use_kernels
from archloom.fast.deferred_logits import DeferredLogits
from archloom.fast.native import available_levels
from archloom.retrainings.text_evaluation import evaluate_text
from archloom.spaces import Recurrent
from archloom.supernet import EveryOption, Gate, Gates, Only, SharedWeights, WeightSettings
from archloom.tasks import LANGUAGE, TextShape

WORDS = 300
needs_library = pytest.mark.skipif(not available_levels(), reason="no compiled kernels here")


class Runner:
    """A decoder in torch; it counts how often it was made."""

    made = 0

    def __init__(self, states: Tensor, weights: Tensor, bias: Tensor, labels: Tensor) -> None:
        Runner.made += 1
        self._given, self._labels = (states, weights, bias), labels
        self._by_logits = torch.empty(0)

    def forward(self, *, differentiable: bool) -> Tensor:
        return F.cross_entropy(F.linear(*self._given), self._labels, reduction="none")

    def backward(self, gradient: Tensor) -> Tensor:
        right = F.one_hot(self._labels, len(self._given[1]))
        self._by_logits = gradient[:, None] * (F.linear(*self._given).softmax(dim=1) - right)
        return self._by_logits @ self._given[1]

    def finish(self) -> tuple[Tensor, Tensor]:
        return self._by_logits.t() @ self._given[0], self._by_logits.sum(dim=0)


@pytest.fixture
def parts() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((6, 3), (5, 3), (5,))
    return [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]


LABELS = torch.tensor([0, 4, 2, 2, 1, 3])


def gradients(value: Tensor, parts: list[Tensor]) -> list[Tensor]:
    return [value.detach(), *torch.autograd.grad(value, parts)]


USES: dict[str, Callable[[Tensor], Tensor]] = {
    "method": lambda logits: logits.softmax(dim=1)[2, 1],
    "function": lambda logits: torch.logsumexp(logits, dim=1).sum(),
    "operator": lambda logits: (2 * logits + 1).square().mean(),
    "list": lambda logits: torch.stack([logits, logits.exp()]).sum(),
    "keyword": lambda logits: torch.sum(input=logits),
    "item": lambda logits: logits[-1:].square().sum(),
    "cross entropy": lambda logits: F.cross_entropy(logits, LABELS),
    "weighted": lambda logits: F.cross_entropy(logits, LABELS, weight=torch.arange(5.0).double()),
    "smoothed": lambda logits: F.cross_entropy(logits, LABELS, label_smoothing=0.2),
    "ignored": lambda logits: F.cross_entropy(logits, torch.where(LABELS == 2, -100, LABELS)),
    "ignored word": lambda logits: F.cross_entropy(logits, LABELS, ignore_index=2),
    "shares": lambda logits: F.cross_entropy(logits, F.one_hot(LABELS, 5).double()),
    "read before": lambda logits: logits.logsumexp(dim=1).sum() + F.cross_entropy(logits, LABELS),
    "detached after": lambda logits: logits.square().sum() + logits.detach().sum() * logits[0, 0],
    "changed before": lambda logits: F.cross_entropy(logits.mul_(2), LABELS) + F.cross_entropy(logits, LABELS),
}


@pytest.mark.parametrize("use", USES)
def test_they_are_what_the_product_is(use: str, parts: list[Tensor]) -> None:
    found = gradients(USES[use](DeferredLogits(Runner, *parts)), parts)
    for one, two in zip(found, gradients(USES[use](F.linear(*parts)), parts), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-14)


def test_a_label_that_is_no_word_is_refused_as_torch_does(parts: list[Tensor]) -> None:
    with pytest.raises(IndexError, match="Target 5 is out of bounds"):
        F.cross_entropy(DeferredLogits(Runner, *parts), LABELS + 1)


def test_shape_and_loss_need_no_logits(parts: list[Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: DeferredLogits) -> Tensor:
        raise AssertionError("the logits were computed")

    monkeypatch.setattr(DeferredLogits, "_compute", refuse)
    logits, before = DeferredLogits(Runner, *parts), Runner.made
    assert isinstance(logits, Tensor) and logits.shape == (6, 5) and len(logits) == 6
    assert logits.dtype is torch.float64 and logits.device.type == "cpu" and logits.size(1) == 5
    assert F.cross_entropy(logits, LABELS).requires_grad
    assert not F.cross_entropy(logits.detach(), LABELS).requires_grad
    assert Runner.made == before + 2
    with pytest.raises(AssertionError, match="were computed"):
        logits.sum()


def test_logits_of_weights_that_changed_since_are_refused(parts: list[Tensor]) -> None:
    logits, read = DeferredLogits(Runner, *parts), DeferredLogits(Runner, *parts)
    before = read.sum().detach()
    with torch.no_grad():
        parts[1].add_(1)
    for use in (Tensor.sum, Tensor.detach, lambda one: F.cross_entropy(one, LABELS)):
        with pytest.raises(RuntimeError, match="weights of their decoder had changed"):
            use(logits)
    assert torch.equal(read.sum().detach(), before)


# --- a language model with and without compiled kernels


def make_network(resolve: Any, space: Recurrent) -> RecurrentNetwork:
    torch.manual_seed(0)
    rates = {f"dropout_{part}": 0.2 for part in ("output", "hidden", "input", "embedding", "words")}
    network = build_network(space, resolve, TextShape(WORDS), hidden=21, change_penalty=0.5, **rates)
    assert isinstance(network, RecurrentNetwork)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.uniform_(-0.3, 0.3)
    return network


def make_loader() -> TextLoader:
    text = torch.randint(WORDS, (400,), generator=torch.Generator().manual_seed(1))
    return TextLoader(text, columns=7, segment=9, stream="one")  # 63 tokens fill no whole vectors


def mixture(space: Recurrent) -> tuple[Gates, list[Tensor]]:
    generator = torch.Generator().manual_seed(1)
    leaves = [torch.rand(len(d.options), generator=generator).requires_grad_() for d in space.decisions]
    return {d.name: Gate(weights=leaf) for d, leaf in zip(space.decisions, leaves, strict=True)}, leaves


def search_steps(kernels: str, smoothing: float) -> list[Tensor]:
    """Return losses, scores, gradients of gates and weights after some steps of a search."""
    space = Recurrent(nodes=3)
    settings = WeightSettings(learning_rate=1.0, momentum=0.0, clip=0.25, label_smoothing=smoothing)
    weights = SharedWeights(make_network(EveryOption(), space), settings, task=LANGUAGE)
    gates, leaves = mixture(space)
    found = list[Tensor]()
    with use_kernels(kernels):  # type: ignore[arg-type]
        for number in range(2):
            batch = make_loader().batch(0, number)
            found += torch.autograd.grad(weights.loss(batch, gates), leaves)
            result = weights.fit(batch, gates)
            found += [result.loss, result.score, weights.score(batch, gates)]
            found += weights.evaluate_examples(batch, gates)
    return [one.detach().clone() for one in (*found, *weights.parameters.values())]


@needs_library
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_steps_of_a_search_agree(smoothing: float) -> None:
    fast, plain = search_steps("auto", smoothing), search_steps("plain", smoothing)
    for one, two in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4 * max(float(two.abs().max()), 1e-2))
    again = search_steps("auto", smoothing)
    assert all(torch.equal(one, two) for one, two in zip(fast, again, strict=True))


@needs_library
def test_evaluations_agree() -> None:
    space = Recurrent(nodes=3)
    network = make_network(Only(space.sample(random.Random(0))), space)
    found = []
    for kernels in ("auto", "plain"):
        with use_kernels(kernels):  # type: ignore[arg-type]
            found.append(evaluate_text(network, make_loader()))
    assert found[0].words == found[1].words
    assert found[0].loss == pytest.approx(found[1].loss, rel=1e-6)
