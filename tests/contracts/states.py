"""The comparison of two final states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

TIMING = {"seconds", "images_per_second", "memory_mb", "finalists_seconds"}


def differences(first: Any, second: Any, place: str = "state") -> list[str]:
    """Where two states differ, but for what a clock or a memory gauge says."""
    if isinstance(first, torch.Tensor):
        same = isinstance(second, torch.Tensor) and first.dtype == second.dtype and torch.equal(first, second)
        return [] if same else [place]
    if isinstance(first, Mapping):
        if not isinstance(second, Mapping) or first.keys() != second.keys():
            return [f"{place}: other keys"]
        return [
            found
            for key in first
            if key not in TIMING
            for found in differences(first[key], second[key], f"{place}/{key}")
        ]
    if isinstance(first, list | tuple):
        if not isinstance(second, list | tuple) or len(first) != len(second):
            return [f"{place}: other length"]
        return [
            found
            for i, (one, two) in enumerate(zip(first, second, strict=True))
            for found in differences(one, two, f"{place}[{i}]")
        ]
    return [] if first == second else [f"{place}: {first!r} is not {second!r}"]
