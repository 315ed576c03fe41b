"""Plan a network of one architecture for the compiled executor: its steps, and where everything lies in memory.

A family describes its network to a `NetworkPlanner`, map by map. The plan then holds the tables that network.hpp reads.
It is made once for each size of a batch:

* Maps that the backward pass reads get memory of their own. Gradients share theirs as soon as nothing reads them.
* Parts that the result does not depend on run forwards only. They move their running statistics, as modules do, and
  their parameters get no gradient.
* A state that is a single other state has no step at all, and passes its gradient on without a copy where it can.
* The states that a cell concatenates are parts of one map from the beginning.
"""

from __future__ import annotations

import ctypes
import itertools
from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from archloom.fast.branches import Pool, iterate_parts, match_pool

CONVOLVE, HALVE, SUM, DEPTHWISE, MAX_POOL, AVERAGE_POOL, SHOW = range(7)  # StepKind in network.hpp
AS_IT_IS, NORMALIZED, POOLED = range(3)  # TermKind
MOMENTS = 4  # rows of numbers that a normalisation keeps: mean, 1/std, scale, shift
SKEW = 7  # vectors between maps: at multiples of a page they would compete for the same lines of a cache
POINTERS_OF_NORM = 5  # scale, shift, running mean, running variance, number of batches


