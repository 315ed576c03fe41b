"""The decoder of a language model with its cross entropy in the compiled library."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from archloom.fast.native.arguments import WIDEST, address_of, check_memory, pointer_to
from archloom.fast.native.workspaces import Workspace, Workspaces


class NativeDecoder:
    """A decoder and the labels of its tokens in compiled code. Its steps are taken once each.

    The backward pass writes gradients of logits over the logits, and the gradients of weights are products of those.
    """

    def __init__(
        self,
        functions: Mapping[str, Callable[..., int]],
        workspaces: Workspaces,
        states: Tensor,
        weights: Tensor,
        bias: Tensor,
        labels: Tensor,
    ) -> None:
        self._functions, self._workspaces = functions, workspaces
        self._tensors = tuple(one.contiguous() for one in (states, weights, bias, labels))
        self._logarithms = states.new_empty(len(states))
        self._logits: Workspace | None = None
        self._is_differentiated = False

    def forward(self, *, differentiable: bool) -> Tensor:
        """Return the loss of every token; keep the logits if there will be a backward pass."""
        states, weights = self._tensors[:2]
        (tokens, hidden), words = states.shape, len(weights)
        floats = words * ((tokens + WIDEST - 1) // WIDEST * WIDEST)
        self._logits = self._workspaces.lend(floats) if differentiable else None
        logits = self._logits.cut((floats,))[0] if self._logits else None
        self._table = array("q", (tokens, hidden, words))
        self._table.extend(map(pointer_to, (*self._tensors, logits, self._logarithms)))
        losses = torch.empty_like(self._logarithms)
        self._call("decoder", losses)
        return losses

    def backward(self, gradient: Tensor) -> Tensor:
        """Return the gradient of the states, given that of every loss."""
        if self._logits is None or self._is_differentiated:
            raise RuntimeError("a loss was differentiated twice; compute it again")
        self._is_differentiated = True
        by_states = torch.empty_like(self._tensors[0])
        self._call("decoder_backward", gradient.contiguous(), by_states)
        return by_states

    def finish(self) -> tuple[Tensor, Tensor]:
        """Return the gradients of weights and bias, after the backward pass."""
        _, weights, bias, _ = self._tensors
        by_weights, by_bias = torch.empty_like(weights), torch.empty_like(bias)
        self._call("decoder_weights", by_weights, by_bias)
        self._logits = None
        return by_weights, by_bias

    def _call(self, name: str, *tensors: Tensor) -> None:
        check_memory(self._functions[name](address_of(self._table), *map(pointer_to, tensors), torch.get_num_threads()))
