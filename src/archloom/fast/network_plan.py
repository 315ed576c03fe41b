"""Plan a network of one architecture for the compiled executor: its steps, and where everything lies in memory.

A family describes its network to a `NetworkPlanner`, map by map. The plan then holds the tables that network.hpp reads.
It is made once for each size of a batch:

* Maps that the backward pass reads get memory of their own. Gradients share theirs as soon as nothing reads them.
* Parts that the result does not depend on run forwards only. They move their running statistics, as modules do, and
  their parameters get no gradient.
* A state that is a single other state has no step at all, and passes its gradient on without a copy where it can.
"""

from __future__ import annotations

import ctypes
from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from archloom.fast.branches import Pool, iterate_parts, match_pool

CONVOLVE, HALVE, SUM = range(3)  # StepKind in network.hpp
AS_IT_IS, NORMALIZED, POOLED = range(3)  # TermKind
MOMENTS = 4  # rows of numbers that a normalisation keeps: mean, 1/std, scale, shift
SKEW = 7  # vectors between maps: at multiples of a page they would compete for the same lines of a cache
POINTERS_OF_NORM = 5  # scale, shift, running mean, running variance, number of batches


class UnplannableError(Exception):
    """A network has parts that the executor does not know."""


@dataclass(eq=False)
class FeatureMap:
    """The result of a step, one of the numbered maps of a plan."""

    number: int
    channels: int
    height: int
    width: int
    has_gradient: bool  # whether it depends on parameters
    is_zero: bool = False
    norm: int = -1  # the normalisation that reads it; its values are then replaced by their gradient
    offset: int = -1
    gradient: int = -1

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return channels, height and width."""
        return self.channels, self.height, self.width


@dataclass(frozen=True)
class SumTerm:
    """One term of a sum of maps."""

    kind: int
    source: FeatureMap
    norm: int = -1


@dataclass(eq=False)
class _Step:
    kind: int
    source: FeatureMap
    target: FeatureMap
    convolution: nn.Conv2d | None = None
    rectified: bool = False
    terms: Sequence[SumTerm] = ()
    is_live: bool = False
    passes: dict[int, tuple[bool, bool]] = field(default_factory=dict)  # by term: (passes, adds)

    @property
    def sources(self) -> list[FeatureMap]:
        return [term.source for term in self.terms] if self.kind == SUM else [self.source]


class NetworkPlanner:
    """Write down the steps of a network.

    Args:
        images: shape of the batch: images, channels, height, width.
        lanes: images that a vector of the library holds.
    """

    def __init__(self, images: Sequence[int], lanes: int) -> None:
        self._count, channels, height, width = images
        self._groups = -(-self._count // lanes)
        self._lanes = lanes
        self.maps: list[FeatureMap] = []
        self.steps: list[_Step] = []
        self.norms: list[tuple[nn.BatchNorm2d, FeatureMap]] = []
        self.images = self._new_map(channels, height, width, has_gradient=False)

    # --- what a family calls

    def convolve(self, source: FeatureMap, convolution: nn.Module, *, rectified: bool) -> FeatureMap:
        """Return the convolved map, of the rectified source if asked for."""
        _check_convolution(convolution, source)
        assert isinstance(convolution, nn.Conv2d)
        stride = convolution.stride[0]
        height, width = (-(-size // stride) for size in (source.height, source.width))
        target = self._new_map(convolution.out_channels, height, width)
        self.steps.append(_Step(CONVOLVE, source, target, convolution, rectified))
        return target

    def halve(self, source: FeatureMap, pool: nn.Module) -> FeatureMap:
        """Return the means over squares of 2x2 pixels."""
        if not isinstance(pool, nn.AvgPool2d) or not pool.ceil_mode or pool.divisor_override is not None:
            raise UnplannableError
        if (pool.kernel_size, pool.stride, pool.padding) != (2, 2, 0):
            raise UnplannableError
        sizes = (-(-size // 2) for size in (source.height, source.width))
        target = self._new_map(source.channels, *sizes, has_gradient=source.has_gradient)
        self.steps.append(_Step(HALVE, source, target))
        return target

    def normalize(self, source: FeatureMap, norm: nn.Module) -> SumTerm:
        """Return a normalised map as a term; nothing else may read that map."""
        _check_norm(norm, source, values=self._count * source.height * source.width)
        assert isinstance(norm, nn.BatchNorm2d)
        assert source.norm < 0
        source.norm = len(self.norms)
        self.norms.append((norm, source))
        return SumTerm(NORMALIZED, source, source.norm)

    def pool(self, source: FeatureMap) -> SumTerm:
        """Return a map, pooled 3x3 with the border left out, as a term."""
        return SumTerm(POOLED, source)

    def keep(self, source: FeatureMap) -> SumTerm:
        """Return a map as it is, as a term."""
        return SumTerm(AS_IT_IS, source)

    def add(self, terms: Sequence[SumTerm], like: FeatureMap) -> FeatureMap:
        """Return the sum of terms; zeros like a map where there are none."""
        kept = [term for term in terms if not term.source.is_zero or term.kind == NORMALIZED]
        if not kept:
            return self._zeros(like)
        if len(kept) == 1 and kept[0].kind == AS_IT_IS:
            return kept[0].source
        return self._sum(kept)

    def copy(self, source: FeatureMap) -> FeatureMap:
        """Return a copy that may be normalised, of a map that others read, too."""
        return self._sum([self.keep(source)])

    # --- maps

    def _sum(self, terms: Sequence[SumTerm]) -> FeatureMap:
        has_gradient = any(term.source.has_gradient or term.kind == NORMALIZED for term in terms)
        target = self._new_map(*terms[0].source.shape, has_gradient=has_gradient)
        self.steps.append(_Step(SUM, terms[0].source, target, terms=terms))
        return target

    def _zeros(self, like: FeatureMap) -> FeatureMap:
        for known in self.maps:
            if known.is_zero and known.shape == like.shape:
                return known
        found = self._new_map(*like.shape, has_gradient=False)
        found.is_zero = True
        return found

    def _new_map(self, channels: int, height: int, width: int, *, has_gradient: bool = True) -> FeatureMap:
        self.maps.append(FeatureMap(len(self.maps), channels, height, width, has_gradient))
        return self.maps[-1]

    # --- the plan

    def finish(self, last: FeatureMap, *, keeps: bool) -> NetworkPlan:
        """Return the plan of a network that ends with the mean of a rectified map.

        Args:
            last: that map.
            keeps: whether a backward pass follows; else maps share memory.
        """
        memory = _Memory(self._groups)
        self._mark_live(last)
        self._place_values(memory, last, keeps=keeps)
        if keeps:
            self._place_gradients(memory, last)
        moments = [memory.take_vectors(-(-MOMENTS * source.channels // self._lanes)) for _, source in self.norms]
        return NetworkPlan(self, last, moments, memory.vectors * self._lanes)

    def _mark_live(self, last: FeatureMap) -> None:
        needed = {last}
        for step in reversed(self.steps):
            step.is_live = step.target in needed and step.target.has_gradient
            if step.is_live:
                needed.update(step.sources)

    def _place_values(self, memory: _Memory, last: FeatureMap, *, keeps: bool) -> None:
        final = {source: number for number, step in enumerate(self.steps) for source in step.sources}
        for known in self.maps:
            if known.is_zero or known is self.images:
                known.offset = memory.take(known)
        for number, step in enumerate(self.steps):
            step.target.offset = memory.take(step.target)
            if keeps:
                continue
            for source in {*step.sources, step.target}:
                if final.get(source, number) == number and source is not last and not source.is_zero:
                    memory.release(source, source.offset)

    def _place_gradients(self, memory: _Memory, last: FeatureMap) -> None:
        """Give every live map a place for its gradient, from the end to the beginning."""
        last.gradient = memory.take(last)
        for step in reversed(self.steps):
            if not step.is_live:
                continue
            target = step.target
            heir = _find_heir(step)
            for number, source in enumerate(step.sources):
                if number == heir:
                    source.gradient = target.gradient
                elif step.kind == SUM and step.terms[number].kind == NORMALIZED:
                    source.gradient = source.offset
                elif source.has_gradient:
                    step.passes[number] = True, source.gradient >= 0
                    if source.gradient < 0:
                        source.gradient = memory.take(source)
            if heir is None and target.gradient != target.offset:
                memory.release(target, target.gradient)


def _find_heir(step: _Step) -> int | None:
    """Return the number of a term whose gradient is that of the sum, and can lie in the same place."""
    if step.kind != SUM:
        return None
    passed = [term.source for term in step.terms if term.kind != NORMALIZED]
    for number, term in enumerate(step.terms):
        source = term.source
        if term.kind == AS_IT_IS and source.has_gradient and source.gradient < 0 and passed.count(source) == 1:
            return number
    return None


class _Memory:
    """Hand out vectors of the workspace. Maps of one shape can have the same place after each other.

    Nothing writes to the zeros at both ends of the rows of a map, so they last.
    """

    def __init__(self, groups: int) -> None:
        self._groups, self.vectors = groups, 0
        self._free: dict[tuple[int, int, int], list[int]] = defaultdict(list)

    def take(self, of: FeatureMap) -> int:
        free = self._free[of.shape]
        vectors = self._groups * of.height * (of.width + 2) * of.channels
        return free.pop() if free else self.take_vectors(vectors + SKEW)

    def take_vectors(self, count: int) -> int:
        self.vectors += count
        return self.vectors - count

    def release(self, of: FeatureMap, place: int) -> None:
        self._free[of.shape].append(place)


class _PlanStruct(ctypes.Structure):
    """`Plan` in network.hpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("maps", "steps")),
        ("count", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("terms", "norms", "numbers")),
        *((name, ctypes.c_int64) for name in ("first", "last")),
    )


