"""Where boxes, lines and labels of a layered drawing go, from left to right (after Sugiyama et al., 1981).

A line gets an item of its own in every column that it crosses, and its label is one of these items. Items of a column
never overlap and columns never overlap, so no label can cover a box, a line or another label, whatever the graph.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

COLUMN_GAP = 24.0  # room for a line to change its height between two columns
ROW_GAP = 9.0
LANE_HEIGHT = 8.0  # of a line that passes through a column without a label
PORT_GAP = 8.0  # between the ends of two lines at one side of a box
SWEEPS = 12

Columns = list[list[int]]  # the items of every column, from top to bottom


@dataclass(frozen=True)
class Size:
    """Hold the width and height of a box."""

    width: float
    height: float


@dataclass(frozen=True)
class Line:
    """A connection of two boxes. The source has the lower number, as in any graph that can be computed in order."""

    source: int
    target: int
    label: Size | None = None


@dataclass(frozen=True)
class Place:
    """A rectangle, by its centre."""

    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> float:
        """Return the x coordinate of the left side."""
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        """Return the x coordinate of the right side."""
        return self.x + self.width / 2

    @property
    def top(self) -> float:
        """Return the y coordinate of the upper side."""
        return self.y - self.height / 2

    @property
    def bottom(self) -> float:
        """Return the y coordinate of the lower side."""
        return self.y + self.height / 2


@dataclass(frozen=True)
class Route:
    """How a line runs: flat through `stops` (one per column crossed), curved between them."""

    start: tuple[float, float]
    stops: tuple[Place, ...]  # as wide as their columns
    end: tuple[float, float]
    label: Place | None


@dataclass(frozen=True)
class Layout:
    """Hold the places of all boxes, the routes of all lines, and the size of the drawing."""

    boxes: tuple[Place, ...]
    routes: tuple[Route, ...]  # in the order of the lines
    width: float
    height: float


@dataclass
class _Items:
    """Boxes and lanes alike, numbered; boxes come first."""

    sizes: list[Size]
    columns: Columns
    lanes: list[list[int]] = field(default_factory=list)  # per line, from left to right
    labels: list[int | None] = field(default_factory=list)  # per line, which of its lanes has the label
    before: dict[int, list[int]] = field(default_factory=dict)  # neighbours one column to the left
    after: dict[int, list[int]] = field(default_factory=dict)


def arrange(boxes: Sequence[Size], lines: Sequence[Line], *, inputs: int) -> Layout:
    """Place everything; the first `inputs` boxes stand in the first column, the others further right."""
    items = _items(boxes, lines, _layers(len(boxes), lines, inputs))
    items.columns = _reorder(items)
    places = _places(items)
    routes = _routes(lines, items, places)
    return Layout(
        tuple(places[: len(boxes)]),
        tuple(routes),
        max(place.right for place in places),
        max(place.bottom for place in places),
    )


def _layers(count: int, lines: Sequence[Line], inputs: int) -> list[int]:
    """Return the length of the longest path to each box; boxes without inputs come after the inputs."""
    layers = [0 if box < inputs else 1 for box in range(count)]
    for line in sorted(lines, key=lambda line: line.target):
        assert line.source < line.target, f"a line must lead to a higher number, got {line.source}->{line.target}"
        layers[line.target] = max(layers[line.target], layers[line.source] + 1)
    return layers


def _items(boxes: Sequence[Size], lines: Sequence[Line], layers: Sequence[int]) -> _Items:
    """Place boxes in the even columns, and a lane of every line in each column between its ends."""
    items = _Items(list(boxes), [[] for _ in range(2 * max(layers) + 1)])
    for box, layer in enumerate(layers):
        items.columns[2 * layer].append(box)
    labels_in = [0] * len(items.columns)
    for line in lines:
        crossed = range(2 * layers[line.source] + 1, 2 * layers[line.target])
        # the emptiest of the columns between boxes, so that no column grows tall; the first one on a tie
        labelled = min(crossed[::2], key=lambda column: labels_in[column]) if line.label else None
        chain = [line.source]
        for column in crossed:
            chain.append(len(items.sizes))
            items.columns[column].append(len(items.sizes))
            labels_in[column] += column == labelled
            items.sizes.append(line.label if line.label and column == labelled else Size(0.0, LANE_HEIGHT))
        chain.append(line.target)
        _link(items, chain)
        items.lanes.append(chain[1:-1])
        items.labels.append(None if labelled is None else chain[1 + crossed.index(labelled)])
    return items


def _link(items: _Items, chain: Sequence[int]) -> None:
    for left, right in itertools.pairwise(chain):
        items.after.setdefault(left, []).append(right)
        items.before.setdefault(right, []).append(left)


# --- the order within a column


def _reorder(items: _Items) -> Columns:
    """Reorder the columns to reduce crossings: items move towards their neighbours, and the best order wins."""
    columns = [list(column) for column in items.columns]
    best, fewest = [list(column) for column in columns], _crossings(columns, items)
    for sweep in range(SWEEPS):
        rightwards = sweep % 2 == 0
        _sweep(columns, items.before if rightwards else items.after, rightwards=rightwards)
        _swap_neighbours(columns, items)
        crossings = _crossings(columns, items)
        if crossings < fewest:
            best, fewest = [list(column) for column in columns], crossings
    return best


def _sweep(columns: Columns, neighbours: Mapping[int, Sequence[int]], *, rightwards: bool) -> None:
    """Sort every column by the mean position of what its items are connected to in the column just sorted."""
    order = range(1, len(columns)) if rightwards else range(len(columns) - 2, -1, -1)
    for column in order:
        fixed = columns[column - 1 if rightwards else column + 1]
        position = {item: index / max(len(fixed) - 1, 1) for index, item in enumerate(fixed)}
        means = {
            item: _mean([position[other] for other in neighbours.get(item, ())], default=0.5)
            for item in columns[column]
        }
        columns[column].sort(key=means.__getitem__)


def _swap_neighbours(columns: Columns, items: _Items) -> None:
    """Swap two items of a column wherever that removes a crossing."""
    for index, column in enumerate(columns):
        around = columns[max(index - 1, 0) : index + 2]
        for upper in range(len(column) - 1):
            before = _crossings(around, items)
            column[upper], column[upper + 1] = column[upper + 1], column[upper]
            if _crossings(around, items) >= before:
                column[upper], column[upper + 1] = column[upper + 1], column[upper]


def _crossings(columns: Columns, items: _Items) -> int:
    return sum(_crossings_between(left, right, items) for left, right in itertools.pairwise(columns))


def _crossings_between(left: Sequence[int], right: Sequence[int], items: _Items) -> int:
    position = {item: index for index, item in enumerate(right)}
    ends = [(row, position[other]) for row, item in enumerate(left) for other in items.after.get(item, ())]
    return sum(
        1
        for index, (upper, upper_end) in enumerate(ends)
        for lower, lower_end in ends[index + 1 :]
        if (upper - lower) * (upper_end - lower_end) < 0
    )


# --- coordinates


def _places(items: _Items) -> list[Place]:
    heights = _heights(items)
    places: dict[int, Place] = {}
    left = 0.0
    for column in items.columns:
        width = max((items.sizes[item].width for item in column), default=0.0)
        for item in column:
            size = items.sizes[item]
            places[item] = Place(left + width / 2, heights[item], size.width, size.height)
        left += width + COLUMN_GAP
    top = min(place.top for place in places.values())
    return [replace(places[item], y=places[item].y - top) for item in range(len(items.sizes))]


def _heights(items: _Items) -> dict[int, float]:
    """Return the height of every item: near the mean of its neighbours, in order, no closer than allowed."""
    heights: dict[int, float] = {}
    for column in items.columns:
        heights.update(_spread(column, items.sizes, dict.fromkeys(column, 0.0)))
    for sweep in range(2 * SWEEPS):
        for column in items.columns if sweep % 2 == 0 else items.columns[::-1]:
            wanted = {item: _wanted_height(item, items, heights) for item in column}
            heights.update(_spread(column, items.sizes, wanted))
    return heights


def _wanted_height(item: int, items: _Items, heights: Mapping[int, float]) -> float:
    around = [*items.before.get(item, ()), *items.after.get(item, ())]
    return _mean([heights[other] for other in around], default=heights[item])


def _spread(column: Sequence[int], sizes: Sequence[Size], wanted: Mapping[int, float]) -> dict[int, float]:
    """Return the heights closest to those wanted (least squares) that keep order and distance.

    Less the distance that must lie above an item, heights only have to be non-decreasing: pool adjacent violators.
    """
    offsets = [0.0]
    for upper, lower in itertools.pairwise(column):
        offsets.append(offsets[-1] + (sizes[upper].height + sizes[lower].height) / 2 + ROW_GAP)
    pools: list[tuple[float, int]] = []  # (mean, how many items)
    for item, offset in zip(column, offsets, strict=False):
        mean, count = wanted[item] - offset, 1
        while pools and pools[-1][0] > mean:
            above, members = pools.pop()
            mean, count = (mean * count + above * members) / (count + members), count + members
        pools.append((mean, count))
    levels = [mean for mean, count in pools for _ in range(count)]
    return {item: level + offset for item, level, offset in zip(column, levels, offsets, strict=False)}


def _routes(lines: Sequence[Line], items: _Items, places: Sequence[Place]) -> list[Route]:
    width_of = {item: max(items.sizes[other].width for other in column) for column in items.columns for item in column}
    first = [places[lanes[0]].y for lanes in items.lanes]
    last = [places[lanes[-1]].y for lanes in items.lanes]
    starts = _ports([line.source for line in lines], first, places)
    ends = _ports([line.target for line in lines], last, places)
    return [
        Route(
            start=(places[line.source].right, starts[number]),
            stops=tuple(replace(places[lane], width=width_of[lane]) for lane in items.lanes[number]),
            end=(places[line.target].left, ends[number]),
            label=None if (label := items.labels[number]) is None else places[label],
        )
        for number, line in enumerate(lines)
    ]


def _ports(boxes: Sequence[int], towards: Sequence[float], places: Sequence[Place]) -> list[float]:
    """Return the height at which each line meets its box, in the order of the other ends."""
    heights = [0.0] * len(boxes)
    for box in set(boxes):
        lines = sorted((line for line, other in enumerate(boxes) if other == box), key=lambda line: towards[line])
        gap = min(PORT_GAP, (places[box].height - PORT_GAP) / max(len(lines) - 1, 1))
        for index, line in enumerate(lines):
            heights[line] = places[box].y + (index - (len(lines) - 1) / 2) * gap
    return heights


def _mean(values: Sequence[float], *, default: float) -> float:
    return sum(values) / len(values) if values else default
