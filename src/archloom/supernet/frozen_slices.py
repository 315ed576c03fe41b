"""Keep the unused slices of shared kernels frozen, as whole parameters outside the sampled path are.

A kernel of which only the first channels were used still has a gradient, of zeros outside these channels. An optimizer
would let the unused slices shrink by weight decay and drift by old momentum, by an amount that depends on how often
narrow layers were sampled. No gradient prevents that for every optimizer. The slices are therefore restored after the
step, to the bit: values and the optimizer's state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from archloom.supernet.masked_width import SharedKernel


@contextmanager
def freeze_unused_slices(kernels: Sequence[SharedKernel], optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Restore what an optimizer step within this context changed outside the slices that were used."""
    before = {
        parameter: (parameter.detach().clone(), _state_of(optimizer, parameter, copy=True))
        for kernel in kernels
        for parameter in kernel.parameters(recurse=False)
    }
    yield
    for kernel in kernels:
        for name, parameter in kernel.named_parameters(recurse=False):
            used = (kernel.used_sizes or {}).get(name)
            if used is None or parameter.grad is None:  # used whole, or not at all: then the optimizer skipped it
                continue
            value, state = before[parameter]
            _restore(parameter.detach(), value, used)
            for key, tensor in _state_of(optimizer, parameter).items():
                _restore(tensor, state.get(key), used)


def _state_of(optimizer: torch.optim.Optimizer, parameter: Tensor, *, copy: bool = False) -> dict[str, Tensor]:
    """Return the optimizer's state that has one number for every number of a parameter."""
    state = optimizer.state.get(parameter, {})  # get: reading must not add an entry
    tensors = {
        key: value for key, value in state.items() if isinstance(value, Tensor) and value.shape == parameter.shape
    }
    return {key: value.clone() if copy else value for key, value in tensors.items()}


def _restore(now: Tensor, before: Tensor | None, used: tuple[int, ...]) -> None:
    """Reset everything outside of the first `used` to its value before, or to zero where there was none."""
    inside: tuple[slice, ...] = ()
    for count in used:
        unused = (*inside, slice(count, None))
        now[unused] = 0.0 if before is None else before[unused]
        inside = (*inside, slice(count))