class NetworkPlan:
    """The tables of the executor, and the parameters in the order that they have there.

    Attributes:
        workspace: floats that a run needs, zero at first.
        channels: of the result.
        live: for each parameter, whether it gets a gradient.
        places: for each parameter, where its gradient starts among all.
    """

    def __init__(self, planner: NetworkPlanner, last: FeatureMap, moments: Sequence[int], workspace: int) -> None:
        self.workspace, self.channels = workspace, last.channels
        self.convolutions = [step.convolution for step in planner.steps if step.convolution is not None]
        self.norms = [norm for norm, _ in planner.norms]
        self.live: list[bool] = []
        self.places: list[int] = []
        self._size = 0
        steps, terms, weights = array("q"), array("q"), 0
        live_norms = {term.norm for step in planner.steps if step.is_live for term in step.terms}
        for step in planner.steps:
            steps.extend(self._step_row(step, weights, len(terms) // TERM_NUMBERS))
            weights += step.kind == CONVOLVE
            for number, term in enumerate(step.terms):
                passes, adds = step.passes.get(number, (False, False))
                terms.extend((term.kind, term.source.number, term.norm, passes, adds))
        maps = array("q")
        for one in planner.maps:
            maps.extend((one.offset, max(one.gradient, 0), *one.shape))
        norms, numbers = array("q"), array("f")
        for number, ((norm, source), place) in enumerate(zip(planner.norms, moments, strict=True)):
            by_scale, by_shift = (
                self._place(parameter, is_live=number in live_norms) for parameter in (norm.weight, norm.bias)
            )
            pointers = len(self.convolutions) + number * POINTERS_OF_NORM
            norms.extend((source.number, place, pointers, by_scale, by_shift, 2 * number))
            numbers.extend((norm.eps, norm.momentum or 0.0))
        self._tables = maps, steps, terms, norms, numbers  # the struct has their addresses
        addresses = [table.buffer_info()[0] for table in self._tables]
        self._struct = _PlanStruct(
            *addresses[:2], len(planner.steps), *addresses[2:], planner.images.number, last.number
        )

    @property
    def address(self) -> int:
        """Return where the library finds the plan."""
        return ctypes.addressof(self._struct)

    @property
    def gradient_size(self) -> int:
        """Return the number of parameters."""
        return self._size

    def _step_row(self, step: _Step, weight: int, first_term: int) -> tuple[int, ...]:
        convolution = step.convolution
        kernel, stride, strides, by_weight = 0, 1, (0, 0, 0, 0), -1
        if convolution is not None:
            kernel, stride = convolution.kernel_size[0], convolution.stride[0]
            strides = convolution.weight.stride()  # type: ignore[assignment]
            by_weight = self._place(convolution.weight, is_live=step.is_live)
        passes, adds = (False, False) if step.kind == SUM else step.passes.get(0, (False, False))
        return (
            step.kind, step.source.number, step.target.number, kernel, stride, step.rectified, weight, *strides,
            by_weight, step.target.norm, first_term, len(step.terms), step.is_live, passes, adds,
        )  # fmt: skip

    def _place(self, parameter: Tensor | None, *, is_live: bool) -> int:
        if parameter is None:
            return -1
        self.live.append(is_live)
        self.places.append(self._size)
        self._size += parameter.numel()
        return self.places[-1]


TERM_NUMBERS = 5  # of a row of terms


def describe_operation(planner: NetworkPlanner, module: nn.Module, source: FeatureMap) -> SumTerm:
    """Write down a candidate operation: a skip, an average pool, or ReLU, convolution and normalisation."""
    parts = list(iterate_parts(module))
    if not parts:
        return planner.keep(source)
    if match_pool(parts) == Pool("average", 1, False):
        return planner.pool(source)
    if len(parts) != 3 or type(parts[0]) is not nn.ReLU:
        raise UnplannableError
    return planner.normalize(planner.convolve(source, parts[1], rectified=True), parts[2])


def _check_convolution(convolution: nn.Module, source: FeatureMap) -> None:
    if type(convolution) is not nn.Conv2d or convolution.in_channels != source.channels:
        raise UnplannableError
    kernel, stride = int(convolution.kernel_size[0]), int(convolution.stride[0])
    geometry = (convolution.kernel_size, convolution.stride, convolution.padding, convolution.dilation)
    known = geometry == ((kernel,) * 2, (stride,) * 2, (kernel // 2,) * 2, (1, 1)) and convolution.groups == 1
    if not known or (kernel, stride) not in ((1, 1), (3, 1), (3, 2)) or convolution.bias is not None:
        raise UnplannableError
    if convolution.padding_mode != "zeros" or convolution.weight.dtype is not torch.float32:
        raise UnplannableError


def _check_norm(norm: nn.Module, source: FeatureMap, *, values: int) -> None:
    if type(norm) is not nn.BatchNorm2d or norm.num_features != source.channels or values < 2:
        raise UnplannableError
    if norm.track_running_stats and norm.momentum is None:  # a mean over all batches
        raise UnplannableError
