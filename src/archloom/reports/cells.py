"""Draw cells as pictures and as text, for a page and for a terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from archloom.reports.layout import Layout, Line, Place, Route, Size, arrange
from archloom.reports.markup import escape, shorten
from archloom.spaces.base import NONE, CellGraph

OPERATION_KINDS: Mapping[
    str, str
] = {  # what an operation's name contains, and the kind that it is; the first that fits
    NONE: "none",
    "skip": "skip",
    "identity": "skip",
    "sep_": "separable convolution",
    "dil_": "dilated convolution",
    "pool": "pooling",
    "conv": "convolution",
}
OTHER = "other"
KIND_COLOURS: Mapping[str, str] = {
    "convolution": "#0077cc",
    "separable convolution": "#00aaaa",
    "dilated convolution": "#aa88ff",
    "pooling": "#dd6600",
    "skip": "#6b7280",
    "none": "#9ca3af",
    OTHER: "#bb2288",
}
CONCAT_COLOUR = "#b6bcc6"

MARGIN = 16.0
HEADING = 30.0  # above every cell
LEGEND = 40.0
BOX_HEIGHT = 34.0
LABEL_HEIGHT = 21.0
CHARACTER = 6.7  # width allowed per character of a label: a wide sans-serif face at 11 pixels
LONGEST_LABEL = 30
SMALLEST_WIDTH = 420.0
LINE_WIDTH = 1.8
PLAIN = math.nan  # no probability is known: a plain line


def kind_of(operation: str) -> str:
    """Return the kind of an operation, by its name."""
    return next((kind for part, kind in OPERATION_KINDS.items() if part in operation), OTHER)


# --- as text


def draw_text(graph: CellGraph) -> str:
    """Return the cell in lines like `node 3 = nor_conv_3x3(input) + skip_connect(node 1)`."""
    lines = [f"{graph.name}:"]
    for node in range(len(graph.inputs), graph.nodes):
        terms = [f"{operation}({_state(graph, source)})" for source, target, operation in graph.edges if target == node]
        lines.append(f"  node {node} = {' + '.join(terms) or '0 (nothing connected)'}")
    outputs = ", ".join(_state(graph, output) for output in graph.outputs)
    lines.append(f"  output = {outputs if len(graph.outputs) == 1 else f'{graph.joined_by}({outputs})'}")
    return "\n".join(lines)


def _state(graph: CellGraph, number: int) -> str:
    if number >= len(graph.inputs):
        return f"node {number}"
    stem, index = _subscript(graph.inputs[number])
    return f"{stem}[{index}]" if index else stem


def _subscript(name: str) -> tuple[str, str]:
    """Return `c_{k-2}` as ('c', 'k-2'); a name without a subscript as (name, '')."""
    parts = re.fullmatch(r"(.+)_\{(.+)\}", name)
    return (parts[1], parts[2]) if parts else (name, "")


# --- as a picture


@dataclass(frozen=True)
class EdgeView:
    """How an edge is drawn: its text, and the probability that its width stands for."""

    label: str
    probability: float
    note: str = ""  # shown where a pointer rests


def draw_cells(graphs: Sequence[CellGraph], *, title: str = "", views: Sequence[Sequence[EdgeView]] = ()) -> str:
    """Draw the cells below each other as one SVG: a box per state, a curve per operation, coloured by its kind.

    `views` has a list for every graph, with an item for every edge: then the width of a curve is a probability.
    """
    drawings = [_Drawing.of(graph, views[place] if views else ()) for place, graph in enumerate(graphs)]
    legend, legend_width = _legend(graphs)
    width = max([SMALLEST_WIDTH, legend_width, *(drawing.layout.width for drawing in drawings)]) + 2 * MARGIN
    parts = []
    top = MARGIN
    if title:
        parts.append(_text(MARGIN, top + 12, title, attributes='font-size="16" font-weight="600"'))
        top += HEADING
    for drawing in drawings:
        parts.append(f'<g transform="translate({MARGIN:g} {top:.1f})">{drawing.svg()}</g>')
        top += drawing.height + MARGIN
    parts.append(f'<g transform="translate({MARGIN:g} {top:.1f})">{legend}</g>')
    height = top + LEGEND
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'font-family="sans-serif" font-size="11" fill="#1f2937" class="cells">'
        f"<title>{escape(title or _summary(graphs))}</title>{''.join(parts)}</svg>"
    )


def draw_thumbnail(graph: CellGraph) -> str:
    """Draw a cell without words, for a list of runs."""
    boxes = [Size(14, 14)] * len(_box_names(graph))
    lines = [Line(source, target) for source, target, _ in graph.edges]
    lines += [Line(output, graph.nodes) for output in _concatenated_states(graph)]
    layout = arrange(boxes, lines, inputs=len(graph.inputs))
    colours = [KIND_COLOURS[kind_of(operation)] for _, _, operation in graph.edges]
    colours += [CONCAT_COLOUR] * (len(layout.routes) - len(colours))
    parts = [_curve(route, colour, width=2.6) for route, colour in zip(layout.routes, colours, strict=True)]
    parts += [_rectangle(place, radius=4, stroke="#6b7280", fill="#f3f4f6", faded=False) for place in layout.boxes]
    width, height = max(layout.width, 1) + 8, max(layout.height, 1) + 8
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="-4 -4 {width:.0f} {height:.0f}" role="img" class="cells">'
        f"<title>{escape(_summary([graph]))}</title>{''.join(parts)}</svg>"
    )


def _summary(graphs: Sequence[CellGraph]) -> str:
    return "Cells: " + "; ".join(f"{graph.name} with {len(graph.edges)} operations" for graph in graphs)


@dataclass(frozen=True)
class _Drawing:
    """One cell, laid out."""

    graph: CellGraph
    layout: Layout
    used: frozenset[int]  # states on a path from an input to the output
    views: Sequence[EdgeView]  # one per edge

    @classmethod
    def of(cls, graph: CellGraph, views: Sequence[EdgeView]) -> _Drawing:
        views = views or [EdgeView(operation, PLAIN) for _, _, operation in graph.edges]
        lines = [
            Line(source, target, Size(_label_width(view.label), LABEL_HEIGHT))
            for (source, target, _), view in zip(graph.edges, views, strict=True)
        ]
        boxes = [Size(_box_width(name), BOX_HEIGHT) for name in _box_names(graph)]
        lines += [Line(output, graph.nodes) for output in _concatenated_states(graph)]
        return cls(graph, arrange(boxes, lines, inputs=len(graph.inputs)), _connected_states(graph), views)

    @property
    def height(self) -> float:
        return self.layout.height + HEADING

    def svg(self) -> str:
        heading = _text(0, 12, self.graph.name, attributes='font-size="13" font-weight="600"')
        body = self._curves() + self._labels() + self._boxes()  # later parts cover earlier ones
        return f'{heading}<g transform="translate(0 {HEADING - 4:g})">{body}</g>'

    def _curves(self) -> str:
        concatenated = self.layout.routes[len(self.graph.edges) :]
        concat = "".join(_curve(route, CONCAT_COLOUR, dashes="2 3") for route in concatenated)
        curves = (
            _curve(
                route,
                KIND_COLOURS[kind_of(operation)],
                faded=not {source, target} <= self.used,
                width=_width_of(view.probability),
                dashes="1 4" if operation == NONE else "",
            )
            for route, (source, target, operation), view in zip(
                self.layout.routes, self.graph.edges, self.views, strict=False
            )
        )
        return concat + "".join(curves)

    def _labels(self) -> str:
        return "".join(
            _label(route.label, view, KIND_COLOURS[kind_of(operation)], faded=not {source, target} <= self.used)
            for route, (source, target, operation), view in zip(
                self.layout.routes, self.graph.edges, self.views, strict=False
            )
            if route.label
        )

    def _boxes(self) -> str:
        names = _box_names(self.graph)
        return "".join(
            _box(place, name, faded=number < self.graph.nodes and number not in self.used, end=self._is_end(number))
            for number, (place, name) in enumerate(zip(self.layout.boxes, names, strict=True))
        )

    def _is_end(self, number: int) -> bool:
        """Return whether this is an input or the output of the cell."""
        ends = (self.graph.nodes,) if _concatenated_states(self.graph) else self.graph.outputs
        return number < len(self.graph.inputs) or number in ends


def _concatenated_states(graph: CellGraph) -> tuple[int, ...]:
    """Return the states that are concatenated into the output; none if the output is a single state."""
    return graph.outputs if len(graph.outputs) > 1 else ()


def _box_names(graph: CellGraph) -> list[str]:
    numbered = ["output" if graph.outputs == (node,) else str(node) for node in range(len(graph.inputs), graph.nodes)]
    return [*graph.inputs, *numbered, *([graph.joined_by] if _concatenated_states(graph) else [])]


def _connected_states(graph: CellGraph) -> frozenset[int]:
    """Return the states on a path from an input to an output."""
    reached = set(range(len(graph.inputs)))
    for source, target, _ in sorted(graph.edges, key=lambda edge: edge[1]):
        if source in reached:
            reached.add(target)
    needed = set(graph.outputs)
    for source, target, _ in sorted(graph.edges, key=lambda edge: -edge[1]):
        if target in needed:
            needed.add(source)
    return frozenset(reached & needed)


def _label_width(operation: str) -> float:
    return len(shorten(operation, longest=LONGEST_LABEL)) * CHARACTER + 14


def _box_width(name: str) -> float:
    return max(38.0, len(shorten(name, longest=LONGEST_LABEL)) * CHARACTER + 18)


# --- pieces of SVG


def _text(x: float, y: float, text: str, *, attributes: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{escape(text)}</text>'


def _width_of(probability: float) -> float:
    """Return the width of a curve: from a hair to a third of a label; NaN draws as a plain line."""
    return LINE_WIDTH if math.isnan(probability) else 0.6 + 6.4 * min(max(probability, 0.0), 1.0)


def _curve(route: Route, colour: str, *, dashes: str = "", faded: bool = False, width: float = LINE_WIDTH) -> str:
    """Draw a line flat through every column and curved between two, with a head that points to the right."""
    x, y = route.start
    tip, height = route.end
    steps = [f"M{x:.1f} {y:.1f}"]
    for stop in route.stops:
        steps.append(f"{_bend(x, y, stop.left, stop.y)}H{stop.right:.1f}")
        x, y = stop.right, stop.y
    steps.append(_bend(x, y, tip - 7, height))
    half = max(3.6, width)  # the head is wider than the line
    style = f'stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<g opacity="{0.35 if faded else 1}"><path d="{"".join(steps)}" fill="none" stroke="{colour}" '
        f'stroke-width="{width:.3g}" {style}/>'
        f'<path d="M{tip:.1f} {height:.1f}l-8 {-half:.3g}v{2 * half:.3g}z" fill="{colour}"/></g>'
    )


def _bend(x: float, y: float, to_x: float, to_y: float) -> str:
    middle = (x + to_x) / 2
    return f"C{middle:.1f} {y:.1f} {middle:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"


def _label(place: Place, view: EdgeView, colour: str, *, faded: bool) -> str:
    short = shorten(view.label, longest=LONGEST_LABEL)
    return (
        f"<g><title>{escape(view.note or view.label)}</title>{_rectangle(place, radius=10, stroke=colour, faded=faded)}"
        f"{_text(place.x, place.y + 4, short, attributes=_centred(faded))}</g>"
    )


def _box(place: Place, name: str, *, faded: bool, end: bool) -> str:
    fill = "#e8eefc" if end else "#f3f4f6"
    stem, index = _subscript(shorten(name, longest=LONGEST_LABEL))
    lowered = f'<tspan dy="4" font-size="9">{escape(index)}</tspan>' if index else ""
    return (
        f"{_rectangle(place, radius=8, stroke='#475569', fill=fill, faded=faded)}"
        f'<text x="{place.x:.1f}" y="{place.y + 4:.1f}" font-weight="600" {_centred(faded)}>'
        f"{escape(stem)}{lowered}</text>"
    )


def _rectangle(place: Place, *, radius: float, stroke: str, fill: str = "#ffffff", faded: bool) -> str:
    dashes = 'stroke-dasharray="4 3" stroke-opacity="0.6"' if faded else ""
    return (
        f'<rect x="{place.left:.1f}" y="{place.top:.1f}" width="{place.width:.1f}" height="{place.height:.1f}" '
        f'rx="{radius:g}" fill="{fill}" stroke="{stroke}" stroke-width="1.3" {dashes}/>'
    )


def _centred(faded: bool) -> str:
    return f'text-anchor="middle" fill="{"#9ca3af" if faded else "#1f2937"}"'


def _legend(graphs: Sequence[CellGraph]) -> tuple[str, float]:
    """Return a swatch per kind that occurs, and the width of the legend."""
    present = {kind_of(operation) for graph in graphs for _, _, operation in graph.edges}
    entries = [(kind, colour, "") for kind, colour in KIND_COLOURS.items() if kind in present]
    if any(_concatenated_states(graph) for graph in graphs):
        name = "averaged" if any(graph.joined_by == "mean" for graph in graphs) else "concatenated"
        entries.append((name, CONCAT_COLOUR, 'stroke-dasharray="2 3"'))
    if any(len(_connected_states(graph)) < graph.nodes for graph in graphs):
        entries.append(("faded: on no path from input to output", "#d1d5db", 'stroke-dasharray="4 3"'))
    parts, left = [], 0.0
    for name, colour, dashes in entries:
        parts.append(f'<path d="M{left:.1f} 12h20" stroke="{colour}" stroke-width="3" {dashes}/>')
        parts.append(_text(left + 26, 16, name))
        left += 26 + len(name) * CHARACTER + 12
    return "".join(parts), left
