"""Colours of lines: distinct with any colour vision, and seen on white and on dark paper. Styles are attributes."""

import itertools
import re

import numpy as np
import pytest
from matplotlib.figure import Figure

from archloom.reports.figures import (
    PALETTE,
    colour_of,
    dash_of,
    draw_line,
    grid,
    make_figure,
    narrow_figures,
    svg,
)
from archloom.reports.pages import embed
from archloom.reports.pictures import Picture
from archloom.reports.tables import Table

# how colours look without one kind of cone (Machado, Oliveira & Fernandes, 2009), on linear RGB
VISION = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_CONES = np.array([[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
                     [0.0883024619, 0.2817188376, 0.6299787005]])  # fmt: skip
TO_LAB = np.array([[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
                   [0.0259040371, 0.7827717662, -0.8086757660]])  # fmt: skip


def linear(colour):
    parts = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def distance(one, other, vision):
    """Return the distance in Oklab; black and white are 1 apart."""
    labs = [TO_LAB @ np.cbrt(TO_CONES @ np.clip(vision @ linear(colour), 0, 1)) for colour in (one, other)]
    return float(np.linalg.norm(labs[0] - labs[1]))


def contrast(one, other):
    low, high = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", VISION)
def test_all_colours_differ_with_any_colour_vision(name):
    assert min(distance(*pair, VISION[name]) for pair in itertools.combinations(PALETTE, 2)) > 0.1


def test_the_measure_finds_colours_that_look_the_same():
    assert distance("#2563eb", "#7c3aed", VISION["deuteranopia"]) < 0.01  # blue and violet
    assert distance("#000000", "#ffffff", VISION["usual"]) == pytest.approx(1, abs=0.001)


@pytest.mark.parametrize("paper", ["#ffffff", "#161b26"])
def test_all_colours_are_seen_on_white_and_on_dark_paper(paper):
    assert min(contrast(colour, paper) for colour in PALETTE) > 2.6


def test_lines_of_equal_colour_differ_in_their_dash():
    styles = [(colour_of(place), dash_of(place)) for place in range(4 * len(PALETTE))]
    assert len(set(styles)) == len(styles)


def test_styles_are_attributes_so_that_pages_can_forbid_inline_styles():
    def draw(figure):
        draw_line(figure.subplots(), [1, 2], [3.0, 4.0], colour=PALETTE[0], label="a: b")

    text = svg(draw, height=2, label="A line")
    assert "style=" not in text
    assert re.search(r'<path [^>]*fill="none" stroke="#0077cc"', text)
    assert 'class="plot broad"' in text
    assert 'class="plot broad paper"' in svg(draw, height=2, label="A map", on_paper=True)


def test_a_narrow_figure_has_fewer_columns_and_letters_of_the_same_size() -> None:
    def draw(figure: Figure) -> None:
        for axes in grid(figure, 4, columns=2):
            axes.plot([1, 2], [1, 2])

    broad = make_figure(draw, height=4.0)
    with narrow_figures():
        narrow = make_figure(draw, height=4.0)
        assert 'class="plot narrow"' in svg(draw, height=4.0, label="Four panels")
    assert tuple(broad.get_size_inches()) == (10.0, 4.0)
    assert tuple(narrow.get_size_inches()) == (3.9, 8.0)  # one column: twice as many rows
    assert {axes.get_subplotspec().get_gridspec().ncols for axes in narrow.axes} == {1}
    assert broad.axes[0].xaxis.label.get_size() == narrow.axes[0].xaxis.label.get_size()


def test_neighbouring_lines_differ_by_more_than_colour() -> None:
    dashes = [dash_of(place) for place in range(12)]
    assert all(first != second for first, second in itertools.pairwise(dashes))


def test_a_report_holds_both_widths_of_a_figure_and_one_drawing_of_cells() -> None:
    def draw(figure: Figure) -> None:
        figure.subplots().plot([1, 2], [1, 2])

    table = Table("", (("1",),), ("x",))
    shown = embed(Picture("one", "One", lambda: svg(draw, height=2.0, label="One"), lambda: table))
    assert shown.count("<svg") == 2 and 'class="plot broad"' in shown and 'class="plot narrow"' in shown
    assert embed(Picture("cells", "Cells", lambda: "<svg/>", lambda: table)) == "<svg/>"
