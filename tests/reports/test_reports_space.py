"""A space in text and as a plot."""

from __future__ import annotations

from xml.etree import ElementTree

from archloom.reports.space import LONGEST_BAR, front_csv, front_plot, histogram_lines

FRONT = [{"text": "a,b", "cost": 1.0, "accuracy": 50.0}, {"text": "c", "cost": 2.0, "accuracy": 90.0}]


def test_bars_are_as_long_as_they_are_high_and_few_are_still_seen() -> None:
    lines = list(histogram_lines([(0.0, 50.0, 0), (50.0, 80.0, 1), (80.0, 90.0, 2000), (90.0, 94.0, 4000)]))
    assert [line.count("█") for line in lines] == [0, 1, LONGEST_BAR // 2, LONGEST_BAR]
    assert lines[2].startswith(" 80.00 to  90.00") and lines[2].endswith("2,000")


def test_lines_quote_what_has_commas() -> None:
    assert front_csv(FRONT, "ms").splitlines()[1] == '"a,b",1.0,50.0'


def test_the_plot_counts_what_lies_too_low_to_be_drawn() -> None:
    accuracy = [10.0, *range(60, 90), *range(60, 90)]
    picture = front_plot(list(range(61)), accuracy, FRONT, title="<s>", cost_name="ms & more")
    text = "".join(ElementTree.fromstring(picture).itertext())
    assert "61 architectures" in text and "<s>" in text
    assert "ms & more (3 architectures below 60.5 %" in " ".join(text.split())