@runtime_checkable
class DrawsFactors(Protocol):
    """A module that multiplies every image by a number."""

    def draw_factors(self, images: int) -> Tensor | None:
        """Return a new number for every image, None where all are 1."""


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
    norm: int = -1  # the normalisation that reads it
    is_replaced: bool = False  # whether its gradient takes the place of its values
    offset: int = -1
    gradient: int = -1
    whole: FeatureMap | None = None  # the map whose channels it is a part of
    first: int = 0  # of these channels

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return channels, height and width."""
        return self.channels, self.height, self.width

    @property
    def root(self) -> FeatureMap:
        """Return the map that has memory of its own."""
        return self.whole or self

    def to_row(self) -> tuple[int, ...]:
        """Return `Map` in maps.hpp."""
        offset, gradient = (max(place, 0) + self.first for place in (self.root.offset, self.root.gradient))
        return offset, gradient, *self.shape, self.root.channels


@dataclass(frozen=True)
class SumTerm:
    """One term of a sum of maps; its factors are numbers per image, known by their place."""

    kind: int
    source: FeatureMap
    norm: int = -1
    factors: int = -1


@dataclass(eq=False)
class _Step:
    kind: int
    source: FeatureMap
    target: FeatureMap
    convolution: nn.Conv2d | None = None
    rectified: bool = False
    shift: int = 0  # of a 1x1 convolution of stride 2: which pixels it reads
    stride: int = 1
    norm: int = -1  # through which a depthwise convolution reads its source
    passed: FeatureMap | None = None  # and what then gets the gradient of what it reads
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
        lanes: numbers that a vector of the library holds.
        segments: neighbouring parts of an image that lie in lanes of their own; 1 for whole images.
        evaluates: whether normalisations use their running statistics; there is no backward pass then.

    Raises:
        UnplannableError: images cannot be cut into so many segments.
    """

    def __init__(self, images: Sequence[int], lanes: int, segments: int = 1, *, evaluates: bool = False) -> None:
        self._count, channels, height, width = images
        if lanes % segments != 0 or width % segments != 0:
            raise UnplannableError
        self._groups = -(-self._count * segments // lanes)
        self._lanes, self.segments, self.evaluates = lanes, segments, evaluates
        width //= segments
        self.maps: list[FeatureMap] = []
        self.steps: list[_Step] = []
        self.norms: list[tuple[nn.BatchNorm2d, FeatureMap]] = []
        self.factors: list[DrawsFactors] = []  # drop paths, in the order in which modules call them
        self.shown: FeatureMap | None = None
        self.images = self._new_map(channels, height, width, has_gradient=False)

    # --- what a family calls

    def convolve(self, source: FeatureMap, convolution: nn.Module, *, rectified: bool) -> FeatureMap:
        """Return the convolved map, of the rectified source if asked for."""
        _check_convolution(convolution, source)
        assert isinstance(convolution, nn.Conv2d)
        if self.segments > 1 and convolution.kernel_size[0] > 1 and source is not self.images:
            raise UnplannableError  # only images come with the columns of their neighbours
        stride = convolution.stride[0]
        target = self._new_map(convolution.out_channels, *self._halved(source, stride))
        self.steps.append(_Step(CONVOLVE, source, target, convolution, rectified, stride=stride))
        return target

    def separate(self, read: SumTerm, depthwise: nn.Module, pointwise: nn.Module) -> FeatureMap:
        """Return a map, rectified, convolved depthwise and then pointwise; it may be normalised before."""
        source = read.source
        _check_depthwise(depthwise, source)
        assert isinstance(depthwise, nn.Conv2d)
        reach = depthwise.padding[0]
        if read.kind == POOLED or (self.segments > 1 and isinstance(reach, int) and reach > source.width):
            raise UnplannableError
        stride = depthwise.stride[0]
        between = self._new_map(source.channels, *self._halved(source, stride))
        between.is_replaced = True
        passed = self._new_map(*source.shape) if read.kind == NORMALIZED else None
        step = _Step(
            DEPTHWISE, source, between, depthwise, rectified=True, stride=stride, norm=read.norm, passed=passed
        )
        self.steps.append(step)
        return self.convolve(between, pointwise, rectified=False)

    def halve_convolved(self, source: FeatureMap, even: nn.Module, odd: nn.Module) -> FeatureMap:
        """Return the concatenation of two 1x1 convolutions of the rectified source, of even and of odd pixels."""
        for convolution in (even, odd):
            _check_convolution(convolution, source, known=((1, 2),))
        assert isinstance(even, nn.Conv2d)
        assert isinstance(odd, nn.Conv2d)
        target = self._new_map(even.out_channels + odd.out_channels, *self._halved(source, 2))
        first = 0
        for shift, convolution in enumerate((even, odd)):
            part = self.part_of(target, first, convolution.out_channels)
            self.steps.append(_Step(CONVOLVE, source, part, convolution, rectified=True, shift=shift, stride=2))
            first += convolution.out_channels
        return target

    def pool_to_map(self, source: FeatureMap, pool: Pool) -> FeatureMap:
        """Return a map, pooled 3x3 with the border left out."""
        target = self._new_map(source.channels, *self._halved(source, pool.stride), has_gradient=source.has_gradient)
        kind = AVERAGE_POOL if pool.kind == "average" else MAX_POOL
        self.steps.append(_Step(kind, source, target, stride=pool.stride))
        return target

    def concatenate(self, like: FeatureMap, parts: int) -> list[FeatureMap]:
        """Return the parts of a new map, each of the shape of another map, to be filled by `add`."""
        whole = self._new_map(parts * like.channels, like.height, like.width)
        return [self.part_of(whole, number * like.channels, like.channels) for number in range(parts)]

    def part_of(self, whole: FeatureMap, first: int, channels: int) -> FeatureMap:
        """Return some channels of a map."""
        part = self._new_map(channels, whole.height, whole.width)
        part.whole, part.first = whole, first
        return part

    def show(self, source: FeatureMap) -> None:
        """Make a map a result, too."""
        if self.shown is not None or not source.has_gradient:
            raise UnplannableError
        self.shown = source
        self.steps.append(_Step(SHOW, source, source))

    def drop(self, term: SumTerm, path: nn.Module) -> SumTerm:
        """Return a term that a drop path takes away from some images."""
        if not isinstance(path, DrawsFactors):
            raise UnplannableError
        self.factors.append(path)
        return replace(term, factors=len(self.factors) - 1)

    def halve(self, source: FeatureMap, pool: nn.Module) -> FeatureMap:
        """Return the means over squares of 2x2 pixels."""
        if not isinstance(pool, nn.AvgPool2d) or not pool.ceil_mode or pool.divisor_override is not None:
            raise UnplannableError
        if (pool.kernel_size, pool.stride, pool.padding) != (2, 2, 0) or self.segments > 1:
            raise UnplannableError
        target = self._new_map(source.channels, *self._halved(source, 2), has_gradient=source.has_gradient)
        self.steps.append(_Step(HALVE, source, target, stride=2))
        return target

    def normalize(self, source: FeatureMap, norm: nn.Module) -> SumTerm:
        """Return a normalised map as a term; nothing else may read that map."""
        _check_norm(norm, source, values=self._count * self.segments * source.height * source.width)
        assert isinstance(norm, nn.BatchNorm2d)
        if norm.training == self.evaluates or (self.evaluates and norm.running_mean is None):
            raise UnplannableError
        assert source.norm < 0
        if source.whole is not None:
            raise UnplannableError
        source.norm = len(self.norms)
        source.is_replaced = True
        self.norms.append((norm, source))
        return SumTerm(NORMALIZED, source, source.norm)

    def pool(self, source: FeatureMap) -> SumTerm:
        """Return a map, averaged over 3x3 pixels with the border left out, as a term."""
        if self.segments > 1:
            return self.keep(self.pool_to_map(source, Pool("average", 1, False)))
        return SumTerm(POOLED, source)

    def keep(self, source: FeatureMap) -> SumTerm:
        """Return a map as it is, as a term."""
        return SumTerm(AS_IT_IS, source)

    def add(self, terms: Sequence[SumTerm], like: FeatureMap, *, into: FeatureMap | None = None) -> FeatureMap:
        """Return the sum of terms; zeros like a map where there are none.

        Args:
            terms: what to add.
            like: a map of the shape of the sum.
            into: a part of a map, which becomes the sum.
        """
        kept = [term for term in terms if not term.source.is_zero or term.kind == NORMALIZED]
        if into is not None:
            if not kept or any(term.source.shape != into.shape for term in kept):
                raise UnplannableError
            return self._sum(kept, into)
        if not kept:
            return self._zeros(like)
        if len(kept) == 1 and kept[0].kind == AS_IT_IS and kept[0].factors < 0:
            return kept[0].source
        return self._sum(kept)

    def copy(self, source: FeatureMap) -> FeatureMap:
        """Return a copy that may be normalised, of a map that others read, too."""
        return self._sum([self.keep(source)])

    # --- maps

    def _halved(self, source: FeatureMap, stride: int) -> tuple[int, int]:
        if self.segments > 1 and source.width % stride != 0:
            raise UnplannableError
        return -(-source.height // stride), -(-source.width // stride)

    def _sum(self, terms: Sequence[SumTerm], into: FeatureMap | None = None) -> FeatureMap:
        has_gradient = any(term.source.has_gradient or term.kind == NORMALIZED for term in terms)
        target = into or self._new_map(*terms[0].source.shape)
        target.has_gradient = has_gradient
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

    def finish(self, last: FeatureMap, *, keeps: bool, rectified: bool) -> NetworkPlan:
        """Return the plan of a network that ends with the mean of a map.

        Args:
            last: that map.
            keeps: whether a backward pass follows; else maps share memory.
            rectified: whether the map is rectified before.
        """
        memory = _Memory(self._groups)
        self._mark_live(last)
        self._place_values(memory, last, keeps=keeps)
        if keeps:
            self._place_gradients(memory, last)
        moments = [memory.take_vectors(-(-MOMENTS * source.channels // self._lanes)) for _, source in self.norms]
        return NetworkPlan(self, last, moments, memory.vectors * self._lanes, rectified=rectified)

    def _mark_live(self, last: FeatureMap) -> None:
        needed = {last.root}
        for step in reversed(self.steps):
            step.is_live = step.kind == SHOW or (step.target.root in needed and step.target.has_gradient)
            if step.is_live:
                needed.update(source.root for source in step.sources)

    def _place_values(self, memory: _Memory, last: FeatureMap, *, keeps: bool) -> None:
        final = {one.root: number for number, step in enumerate(self.steps) for one in (*step.sources, step.target)}
        for known in self.maps:
            if known.is_zero or known is self.images:
                known.offset = memory.take(known)
        for number, step in enumerate(self.steps):
            if step.target.root.offset < 0:
                step.target.root.offset = memory.take(step.target.root)
            if keeps:
                continue
            for source in {one.root for one in (*step.sources, step.target)}:
                if final[source] == number and source is not last.root and not source.is_zero:
                    memory.release(source, source.offset)

    def _place_gradients(self, memory: _Memory, last: FeatureMap) -> None:
        """Give every live map a place for its gradient, from the end to the beginning."""
        last.root.gradient = memory.take(last.root)
        begun: dict[FeatureMap, _Step] = {}
        for step in self.steps:
            begun.setdefault(step.target.root, step)
        for step in reversed(self.steps):
            if not step.is_live:
                continue
            target, heir = step.target.root, _find_heir(step)
            for number, source in enumerate(step.sources):
                if number == heir:
                    source.gradient = target.gradient
                elif source.has_gradient:
                    self._place_gradient(memory, step, number, source.root)
            if step.passed is not None:
                memory.release(step.passed, step.passed.gradient)
            if heir is None and begun[target] is step and target.gradient != target.offset:
                memory.release(target, target.gradient)

    def _place_gradient(self, memory: _Memory, step: _Step, number: int, source: FeatureMap) -> None:
        if step.passed is not None:
            step.passed.gradient = memory.take(step.passed)
        if step.kind != SUM or step.terms[number].kind != NORMALIZED:
            step.passes[number] = True, source.gradient >= 0 and step.passed is None
        if source.gradient < 0:
            source.gradient = source.offset if source.is_replaced else memory.take(source)


def _find_heir(step: _Step) -> int | None:
    """Return the number of a term whose gradient is that of the sum, and can lie in the same place."""
    if step.kind != SUM or step.target.whole is not None:
        return None
    passed = [term.source for term in step.terms if term.kind != NORMALIZED]
    for number, term in enumerate(step.terms):
        source = term.source
        is_alone = source.whole is None and not source.is_replaced and term.factors < 0 and passed.count(source) == 1
        if term.kind == AS_IT_IS and source.has_gradient and source.gradient < 0 and is_alone:
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
        *((name, ctypes.c_int64) for name in ("first", "last", "rectified", "segments", "evaluates")),
    )


class NetworkPlan:
    """The tables of the executor, and the parameters in the order that they have there.

    Attributes:
        workspace: floats that a run needs, zero at first.
        channels: of the result.
        evaluates: whether normalisations use their running statistics.
        shown: channels, height and width of the map that is a result, too.
        factors: modules that draw a number for every image, in the order of their places.
        live: for each parameter, whether it gets a gradient.
        places: for each parameter, where its gradient starts among all.
    """

    def __init__(
        self, planner: NetworkPlanner, last: FeatureMap, moments: Sequence[int], workspace: int, *, rectified: bool
    ) -> None:
        self.workspace, self.channels, self.evaluates = workspace, last.channels, planner.evaluates
        self.shown: tuple[int, int, int] | None = None
        if planner.shown is not None:
            channels, height, width = planner.shown.shape
            self.shown = channels, height, planner.segments * width
        self.factors = planner.factors
        self.convolutions = [step.convolution for step in planner.steps if step.convolution is not None]
        self.norms = [norm for norm, _ in planner.norms]
        self.live: list[bool] = []
        self.places: list[int] = []
        self._size = 0
        steps, terms, weights = array("q"), array("q"), 0
        live_norms = {norm for step in planner.steps if step.is_live for norm in _list_norms(step)}
        factors = len(self.convolutions) + POINTERS_OF_NORM * len(self.norms)
        ended = {step.target.root: step for step in planner.steps if step.kind != SHOW}  # writes the last part
        for step in planner.steps:
            norm = step.target.root.norm if ended[step.target.root] is step else -1
            steps.extend(self._step_row(step, weights, len(terms) // TERM_NUMBERS, norm))
            weights += step.convolution is not None
            for number, term in enumerate(step.terms):
                passes, adds = step.passes.get(number, (False, False))
                place = factors + term.factors if term.factors >= 0 else -1
                terms.extend((term.kind, term.source.number, term.norm, place, passes, adds))
        maps = array("q", itertools.chain.from_iterable(one.to_row() for one in planner.maps))
        norms, numbers = array("q"), array("f")
        for number, ((module, source), place) in enumerate(zip(planner.norms, moments, strict=True)):
            by_scale, by_shift = (
                self._place(parameter, is_live=number in live_norms) for parameter in (module.weight, module.bias)
            )
            pointers = len(self.convolutions) + number * POINTERS_OF_NORM
            norms.extend((source.number, place, pointers, by_scale, by_shift, 2 * number))
            numbers.extend((module.eps, module.momentum or 0.0))
        self._tables = maps, steps, terms, norms, numbers  # the struct has their addresses
        addresses = [table.buffer_info()[0] for table in self._tables]
        self._struct = _PlanStruct(
            *addresses[:2], len(planner.steps), *addresses[2:], planner.images.number, last.number, rectified,
            planner.segments, planner.evaluates,
        )  # fmt: skip

    @property
    def address(self) -> int:
        """Return where the library finds the plan."""
        return ctypes.addressof(self._struct)

    @property
    def gradient_size(self) -> int:
        """Return the number of parameters."""
        return self._size

    def _step_row(self, step: _Step, weight: int, first_term: int, norm: int) -> tuple[int, ...]:
        convolution, passed = step.convolution, step.passed or step.source
        kernel, dilation, strides, by_weight = 0, 1, (0, 0, 0, 0), -1
        if convolution is not None:
            kernel, dilation = convolution.kernel_size[0], convolution.dilation[0]
            strides = convolution.weight.stride()  # type: ignore[assignment]
            by_weight = self._place(convolution.weight, is_live=step.is_live)
        passes, adds = (False, False) if step.kind == SUM else step.passes.get(0, (False, False))
        return (
            step.kind, step.source.number, step.target.number, kernel, step.stride, dilation, step.shift,
            step.rectified, weight, *strides, by_weight, norm, step.norm, passed.number, first_term, len(step.terms),
            step.is_live, passes, adds,
        )  # fmt: skip

    def _place(self, parameter: Tensor | None, *, is_live: bool) -> int:
        if parameter is None:
            return -1
        self.live.append(is_live)
        self.places.append(self._size)
        self._size += parameter.numel()
        return self.places[-1]


TERM_NUMBERS = 6  # of a row of terms


def _list_norms(step: _Step) -> list[int]:
    return [step.norm, *(term.norm for term in step.terms)]


def describe_operation(planner: NetworkPlanner, module: nn.Module, source: FeatureMap) -> SumTerm:
    """Write down a candidate operation: a skip, a pool, or ReLU, convolutions and normalisation, once or more often.

    Operations of other parts write down themselves by a method `describe`.
    """
    describe = getattr(module, "describe", None)
    if describe is not None:
        found: SumTerm = describe(planner, source)
        return found
    parts = list(iterate_parts(module))
    if not parts:
        return planner.keep(source)
    if isinstance(parts[0], nn.AvgPool2d | nn.MaxPool2d):
        return _describe_pool(planner, parts, source)
    if len(parts) == 3 and type(parts[0]) is nn.ReLU:
        return planner.normalize(planner.convolve(source, parts[1], rectified=True), parts[2])
    if len(parts) % 4 != 0 or any(type(relu) is not nn.ReLU for relu in parts[::4]):
        raise UnplannableError
    term = planner.keep(source)
    for start in range(0, len(parts), 4):
        _, depthwise, pointwise, norm = parts[start : start + 4]
        term = planner.normalize(planner.separate(term, depthwise, pointwise), norm)
    return term


def _describe_pool(planner: NetworkPlanner, parts: list[nn.Module], source: FeatureMap) -> SumTerm:
    pool = match_pool(parts[:1])
    if pool is None or len(parts) > 2:
        raise UnplannableError
    if pool == Pool("average", 1, False) and len(parts) == 1:
        return planner.pool(source)
    pooled = planner.pool_to_map(source, pool)
    return planner.keep(pooled) if len(parts) == 1 else planner.normalize(pooled, parts[1])


DENSE = (1, 1), (3, 1), (3, 2)  # kernel and stride


def _check_convolution(convolution: nn.Module, source: FeatureMap, *, known: Sequence[tuple[int, int]] = DENSE) -> None:
    """Refuse all but a 1x1 or 3x3 convolution of these kernels and strides."""
    _check_geometry(convolution, source, groups=1, dilations=(1,))
    assert isinstance(convolution, nn.Conv2d)
    if (convolution.kernel_size[0], convolution.stride[0]) not in known:
        raise UnplannableError


def _check_depthwise(convolution: nn.Module, source: FeatureMap) -> None:
    _check_geometry(convolution, source, groups=source.channels, dilations=(1, 2))
    assert isinstance(convolution, nn.Conv2d)
    if convolution.kernel_size[0] not in (3, 5) or convolution.stride[0] not in (1, 2):
        raise UnplannableError
    if convolution.out_channels != source.channels:
        raise UnplannableError


def _check_geometry(convolution: nn.Module, source: FeatureMap, *, groups: int, dilations: Sequence[int]) -> None:
    if type(convolution) is not nn.Conv2d or convolution.in_channels != source.channels:
        raise UnplannableError
    kernel, stride, dilation = convolution.kernel_size[0], convolution.stride[0], convolution.dilation[0]
    geometry = (convolution.kernel_size, convolution.stride, convolution.padding, convolution.dilation)
    known = geometry == ((kernel,) * 2, (stride,) * 2, (dilation * (kernel // 2),) * 2, (dilation,) * 2)
    if not known or convolution.groups != groups or dilation not in dilations or convolution.bias is not None:
        raise UnplannableError
    if convolution.padding_mode != "zeros" or convolution.weight.dtype is not torch.float32:
        raise UnplannableError


def _check_norm(norm: nn.Module, source: FeatureMap, *, values: int) -> None:
    if type(norm) is not nn.BatchNorm2d or norm.num_features != source.channels or values < 2:
        raise UnplannableError
    if norm.track_running_stats and norm.momentum is None:  # a mean over all batches
        raise UnplannableError
