"""State that a checkpoint holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

StateDict = dict[str, Any]
"""A tree that a checkpoint holds; its leaves are tensors and plain values."""


def refuse_other_types(state: Any, like: Any, *, name: str = "") -> None:
    """Raise a TypeError unless plain values of a state have the types that those of another state have.

    Parts that only one of them has are left out: states of older versions lack some. None may stand for anything.
    """
    if state is None or like is None:
        return
    if isinstance(like, dict):
        _refuse_unless(isinstance(state, dict), name, state)
        for key in like.keys() & state.keys():
            refuse_other_types(state[key], like[key], name=f"{name}.{key}" if name else str(key))
    elif isinstance(like, list):
        _refuse_unless(isinstance(state, list), name, state)
        for number, (one, other) in enumerate(zip(state, like, strict=False)):  # such as groups of an optimizer
            refuse_other_types(one, other, name=f"{name}.{number}")
    elif isinstance(like, bool | str):
        _refuse_unless(isinstance(state, type(like)), name, state)
    elif isinstance(like, int | float):
        numbers = int if isinstance(like, int) else int | float
        _refuse_unless(isinstance(state, numbers) and not isinstance(state, bool), name, state)


def refuse_bad_optimizers(state: Any, is_tensor: Callable[[object], bool], *, name: str = "") -> None:
    """Raise a TypeError if a state of an optimizer, anywhere, holds more than tensors, None and counts of steps."""
    if isinstance(state, list | tuple):
        items = {str(number): item for number, item in enumerate(state)}
    elif isinstance(state, dict):
        items = {str(key): item for key, item in state.items()}
    else:
        return
    inside = "param_groups" in items and "state" in items
    for key, item in items.items():
        place = f"{name}.{key}" if name else key
        if inside and key == "state":
            _refuse_bad_leaves(item, is_tensor, name=place)
        else:
            refuse_bad_optimizers(item, is_tensor, name=place)


def _refuse_bad_leaves(state: Any, is_tensor: Callable[[object], bool], *, name: str) -> None:
    if isinstance(state, dict):
        for key, item in state.items():
            _refuse_bad_leaves(item, is_tensor, name=f"{name}.{key}")
    else:
        counts = name.endswith(".step") and isinstance(state, int | float) and not isinstance(state, bool)
        _refuse_unless(state is None or is_tensor(state) or counts, name, state)


def _refuse_unless(holds: bool, name: str, state: Any) -> None:
    if not holds:
        raise TypeError(f"{name or 'the state'} cannot be {type(state).__name__}")
