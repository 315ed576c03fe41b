"""What a strategy reports besides its architecture, as sections of a page: edge weights, stages, variances of priors.

Findings come from a file and may be those of a plug-in: what does not have the expected form is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from archloom.core.json_object import JsonObject, number
from archloom.reports.figures import PALETTE, svg
from archloom.reports.markup import make_printable, shorten
from archloom.reports.pictures import Picture
from archloom.reports.tables import Table, number_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NO_TABLE = Table("", ())
LONGEST_NAME = 26
ROW_HEIGHT = 0.2  # inches
EMPTY = 0.01  # a share of the limit of noise, the lowest that colours tell apart


@dataclass(frozen=True)
class FindingSection:
    """A section of a page: a picture or a table, and how to read it."""

    heading: str
    words: str
    figure: Picture | None = None
    table: Table = NO_TABLE

    @property
    def picture(self) -> str:
        """Return the figure as SVG, drawn now; '' where there is none."""
        return "" if self.figure is None else self.figure.svg


def finding_sections(findings: JsonObject) -> list[FindingSection]:
    """Return the sections of the findings that are known here."""
    made = (_edge_weights(findings), _stages(findings), _skip_limits(findings), _priors(findings))
    return [section for section in made if section is not None]


# --- weights of edges


def _edge_weights(findings: JsonObject) -> FindingSection | None:
    weights = _numbers(findings.get("edge_weights"))
    if not weights:
        return None
    return FindingSection(
        "Edge weights",
        "The learned weight of every edge; those into one node sum to 1. A node keeps the inputs whose weight times "
        "the probability of their best operation is largest.",
        figure=Picture(
            "edge-weights",
            "Edge weights",
            lambda: _draw_bars(weights),
            lambda: number_table(("edge", "weight"), list(weights.items())),
        ),
    )


def _draw_bars(weights: Mapping[str, float]) -> str:
    names = list(weights)
    targets = list(dict.fromkeys(_node_of(name) for name in names))
    colours = [PALETTE[targets.index(_node_of(name)) % len(PALETTE)] for name in names]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.barh(range(len(names)), list(weights.values()), color=colours)
        axes.set_yticks(range(len(names)), [_label(name) for name in names])
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.set_xlabel("weight of the edge; one colour per node")

    return svg(draw, height=ROW_HEIGHT * len(names) + 0.7, label=f"Weights of {len(names)} edges")


def _node_of(name: str) -> str:
    """Return the cell and the target of an edge such as `normal/0->2`."""
    cell, _, edge = name.rpartition("/")
    return f"{cell}/{edge.rpartition('->')[2]}"


# --- stages


def _stages(findings: JsonObject) -> FindingSection | None:
    stages = [one for one in _list(findings.get("stages")) if isinstance(one, Mapping)]
    if not stages:
        return None
    rows = tuple(
        (str(one.get("stage", "")), str(one.get("network", "")), _describe_dropped(one.get("dropped")))
        for one in stages
    )
    return FindingSection(
        "Stages",
        "Every stage searched with a new supernet. Options with the lowest probability were dropped after a stage.",
        table=Table("", rows, ("stage", "network", "dropped afterwards, by option (number of decisions)")),
    )


def _describe_dropped(dropped: Any) -> str:
    """Return how many decisions dropped each option, the most frequent first."""
    counts: dict[str, int] = {}
    for options in dropped.values() if isinstance(dropped, Mapping) else ():
        for option in _list(options):
            counts[str(option)] = counts.get(str(option), 0) + 1
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{option} ({count})" for option, count in ordered) or "nothing"


def _skip_limits(findings: JsonObject) -> FindingSection | None:
    cells = findings.get("cells_by_skip_limit")
    if not isinstance(cells, Mapping) or not cells:
        return None
    rows = tuple((str(limit), str(text)) for limit, text in cells.items())
    return FindingSection(
        "Cells by the limit of skips",
        "The architecture that each limit of skips gives, from the same probabilities.",
        table=Table("", rows, ("skips at most", "architecture")),
    )


# --- priors


def _priors(findings: JsonObject) -> FindingSection | None:
    found = findings.get("evidence")
    evidence = {str(name): _numbers(row) for name, row in found.items()} if isinstance(found, Mapping) else {}
    evidence = {name: row for name, row in evidence.items() if row}
    if not evidence:
        return None
    kept, count = number(findings.get("surviving_operations")), number(findings.get("operations"))
    counted = "" if math.isnan(kept + count) else f" {kept:.0f} of {count:.0f} operations survive."
    return FindingSection(
        "Precision of the priors",
        "The learned variance of every operation's gates in units of the limit below which it is pruned, on a "
        f"logarithmic scale: 0 is the limit, and a gate below it is within the noise.{counted}",
        figure=Picture(
            "priors", "Precision of the priors", lambda: _draw_map(evidence), lambda: _tabulate_evidence(evidence)
        ),
    )


def _draw_map(evidence: Mapping[str, Mapping[str, float]]) -> str:
    options = list(dict.fromkeys(option for row in evidence.values() for option in row))
    values = [
        [math.log10(max(row[option], EMPTY)) if option in row else math.nan for option in options]
        for row in evidence.values()
    ]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        image = axes.imshow(values, aspect="auto", interpolation="nearest", cmap="RdBu", vmin=-2, vmax=2)
        axes.set_xticks(range(len(options)), [_label(option) for option in options])
        axes.set_yticks(range(len(evidence)), [_label(name) for name in evidence])
        axes.grid(visible=False)
        figure.colorbar(image, ax=axes, label="log10 of variance / limit", pad=0.02)

    return svg(draw, height=ROW_HEIGHT * len(evidence) + 1.0, label=f"Evidence for {len(options)} operations")


def _tabulate_evidence(evidence: Mapping[str, Mapping[str, float]]) -> Table:
    """Return a row per decision and option."""
    rows = [(name, option, value) for name, row in evidence.items() for option, value in row.items()]
    return number_table(("decision", "option", "variance / limit"), rows)


# --- values from a file


def _label(name: str) -> str:
    return make_printable(shorten(name, longest=LONGEST_NAME))


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _numbers(value: Any) -> dict[str, float]:
    """Return the finite numbers of a mapping."""
    found = {str(name): number(item) for name, item in value.items()} if isinstance(value, Mapping) else {}
    return {name: item for name, item in found.items() if not math.isnan(item)}
