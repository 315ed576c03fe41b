"""States of samplers: through a checkpoint and back, compared, and weighed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from archloom.execution.checkpoint import decode, encode


def through_a_checkpoint(state: Any) -> Any:
    return decode(encode(state), name="test")


def leaves(state: Any, place: str = "") -> dict[str, Any]:
    """Everything in a nested state, by where it hangs."""
    if isinstance(state, Mapping):
        parts = list(state.items())
    elif isinstance(state, list | tuple):
        parts = list(enumerate(state))
    else:
        return {place: state}
    return {key: value for name, part in parts for key, value in leaves(part, f"{place}/{name}").items()}


def changed_places(first: Any, second: Any) -> list[str]:
    one, two = leaves(first), leaves(second)
    return [place for place in one.keys() | two.keys() if not _same(one.get(place), two.get(place))]


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
        return one.dtype == two.dtype and torch.equal(one, two)
    return type(one) is type(two) and one == two


def elements(state: Any) -> int:
    """How many numbers the tensors of a state hold together, but for the generator's."""
    tensors = {place: value for place, value in leaves(state).items() if isinstance(value, torch.Tensor)}
    return sum(tensor.numel() for place, tensor in tensors.items() if place != "/generator")
