"""Nothing that is drawn may cover anything else."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archloom.reports.layout import Layout, Line, Place, Size, arrange

BOX = Size(40, 34)
LABEL = Size(90, 21)


def overlap(first: Place, second: Place) -> bool:
    return (
        first.left < second.right
        and second.left < first.right
        and first.top < second.bottom
        and second.top < first.bottom
    )


def obstacles(layout: Layout) -> list[Place]:
    return [*layout.boxes, *(route.label for route in layout.routes if route.label)]


@st.composite
def random_lines(draw: st.DrawFn) -> tuple[int, list[Line]]:
    count = draw(st.integers(3, 9))
    pairs = [(source, target) for target in range(2, count) for source in range(target)]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=14))
    labelled = draw(st.lists(st.booleans(), min_size=len(chosen), max_size=len(chosen)))
    return count, [Line(*pair, LABEL if label else None) for pair, label in zip(chosen, labelled, strict=True)]


@settings(max_examples=30, deadline=None)
@given(random_lines())
def test_boxes_and_labels_never_overlap(graph: tuple[int, list[Line]]) -> None:
    count, lines = graph
    layout = arrange([BOX] * count, lines, inputs=2)
    for first, second in itertools.combinations(obstacles(layout), 2):
        assert not overlap(first, second)


@settings(max_examples=30, deadline=None)
@given(random_lines())
def test_flat_parts_of_lines_keep_clear_of_boxes_and_foreign_labels(graph: tuple[int, list[Line]]) -> None:
    count, lines = graph
    layout = arrange([BOX] * count, lines, inputs=2)
    for route in layout.routes:
        foreign = [place for place in obstacles(layout) if place != route.label]
        assert not any(overlap(stop, place) for stop in route.stops for place in foreign)


@settings(max_examples=30, deadline=None)
@given(random_lines())
def test_lines_run_rightwards_inside_the_drawing(graph: tuple[int, list[Line]]) -> None:
    count, lines = graph
    layout = arrange([BOX] * count, lines, inputs=2)
    for route in layout.routes:
        turns = [route.start[0], *(x for stop in route.stops for x in (stop.left, stop.right)), route.end[0]]
        assert turns == sorted(turns)
        assert all(0 <= y <= layout.height for y in (route.start[1], route.end[1]))
    assert min(place.left for place in layout.boxes) >= 0
    assert max(place.right for place in layout.boxes) <= layout.width


def test_columns_follow_the_longest_path() -> None:
    layout = arrange([BOX] * 4, [Line(0, 1), Line(1, 2), Line(0, 3), Line(2, 3)], inputs=1)
    assert [place.x for place in layout.boxes] == sorted(place.x for place in layout.boxes)
    assert len({place.x for place in layout.boxes}) == 4


def test_a_box_that_nothing_reaches_stands_behind_the_inputs() -> None:
    layout = arrange([BOX] * 3, [], inputs=2)
    assert layout.boxes[0].x == layout.boxes[1].x < layout.boxes[2].x


def test_lines_that_need_not_cross_do_not() -> None:
    """Boxes 2..4 read inputs 1, 0, 1: in the order given two lines would cross."""
    lines = [Line(1, 2, LABEL), Line(0, 3, LABEL), Line(1, 4, LABEL)]
    layout = arrange([BOX] * 5, lines, inputs=2)
    ends = sorted((route.start[1], route.end[1]) for route in layout.routes)
    assert [end for _, end in ends] == sorted(end for _, end in ends)


def test_lines_meet_a_box_side_by_side() -> None:
    layout = arrange([BOX] * 4, [Line(source, 3, LABEL) for source in range(3)], inputs=3)
    heights = [route.end[1] for route in layout.routes]
    assert len(set(heights)) == 3
    assert all(layout.boxes[3].top < height < layout.boxes[3].bottom for height in heights)


def test_a_line_that_leads_back_is_refused() -> None:
    with pytest.raises(AssertionError, match="higher number"):
        arrange([BOX] * 3, [Line(2, 1)], inputs=1)


def test_equal_graphs_are_drawn_equally() -> None:
    rng = random.Random(0)
    lines = [Line(rng.randrange(target), target, LABEL) for target in range(2, 8)]
    assert arrange([BOX] * 8, lines, inputs=2) == arrange([BOX] * 8, lines, inputs=2)
