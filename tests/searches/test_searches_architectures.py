"""Architectures given as text, JSON, a file or a run; and what is none of these."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from archloom.core.errors import ArchloomError, ParseError
from archloom.searches.architectures import find_space, read_architecture
from archloom.spaces import Nb201

TEXT = "|none~0|+|none~0|none~1|+|none~0|none~1|skip_connect~2|"
MINI = find_space("nb201_mini")
MINI_CHOICES = {"0->1": "none", "0->2": "none", "1->2": "skip_connect"}


def failure(given: str) -> str:
    with pytest.raises(ArchloomError) as caught:
        read_architecture(given)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_text_belongs_to_the_space_named_or_to_nb201() -> None:
    space, architecture = read_architecture(TEXT)
    assert space == Nb201()
    assert space.format(architecture) == TEXT
    assert read_architecture("|none~0|+|none~0|skip_connect~1|", space=MINI) == (MINI, MINI.check(MINI_CHOICES))


def test_a_long_genotype_is_not_taken_for_a_file_name() -> None:
    darts = find_space("s2")
    architecture = darts.decode({d.name: [1.0] + [0.0] * (len(d.options) - 1) for d in darts.decisions})
    assert read_architecture(darts.format(architecture), space=darts) == (darts, architecture)


def test_a_run_or_its_result_brings_its_space(tmp_path: Path) -> None:
    saved = {"space": {"name": "nb201_mini", "cells_per_stage": 4}, "architecture": MINI_CHOICES}
    (tmp_path / "architecture.json").write_text(json.dumps(saved))
    wanted = find_space("nb201_mini", cells_per_stage=4)
    for given in (tmp_path, tmp_path / "architecture.json"):
        assert read_architecture(str(given)) == (wanted, wanted.check(MINI_CHOICES))
    assert read_architecture(json.dumps(saved)) == (wanted, wanted.check(MINI_CHOICES))


def test_plain_json_is_checked_against_the_space() -> None:
    assert read_architecture(json.dumps(MINI_CHOICES), space=MINI)[1] == MINI.check(MINI_CHOICES)
    assert "lacks decision '0->3'" in failure(json.dumps(MINI_CHOICES))


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    assert failure("nonsense").startswith("there is no run, file or published architecture 'nonsense'; known: ")
    assert failure("|nonsense|").startswith("an NB201 string of this space has 3 groups")
    assert failure("missing.json") == "no file missing.json"
    assert failure(str(tmp_path)).startswith(f"{tmp_path} holds no architecture.json")
    assert failure("{").startswith("the architecture is not JSON: ")
    assert failure('{"architecture": [1]}').endswith("'architecture' must be an object of strings, got [1]")
    path = tmp_path / "a.json"
    path.write_text("[1]")
    assert failure(str(path)) == f"{path} must be a JSON object, got [1]"
    path.write_bytes(b"\xff")
    assert failure(str(path)) == f"cannot read {path}: it is not UTF-8 text"
    path.write_text(json.dumps({"space": {"name": "nb201", "depth": 3}, "architecture": {}}))
    assert failure(str(path)).startswith("unknown setting 'space.depth'; known: ")
    path.write_text(json.dumps({"space": {"name": "nb201", "nodes": 4.5}, "architecture": {}}))
    assert failure(str(path)) == "space.nodes must be a whole number, got 4.5"


def test_a_file_cannot_choose_what_is_imported(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    hostile = {"space": {"name": "os:system", "command": f"touch {trace}"}, "architecture": {"a": "b"}}
    assert failure(json.dumps(hostile)).startswith("space 'os:system' must be a complete class derived from")
    assert not trace.exists()
    hostile["space"] = {"name": "antigravity:fly"}
    assert failure(json.dumps(hostile)).startswith("space 'antigravity:fly' is a plug-in that only a file names; ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.touch(mode=0)
    assert failure(str(path)) == f"cannot read {path}: Permission denied"


def test_a_mistyped_name_gets_the_nearest_one() -> None:
    with pytest.raises(
        ParseError, match=r"there is no run, file or published architecture 'darts_v3'; did you mean 'd"
    ):
        read_architecture("darts_v3")
