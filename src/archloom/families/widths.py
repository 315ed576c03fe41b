"""The family of the size space: a stem, then cells of one kind and residual blocks, each as wide as was chosen.

A layer's first operations bring its input to its own width. Where a cell passes on its input unchanged, a 1x1
convolution replaces it if the widths before and behind differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from archloom.core.errors import require
from archloom.core.settings import Settings
from archloom.families.base import SKIP, Family, Size, Source
from archloom.families.cell_source import Edge, Modules, find_convolution, list_inside, render, write_sum
from archloom.families.regularization import DropoutRate, check_rates, flatten
from archloom.families.width_multiplier import Masked, WidthMultiplier, check_multiplier, scale_width
from archloom.spaces import Architecture, CellGraph, Widths
from archloom.supernet import Extent, Gates, Resolve, SharedConv2d, SharedLinear, Width, normalize_first_channels

Normalize = Callable[[int], nn.Module]


class WidthsNetwork(nn.Module):
    """Called with (images, gates)."""

    def __init__(
        self,
        space: Widths,
        resolve: Resolve,
        classes: int,
        colours: int,
        /,
        *,
        dropout: DropoutRate = 0.0,
        masked: Masked = False,
        width_multiplier: WidthMultiplier = 1.0,
    ) -> None:
        super().__init__()
        require({**check_rates(0.0, dropout), **check_multiplier(width_multiplier)})
        options = [Width.from_options(decision.name, resolve.options(decision)) for decision in space.decisions]
        self._widths = [scale_width(width, width_multiplier) for width in options]
        first, last = self._widths[0], self._widths[-1]
        self.stem = SharedConv2d(colours, first.largest, 3, padding=1, bias=False, masked=masked)
        self.stem_norm = resolve.normalize(first.largest)
        steps = [_Step(*widths, resolve.normalize, masked) for widths in pairwise([first, *self._widths])]
        self.layers = nn.ModuleList(
            _Reduction(step) if reduction else _Cell(space.cell_graph, step)
            for step, reduction in zip(steps, space.reductions, strict=True)
        )
        self.head_norm = resolve.normalize(last.largest)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = flatten(dropout)
        self.classifier = SharedLinear(last.largest, classes)

    @property
    def layer_widths(self) -> list[int]:
        """Return the channels of every layer; of the widest option in a supernet."""
        return [width.largest for width in self._widths]

    def forward(self, images: Tensor, gates: Gates | None = None) -> Tensor:
        """Return the logits along the paths that the gates open."""
        extents = [width.extent(gates) for width in self._widths]
        before = extents[0]
        x = before.weigh(before.limit(normalize_first_channels(self.stem_norm, self.stem(images, before))))
        for layer, extent in zip(self.layers, extents, strict=True):
            x = extent.weigh(layer(x, before, extent))
            before = extent
        x = before.limit(F.relu(before.limit(normalize_first_channels(self.head_norm, x))))
        logits: Tensor = self.classifier(self.flatten(self.pool(x)))
        return logits


@dataclass(frozen=True)
class _Step:
    """From one width to the next."""

    before: Width
    width: Width
    normalize: Normalize
    masked: bool

    @property
    def within(self) -> _Step:
        """Return the step after this one: as wide before as behind."""
        return replace(self, before=self.width)

    @property
    def is_none(self) -> bool:
        """Return whether both widths are always the same."""
        return self.before.name == self.width.name or (
            len(self.width.sizes) == 1 and self.before.sizes == self.width.sizes
        )

    def convolution(self, kernel: int, stride: int = 1) -> SharedConv2d:
        sizes = self.before.largest, self.width.largest
        return SharedConv2d(*sizes, kernel, stride, kernel // 2, bias=False, masked=self.masked)


class _Convolution(nn.Module):
    """ReLU, convolution, normalisation."""

    def __init__(self, step: _Step, kernel: int, *, stride: int = 1) -> None:
        super().__init__()
        self.convolution = step.convolution(kernel, stride)
        self.normalize = step.normalize(step.width.largest)

    def forward(self, x: Tensor, before: Extent, extent: Extent) -> Tensor:
        return extent.limit(normalize_first_channels(self.normalize, self.convolution(F.relu(x), extent)))


class _Shortcut(nn.Module):
    """The input as it is; a 1x1 convolution where it would not fit."""

    def __init__(self, step: _Step) -> None:
        super().__init__()
        self.convolution = None if step.is_none else _Convolution(step, 1)
        self._masked_width = step.width.largest if step.masked else None

    def forward(self, x: Tensor, before: Extent, extent: Extent) -> Tensor:
        if before.channels != extent.channels:
            assert self.convolution is not None
            return self.convolution(x, before, extent)  # type: ignore[no-any-return]
        if self._masked_width is not None:  # the masked channels may be more or fewer than before
            return F.pad(x, (0, 0, 0, 0, 0, self._masked_width - x.shape[1]))
        return x

    def count_multiply_adds(self, inputs: object, output: Tensor) -> int:
        return 0


class _Pool(_Shortcut):
    """The same, averaged over 3x3 pixels."""

    def forward(self, x: Tensor, before: Extent, extent: Extent) -> Tensor:
        return F.avg_pool2d(super().forward(x, before, extent), 3, 1, 1, count_include_pad=False)


class _Cell(nn.Module):
    """The cell of the space; what leaves its input brings it to the cell's width."""

    def __init__(self, graph: CellGraph, step: _Step) -> None:
        super().__init__()
        self._edges = [(source, target) for source, target, _ in graph.edges]
        self.operations = nn.ModuleList(
            _OPERATIONS[name](step.within if source else step) for source, _, name in graph.edges
        )

    def forward(self, x: Tensor, before: Extent, extent: Extent) -> Tensor:
        states = {0: x}
        for (source, target), operation in zip(self._edges, self.operations, strict=True):
            term = operation(states[source], extent if source else before, extent)
            states[target] = states[target] + term if target in states else term
        return states[max(states)]


