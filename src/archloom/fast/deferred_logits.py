"""Logits of words that are computed only when they are read: a loss does without them.

A decoder multiplies by a matrix of the whole vocabulary: 1,120 tokens of 10,000 words are 45 MB of logits. A compiled
decoder makes them block by block, with the cross entropy and its gradient, in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from archloom.fast.late_weights import LateGradients, LateWeights, refuse_second_derivative


class DecoderRunner(LateGradients, Protocol):
    """Runs a decoder with its cross entropy once: forward, backward, then `finish` for the gradients of its weights."""

    def forward(self, *, differentiable: bool) -> Tensor:
        """Return the loss of every token; keep what the backward pass needs if there will be one."""

    def backward(self, gradient: Tensor) -> Tensor:
        """Return the gradient of the states, given that of every loss."""


MakeRunner = Callable[[Tensor, Tensor, Tensor, Tensor], DecoderRunner]  # from states, weights, bias and labels


class DeferredLogits(Tensor):
    """A tensor that is `states @ weights.t() + bias`: cross entropy runs compiled, all else reads the logits.

    It looks like any other tensor, so tasks and loops need not know of it.
    """

    _make: MakeRunner
    _parts: tuple[Tensor, Tensor, Tensor]
    _versions: list[int]  # of the parts, when the logits should have been computed
    _logits: Tensor | None

    @staticmethod
    def __new__(cls, make: MakeRunner, states: Tensor, weights: Tensor, bias: Tensor) -> DeferredLogits:
        """Return the logits [tokens, words] of states [tokens, H]."""
        made = Tensor._make_wrapper_subclass(cls, (len(states), len(weights)), dtype=states.dtype, device=states.device)
        made._make, made._parts, made._logits = make, (states, weights, bias), None
        made._versions = [part._version for part in made._parts]
        return made

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call a function of torch with the logits, unless it needs none."""
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if func in _OF_THE_SHAPE:
                return func(*args, **kwargs)
            if func in _DEFERRED and isinstance(args[0], DeferredLogits):
                return _DEFERRED[func](*args, **kwargs)
            return func(*map(_compute, args), **{name: _compute(value) for name, value in kwargs.items()})

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        """Refuse what did not go through `__torch_function__`: there is no memory behind this tensor."""
        raise NotImplementedError(f"{func} of logits that were not computed")

    def _compute(self) -> Tensor:
        if self._logits is None:
            self._check_unchanged()
            self._logits = F.linear(*self._parts)
        return self._logits

    def _check_unchanged(self) -> None:
        if self._versions != [part._version for part in self._parts]:
            raise RuntimeError("logits were read after the weights of their decoder had changed; read them before")

    def _detach(self) -> Tensor:
        if self._logits is not None:
            return self._logits.detach()
        self._check_unchanged()
        return DeferredLogits(self._make, *(part.detach() for part in self._parts))

    def _cross_entropy(
        self,
        labels: Tensor,
        weight: Tensor | None = None,
        size_average: None = None,
        ignore_index: int = -100,
        reduce: None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> Tensor:
        """Return what `torch.nn.functional.cross_entropy` does."""
        is_plain = weight is None and size_average is None and reduce is None and ignore_index < 0
        is_covered = is_plain and not label_smoothing and reduction in _REDUCTIONS and _are_words(labels, *self.shape)
        was_changed = self._logits is not None and self._logits._version > 0
        if was_changed or not is_covered:
            return F.cross_entropy(
                self._compute(), labels, weight, size_average, ignore_index, reduce, reduction, label_smoothing
            )
        self._check_unchanged()
        return _REDUCTIONS[reduction](_find_losses(self._make, *self._parts, labels))


def _find_losses(make: MakeRunner, states: Tensor, weights: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
    """Return the loss of every token, with a gradient."""
    runner = make(states.detach(), weights.detach(), bias.detach(), labels)
    link: Tensor = LateWeights.apply(runner, weights, bias)  # type: ignore[no-untyped-call]
    differentiable = torch.is_grad_enabled() and (states.requires_grad or link.requires_grad)
    losses: Tensor = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
        runner, differentiable, states, link, weights.detach(), bias.detach()
    )
    return losses


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, runner: DecoderRunner, differentiable: bool, states: Tensor, link: Tensor, *weights: Tensor
    ) -> Tensor:
        ctx.runner = runner
        ctx.save_for_backward(states, *weights)  # only so that a change in between is noticed
        return runner.forward(differentiable=differentiable)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        refuse_second_derivative()
        _ = ctx.saved_tensors
        link = gradient.new_zeros(()) if ctx.needs_input_grad[3] else None
        return None, None, ctx.runner.backward(gradient), link, None, None


def _compute(value: Any) -> Any:
    """Return logits in place of deferred ones, also in a list."""
    if isinstance(value, DeferredLogits):
        return value._compute()
    return type(value)(map(_compute, value)) if type(value) in (list, tuple) else value


def _are_words(labels: Tensor, tokens: int, words: int) -> bool:
    """Return whether every token has a word as its label; torch says what is wrong with others."""
    if labels.shape != (tokens,) or labels.dtype is not torch.int64 or not tokens:
        return False
    least, most = labels.aminmax()
    return int(least) >= 0 and int(most) < words


_REDUCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "mean": Tensor.mean,
    "sum": Tensor.sum,
    "none": lambda one: one,
}
_DEFERRED: Mapping[Any, Callable[..., Any]] = {
    F.cross_entropy: DeferredLogits._cross_entropy,
    Tensor.detach: DeferredLogits._detach,
}
_OF_THE_SHAPE = {  # functions of what is known without the logits
    Tensor.shape.__get__,  # type: ignore[attr-defined]
    Tensor.dtype.__get__,  # type: ignore[attr-defined]
    Tensor.device.__get__,
    Tensor.__len__,
    Tensor.size,
}
