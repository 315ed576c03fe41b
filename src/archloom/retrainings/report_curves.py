"""Learning curves of a retraining, for its page and for notebooks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from archloom.core.metrics import ACCURACY, Metric
from archloom.reports.curves import drop_unknown, learning_curves
from archloom.reports.figures import colour_of, dash_of, draw_line, make_figure
from archloom.retrainings.records import RetrainRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {  # of the metrics that are drawn, in the order of the page
    "learning_rate": "learning_rate",
    "train_loss": "train_loss",
    "train_accuracy": "train_accuracy",
    "valid_accuracy": "valid_accuracy",
    "valid_top5": "top5_valid_accuracy",
    "valid_loss": "valid_loss",
    "ema_valid_accuracy": "ema_valid_accuracy",
}


def list_metrics(history: Sequence[RetrainRecord]) -> dict[str, list[float]]:
    """Return the metrics that are known, one number per record; accuracies are in percent."""
    values = {label: [_known(getattr(record, name)) for record in history] for name, label in NAMES.items()}
    known = {label: series for label, series in values.items() if drop_unknown(series)}
    return dict(_name_series(label, series, history[0].measure) for label, series in known.items()) if history else {}


def _name_series(label: str, series: list[float], metric: Metric) -> tuple[str, list[float]]:
    """Return a score as people read it: 100 / perplexity becomes a perplexity."""
    if metric is ACCURACY or not label.endswith(ACCURACY.name):
        return label, series
    return label.removesuffix(ACCURACY.name) + metric.name, [metric.to_value(value / 100) for value in series]


def draw_curves(history: Sequence[RetrainRecord]) -> str:
    """Draw losses, accuracies and the learning rate over epochs, as SVG."""
    metrics = {
        name: [value / 100 for value in values] if name.endswith("accuracy") else values  # it takes fractions
        for name, values in list_metrics(history).items()
    }
    return learning_curves([record.epoch + 1 for record in history], metrics)


def plot_curves(history: Sequence[RetrainRecord]) -> Figure:
    """Return a matplotlib figure: losses, and accuracies, over epochs."""
    metrics, epochs = list_metrics(history), [record.epoch + 1 for record in history]
    measured = history[0].measure if history else ACCURACY
    panels = {"loss": "loss", measured.name: measured.label}  # titles by the ending of a metric's name

    def draw(figure: Figure) -> None:
        for axes, (ending, title) in zip(figure.subplots(1, 2), panels.items(), strict=True):
            shown = {name: values for name, values in metrics.items() if name.endswith(ending)}
            for place, (name, values) in enumerate(shown.items()):
                text, colour, dash = name.replace("_", " "), colour_of(place), dash_of(place)
                draw_line(axes, epochs, values, colour=colour, label=text, dash=dash)
            axes.set_title(title, loc="left")
            axes.set_xlabel("epoch")
            if shown:
                axes.legend(loc="best")

    figure = make_figure(draw, height=3.0)
    figure.set_facecolor("white")
    return figure


def _known(value: float | None) -> float:
    return math.nan if value is None else value
