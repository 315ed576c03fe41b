"""Confusion matrices as rows and pictures."""

from __future__ import annotations

import re

import numpy as np
import pytest

from archloom.retrainings import report_confusion as module
from archloom.retrainings.evaluation import Evaluation
from archloom.retrainings.report_confusion import class_bars, confusion_map, divide_rows, pair_table

COUNTS = ((8, 2, 0), (1, 9, 0), (5, 0, 15))
FOUND = Evaluation(images=40, top1=80.0, top5=100.0, loss=0.5, confusion=COUNTS, per_class=(80.0, 90.0, 75.0))


def test_shares_are_of_the_truth() -> None:
    assert divide_rows(COUNTS)[2] == [0.25, 0.0, 0.75]
    assert divide_rows([[0, 0], [1, 1]])[0] == [0.0, 0.0]


def test_pairs_by_number_of_images() -> None:
    assert pair_table(FOUND, "abc").rows == (
        ("c", "a", "5", "25.0 %"),
        ("a", "b", "2", "20.0 %"),
        ("b", "a", "1", "10.0 %"),
    )


def test_correct_predictions_are_blue_and_mistakes_orange_by_their_number() -> None:
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
    picture = class_bars([90.0, 30.0, None, 60.0], ["good", "bad", "unknown", "fair"])
    assert re.findall("good|bad|unknown|fair", picture) == ["bad", "fair", "good"]
    many = class_bars([float(place) / 3 for place in range(300)], [f"name{place}" for place in range(300)])
    assert set(re.findall(r"name\d+", many)) == {f"name{place}" for place in range(100)}
    assert class_bars([], []) == ""
