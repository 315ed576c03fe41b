"""States of checkpoints are checked by the types of a state that is known to be good."""

from __future__ import annotations

from typing import Any

import pytest

from archloom.core.state import refuse_bad_optimizers, refuse_other_types

GOOD: dict[str, Any] = {
    "position": 3,
    "seconds": 1.5,
    "history": [],
    "partial": {"images": 4},
    "best": None,
    "name": "x",
    "on": True,
}
GOOD |= {"groups": [{"rate": 0.1}]}


@pytest.mark.parametrize(
    "change",
    [{}, {"seconds": 2}, {"best": {"epoch": 1}}, {"more": "x"}, {"name": None}, {"history": [1]}],
)
def test_values_of_the_same_types_pass(change: dict[str, Any]) -> None:
    refuse_other_types({**GOOD, **change}, GOOD)
    refuse_other_types({}, GOOD)  # a state of an older version


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"position": "3"}, "position cannot be str"),
        ({"position": True}, "position cannot be bool"),
        ({"position": 3.0}, "position cannot be float"),
        ({"seconds": []}, "seconds cannot be list"),
        ({"history": {}}, "history cannot be dict"),
        ({"partial": 1}, "partial cannot be int"),
        ({"partial": {"images": "4"}}, "partial.images cannot be str"),
        ({"groups": [{"rate": []}]}, "groups.0.rate cannot be list"),
    ],
)
def test_other_types_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        refuse_other_types({**GOOD, **change}, GOOD)


def test_a_state_that_is_no_table_is_refused() -> None:
    with pytest.raises(TypeError, match="the state cannot be list"):
        refuse_other_types([], GOOD)


def make_state(momentum: Any) -> dict[str, Any]:
    optimizer = {"state": {"0": {"momentum_buffer": momentum, "step": 3}}, "param_groups": [{"name": "x"}]}
    return {"weights": {"optimizers": [optimizer]}, "state": "not of an optimizer"}


def is_tensor(value: object) -> bool:
    return value == b"tensor"


def test_states_of_optimizers_are_tensors_and_counts_of_steps() -> None:
    for good in (b"tensor", None, {"inner": b"tensor"}):
        refuse_bad_optimizers(make_state(good), is_tensor)
    for bad in ("x", [1.0], True, 1, 0.5):
        with pytest.raises(TypeError, match=r"weights.optimizers.0.state.0.momentum_buffer cannot be"):
            refuse_bad_optimizers(make_state(bad), is_tensor)
