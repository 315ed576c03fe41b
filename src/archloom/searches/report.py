"""The report of a search: one self-contained page that opens offline.

The page has no script and forbids itself to load anything: a name from a plug-in or a file can do no harm.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from archloom.benchmarks.base import TableEntry
from archloom.core.json_object import number
from archloom.core.metrics import ACCURACY, Metric
from archloom.core.settings import Settings
from archloom.reports.cautions import split_warnings
from archloom.reports.cells import draw_cells, draw_text
from archloom.reports.curves import learning_curves
from archloom.reports.pages import render_template
from archloom.reports.pictures import Picture
from archloom.reports.tables import (
    Column,
    Table,
    cost_facts,
    decimal,
    duration,
    measured,
    metric_columns,
    record_table,
    series_table,
    settings_tables,
    timing_facts,
    version_table,
    whole,
)
from archloom.searches.history import (
    chosen_so_far,
    epochs_of,
    find_changes,
    metric_series,
    trial_figures,
    trials_of,
    unit_of,
)
from archloom.searches.records import (
    COST_METRIC,
    EpochRecord,
    FinalistRecord,
    SearchRecord,
    TrialRecord,
)
from archloom.searches.report_draws import (
    MOST_ROWS,
    SHOWN_WITH_DRAWS,
    best_map,
    draw_curves,
    tabulate_best,
    tabulate_draws,
)
from archloom.searches.report_findings import (
    finding_sections,
)
from archloom.searches.report_health import (
    health_curves,
    health_sentence,
    tabulate_health,
)
from archloom.searches.report_plots import (
    MOST_PANELS,
    has_table,
    probabilities,
    stability_curve,
    table_curves,
    tabulate_costs,
    tabulate_probabilities,
    tabulate_stability,
    tabulate_trials,
    target_curve,
    trial_scores,
)
from archloom.searches.report_posterior import (
    CREDIBLE,
    architecture_table,
    decision_table,
    describe_posterior,
    has_mixed,
)
from archloom.spaces.base import NONE, CellGraph, SearchSpace

if TYPE_CHECKING:  # reports need no torch
    from archloom.policies.posterior import Posterior
    from archloom.searches.result import SearchResult


@dataclass(frozen=True)
class ReportData:
    """What is known of a run; `result` is None until it has finished."""

    title: str
    subtitle: str  # `gdas on nb201, seed 0`
    settings: Settings  # as config.toml has them, for a table
    history: Sequence[SearchRecord]
    result: SearchResult | None
    space: SearchSpace | None  # None: a plug-in that is not here; cells and probabilities are left out
    tested: Mapping[str, float] = field(default_factory=dict)  # test accuracies in a table, by text form
    posterior: Posterior | None = None  # of a search that still runs; a result has its own

    @property
    def metric(self) -> Metric:
        """Return how scores are named and printed."""
        return self.history[0].measure if self.history else ACCURACY

    @property
    def epochs(self) -> list[EpochRecord]:
        """Return the records of epochs."""
        return epochs_of(self.history)

    @property
    def trials(self) -> list[TrialRecord]:
        """Return the records of trials."""
        return trials_of(self.history)

    @property
    def chosen(self) -> SearchResult | SearchRecord | None:
        """Return the result or, for an unfinished run, the record of what it would return now."""
        return self.result or chosen_so_far(self.history)


def render(data: ReportData, *, with_pictures: bool = True) -> str:
    """Return the whole page."""
    return render_template("template.html", make_context(data), with_pictures=with_pictures)


def make_context(data: ReportData, *, with_alarms: bool = True) -> dict[str, object]:
    """Return what the template of the page needs; pictures are drawn when the page shows them."""
    chosen, result, unit = data.chosen, data.result, unit_of(data.history)
    warnings, verdict = split_warnings("" if result is None else result.verdict)
    return {
        "title": data.title,
        "subtitle": data.subtitle,
        "finished": result is not None,
        "records": len(data.history),
        "steps": f"{unit}s",
        "which": "best one so far" if data.trials else "latest one",
        "warnings": [*warnings, *(list_alarms(data.epochs) if with_alarms else ())],
        "verdict": verdict,
        "architecture": "" if chosen is None else chosen.text,
        **_cells(data),
        **_quality(data),
        "posterior": _posterior(data),
        "findings": finding_sections({} if result is None else result.findings),
        "finalists": finalists_table(() if result is None else result.finalists, data.metric),
        "race_text": "" if result is None or result.race is None else result.race.trained_text,
        "finalists_time": duration(None if result is None else result.finalists_seconds),
        "pictures": [picture for picture in list_pictures(data) if picture],
        "timing": Table("", tuple(_timing(data))),
        "settings": settings_tables(data.settings),
        "versions": version_table(None if result is None else result.run),
        "table": record_table(f"Every {unit}", _columns(data)),
    }


def list_alarms(epochs: Sequence[EpochRecord]) -> list[str]:
    """Return every kind of alarm of the monitor, with the epoch when it was raised first."""
    first: dict[str, int] = {}
    for record in epochs:
        if record.health is not None and record.health.alarm:
            first.setdefault(re.sub(r"[\d.,]+", "", record.health.alarm), record.epoch)
    raised = [record for record in epochs if record.epoch in first.values()]
    return [f"Epoch {record.epoch + 1}: {record.health.alarm}" for record in raised if record.health is not None]


def _cells(data: ReportData) -> dict[str, object]:
    chosen, space = data.chosen, data.space
    graphs = () if chosen is None or space is None else space.graphs(space.check(chosen.architecture))
    return {
        "drawing": picture_cells(graphs, {} if chosen is None else chosen.architecture),
        "cell_count": len(graphs),
        "outline": "\n".join(draw_text(graph) for graph in graphs),
    }


def picture_cells(graphs: Sequence[CellGraph], architecture: Mapping[str, str]) -> Picture:
    """Return the drawing of an architecture; its numbers are the options."""
    rows = tuple(architecture.items()) if graphs else ()
    return Picture(
        "architecture",
        "Architecture",
        lambda: draw_cells(graphs),
        lambda: Table("", rows, ("decision", "option")),
        is_quick=True,
    )


# --- how good it is


def _quality(data: ReportData) -> dict[str, object]:
    """Return how good the architecture is known to be, as a sentence and as facts."""
    entry = None if data.chosen is None else data.chosen.table_entry
    facts = [] if entry is None else table_facts(entry)
    same = [record for record in data.epochs if data.chosen and record.architecture == data.chosen.architecture]
    if same:
        shown = measured(same[-1].derived_score, data.metric)
        facts.append((f"{data.metric.name.capitalize()} with shared weights", shown))
    if data.result is not None:
        facts += cost_facts(data.result.cost, final_network=data.result.final_network)
    unknown = (
        f"No benchmark table covers this architecture, so its rank is not known. Retrain it to learn its "
        f"{data.metric.name}: {data.metric.name} with shared weights is only a hint."
    )
    return {"quality": unknown if entry is None else table_sentence(entry), "facts": Table("", tuple(facts))}


def table_facts(entry: TableEntry) -> list[tuple[str, str]]:
    """Return what a benchmark table knows of an architecture."""
    return [
        ("Data set of the table", entry.dataset),
        ("Test accuracy in the table", decimal(entry.test, unit=" %")),
        *([] if entry.valid is None else [("Validation accuracy in the table", decimal(entry.valid, unit=" %"))]),
        ("Rank", f"{whole(entry.rank)} of {whole(entry.count)}"),
        ("Regret (points below the best)", decimal(entry.regret)),
    ]


def table_sentence(entry: TableEntry) -> str:
    """Return the same in a sentence."""
    parts = [f"Trained alone, it reaches {decimal(entry.test)} % on the test images of {entry.dataset}"]
    if entry.rank == 1:
        parts.append(f"the best of the {whole(entry.count)} architectures in the table")
    else:
        ahead = decimal(100 * (entry.count - entry.rank) / entry.count, digits=1)
        parts.append(f"rank {whole(entry.rank)} of {whole(entry.count)}, ahead of {ahead} %")
    if entry.regret > 0:
        parts.append(f"{decimal(entry.regret)} points below the best")
    return ", ".join(parts) + "."


def finalists_table(finalists: Sequence[FinalistRecord], metric: Metric = ACCURACY) -> Table:
    """Return a row per finalist, the best first."""
    rows = tuple(
        (
            str(place),
            finalist.origin,
            whole(finalist.steps),
            decimal(finalist.valid_loss, digits=3),
            measured(finalist.valid_score, metric),
            whole(finalist.parameters),
            finalist.text,
        )
        for place, finalist in enumerate(finalists, start=1)
    )
    columns = ("validation loss", f"validation {metric.name}", "parameters")
    return Table("", rows, ("place", "why", "steps", *columns, "architecture"))


# --- what it took


def _timing(data: ReportData) -> list[tuple[str, str]]:
    return timing_facts(
        unit_of(data.history),
        len(data.history),
        seconds=[record.seconds for record in data.history],
        speeds=[record.images_per_second for record in data.epochs],
        memory_mb=[record.memory_mb for record in data.epochs],
        run=None if data.result is None else data.result.run,
    )


def _columns(data: ReportData) -> list[Column]:
    epochs, trials, entries = data.epochs, data.trials, [record.table_entry for record in data.history]
    of_epochs = [
        Column("epoch", [record.epoch + 1 for record in epochs], whole),
        *([Column("stage", [record.stage for record in epochs], str)] if any(one.stage for one in epochs) else []),
        Column("seconds", [record.seconds for record in epochs], decimal),
        Column("images/s", [record.images_per_second for record in epochs], whole),
        Column("memory, MB", [record.memory_mb for record in epochs], whole),
        *metric_columns(metric_series(epochs)),
        Column(
            f"derived {data.metric.name}",
            [record.derived_score for record in epochs],
            partial(measured, metric=data.metric),
        ),
    ]
    of_trials = [
        Column("trial", [record.trial for record in trials], whole),
        Column("seconds", [record.seconds for record in trials], decimal),
        *(
            Column(name, [trial_figures(record)[name] for record in trials], decimal)
            for name in (trial_figures(trials[0]) if trials else ())
        ),
    ]
    return [
        *(of_trials if trials else of_epochs),
        Column("table test, %", [entry and entry.test for entry in entries], decimal),
        Column("rank", [entry and entry.rank for entry in entries], whole),
    ]


# --- the posterior


def _posterior(data: ReportData) -> dict[str, object] | None:
    """Return the section on the draws; None for strategies that draw from no posterior."""
    posterior, chosen = data.posterior if data.result is None else data.result.posterior, data.chosen
    if posterior is None or chosen is None or not posterior.decisions:
        return None
    derived = chosen.architecture
    converged = not posterior.sampled or has_mixed(posterior)
    heading = "Posterior" if converged else "Posterior: not converged"
    return {
        "heading": heading if posterior.sampled else "Posterior: a path without noise",
        "words": " ".join(describe_posterior(posterior)),
        "picture": Picture(
            "posterior",
            "Posterior",
            lambda: best_map(posterior.decisions, derived),
            lambda: tabulate_best(posterior.decisions),
            _map_caption(posterior, derived),
        )
        if converged
        else None,
        "leading": None if converged else decision_table(posterior),
        "architectures": architecture_table(posterior, derived=chosen.text, tested=data.tested),
    }


def _map_caption(posterior: Posterior, derived: Mapping[str, str]) -> str:
    share, decisions = "probability" if posterior.sampled else "share of the positions", posterior.decisions
    parts = [
        f"A row per decision, a column per option: the {share}, in percent, that it is the best option of that "
        f"decision, by however little. Frames mark the {CREDIBLE} credible set: the fewest options that have "
        f"{CREDIBLE} together. A diamond marks the option of the result."
    ]
    if any(derived.get(name) == NONE != decision.option for name, decision in decisions.items()):
        parts.append("A diamond at none is an input that the cell leaves out, because others scored higher.")
    if len(decisions) > MOST_ROWS:
        parts.append(
            f"Shown are the {MOST_ROWS} least certain of {len(decisions)} decisions; `archloom posterior` prints all."
        )
    return " ".join(parts)


# --- pictures


def list_pictures(data: ReportData) -> list[Picture]:
    """Return the pictures of a page, in their order; those without content are false."""
    if data.trials:
        caption = (
            "Each dot is one trial; the line is the best score so far. If the line still climbs at the right end, more "
            "trials might have helped."
        )
        trials = data.trials
        shown = Picture("trials", "Trials", lambda: trial_scores(trials), lambda: tabulate_trials(trials), caption)
        return [shown, _target_picture(data)]
    pictures = (
        _learning_picture,
        _stability_picture,
        _table_picture,
        _target_picture,
        _health_picture,
        _probability_picture,
        _draws_picture,
    )
    return [picture(data) for picture in pictures]


def _target_picture(data: ReportData) -> Picture:
    settings, result = dict(data.settings.get("target") or {}), data.result
    metric, value = str(settings.get("metric", NONE)), number(settings.get("value"))
    history = data.history if metric != NONE and not math.isnan(value) else ()
    checked = None if result is None or result.target is None else result.target
    return Picture(
        "target",
        "Cost and target",
        lambda: target_curve(history, value, metric),
        lambda: tabulate_costs(history, value),
        "What the architecture costs against the target of the search." if checked is None else checked.sentence,
    )


def _health_picture(data: ReportData) -> Picture:
    return Picture(
        "health",
        "Health",
        lambda: health_curves(data.epochs),
        lambda: tabulate_health(data.epochs),
        health_sentence(data.epochs, None if data.result is None else data.result.early_stop)
        + "Skips, pools and none need no training and tend to win early; a rising share of them is how one-shot "
        "searches collapse. A rising eigenvalue means that the validation loss gets sharp around the logits: "
        "discretizing them to one architecture then costs more.",
    )


def _draws_picture(data: ReportData) -> Picture:
    return Picture(
        "draws",
        "Sampling diagnostics",
        lambda: draw_curves(data.epochs),
        lambda: tabulate_draws(data.epochs),
        "Means over the draws of an epoch. Noise far below the mean step is a descent, far above it a random walk. "
        "Many damped, skipped or clipped draws mean that the curvature fits badly. Entropy that does not fall means "
        "that no option stands out; a rising share of skips is how one-shot searches collapse.",
    )


def _learning_picture(data: ReportData) -> Picture:
    epochs, metrics = [record.epoch + 1 for record in data.epochs], metric_series(data.epochs)
    return Picture(
        "learning",
        "Learning curves",
        lambda: learning_curves(epochs, metrics, left_out={*SHOWN_WITH_DRAWS, COST_METRIC}),
        lambda: series_table("epoch", epochs, metrics) if metrics else Table("", ()),
        "Metrics of the shared weights per epoch. Training and validation should improve together; a widening gap "
        "between them means that the shared weights overfit. Other metrics have their own panels.",
    )


def _stability_picture(data: ReportData) -> Picture:
    if has_table(data.epochs):
        what = (
            "By the table, the test accuracy of the architecture that the search would have returned after an epoch. "
            "The dashed line is the best of the table; falling away from it is a collapse."
        )
    else:
        what = (
            f"The {data.metric.name}, with the shared weights, of the architecture that the search would have returned "
            "after each epoch. It is a hint at the quality of the architecture, not a measurement."
        )
    return Picture(
        "stability",
        "Stability",
        lambda: stability_curve(data.epochs),
        lambda: tabulate_stability(data.epochs),
        f"{what} {_change_sentence(data)}",
    )


def _table_picture(data: ReportData) -> Picture:
    shown = data.epochs if has_table(data.epochs) else []
    return Picture(
        "rank",
        "Rank and regret",
        lambda: table_curves(shown),
        lambda: tabulate_stability(shown),
        "By the table: the rank of the architecture that the search would have returned after an epoch, and how many "
        "points of test accuracy it lies below the best.",
    )


def _change_sentence(data: ReportData) -> str:
    """Return how often the architecture changed, and when it did so last."""
    changed = [one.epoch + 1 for one, change in zip(data.epochs, find_changes(data.epochs), strict=True) if change]
    if not changed:
        return "The architecture never changed."
    times = "once" if len(changed) == 1 else f"{len(changed)} times"
    return f"The architecture changed {times} (open dots), the last time after epoch {changed[-1]}."


def _probability_picture(data: ReportData) -> Picture:
    decisions = () if data.space is None else data.space.decisions
    if len(decisions) > MOST_PANELS:
        caption = (
            "A row per decision, a column per epoch. Bright rows are undecided (all options alike), dark rows have "
            "settled on one option."
        )
    else:
        caption = (
            "A panel per decision, a line per option: its probability over epochs. Below each name is the option "
            "derived last; the finalist race may choose another. "
            "Lines that part early and stay apart are clear choices; lines that stay together are not. In cells that "
            "keep two inputs per node, a decision may end as none because other inputs scored higher."
        )
    return Picture(
        "probabilities",
        "Architecture probabilities",
        lambda: probabilities(data.epochs, decisions),
        lambda: tabulate_probabilities(data.epochs, decisions),
        caption,
    )
