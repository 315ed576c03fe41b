"""Plots as inline SVG."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import matplotlib
import pytest

from archloom.reports.curves import learning_curves
from archloom.reports.figures import narrow_figures
from archloom.searches.history import epochs_of, metric_series
from archloom.searches.records import EpochRecord
from archloom.searches.report_plots import (
    LEGEND_HANDLE,
    LEGEND_LINE,
    plot_history,
    probabilities,
    result_curve,
    stability_curve,
    trial_scores,
)
from archloom.spaces import Architecture, Decision
from search_runs import make_entry, make_epoch

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return ["".join(element.itertext()).strip() for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def with_probabilities(rows: list[list[float]], *, name: str = "edge") -> list[EpochRecord]:
    return [make_epoch(epoch, probabilities={name: row}) for epoch, row in enumerate(rows)]


def curves(history: Any) -> str:
    epochs = epochs_of(history)
    return learning_curves([record.epoch for record in epochs], metric_series(epochs))


def test_learning_curves_group_losses_and_accuracies(make_run: Any) -> None:
    shown = texts(curves(make_run("nb201_mini", epochs=3).history))
    assert {"loss", "accuracy, %", "temperature"} <= set(shown)
    assert {"train loss", "valid loss", "train accuracy", "valid accuracy"} <= set(shown)


def test_accuracies_are_drawn_in_percent() -> None:
    shown = texts(curves([make_epoch(metrics={"valid_accuracy": value}) for value in (0.2, 0.8)]))
    assert "80" in shown
    assert "0.8" not in shown


def test_curves_survive_nan() -> None:
    values = [1.0, math.nan, 2.0]
    assert "loss" in texts(curves([make_epoch(i, metrics={"loss": v}) for i, v in enumerate(values)]))


@pytest.mark.parametrize("history", [[], [make_epoch(metrics={"loss": math.nan}, derived_score=math.nan)]])
def test_nothing_to_draw_gives_no_picture(history: list[EpochRecord]) -> None:
    assert curves(history) == ""
    assert stability_curve(history) == result_curve(history) == ""
    assert probabilities(history, [Decision("edge", ("a", "b"))]) == ""
    assert trial_scores([]) == ""


def test_a_search_can_be_plotted_as_a_figure(make_run: Any, make_trials: Any) -> None:
    (axes,) = plot_history(make_run("nb201", epochs=2).history).axes
    assert axes.get_ylabel() == "accuracy with shared weights, %"
    (axes,) = plot_history(make_trials(trials=3).history).axes
    assert axes.get_xlabel() == "trial"


def test_stability_shows_the_table_and_its_best(make_run: Any) -> None:
    shown = texts(stability_curve(make_run("nb201", epochs=4, table=True).history))
    assert "test accuracy in the table, %" in shown
    assert "best of the table: 94.37" in shown


def test_stability_without_a_table_shows_shared_weights(make_run: Any) -> None:
    shown = texts(stability_curve(make_run("nb201", epochs=4).history))
    assert "accuracy with shared weights, %" in shown
    assert not any("best of the table" in text for text in shown)


def test_stability_marks_changes_only_where_there_are_any() -> None:
    label = "it differs from the one before"
    same = [make_epoch(epoch) for epoch in range(3)]
    assert label not in texts(stability_curve(same))
    assert label in texts(stability_curve([*same, make_epoch(3, architecture=Architecture({"edge": "b"}))]))


def test_table_that_lacks_an_architecture_leaves_a_gap() -> None:
    shown = texts(stability_curve([make_epoch(0), make_epoch(1, table_entry=make_entry(90.0))]))
    assert "test accuracy in the table, %" in shown


def test_every_decision_has_a_panel_with_its_final_option(make_run: Any) -> None:
    run = make_run("nb201", epochs=3)
    shown = texts(probabilities(run.history, run.space.decisions))
    assert all(decision.name in shown for decision in run.space.decisions)
    options = run.space.decisions[0].options
    for option in options:
        chosen = sum(value == option for value in run.history[-1].architecture.values())
        assert shown.count(option) == chosen + 1  # once more in the legend


def test_the_edges_of_darts_fit_in_small_panels(make_run: Any) -> None:
    run = make_run("darts", epochs=1)
    shown = texts(probabilities(run.history, run.space.decisions))
    assert all(decision.name in shown for decision in run.space.decisions)


def test_many_decisions_are_drawn_as_entropy(make_run: Any) -> None:
    run = make_run("s2", epochs=3)
    svg = probabilities(run.history, run.space.decisions)
    assert "entropy: 0 decided, 1 undecided" in texts(svg)
    assert "data:image/png" in svg
    assert run.space.decisions[0].name in texts(svg)


def test_names_of_options_fit_on_a_narrow_page() -> None:
    options = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
    history = with_probabilities([[0.2] * 5, [0.1, 0.3, 0.2, 0.2, 0.2]])
    with narrow_figures():
        svg = probabilities(history, [Decision("edge", options)])
    root = ElementTree.fromstring(svg)
    width = float(root.attrib["viewBox"].split()[2])
    found = [element for element in root.iter(f"{SVG}text") if (element.text or "").strip() in options]
    starts = [float(element.attrib["x"]) for element in found]
    assert len(starts) == 5 and max(starts) < 0.7 * width


def test_a_legend_shows_a_whole_dash_and_its_dot() -> None:
    period = LEGEND_LINE * sum(matplotlib.rcParamsDefault["lines.dashdot_pattern"])
    assert 1.4 * period < LEGEND_HANDLE * 8.0  # letters of 8 points


def test_probabilities_survive_rows_of_another_length_and_nan() -> None:
    history = with_probabilities([[0.5, 0.5], [1.0], [math.nan, math.nan], [0.2, 0.8]])
    assert "edge" in texts(probabilities(history, [Decision("edge", ("a", "b")), Decision("absent", ("a",))]))


def test_entropy_of_numbers_that_are_no_probabilities_is_left_blank() -> None:
    decisions = [Decision(f"edge{index}", ("a", "b")) for index in range(30)]
    rows = ([-1.0, 2.0], [0.0, 0.0], [1.0, 0.0])
    history = [make_epoch(i, probabilities={one.name: row for one in decisions}) for i, row in enumerate(rows)]
    assert "edge0" in texts(probabilities(history, decisions))


def test_values_above_one_are_not_cut_off() -> None:
    decision = Decision("edge", ("a", "b"))
    assert "4" in texts(probabilities(with_probabilities([[0.0, 5.0], [0.0, 4.0]]), [decision]))
    assert "4" not in texts(probabilities(with_probabilities([[0.0, 0.5], [0.0, 0.4]]), [decision]))


def test_trials_show_scores_and_the_best(make_trials: Any) -> None:
    assert {"score of the trial", "best so far", "trial"} <= set(texts(trial_scores(make_trials().history)))


def test_hostile_names_are_drawn_as_text() -> None:
    evil = "_$\\frac{<script>alert(1)</script>\x00"
    metrics, chosen = {evil: 1.0, f"{evil}loss": 2.0, "b_loss": 1.0}, Architecture({evil: evil})
    history = [make_epoch(metrics=metrics, architecture=chosen, probabilities={evil: [0.4, 0.6]})]
    for svg in (curves(history), probabilities(history, [Decision(evil, (evil, "b"))])):
        assert "<script" not in svg
        assert any("frac{<script>" in text.replace(" ", "") for text in texts(svg))


def test_inline_pictures_have_no_prologue_no_style_and_no_clashing_ids(make_run: Any) -> None:
    run = make_run("nb201", epochs=3, table=True)
    pictures = [
        curves(run.history),
        stability_curve(run.history),
        probabilities(run.history, run.space.decisions),
    ]
    for svg in pictures:
        assert svg.startswith('<svg role="img" aria-label="')
        assert "<style" not in svg
        assert "<metadata" not in svg
        for reference in re.findall(r"#([\w-]+)\)", svg):
            assert f'id="{reference}"' in svg
    clips = [set(re.findall(r'<clipPath id="([^"]+)"', svg)) for svg in pictures]
    assert clips[0]
    assert not clips[0] & clips[1]
    assert not clips[1] & clips[2]


def test_the_same_history_gives_the_same_picture(make_run: Any) -> None:
    history = make_run("nb201_mini", epochs=2).history
    assert curves(history) == curves(history)


def test_settings_of_the_user_are_left_as_they_were(make_run: Any) -> None:
    before = dict(matplotlib.rcParams)
    curves(make_run("nb201_mini", epochs=2).history)
    assert dict(matplotlib.rcParams) == before
