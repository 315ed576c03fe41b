"""Gates as values, and the gates of a single path."""

from __future__ import annotations

import dataclasses
import random

import pytest

from archloom.core.errors import SettingError
from archloom.spaces import NONE, SPACES, Darts, Nb201
from archloom.supernet import CLOSED, Gate, path_gates


@pytest.mark.parametrize("name", SPACES)
def test_a_path_names_the_option_of_every_decision_by_its_position(name: str) -> None:
    space = SPACES[name].load()(**SPACES[name].settings)
    architecture = space.sample(random.Random(3))
    gates = path_gates(space, architecture)
    assert list(gates) == [decision.name for decision in space.decisions]
    for decision in space.decisions:
        gate = gates[decision.name]
        assert isinstance(gate.index, int)
        assert decision.options[gate.index] == architecture[decision.name]
        assert gate.weights is None
        assert gate.offset is None


def test_positions_count_only_the_options_that_are_left() -> None:
    space = Nb201(nodes=3).restrict({"0->1": ["nor_conv_3x3", "none"]})
    architecture = space.check({"0->1": "nor_conv_3x3", "0->2": "nor_conv_3x3", "1->2": "none"})
    gates = path_gates(space, architecture)
    assert [gates[name].index for name in ("0->1", "0->2", "1->2")] == [0, 3, 0]


def test_an_edge_that_is_not_kept_is_closed_where_none_is_no_option() -> None:
    space = Darts(operations=("skip_connect", "sep_conv_3x3"), nodes=2)
    architecture = space.sample(random.Random(0))
    unused = [name for name, option in architecture.items() if option == NONE]
    assert unused  # node 1 of each cell has three sources and reads two
    gates = path_gates(space, architecture)
    assert {name for name, gate in gates.items() if gate == CLOSED} == set(unused)


def test_an_option_that_was_restricted_away_has_no_path() -> None:
    space = Nb201(nodes=2)
    architecture = space.check({"0->1": "skip_connect"})
    with pytest.raises(SettingError, match="decision '0->1' has no option 'skip_connect'"):
        path_gates(space.restrict({"0->1": ["none", "nor_conv_3x3"]}), architecture)


def test_a_gate_is_frozen_and_closed_by_default() -> None:
    assert Gate() == CLOSED
    assert (CLOSED.index, CLOSED.weights, CLOSED.offset) == (None, None, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        CLOSED.index = 0  # type: ignore[misc]
