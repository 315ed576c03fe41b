"""Memory of many megabytes that one step after another uses: fresh pages cost a sixth of a step of a language model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

MOST_SPARE = 1.5  # size of memory, relative to what is needed of it; sampled paths differ by less


class Workspace:
    """Memory on loan. It goes back when nothing refers to this object any more: keep it as long as its parts."""

    def __init__(self, memory: Tensor, spare: list[Tensor]) -> None:
        self._memory, self._spare = memory, spare

    def cut(self, *shapes: Sequence[int]) -> list[Tensor]:
        """Return parts of the memory, one for each shape."""
        sizes = [math.prod(shape) for shape in shapes]
        parts = torch.split(self._memory[: sum(sizes)], sizes)
        return [part.view(*shape) for part, shape in zip(parts, shapes, strict=True)]

    def __del__(self) -> None:
        self._spare[:] = [self._memory]


class Workspaces:
    """Lends memory for one purpose, and keeps what came back last until the process ends.

    Memory is used again for about the same size only. Much larger memory would deceive those that measure what a batch
    needs (`execution.memory`).
    """

    def __init__(self, make: Callable[[int], Tensor]) -> None:
        self._make, self._spare = make, list[Tensor]()

    def lend(self, floats: int) -> Workspace:
        """Return memory for so many numbers, with any content."""
        try:
            memory = self._spare.pop()  # not taken by two threads
        except IndexError:
            return Workspace(self._make(floats), self._spare)
        fits = floats <= memory.numel() <= MOST_SPARE * floats
        return Workspace(memory if fits else self._make(floats), self._spare)
