"""What every space inherits: architectures as values, decoding, restricting, checking, JSON."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archloom.core.errors import ParseError, SettingError
from archloom.spaces import NONE, SPACES, Architecture, Darts, Decision, Nb201, SearchSpace

TWO_NODES = Nb201(nodes=2)  # one decision, five options


def all_spaces() -> list[SearchSpace]:
    return [entry.load()(**entry.settings) for entry in SPACES.values()]


# --- architectures


def test_an_architecture_is_a_hashable_value() -> None:
    one, same = Architecture({"a": "x", "b": "y"}), Architecture({"b": "y", "a": "x"})
    assert one == same
    assert hash(one) == hash(same)
    assert {one: 1}[same] == 1
    assert one != Architecture({"a": "x", "b": "z"})
    assert one != {"a": "x", "b": "y"}
    assert list(one) == ["a", "b"]
    assert len(one) == 2
    assert repr(one) == "Architecture({'a': 'x', 'b': 'y'})"


def test_an_architecture_is_not_changed_by_what_it_was_made_from() -> None:
    choices = {"a": "x"}
    architecture = Architecture(choices)
    choices["a"] = "y"
    assert architecture["a"] == "x"


def test_changed_returns_another_architecture() -> None:
    one = Architecture({"a": "x", "b": "y"})
    assert one.with_option("a", "z") == Architecture({"a": "z", "b": "y"})
    assert one["a"] == "x"


def test_an_architecture_from_another_process_is_found_in_a_set(tmp_path: Path) -> None:
    """Strings hash differently in every process, so that a hash must not travel."""
    file = tmp_path / "architecture.pickle"
    file.write_bytes(pickle.dumps(Architecture({"a": "x"})))
    program = (
        "import pickle, sys; from archloom.spaces import Architecture; "
        "found = pickle.load(open(sys.argv[1], 'rb')); sys.exit(found not in {Architecture({'a': 'x'})})"
    )
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        assert subprocess.run([sys.executable, "-c", program, str(file)], env=environment, check=False).returncode == 0


def test_a_decision_knows_the_place_of_an_option() -> None:
    assert Decision("d", ("a", "b")).index("b") == 1


# --- decoding


def test_decode_takes_the_best_option_and_the_first_of_equals() -> None:
    assert TWO_NODES.decode({"0->1": [0.1, 0.2, 0.4, 0.2, 0.1]}) == Architecture({"0->1": "nor_conv_1x1"})
    assert TWO_NODES.decode({"0->1": [0.1, 0.3, 0.1, 0.3, 0.2]}) == Architecture({"0->1": "skip_connect"})


def test_decode_lets_none_win_unless_told_otherwise() -> None:
    scores = {"0->1": [0.9, 0.02, 0.03, 0.04, 0.01]}
    assert TWO_NODES.decode(scores)["0->1"] == NONE
    assert TWO_NODES.decode(scores, keep_none=True)["0->1"] == NONE
    assert TWO_NODES.decode(scores, keep_none=False)["0->1"] == "nor_conv_3x3"


def test_decode_falls_back_to_none_where_nothing_else_is_left() -> None:
    space = TWO_NODES.restrict({"0->1": [NONE]})
    assert space.decode({"0->1": [1.0]}, keep_none=False)["0->1"] == NONE


@pytest.mark.parametrize("values", [[0.1, 0.2], [0.1, 0.2, float("nan"), 0.3, 0.4]])
def test_decode_refuses_scores_of_a_wrong_number_or_not_numbers(values: list[float]) -> None:
    with pytest.raises(SettingError, match=r"^decision '0->1' needs 5 numbers as scores, got \["):
        TWO_NODES.decode({"0->1": values})


# --- sampling and mutating


def test_sampling_is_uniform() -> None:
    rng = random.Random(0)
    counts = Counter(TWO_NODES.sample(rng)["0->1"] for _ in range(5000))
    assert set(counts) == set(TWO_NODES.operations)
    assert all(900 < count < 1100 for count in counts.values())  # 1000 expected, standard deviation 28


def test_sampling_repeats_with_the_seed() -> None:
    for space in all_spaces():
        assert space.sample(random.Random(7)) == space.sample(random.Random(7))


def test_mutating_a_space_of_one_architecture_returns_the_parent() -> None:
    space = Nb201(operations=("skip_connect",))
    parent = next(iter(space.enumerate()))
    assert space.mutate(parent, random.Random(0)) == parent


@given(seed=st.integers(0, 2**32), index=st.integers(0, len(SPACES) - 1))
def test_samples_and_mutants_of_every_space_are_valid_and_survive_text_and_json(seed: int, index: int) -> None:
    rng = random.Random(seed)
    space = all_spaces()[index]
    parent = space.sample(rng)
    child = space.mutate(parent, rng)
    assert child != parent
    for architecture in (parent, child):
        assert space.check(architecture) == architecture
        assert space.parse(space.format(architecture)) == architecture
        assert space.from_json(architecture.to_json()) == architecture


# --- restricting


def test_restrict_keeps_only_the_options_named() -> None:
    space = Nb201().restrict({"0->1": ["skip_connect", "nor_conv_3x3"]})
    assert space.decision("0->1").options == ("skip_connect", "nor_conv_3x3")
    assert space.decision("0->2").options == Nb201().operations
    assert space.cardinality == 2 * 5**5
    assert isinstance(space, Nb201)
    rng = random.Random(0)
    assert {space.sample(rng)["0->1"] for _ in range(50)} == {"skip_connect", "nor_conv_3x3"}


def test_restricting_twice_narrows_further() -> None:
    first = Nb201().restrict({"0->1": ["skip_connect", "nor_conv_3x3"], "0->2": [NONE]})
    second = first.restrict({"0->1": ["nor_conv_3x3"]})
    assert second.cardinality == 5**4
    assert second == Nb201().restrict({"0->2": [NONE], "0->1": ["nor_conv_3x3"]})
    with pytest.raises(SettingError, match=r"^decision '0->1' must keep some of skip_connect, nor_conv_3x3, got "):
        first.restrict({"0->1": ["none"]})


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ({"0->9": ["none"]}, r"^unknown decision '0->9'; did you mean '0->\d'\?$"),
        ({"0->1": ["max_pool"]}, r"^decision '0->1' must keep some of none, .*, got \['max_pool'\]$"),
        ({"0->1": []}, r"^decision '0->1' must keep some of none, .*, got \[\]$"),
        ({"0->1": ["none", "none"]}, r"^decision '0->1' must keep some of none, .*, got \['none', 'none'\]$"),
    ],
)
def test_restrict_refuses(kept: dict[str, list[str]], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Nb201().restrict(kept)


# --- checking and JSON


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({}, "the architecture lacks decision '0->1'; this space has 1 decisions"),
        ({"0->1": "none", "x": "none"}, "the architecture has an unknown decision 'x'; this space has 1 decisions"),
        ({"0->1": "skip_conect"}, "decision '0->1' has no option 'skip_conect'; did you mean 'skip_connect'?"),
    ],
)
def test_check_names_what_is_wrong(choices: dict[str, str], message: str) -> None:
    with pytest.raises(ParseError) as caught:
        TWO_NODES.check(choices)
    assert str(caught.value) == message


def test_check_puts_decisions_in_the_order_of_the_space() -> None:
    space = Nb201(nodes=3)
    choices = dict.fromkeys(["1->2", "0->2", "0->1"], NONE)
    assert list(space.check(choices)) == ["0->1", "0->2", "1->2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "^not JSON: "),
        ("[" * 100_000, "^not JSON: "),
        ("1" * 5000, "^not JSON: "),
        ("[]", "^an architecture in JSON is an object of strings"),
        ('{"0->1": 3}', "^an architecture in JSON is an object of strings"),
        ('{"0->1": "what"}', "^decision '0->1' has no option 'what'; known: "),
    ],
)
def test_json_that_is_no_architecture_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        TWO_NODES.from_json(text)


def test_a_large_space_is_not_enumerated() -> None:
    with pytest.raises(SettingError, match=r"^Darts has 1\.1e\+18 architectures: too many to enumerate$"):
        Darts().enumerate()


# --- neighbours


@pytest.mark.parametrize("space", [Nb201(), Darts(nodes=2, cells=3), Darts(nodes=2, cells=3, edges="fixed")])
def test_neighbours_begin_with_the_derived_and_differ_in_one_operation_the_most_favoured_change_first(
    space: SearchSpace,
) -> None:
    rng = random.Random(1)
    scores = {d.name: [rng.random() for _ in d.options] for d in space.decisions}
    derived = space.decode(scores, keep_none=False)
    found = space.neighbours(scores, 1000, keep_none=False)
    assert found[0] == derived
    assert len(set(found)) == len(found)
    connected = [d for d in space.decisions if derived[d.name] != "none"]
    assert len(found) == 1 + sum(len([o for o in d.options if o != "none"]) - 1 for d in connected)
    favours = []
    for other in found[1:]:
        space.check(dict(other))
        (name,) = [name for name in other if other[name] != derived[name]]
        assert "none" not in (other[name], derived[name])
        options = space.decision(name).options
        favours.append(scores[name][options.index(other[name])] / scores[name][options.index(derived[name])])
    assert favours == sorted(favours, reverse=True)
    assert space.neighbours(scores, 4, keep_none=False) == found[:4]


def test_neighbours_of_a_cell_with_none_leave_it_unconnected() -> None:
    space = Nb201(nodes=2)
    assert space.neighbours({"0->1": [1.0, 0.0, 0.0, 0.0, 0.0]}, 5) == [space.check({"0->1": "none"})]
