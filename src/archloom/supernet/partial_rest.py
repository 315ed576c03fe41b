"""What a path left out of a shared kernel rests, as whole parameters outside of the path do.

A kernel of which only the first channels were used has a gradient all the same, of zeros where it was not used. An
optimizer would let the rest shrink by its decay and drift by old momentum, by an amount that depends on how often
narrow layers were sampled. No gradient can prevent that for every optimizer, so the rest is put back after the step:
values and the optimizer's own figures, to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from archloom.supernet.masked_width import SharedKernel


@contextmanager
def unused_parts_resting(kernels: Sequence[SharedKernel], optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """To be put around an optimizer's step."""
    before = {
        parameter: (parameter.detach().clone(), _figures(optimizer, parameter, copied=True))
        for kernel in kernels
        for parameter in kernel.parameters(recurse=False)
    }
    yield
    for kernel in kernels:
        for name, parameter in kernel.named_parameters(recurse=False):
            used = (kernel.used or {}).get(name)
            if used is None or parameter.grad is None:  # all was used, or nothing: then the optimizer passed it over
                continue
            value, figures = before[parameter]
            _put_back(parameter.detach(), value, used)
            for key, figure in _figures(optimizer, parameter).items():
                _put_back(figure, figures.get(key), used)


def _figures(optimizer: torch.optim.Optimizer, parameter: Tensor, *, copied: bool = False) -> dict[str, Tensor]:
    """What an optimizer keeps for every number of a parameter."""
    state = optimizer.state.get(parameter, {})  # get: looking must not make an entry
    fitting = {
        key: value for key, value in state.items() if isinstance(value, Tensor) and value.shape == parameter.shape
    }
    return {key: value.clone() if copied else value for key, value in fitting.items()}


def _put_back(now: Tensor, before: Tensor | None, used: tuple[int, ...]) -> None:
    """Everything outside of the first `used` as before; zero where there was nothing before."""
    inside: tuple[slice, ...] = ()
    for count in used:
        rest = (*inside, slice(count, None))
        now[rest] = 0.0 if before is None else before[rest]
        inside = (*inside, slice(count))
