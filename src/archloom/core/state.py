"""State that a checkpoint holds."""

from __future__ import annotations

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
    elif isinstance(like, bool | str | list):
        _refuse_unless(isinstance(state, type(like)), name, state)
    elif isinstance(like, int | float):
        numbers = int if isinstance(like, int) else int | float
        _refuse_unless(isinstance(state, numbers) and not isinstance(state, bool), name, state)


def _refuse_unless(holds: bool, name: str, state: Any) -> None:
    if not holds:
        raise TypeError(f"{name or 'the state'} cannot be {type(state).__name__}")
