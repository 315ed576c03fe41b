"""Confusion matrices as rows and pictures."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from archloom.retrainings import report_confusion as module
from archloom.retrainings.report_confusion import class_bars, confused_pairs, confusion_map, counts_of, names_of, shares

COUNTS = [[8, 2, 0], [1, 9, 0], [5, 0, 15]]


@pytest.mark.parametrize("rows", [None, 3, [[1, 2], [3]], [[1, "x"], [2, 3]], [1, 2], [[1, 2]]])
def test_what_is_no_square_of_numbers_is_no_matrix(rows: Any) -> None:
    assert counts_of({"confusion": rows}) == []
    assert counts_of({"confusion": COUNTS}) == COUNTS


def test_names_or_numbers() -> None:
    assert names_of(["a", "b"], 2) == ["a", "b"]
    assert names_of(["a", "b"], 3) == names_of(None, 3) == ["0", "1", "2"]


def test_shares_are_of_the_truth() -> None:
    assert shares(COUNTS)[2] == [0.25, 0.0, 0.75]
    assert shares([[0, 0], [1, 1]])[0] == [0.0, 0.0]


def test_pairs_by_number_of_images() -> None:
    assert confused_pairs(COUNTS, "abc").rows == (
        ("c", "a", "5", "25.0 %"),
        ("a", "b", "2", "20.0 %"),
        ("b", "a", "1", "10.0 %"),
    )


def test_right_is_blue_and_mistakes_are_orange_by_their_size() -> None:
    colours = np.asarray(module._colours(COUNTS))
    red, blue = colours[..., 0], colours[..., 2]
    assert all(blue[i, i] > red[i, i] for i in range(3))
    assert red[2, 0] > blue[2, 0] and red[0, 1] > blue[0, 1]
    assert blue[2, 0] < blue[0, 1] < blue[1, 0] < 1  # the more mistakes, the deeper
    assert (colours[0, 2] == 1).all()  # none: white


@pytest.mark.parametrize(
    ("classes", "named", "numbered"), [(2, 2, True), (20, 20, True), (100, 100, False), (300, 100, False)]
)
def test_names_and_numbers_where_there_is_room(classes: int, named: int, numbered: bool) -> None:
    counts = [[40 if truth == predicted else 0 for predicted in range(classes)] for truth in range(classes)]
    picture = confusion_map(counts, [f"name{place}" for place in range(classes)])
    assert len(set(re.findall(r"name\d+", picture))) == named
    assert (">40<" in picture) is numbered
    assert confusion_map([], []) == ""


def test_bars_from_the_worst_and_not_more_than_fit() -> None:
    picture = class_bars([90.0, 30.0, float("nan"), 60.0], ["good", "bad", "unknown", "fair"])
    assert re.findall("good|bad|unknown|fair", picture) == ["bad", "fair", "good"]
    many = class_bars([float(place) / 3 for place in range(300)], [f"name{place}" for place in range(300)])
    assert set(re.findall(r"name\d+", many)) == {f"name{place}" for place in range(100)}
    assert class_bars([], []) == ""
