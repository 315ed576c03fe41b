"""The report of a run as one page that needs nothing else: it opens by a double click, offline, years from now.

The page holds no script and forbids itself to load anything, so that a name out of a plug-in or a file can do no harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from archloom.reports.cells import draw_cells, draw_text
from archloom.reports.history import changes, chosen_so_far, find, has_standing, has_trials, last_record_with, positions
from archloom.reports.pages import page
from archloom.reports.tables import (
    Table,
    cost_facts,
    duration,
    finalists_table,
    percent,
    record_table,
    settings_tables,
    standing_facts,
    standing_sentence,
    timing_facts,
)
from archloom.searches.report_draws import MOST_ROWS, best_map, draw_curves
from archloom.searches.report_health import health_curves, health_sentence
from archloom.searches.report_plots import MOST_PANELS, learning_curves, probabilities, stability_curve, trial_scores
from archloom.searches.report_posterior import CREDIBLE, architecture_table, beliefs, drawn, sentences
from archloom.spaces.base import NONE, SearchSpace


@dataclass(frozen=True)
class ReportData:
    """What is known of a run; `result` is None until it has finished."""

    title: str
    settings: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]
    result: Mapping[str, Any] | None
    space: SearchSpace
    tested: Mapping[str, float] = field(default_factory=dict)  # test accuracies that a table knows, by text form


@dataclass(frozen=True)
class Picture:
    """A drawing and the words on how to read it."""

    heading: str
    svg: str
    caption: str


def render(data: ReportData) -> str:
    """The whole page."""
    return page("template.html", _context(data))


def _context(data: ReportData) -> dict[str, object]:
    chosen = data.result if data.result is not None else chosen_so_far(data.history)
    return {
        "title": data.title,
        "subtitle": _subtitle(data),
        "finished": data.result is not None,
        "records": len(data.history),
        "steps": "trials" if has_trials(data.history) else "epochs",
        "which": "best one so far" if has_trials(data.history) else "latest one",
        "verdict": find(data.result, "verdict") or "",
        "architecture": find(chosen, "text") or "",
        **_cells(chosen, data.space),
        **_fares(chosen, _shared_accuracy(data, chosen)),
        "posterior": _posterior(data),
        "finalists": finalists_table(data.result),
        "finalists_time": duration(find(data.result, "finalists_seconds")),
        "pictures": [picture for picture in _pictures(data) if picture.svg],
        "timing": Table("", tuple(timing_facts(data.history, find(data.result, "run")))),
        "settings": settings_tables(data.settings),
        "versions": Table("", tuple((name, str(version)) for name, version in _versions(data.result).items())),
        "table": record_table(data.history),
    }


def _versions(result: Mapping[str, Any] | None) -> Mapping[str, Any]:
    versions = find(result, "run", "versions")
    return versions if isinstance(versions, Mapping) else {}


def _subtitle(data: ReportData) -> str:
    """`gdas on nb201, seed 0`, as far as it is known."""
    strategy = find(data.result, "strategy") or find(data.settings, "strategy", "name")
    space = find(data.result, "space", "name") or find(data.settings, "space", "name")
    seed = find(data.result if data.result is not None else data.settings, "seed")
    parts = [f"{strategy} on {space}" if strategy and space else str(strategy or space or "")]
    parts += [f"seed {seed}"] if seed is not None else []
    return ", ".join(part for part in parts if part)


def _cells(chosen: Mapping[str, Any] | None, space: SearchSpace) -> dict[str, object]:
    choices = find(chosen, "architecture")
    graphs = space.graphs(space.check(choices)) if choices is not None else ()
    return {
        "drawing": draw_cells(graphs) if graphs else "",
        "cell_count": len(graphs),
        "outline": "\n".join(draw_text(graph) for graph in graphs),
    }


def _shared_accuracy(data: ReportData, chosen: Mapping[str, Any] | None) -> object:
    """The last accuracy that this very architecture had with the shared weights."""
    choices = find(chosen, "architecture")
    same = [record for record in data.history if find(record, "architecture") == choices]
    return find(last_record_with(same, "derived_accuracy"), "derived_accuracy")


def _fares(chosen: Mapping[str, Any] | None, shared_accuracy: object) -> dict[str, object]:
    """How good the architecture is known to be, in a sentence and in facts."""
    standing = find(chosen, "standing")
    facts = standing_facts(standing) if standing else []
    if shared_accuracy is not None:
        facts.append(("Accuracy with shared weights", percent(shared_accuracy)))
    facts += cost_facts(find(chosen, "cost"))
    unknown = (
        "No table of known scores covers this architecture, so how it ranks is not known. Retrain it to learn what it "
        "reaches: accuracy with shared weights is only a hint."
    )
    return {"fares": standing_sentence(standing) if standing else unknown, "facts": Table("", tuple(facts))}


def _posterior(data: ReportData) -> dict[str, object] | None:
    """The section on what the draws say; None where a strategy draws nothing."""
    posterior = find(data.result, "posterior")
    if not isinstance(posterior, Mapping) or not beliefs(posterior):
        return None
    derived = find(data.result, "architecture") or {}
    return {
        "heading": "Posterior" if drawn(posterior) else "Posterior: a path without noise",
        "words": " ".join(sentences(posterior)),
        "picture": best_map(beliefs(posterior), derived),
        "caption": _map_caption(posterior, derived),
        "architectures": architecture_table(posterior, derived=find(data.result, "text"), tested=data.tested),
    }


def _map_caption(posterior: Mapping[str, Any], derived: Mapping[str, str]) -> str:
    share = "probability" if drawn(posterior) else "share of the positions"
    known = beliefs(posterior)
    parts = [
        f"A row per decision, a column per option: the {share}, in percent, that it is the best option of that "
        f"decision, by however little. Frames hold the {CREDIBLE} credible set: the fewest options that have "
        f"{CREDIBLE} together. A diamond marks the option of the result."
    ]
    if any(derived.get(belief.decision) == NONE != belief.option for belief in known):
        parts.append("A diamond at none is an input that the cell leaves out, where others scored higher.")
    if len(known) > MOST_ROWS:
        parts.append(
            f"Shown are the {MOST_ROWS} least certain of {len(known)} decisions; `archloom posterior` prints them all."
        )
    return " ".join(parts)


def _pictures(data: ReportData) -> list[Picture]:
    if has_trials(data.history):
        caption = "Each dot is one trial; the line is the best score so far. A line that still climbs at the right end "
        return [Picture("Trials", trial_scores(data.history), caption + "might have gained from more trials.")]
    pictures = (_learning_picture, _stability_picture, _health_picture, _probability_picture, _draws_picture)
    return [picture(data) for picture in pictures]


def _health_picture(data: ReportData) -> Picture:
    return Picture(
        "Health",
        health_curves(data.history),
        health_sentence(data.history, data.result)
        + "Skips, pools and none need no training and tend to win early; a rising share of them is how one-shot "
        "searches collapse. A rising eigenvalue means that the validation loss gets sharp around the logits, and that "
        "more is lost by deriving one architecture from them.",
    )


def _draws_picture(data: ReportData) -> Picture:
    return Picture(
        "How the draws went",
        draw_curves(data.history),
        "Means over the draws of an epoch. Noise far below the mean step makes it a descent, far above it a random "
        "walk. Many damped, skipped or clipped draws mean that the curvature fits badly. Entropy that does not fall "
        "means that no option stands out; a rising share of skips is how one-shot searches collapse.",
    )


def _learning_picture(data: ReportData) -> Picture:
    return Picture(
        "Learning curves",
        learning_curves(data.history),
        "Metrics of the shared weights per epoch. Training and validation should improve together; a widening "
        "distance between them means that the shared weights overfit. Other metrics have panels of their own.",
    )


def _stability_picture(data: ReportData) -> Picture:
    if has_standing(data.history):
        what = (
            "Had the search stopped after an epoch, its architecture would reach this test accuracy when trained "
            "alone, by the table. The dashed line is the best of the table; falling away from it is a collapse."
        )
    else:
        what = (
            "Had the search stopped after an epoch, its architecture would have this accuracy with the shared weights, "
            "which is a hint at its quality and not a measurement of it."
        )
    return Picture("Stability", stability_curve(data.history), f"{what} {_change_sentence(data)}")


def _change_sentence(data: ReportData) -> str:
    """How often the answer changed, and when it did so last."""
    changed = [place for place, change in zip(positions(data.history), changes(data.history), strict=True) if change]
    if not changed:
        return "The architecture never changed."
    times = "once" if len(changed) == 1 else f"{len(changed)} times"
    return f"The architecture changed {times} (open dots), the last time at epoch {changed[-1]:g}."


def _probability_picture(data: ReportData) -> Picture:
    if len(data.space.decisions) > MOST_PANELS:
        caption = (
            "A row per decision, an epoch per column. Bright rows are undecided (all options alike), dark rows have "
            "settled on one option."
        )
    else:
        caption = (
            "A panel per decision, a line per option, its probability over epochs. Below each name stands the option "
            "taken in the end. Lines that part early and stay apart are clear choices; lines that stay together are "
            "not. In cells that keep two inputs per node, a decision may end as none as other inputs scored higher."
        )
    return Picture("Architecture probabilities", probabilities(data.history, data.space.decisions), caption)
