"""The size space: five widths of eight, their text, and settings that make no network."""

from __future__ import annotations

import pytest

from archloom.core.errors import ParseError, SettingError
from archloom.spaces import Architecture, Widths

SPACE = Widths()


def test_there_are_32768_of_five_widths() -> None:
    assert SPACE.cardinality == 8**5 == 32_768
    assert SPACE.reductions == (False, True, False, True, False)
    assert SPACE.widths == {f"width{number}" for number in range(1, 6)}
    assert len(Widths(cells_per_stage=2).decisions) == 8


def test_enumerating_gives_each_once() -> None:
    every = list(Widths(options=(8, 16)).enumerate())
    assert len(set(every)) == len(every) == 32
    assert every[1] == every[0].with_option("width5", "16")


def test_the_text_is_that_of_the_benchmark() -> None:
    architecture = SPACE.parse(" 8:16:24:32:64\n")
    assert architecture == Architecture({"width1": "8", "width2": "16", "width3": "24", "width4": "32", "width5": "64"})
    assert SPACE.format(architecture) == "8:16:24:32:64"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8:16", "an architecture of this space is 5 widths joined by ':', got '8:16'"),
        ("8:16:24:32:65", "decision 'width5' has no option '65'"),
        (":" * 100_000, "an architecture of this space is 5 widths joined by ':', got '" + ":" * 60 + "'"),
    ],
)
def test_a_text_that_is_no_architecture_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        SPACE.parse(text)
    assert str(caught.value).startswith(message)


def test_a_layer_costs_by_its_width_and_the_one_before() -> None:
    assert SPACE.cost_features(SPACE.parse("8:16:24:32:64")) == (
        (("width1", "8"),),
        (("width1", "8"), ("width2", "16")),
        (("width2", "16"), ("width3", "24")),
        (("width3", "24"), ("width4", "32")),
        (("width4", "32"), ("width5", "64")),
    )


def test_the_graph_is_a_chain() -> None:
    (graph,) = SPACE.graphs(SPACE.parse("8:16:24:32:64"))
    assert [edge[2] for edge in graph.edges] == [
        "cell, 8",
        "residual block, 16",
        "cell, 24",
        "residual block, 32",
        "cell, 64",
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"options": ()}, "space.options must be one or more distinct widths above 0, got []"),
        ({"options": (8, 8)}, "space.options must be one or more distinct widths above 0, got [8, 8]"),
        ({"cells_per_stage": 0}, "space.cells_per_stage must lie in 1..1000, got 0"),
        ({"cell": "|none~0|"}, "space.cell must connect every node, got '|none~0|'"),
        ({"cell": "|x~0|"}, "space.cell: decision '0->1' has no option 'x'"),
    ],
)
def test_settings_that_make_no_network_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError) as caught:
        Widths(**settings)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)
