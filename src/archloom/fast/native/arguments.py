"""The form of what compiled functions are called with: addresses and 64-bit numbers."""

from __future__ import annotations

from array import array

import torch
from torch import Tensor

WIDEST = 16  # floats in the widest vector


def is_dense(values: Tensor) -> bool:
    """Return whether values are floats without gaps in the memory of the CPU."""
    return values.dtype is torch.float32 and values.is_cpu and values.is_contiguous()


def pointer_to(values: Tensor | None) -> int:
    """Return the address of a tensor, 0 for none."""
    return 0 if values is None else values.data_ptr()


def address_of(numbers: array[int]) -> int:
    """Return the address of numbers, which must be kept alive."""
    return numbers.buffer_info()[0]


def check_memory(code: int) -> None:
    """Raise a MemoryError if a function says that there was not enough."""
    if code:
        raise MemoryError("not enough memory for a compiled kernel")