_OPERATIONS: Mapping[str, Callable[[_Step], nn.Module]] = {
    "skip_connect": _Shortcut,
    "avg_pool_3x3": _Pool,
    "nor_conv_1x1": partial(_Convolution, kernel=1),
    "nor_conv_3x3": partial(_Convolution, kernel=3),
}


class _Reduction(nn.Module):
    """A residual block that halves the resolution."""

    def __init__(self, step: _Step) -> None:
        super().__init__()
        self.first = _Convolution(step, 3, stride=2)
        self.second = _Convolution(step.within, 3)
        self.pool = nn.AvgPool2d(2, ceil_mode=True)
        self.shortcut = step.convolution(1)

    def forward(self, x: Tensor, before: Extent, extent: Extent) -> Tensor:
        main: Tensor = self.second(self.first(x, before, extent), extent, extent)
        beside: Tensor = self.shortcut(self.pool(x), extent)
        return main + beside


class WidthsFamily(Family[Widths]):
    """One cell throughout. Every layer has a width of its own: the depth of a space is fixed."""

    network = WidthsNetwork
    sizes: ClassVar = [Size({}, {"width_multiplier": times}) for times in (0.25, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0)]
    depth_settings = ("cells_per_stage",)

    def has_fixed_depth(self, space: Widths) -> bool:
        return True

    def final_size(self, space: Widths) -> Size:
        return Size({}, {"width_multiplier": 1.0})

    def describe_size(self, space: Widths, settings: Settings) -> str:
        return f"widths times {settings['width_multiplier']:g}"

    def source(self, space: Widths, architecture: Architecture, network: nn.Module, settings: Settings) -> Source:
        assert isinstance(network, WidthsNetwork)
        stem, widths = find_convolution(network, "stem"), network.layer_widths
        edges = [Edge(*edge) for edge in space.cell_graph.edges]
        definitions, statements = _write_cell(edges)
        names = {False: "Cell", True: "ResidualReduction"}
        steps = zip(space.reductions, [stem.out_channels, *widths], widths, strict=False)
        context = {
            "colours": stem.in_channels,
            "stem": stem.out_channels,
            "layers": [f"{names[reduction]}({before}, {width})" for reduction, before, width in steps],
            "last": widths[-1],
            "definitions": definitions,
            "statements": statements,
        }
        modules = {"stem_conv": "stem", "stem_norm": "stem_norm", "head_norm": "head_norm", "classifier": "classifier"}
        for number, reduction in enumerate(space.reductions):
            layer = f"layers.{number}"
            modules |= _list_reduction(layer) if reduction else _list_cell(layer, edges, network)
        return Source(render("widths.jinja", context), modules)


CONVOLUTION = {"conv": "convolution", "norm": "normalize"}
POOL = "nn.AvgPool2d(3, 1, padding=1, count_include_pad=False)"


def _write_cell(edges: Sequence[Edge]) -> tuple[list[str], list[str]]:
    """Return the lines that make the operations of a cell, and those that compute its nodes."""
    definitions = [line for edge in edges if not _passes(edge) for line in _write_definition(edge)]
    output, statements = max(edge.target for edge in edges), []
    for node in range(1, output + 1):
        terms = [f"x{e.source}" if _passes(e) else f"self.{e.name}(x{e.source})" for e in edges if e.target == node]
        statements += write_sum(terms, "return" if node == output else f"x{node} =")
    return definitions, statements


def _passes(edge: Edge) -> bool:
    """Return whether an edge passes its state on unchanged; at the input of a cell the width may change."""
    return edge.is_identity and edge.source > 0


def _write_definition(edge: Edge) -> list[str]:
    inputs = "outputs" if edge.source else "inputs"
    if edge.option == "avg_pool_3x3" and not edge.source:
        return [f"self.{edge.name} = nn.Sequential(", f"    fit(inputs, outputs), {POOL}", ")"]
    if edge.option == "avg_pool_3x3":
        return [f"self.{edge.name} = {POOL}"]
    if edge.option == SKIP:
        return [f"self.{edge.name} = fit(inputs, outputs)"]
    return [f"self.{edge.name} = ReluConvNorm({inputs}, outputs, {1 if edge.option == 'nor_conv_1x1' else 3})"]


def _list_cell(layer: str, edges: Sequence[Edge], network: nn.Module) -> Modules:
    modules: Modules = {}
    for number, edge in enumerate(edges):
        own, theirs = f"{layer}.{edge.name}", f"{layer}.operations.{number}"
        operation = network.get_submodule(theirs)
        if isinstance(operation, _Convolution):
            modules |= list_inside(own, theirs, CONVOLUTION)
        elif operation.convolution is not None:  # the width changes here
            inside = f"{own}.0" if isinstance(operation, _Pool) else own
            modules |= list_inside(inside, f"{theirs}.convolution", CONVOLUTION)
    return modules


def _list_reduction(layer: str) -> Modules:
    modules = {f"{layer}.shortcut": f"{layer}.shortcut"}
    for part in ("first", "second"):
        modules |= list_inside(f"{layer}.{part}", f"{layer}.{part}", CONVOLUTION)
    return modules
