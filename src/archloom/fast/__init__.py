"""Choose the kernels of a supernet: compiled with the package, written in torch, or the plain modules alone.

The choice includes whether the backward pass recomputes cells, which takes more time and less memory. It holds for the
process, like the number of threads. Results differ in rounding only, which tests pin down.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, get_args

import torch

from archloom.core.errors import require
from archloom.core.lazy_imports import lazy_imports
from archloom.fast.kernel_arguments import Geometry, Slot, Term
from archloom.fast.kernels import Kernels

with lazy_imports():  # only if they are wanted
    import archloom.fast.native as native

KernelChoice = Literal["auto", "torch", "plain", "compile"]
"""auto: compiled kernels if there are any, else torch; torch: fused cells in torch; plain: module by module.

compile: mixtures by `torch.compile`, cell by cell, which takes minutes at first; everything else as auto.
"""

_default: tuple[KernelChoice, bool] = ("auto", False)
_chosen: ContextVar[tuple[KernelChoice, bool] | None] = ContextVar("kernels", default=None)
_bfloat16: ContextVar[bool] = ContextVar("bfloat16", default=False)


def set_kernels(choice: KernelChoice, *, recompute: bool = False) -> None:
    """Set the kernels that this process uses from now on."""
    global _default
    _default = _check(choice), recompute


@contextmanager
def use_kernels(choice: KernelChoice, *, recompute: bool = False) -> Iterator[None]:
    """Use these kernels within the context."""
    token = _chosen.set((_check(choice), recompute))
    try:
        yield
    finally:
        _chosen.reset(token)


@contextmanager
def use_bfloat16(enabled: bool) -> Iterator[None]:
    """Run the dense convolutions of fused cells in bfloat16 within the context; all else keeps its precision."""
    token = _bfloat16.set(enabled)
    try:
        yield
    finally:
        _bfloat16.reset(token)


def should_recompute() -> bool:
    """Return whether the backward pass recomputes fused cells."""
    return (_chosen.get() or _default)[1]


def should_compile() -> bool:
    """Return whether mixtures run by `torch.compile`."""
    return (_chosen.get() or _default)[0] == "compile"


def current_kernels() -> Kernels | None:
    """Return the kernels to use now, None for plain modules."""
    choice, _ = _chosen.get() or _default
    if choice == "plain" or torch.is_autocast_enabled("cuda"):  # modules know which precision is safe for them
        return None
    kernels = (None if choice == "torch" else _load_native()) or _TORCH
    return kernels.in_bfloat16() if _bfloat16.get() else kernels


def _check(choice: KernelChoice) -> KernelChoice:
    known = get_args(KernelChoice)
    require({f"machine.kernels must be one of {', '.join(known)}, got '{choice}'": choice in known})
    return choice


_TORCH = Kernels()


def _load_native() -> Kernels | None:
    return native.load()


__all__ = [
    "Geometry",
    "KernelChoice",
    "Kernels",
    "Slot",
    "Term",
    "current_kernels",
    "set_kernels",
    "should_compile",
    "should_recompute",
    "use_bfloat16",
    "use_kernels",
]
