"""The map of the best options, and the curves of the draws."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from archloom.policies.posterior import DecisionPosterior
from archloom.reports.curves import learning_curves
from archloom.reports.figures import MUTED
from archloom.searches.history import metric_series
from archloom.searches.records import EpochRecord
from archloom.searches.report_draws import MOST_ROWS, SHOWN_WITH_DRAWS, best_map, draw_curves, pick_least_certain
from search_runs import make_epoch

SVG = "{http://www.w3.org/2000/svg}"
FRAME = re.compile(r'fill="none" stroke="#111827" stroke-width="1.3"')
METRICS = {"a_step_norm": 0.2, "a_noise_norm": 0.02, "a_damped": 0.25, "entropy": 1.2, "skip_share": 0.5}


def texts(svg: str) -> list[str]:
    return ["".join(element.itertext()).strip() for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def decision(*, credible: tuple[str, ...] = ("a",), **best: float) -> DecisionPosterior:
    return DecisionPosterior(best or {"a": 0.97, "b": 0.03}, credible, entropy=0.5)


def history(epochs: int = 3, **changes: Any) -> list[EpochRecord]:
    return [make_epoch(epoch, metrics={**METRICS, **changes}) for epoch in range(epochs)]


def with_metrics(*rows: dict[str, float]) -> list[EpochRecord]:
    return [make_epoch(epoch, metrics=row) for epoch, row in enumerate(rows)]


def test_the_map_names_decisions_and_options_and_writes_percent() -> None:
    shown = texts(best_map({"x": decision(), "y": decision(a=0.004, c=0.996)}, {}))
    assert {"x", "y", "a", "b", "c", "97", "3", "<1", ">99"} <= set(shown)
    assert len(shown) == 2 + 3 + 4  # no number where a decision lacks an option


def test_credible_sets_are_framed() -> None:
    svg = best_map({"x": decision(credible=("a",)), "y": decision(credible=("b", "a"), a=0.4, b=0.6)}, {})
    assert len(FRAME.findall(svg)) == 3


def test_the_derived_option_has_a_mark_even_where_it_is_improbable() -> None:
    def marks(derived: dict[str, str]) -> int:
        return best_map({"x": decision(), "y": decision()}, derived).count("<use ")

    without = marks({})
    assert marks({"x": "a", "y": "b"}) == without + 2
    assert marks({"x": "unknown"}) == without


def test_option_that_never_wins_is_grey() -> None:
    svg = best_map({"edge": decision(a=1.0, b=0.0)}, {})
    assert f'fill="{MUTED}"' in svg


def test_of_many_decisions_the_least_certain_are_shown_in_their_order() -> None:
    sure = {f"sure{place}": decision(a=1.0, b=0.0) for place in range(300)}
    doubtful = {f"doubt{place}": decision(credible=("a", "b"), a=0.6, b=0.4) for place in range(5)}
    shown = list(pick_least_certain({"doubt0": doubtful["doubt0"], **sure, **doubtful}))
    assert len(shown) == MOST_ROWS
    assert shown[0] == "doubt0"
    assert shown[-4:] == ["doubt1", "doubt2", "doubt3", "doubt4"]
    assert "doubt4" in texts(best_map({**sure, **doubtful}, {}))


def test_curves_show_moves_shares_entropy_and_skips() -> None:
    shown = set(texts(draw_curves(history())))
    assert {"logits: length of a move", "share of the draws", "entropy of a decision", "share of skips"} <= shown
    assert "weights: length of a move" not in shown


def test_a_logarithmic_axis_has_plain_numbers() -> None:
    shown = texts(draw_curves([*history(1), *history(2, a_step_norm=2e-4)]))
    assert "0.001" in shown
    assert not any("math" in text or "^" in text for text in shown)


def test_zero_noise_is_left_out_of_a_logarithmic_axis() -> None:
    assert draw_curves(with_metrics({"a_noise_norm": 0.0})) == ""
    assert "noise" in texts(draw_curves(with_metrics({"a_noise_norm": 0.1})))


def test_decay_is_shown_only_if_it_changes() -> None:
    title = "decay (of the prior)"
    assert title not in texts(draw_curves(history(a_decay=1e-4)))
    assert title in texts(draw_curves([*history(a_decay=1e-4), *history(a_decay=2e-4)]))


@pytest.mark.parametrize("empty", [[], with_metrics({}), with_metrics({"train_loss": 1.0, "a_step_norm": math.nan})])
def test_nothing_to_draw_gives_no_picture(empty: list[EpochRecord]) -> None:
    assert draw_curves(empty) == ""


def test_a_search_that_draws_from_no_posterior_has_none_of_it() -> None:
    assert draw_curves(with_metrics({"entropy": 1.0}, {"entropy": 0.5})) == ""
    assert best_map({}, {}) == ""


def test_metrics_of_draws_are_not_among_the_learning_curves() -> None:
    metrics = metric_series(with_metrics({**METRICS, "train_loss": 1.0, "temperature": 2.0}))
    shown = texts(learning_curves([0], metrics, left_out=SHOWN_WITH_DRAWS))
    assert "temperature" in shown
    assert not {name.replace("_", " ") for name in SHOWN_WITH_DRAWS} & set(shown)


def test_hostile_names_are_drawn_as_text() -> None:
    evil = "_$\\frac{<script>\x00"
    svg = best_map({evil: DecisionPosterior({evil: 1.0}, (evil,), 0.0)}, {evil: evil})
    assert "<script" not in svg
    assert sum("<script>" in text for text in texts(svg)) == 2
