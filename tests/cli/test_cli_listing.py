"""`archloom list`: every name, and the settings of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from archloom.cli.listing import CATALOGUES
from archloom.core.recipes import recipes

Archloom = Callable[..., Any]


@pytest.mark.parametrize("kind", CATALOGUES)
def test_every_name_is_listed_with_what_it_is(archloom: Archloom, kind: str) -> None:
    finished = archloom("list", kind)
    assert finished.code == 0
    rows = [line.split(maxsplit=1) for line in finished.out.splitlines() if line.strip()]
    listed = {words[0]: words[1:] for words in rows}
    for name in CATALOGUES[kind]:
        assert listed[name], name
    assert f"archloom list {kind} NAME" in finished.out


def test_recipes_are_listed_by_their_first_comment(archloom: Archloom) -> None:
    finished = archloom("list", "recipes")
    assert finished.code == 0
    for name in recipes():
        assert f"\n{name} " in finished.out
    assert "The first search" in finished.out
    assert "#" not in finished.out


def test_a_recipe_can_be_shown(archloom: Archloom) -> None:
    assert archloom("list", "recipes", "cifar10/gdas").out == recipes()["cifar10/gdas"].read_text()


@pytest.mark.parametrize(
    ("kind", "name", "parts"),
    [
        (
            "strategies",
            "gdas",
            [
                "strategy.temperature_start",
                "a finite number",
                "10.0",
                "presets",
                "paper, recurrent, recurrent_soft, public",
            ],
        ),
        ("strategies", "random_search", ["strategy.window", "its tolerance"]),
        ("spaces", "nb201_mini", ["space.nodes", "a whole number", " 3 ", "network.channels", "skip_connect,"]),
        ("data", "folder", ["data."]),
        ("settings", "search", ["search.epochs", "of a one-shot search", "true"]),
        ("settings", "data", ["data.directory", "a path", " - "]),
    ],
)
def test_the_settings_of_one_are_shown(archloom: Archloom, kind: str, name: str, parts: list[str]) -> None:
    finished = archloom("list", kind, name)
    assert finished.code == 0
    for part in parts:
        assert " ".join(part.split()) in " ".join(finished.out.split())  # cells of a narrow terminal are wrapped


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["strategis"], "cannot list 'strategis'; did you mean 'strategies'?"),
        (["strategies", "gads"], "unknown strategy 'gads'; did you mean 'gdas'?"),
        (["settings", "serch"], "unknown section 'serch'; did you mean 'search'?"),
        (["recipes", "frist"], "no recipe 'frist'; did you mean 'first'?"),
    ],
)
def test_a_wrong_name_is_a_line_with_the_nearest(archloom: Archloom, arguments: list[str], line: str) -> None:
    finished = archloom("list", *arguments)
    assert (finished.code, finished.lines) == (2, [f"error: {line}"])
