"""The compiled decoder with its cross entropy against torch, in double precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from archloom.fast.deferred_logits import DeferredLogits
from archloom.fast.kernels import Kernels
from archloom.fast.native import available_levels, load
from archloom.fast.native.kernels import NativeKernels

native = pytest.mark.parametrize(
    "level",
    available_levels() or [pytest.param("none", marks=pytest.mark.skip(reason="no compiled kernels here"))],
)
Given = tuple[Tensor, Tensor, Tensor, Tensor]  # states, weights, bias, labels


@pytest.fixture
def set_threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def compiled(level: str) -> NativeKernels:
    found = load(level)
    assert found is not None
    return found


def make(tokens: int, hidden: int, words: int, *, spread: float = 1.0) -> Given:
    generator = torch.Generator().manual_seed(tokens + hidden + words)
    states, weights, bias = (
        torch.randn(shape, generator=generator) for shape in ((tokens, hidden), (words, hidden), (words,))
    )
    labels = torch.randint(words, (tokens,), generator=generator)
    labels[0], labels[-1] = words - 1, 0  # both ends of the words
    return spread * states, weights / hidden**0.5, bias, labels


def differentiate(
    kernels: Kernels, given: Given, *, reduction: str = "none", dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    """Return the losses and the gradients of states, weights and bias."""
    leaves = [one.to(dtype, copy=True).requires_grad_() for one in given[:3]]
    losses = F.cross_entropy(kernels.decode(*leaves), given[3], reduction=reduction)
    factors = torch.linspace(-1, 2, losses.numel(), dtype=dtype).view_as(losses)
    return [losses.detach(), *torch.autograd.grad((losses * factors).sum(), leaves)]


def check(level: str, given: Given, *, reduction: str = "none") -> None:
    assert isinstance(compiled(level).decode(*given[:3]), DeferredLogits)
    fast = differentiate(compiled(level), given, reduction=reduction)
    exact = differentiate(Kernels(), given, reduction=reduction, dtype=torch.float64)
    for one, two in zip(fast, exact, strict=True):
        assert one.dtype is torch.float32 and one.shape == two.shape
        torch.testing.assert_close(one.double(), two, rtol=1e-5, atol=1e-5 * max(float(two.abs().max()), 1e-3))


@native
@pytest.mark.parametrize("tokens", [1, 2, 15, 16, 33, 48, 50, 101])
@pytest.mark.parametrize(("hidden", "words"), [(1, 2), (5, 7), (16, 256), (33, 257), (50, 600), (300, 130)])
def test_any_size(level: str, tokens: int, hidden: int, words: int) -> None:
    check(level, make(tokens, hidden, words))


@native
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_every_reduction(level: str, reduction: str) -> None:
    check(level, make(70, 20, 300), reduction=reduction)


@native
@pytest.mark.parametrize("spread", [1e-3, 10.0, 100.0])
def test_small_and_large_logits(level: str, spread: float) -> None:
    check(level, make(40, 24, 700, spread=spread))


@native
def test_probabilities_below_the_smallest_exponential_are_zero(level: str) -> None:
    states, weights, bias, labels = make(3, 2, 600)
    bias[7], labels[1] = 5000.0, 7  # any other word is impossible
    losses, *gradients = differentiate(compiled(level), (states, weights, bias, labels))
    assert float(losses[1]) == 0.0 and float(losses[0]) > 4900
    assert all(bool(one.isfinite().all()) for one in gradients)
    assert not gradients[0][1].any()  # nothing to learn from the word that is certain


@native
def test_what_is_not_a_number_stays_in_its_token(level: str) -> None:
    states, weights, bias, labels = make(20, 6, 300)
    states[4, 2] = float("nan")
    losses, by_states, by_weights, _ = differentiate(compiled(level), (states, weights, bias, labels))
    assert losses.isnan().nonzero().flatten().tolist() == [4]
    assert by_states.isnan().any(dim=1).nonzero().flatten().tolist() == [4]
    assert by_weights.isnan().any()


@native
def test_results_repeat_to_the_bit_whatever_the_threads_and_the_memory(
    level: str, set_threads: Callable[[int], None]
) -> None:
    given = make(210, 96, 700)
    set_threads(1)
    first = differentiate(compiled(level), given)
    differentiate(compiled(level), make(300, 64, 900))  # leaves other numbers behind in the memory that is used again
    again = differentiate(compiled(level), given)
    set_threads(3)
    for threads in (again, differentiate(compiled(level), given)):
        assert all(torch.equal(one, two) for one, two in zip(first, threads, strict=True))


def record(level: str) -> tuple[NativeKernels, list[str]]:
    """Return kernels, and a list that their calls are added to."""
    calls: list[str] = []

    def recorded(name: str, function: Callable[..., int]) -> Callable[..., int]:
        return lambda *given: calls.append(name) or function(*given)  # type: ignore[func-returns-value]

    kernels = NativeKernels(level, {name: recorded(name, one) for name, one in compiled(level)._functions.items()})
    calls.clear()  # it asked for the width of vectors
    return kernels, calls


@native
def test_only_the_gradients_that_are_asked_for_are_computed(level: str) -> None:
    kernels, calls = record(level)
    states, weights, bias, labels = make(9, 4, 30)
    leaves = [one.requires_grad_() for one in (states, weights, bias)]

    def take(wanted: Sequence[Tensor]) -> list[str]:
        calls.clear()
        torch.autograd.grad(F.cross_entropy(kernels.decode(*leaves), labels), wanted)
        return [name for name in calls if name.startswith("decoder")]

    assert take([states]) == ["decoder", "decoder_backward"]
    assert take([states, weights]) == take([bias]) == ["decoder", "decoder_backward", "decoder_weights"]


@native
def test_no_logits_are_kept_without_a_gradient(level: str) -> None:
    kernels, calls = record(level)
    given = make(60, 4, 600)
    with torch.no_grad():
        found = F.cross_entropy(kernels.decode(*(one.requires_grad_() for one in given[:3])), given[3])
    assert calls == ["decoder"]  # none that makes memory
    torch.testing.assert_close(found, F.cross_entropy(F.linear(*given[:3]), given[3]).detach())


@native
def test_a_loss_is_differentiated_once_and_has_no_second_derivative(level: str) -> None:
    states, weights, bias, labels = make(5, 4, 30)
    loss = F.cross_entropy(compiled(level).decode(states.requires_grad_(), weights, bias), labels)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(loss, [states], create_graph=True)
    torch.autograd.grad(loss, [states], retain_graph=True)
    with pytest.raises(RuntimeError, match="differentiated twice"):
        torch.autograd.grad(loss, [states])


@native
def test_other_precisions_and_empty_batches_are_left_to_torch(level: str) -> None:
    states, weights, bias, _ = make(5, 4, 30)
    double = compiled(level).decode(states.double(), weights.double(), bias.double())
    assert type(double) is Tensor and double.dtype is torch.float64
    assert compiled(level).decode(states[:0], weights, bias).shape == (0, 30)
    with torch.inference_mode():
        assert type(compiled(level).decode(states + 1, weights, bias)) is Tensor
