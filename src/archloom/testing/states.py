"""The comparison of two final states, bit by bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

TIMING = {"seconds", "images_per_second", "memory_mb", "finalists_seconds"}


def find_differences(first: Any, second: Any, place: str = "state") -> list[str]:
    """Return where two states differ, except for figures of time and memory.

    Args:
        first: a state: tensors, mappings, lists and plain values.
        second: the state to compare with.
        place: the name of the states, with which every line begins.

    Returns:
        One line for each difference; none where the states are the same bit by bit.

    Examples:
        >>> from archloom.testing import find_differences
        >>> find_differences({"step": 3, "seconds": 1.5}, {"step": 4, "seconds": 1.7})
        ['state/step: 3 is not 4']
    """
    if isinstance(first, torch.Tensor):
        same = isinstance(second, torch.Tensor) and first.dtype == second.dtype and torch.equal(first, second)
        return [] if same else [place]
    if isinstance(first, Mapping):
        if not isinstance(second, Mapping) or first.keys() != second.keys():
            return [f"{place}: other keys"]
        pairs = [(f"{place}/{key}", first[key], second[key]) for key in first if key not in TIMING]
    elif isinstance(first, list | tuple):
        if not isinstance(second, list | tuple) or len(first) != len(second):
            return [f"{place}: other length"]
        pairs = [(f"{place}[{i}]", one, two) for i, (one, two) in enumerate(zip(first, second, strict=True))]
    else:
        return [] if first == second else [f"{place}: {first!r} is not {second!r}"]
    return [found for name, one, two in pairs for found in find_differences(one, two, name)]
