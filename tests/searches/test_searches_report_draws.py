"""The map of the best options, and the curves of the draws."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from archloom.reports.figures import MUTED
from archloom.searches.report_draws import MOST_ROWS, SHOWN_WITH_DRAWS, best_map, draw_curves, least_sure
from archloom.searches.report_plots import learning_curves
from archloom.searches.report_posterior import Belief

SVG = "{http://www.w3.org/2000/svg}"
FRAME = re.compile(r"fill: none; stroke: #111827; stroke-width: 1.3")
METRICS = {"a_step_norm": 0.2, "a_noise_norm": 0.02, "a_damped": 0.25, "entropy": 1.2, "skip_share": 0.5}


def texts(svg: str) -> list[str]:
    return ["".join(element.itertext()).strip() for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def belief(name: str = "edge", *, credible: tuple[str, ...] = ("a",), **best: float) -> Belief:
    return Belief(name, best or {"a": 0.97, "b": 0.03}, credible)


def history(epochs: int = 3, **changes: Any) -> list[dict[str, Any]]:
    return [{"epoch": epoch, "metrics": {**METRICS, **changes}} for epoch in range(epochs)]


def test_the_map_names_decisions_and_options_and_writes_percent() -> None:
    shown = texts(best_map([belief("x"), belief("y", a=0.004, c=0.996)], {}))
    assert {"x", "y", "a", "b", "c", "97", "3", "<1", ">99"} <= set(shown)
    assert len(shown) == 2 + 3 + 4  # no number where a decision lacks an option


def test_credible_sets_are_framed() -> None:
    svg = best_map([belief("x", credible=("a",)), belief("y", credible=("b", "a"), a=0.4, b=0.6)], {})
    assert len(FRAME.findall(svg)) == 3


def test_the_derived_option_has_a_mark_even_where_it_is_improbable() -> None:
    def marks(derived: dict[str, str]) -> int:
        return best_map([belief("x"), belief("y")], derived).count("<use ")

    without = marks({})
    assert marks({"x": "a", "y": "b"}) == without + 2
    assert marks({"x": "unknown"}) == without


def test_an_option_that_is_out_stands_back() -> None:
    svg = best_map([belief(a=1.0, b=0.0)], {})
    assert f"fill: {MUTED}" in svg


def test_of_many_decisions_the_least_sure_are_shown_in_their_order() -> None:
    sure = [belief(f"sure{place}", a=1.0, b=0.0) for place in range(300)]
    doubtful = [belief(f"doubt{place}", credible=("a", "b"), a=0.6, b=0.4) for place in range(5)]
    shown = least_sure([doubtful[0], *sure, *doubtful[1:]])
    assert len(shown) == MOST_ROWS
    assert shown[0] == doubtful[0]
    assert shown[-4:] == doubtful[1:]
    assert "doubt4" in texts(best_map([*sure, *doubtful], {}))


def test_curves_show_moves_shares_entropy_and_skips() -> None:
    shown = set(texts(draw_curves(history())))
    assert {"logits: length of a move", "share of the draws", "entropy of a decision", "share of skips"} <= shown
    assert "weights: length of a move" not in shown


def test_a_logarithmic_axis_has_plain_numbers() -> None:
    shown = texts(draw_curves([*history(1), *history(2, a_step_norm=2e-4)]))
    assert "0.001" in shown
    assert not any("math" in text or "^" in text for text in shown)


def test_noise_that_is_off_has_no_place_on_a_logarithmic_axis() -> None:
    assert draw_curves([{"metrics": {"a_noise_norm": 0.0}}]) == ""
    assert "noise" in texts(draw_curves([{"metrics": {"a_noise_norm": 0.1}}]))


def test_a_decay_is_drawn_where_it_is_drawn_from_its_own_prior() -> None:
    title = "decay (of the prior)"
    assert title not in texts(draw_curves(history(a_decay=1e-4)))
    assert title in texts(draw_curves([*history(a_decay=1e-4), *history(a_decay=2e-4)]))


@pytest.mark.parametrize("empty", [[], [{}], [{"metrics": {"train_loss": 1.0, "a_step_norm": None}}]])
def test_nothing_to_draw_gives_no_picture(empty: list[dict[str, Any]]) -> None:
    assert draw_curves(empty) == ""


def test_a_search_that_draws_from_no_posterior_has_none_of_it() -> None:
    assert draw_curves([{"metrics": {"entropy": 1.0}}, {"metrics": {"entropy": 0.5}}]) == ""
    assert best_map([], {}) == ""


def test_what_stands_with_the_draws_does_not_stand_among_the_learning_curves() -> None:
    shown = texts(learning_curves([{"metrics": {**METRICS, "train_loss": 1.0, "temperature": 2.0}}]))
    assert "temperature" in shown
    assert not {name.replace("_", " ") for name in SHOWN_WITH_DRAWS} & set(shown)


def test_hostile_names_are_drawn_as_text() -> None:
    evil = "_$\\frac{<script>\x00"
    svg = best_map([Belief(evil, {evil: 1.0}, (evil,))], {evil: evil})
    assert "<script" not in svg
    assert sum("<script>" in text for text in texts(svg)) == 2
