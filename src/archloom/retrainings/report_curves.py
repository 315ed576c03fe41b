"""Learning curves of a retraining, for its page and for notebooks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from archloom.core.metrics import ACCURACY
from archloom.reports.curves import drop_unknown, learning_curves
from archloom.reports.figures import colour_of, dash_of, draw_line, make_figure
from archloom.retrainings.records import RetrainRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {  # of the metrics that are drawn, in the order of the page
    "learning_rate": "learning_rate",
    "train_loss": "train_loss",
    "train_score": "train_score",
    "valid_score": "valid_score",
    "valid_top5": "top5_valid_accuracy",
    "valid_loss": "valid_loss",
    "ema_valid_score": "ema_valid_score",
}


def list_metrics(history: Sequence[RetrainRecord]) -> dict[str, list[float]]:
    """Return the metrics that are known by name, one number per record; accuracies are in percent."""
    rows = [_list_figures(record) for record in history]
    names = dict.fromkeys(name for row in rows for name in row)
    values = {name: [_known(row.get(name)) for row in rows] for name in names}
    return {name: series for name, series in values.items() if drop_unknown(series) and not _is_certain(name, series)}


def _is_certain(name: str, series: Sequence[float]) -> bool:
    """Return whether this is the top-5 accuracy of five classes or fewer, or as good as that: all of it is 100 %."""
    return name == NAMES["valid_top5"] and min(drop_unknown(series)) == 100


def _list_figures(record: RetrainRecord) -> dict[str, float | None]:
    """Return the figures of an epoch that are drawn: a score by the name of its metric."""
    row = {label: getattr(record, name) for name, label in NAMES.items()}
    return record.measure.name_figures(row, record.measure.from_percent)


def draw_curves(history: Sequence[RetrainRecord]) -> str:
    """Draw losses, scores and the learning rate over epochs, as SVG."""
    metrics = {
        name: [value / 100 for value in values] if name.endswith("accuracy") else values  # it takes fractions
        for name, values in list_metrics(history).items()
    }
    return learning_curves([record.epoch + 1 for record in history], metrics)


def plot_curves(history: Sequence[RetrainRecord]) -> Figure:
    """Return a matplotlib figure: losses, and accuracies or perplexities, over epochs."""
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
