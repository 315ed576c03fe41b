"""Groups of branches of one kind that start from one state of a cell, computed together.

Images are NHWC, as in `kernels`. In the backward pass, the gradient of every branch is added to its slot first. The
group then adds it to the gradient of the state the branches start from, and writes the gradients of its weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from archloom.fast import Kernels, Slot, Term
from archloom.fast.branches import Branch, Dense, Opaque, Pool, Separable, Skip
from archloom.fast.kernel_arguments import Slots

aten = torch.ops.aten


Rooms = Sequence[Tensor] | None  # where gradients of weights are written; None: they are not wanted


@dataclass
class State:
    """Hold an image of a cell and its gradient."""

    image: Tensor
    slot: Slot | None = None  # None where no gradient is needed
    by_rectified: Tensor | None = None  # the gradient of the positive part, not yet passed through ReLU
    _rectified: Tensor | None = field(default=None, repr=False)
    _rounded: Tensor | None = field(default=None, repr=False)

    @property
    def rectified(self) -> Tensor:
        """Return the positive part, contiguous; kept until `release`."""
        if self._rectified is None:
            self._rectified = F.relu(self.image).contiguous()
        return self._rectified

    def rectified_as(self, dtype: torch.dtype) -> Tensor:
        """Return the positive part in another precision; rounded once for all branches."""
        if dtype == self.image.dtype:
            return self.rectified
        if self._rounded is None:
            self._rounded = self.rectified.to(dtype)
        return self._rounded

    def release(self) -> None:
        """Drop the positive part once all groups have run; the backward pass recomputes it cheaply if needed."""
        self._rectified = self._rounded = None


class BranchGroup(ABC):
    """Branches of one kind from one state. `parameters` are their weights, in the order that the methods use."""

    def __init__(self, kernels: Kernels, branches: Sequence[Branch]) -> None:
        self._kernels = kernels
        self.size = len(branches)

    @property
    def parameters(self) -> list[Tensor]:
        return []

    @property
    def weight_count(self) -> int:
        """Return the number of parameters."""
        return 0

    @abstractmethod
    def forward(self, state: State, weights: Sequence[Tensor]) -> list[Term]:
        """Return what each branch adds to its target state."""

    @abstractmethod
    def make_slots(self, state: State, *, weights_wanted: bool) -> Slots:
        """Return a slot for the gradient of each branch's term, None where nothing before it needs a gradient."""

    @abstractmethod
    def backward(self, state: State, by_weights: Rooms) -> None:
        """Add the gradients in the slots to the state's; write the gradients of the weights, if wanted."""


class SkipGroup(BranchGroup):
    """Return the state itself."""

    def forward(self, state: State, weights: Sequence[Tensor]) -> list[Term]:
        return [Term(state.image, normalized=False)] * self.size

    def make_slots(self, state: State, *, weights_wanted: bool) -> Slots:
        return [state.slot] * self.size

    def backward(self, state: State, by_weights: Rooms) -> None:
        pass


class PoolGroup(BranchGroup):
    """Pool once for all branches: a pool has no weights."""

    def __init__(self, kernels: Kernels, branches: Sequence[Pool]) -> None:
        super().__init__(kernels, branches)
        self._pool = branches[0]
        average = self._pool.kind == "average"
        self._forward = kernels.average_pool if average else kernels.max_pool
        self._backward = kernels.average_pool_backward if average else kernels.max_pool_backward

    def forward(self, state: State, weights: Sequence[Tensor]) -> list[Term]:
        self._term = Term(self._forward(state.image, self._pool.stride), self._pool.normalized)
        return [self._term] * self.size

    def make_slots(self, state: State, *, weights_wanted: bool) -> Slots:
        self._slot = None if state.slot is None else Slot()
        return [self._slot] * self.size

    def backward(self, state: State, by_weights: Rooms) -> None:
        if self._slot is not None and state.slot is not None and self._slot.image is not None:
            self._backward(self._slot.image, state.image, self._pool.stride, state.slot)


class SingleSlotGroup(BranchGroup):
    """Groups of one branch: a slot for its gradient, and nothing to do on the way back where there is none."""

    def make_slots(self, state: State, *, weights_wanted: bool) -> Slots:
        self._slot = None if state.slot is None and not weights_wanted else Slot()
        return [self._slot]

    def backward(self, state: State, by_weights: Rooms) -> None:
        if self._slot is not None:
            self._pass_back(state, self._slot, by_weights)

    @abstractmethod
    def _pass_back(self, state: State, slot: Slot, by_weights: Rooms) -> None:
        """Write the gradients of the weights, and add that of the image to its slot, as far as they are wanted."""


class ConvolutionGroup(SingleSlotGroup):
    """Compute one convolution of the rectified state, normalised. Results keep the precision of the images."""

    def __init__(self, kernels: Kernels, branches: Sequence[Dense]) -> None:
        super().__init__(kernels, branches)
        (branch,) = branches
        self._like = branch.convolution

    @property
    def parameters(self) -> list[Tensor]:
        return [self._like.weight]

    @property
    def weight_count(self) -> int:
        return 1

    def forward(self, state: State, weights: Sequence[Tensor]) -> list[Term]:
        (weight,), like = weights, self._like
        self._weight = weight.to(self._kernels.convolution_dtype or weight.dtype)
        rectified = state.rectified_as(self._weight.dtype).permute(0, 3, 1, 2)
        image = F.conv2d(rectified, self._weight, None, like.stride, like.padding, like.dilation)
        self._image = image.permute(0, 2, 3, 1).contiguous().to(state.image.dtype)
        return [Term(self._image, normalized=True)]

    def _pass_back(self, state: State, slot: Slot, by_weights: Rooms) -> None:
        like, gradient, dtype = self._like, slot.buffer(self._image), self._weight.dtype
        wanted = [state.slot is not None, by_weights is not None, False]
        by_image, by_weight, _ = aten.convolution_backward(
            gradient.to(dtype).permute(0, 3, 1, 2), state.rectified_as(dtype).permute(0, 3, 1, 2), self._weight, None,
            like.stride, like.padding, like.dilation, False, [0, 0], 1, wanted,
        )  # fmt: skip
        if state.slot is not None:
            by_image = by_image.permute(0, 2, 3, 1).contiguous().to(state.image.dtype)
            state.by_rectified = by_image if state.by_rectified is None else state.by_rectified.add_(by_image)
        if by_weights is not None:
            by_weights[0].copy_(by_weight)


class PointwiseGroup(BranchGroup):
    """Compute 1x1 convolutions as matrix products, reading the pixels once for all branches."""

    def __init__(self, kernels: Kernels, branches: Sequence[Dense]) -> None:
        super().__init__(kernels, branches)
        self._convolutions = [branch.convolution for branch in branches]

    @property
    def parameters(self) -> list[Tensor]:
        return [convolution.weight for convolution in self._convolutions]

    @property
    def weight_count(self) -> int:
        return self.size

    def forward(self, state: State, weights: Sequence[Tensor]) -> list[Term]:
        self._matrices = _to_matrices(weights)
        transposed = self._matrices.transpose(1, 2).contiguous()
        self._images = self._kernels.products(state.rectified.unsqueeze(0), transposed)
        return [Term(image, normalized=True) for image in self._images]

    def make_slots(self, state: State, *, weights_wanted: bool) -> Slots:
        if state.slot is None and not weights_wanted:
            return [None] * self.size
        self._gradients = torch.empty_like(self._images)
        return [Slot(image) for image in self._gradients]

    def backward(self, state: State, by_weights: Rooms) -> None:
        if state.slot is not None:
            state.by_rectified = self._kernels.summed_products(self._gradients, self._matrices, state.by_rectified)
        if by_weights is not None:
            room = _to_matrices(by_weights)
            self._kernels.inner_products(self._gradients, state.rectified.unsqueeze(0), out=room)


class SeparableGroup(BranchGroup):
    """Compute depthwise-separable convolutions of one input and stride, those applied twice first."""

    def __init__(self, kernels: Kernels, branches: Sequence[Separable]) -> None:
        super().__init__(kernels, branches)
        self._order = sorted(range(self.size), key=lambda number: -len(branches[number].depthwise))
        self._branches = [branches[number] for number in self._order]
        self._twice = sum(len(branch.depthwise) == 2 for branch in branches)
        self._geometry = [branch.geometry(0) for branch in self._branches]
        self._second_geometry = [branch.geometry(1) for branch in self._branches[: self._twice]]

    @property
    def parameters(self) -> list[Tensor]:
        second = self._branches[: self._twice]
        return [
            *(branch.depthwise[0].weight for branch in self._branches),
            *(branch.pointwise[0].weight for branch in self._branches),
            *(branch.depthwise[1].weight for branch in second),
            *(branch.pointwise[1].weight for branch in second),
        ]

    @property
    def weight_count(self) -> int:
        return 2 * (self.size + self._twice)

    def forward(self, state: State, weights: Sequence[Tensor]) -> list[Term]:
        size, twice = self.size, self._twice
        self._kernel, self._second_kernel = weights[:size], weights[2 * size : 2 * size + twice]
        self._matrix = _to_matrices(weights[size : 2 * size])
        self._term = Term(state.image, normalized=False)
        self._deep = self._kernels.depthwise(self._term, self._kernel, self._geometry)
        self._image = self._kernels.products(self._deep, self._matrix.transpose(1, 2).contiguous())
        terms = [Term(image, normalized=True) for image in self._image]
        if twice:
            self._first_terms = terms[:twice]
            self._second_matrix = _to_matrices(weights[2 * size + twice :])
            self._second_deep = self._second_depthwise()
            transposed = self._second_matrix.transpose(1, 2).contiguous()
            self._second_image = self._kernels.products(self._second_deep, transposed)
            terms = [*(Term(image, normalized=True) for image in self._second_image), *terms[twice:]]
        return self._restore_order(terms)

    def _second_depthwise(self) -> Tensor:
        if self._twice == 1:  # no stacking needed
            return self._kernels.depthwise(self._first_terms[0], self._second_kernel, self._second_geometry)
        deep = torch.empty_like(self._image[: self._twice])
        for number, term in enumerate(self._first_terms):
            kernel, geometry = [self._second_kernel[number]], [self._second_geometry[number]]
            self._kernels.depthwise(term, kernel, geometry, out=deep[number : number + 1])
        return deep

    def _restore_order(self, items: Sequence[Term | Slot]) -> list:  # type: ignore[type-arg]
        """Return the items in the order of the branches."""
        result = [items[0]] * self.size
        for place, item in zip(self._order, items, strict=True):
            result[place] = item
        return result

    def make_slots(self, state: State, *, weights_wanted: bool) -> Slots:
        if state.slot is None and not weights_wanted:
            return [None] * self.size
        self._gradient = torch.empty_like(self._image)
        own = [Slot(image) for image in self._gradient]
        if self._twice:
            self._first_slots = own[: self._twice]
            self._second_gradient = torch.empty_like(self._second_image)
            own = [*(Slot(image) for image in self._second_gradient), *own[self._twice :]]
        return self._restore_order(own)

    def backward(self, state: State, by_weights: Rooms) -> None:
        if state.slot is None and by_weights is None:
            return
        size, rooms = self.size, by_weights or []
        if self._twice:
            self._second_backward(None if by_weights is None else rooms[2 * size :])
        if by_weights is not None:
            self._kernels.inner_products(self._gradient, self._deep, out=_to_matrices(rooms[size : 2 * size]))
        by_deep = self._kernels.products(self._gradient, self._matrix)
        by_kernels = None if by_weights is None else rooms[:size]
        self._kernels.depthwise_backward(by_deep, self._term, self._kernel, self._geometry, state.slot, by_kernels)

    def _second_backward(self, by_weights: Rooms) -> None:
        """Propagate through the second application into the gradients of the first."""
        if by_weights is not None:
            room = _to_matrices(by_weights[self._twice :])
            self._kernels.inner_products(self._second_gradient, self._second_deep, out=room)
        by_deep = self._kernels.products(self._second_gradient, self._second_matrix)
        for number, (term, slot) in enumerate(zip(self._first_terms, self._first_slots, strict=True)):
            own = slice(number, number + 1)
            self._kernels.depthwise_backward(
                by_deep[own], term, self._second_kernel[own], self._second_geometry[own], slot,
                None if by_weights is None else by_weights[own],
            )  # fmt: skip


def _to_matrices(weights: Sequence[Tensor]) -> Tensor:
    """Return pointwise weights as [branches, out, in]."""
    return join_adjacent(weights).view(len(weights), *weights[0].shape[:2])


def join_adjacent(weights: Sequence[Tensor]) -> Tensor:
    """View weights of equal shape that are adjacent in memory as one tensor, [sum of first dimensions, ...]."""
    first = weights[0]
    shape = (sum(len(weight) for weight in weights), *first.shape[1:])
    return first.as_strided(shape, first.stride())


class OpaqueGroup(SingleSlotGroup):
    """Run one candidate of unknown parts, and keep its graph for the backward pass."""

    def __init__(self, kernels: Kernels, branches: Sequence[Opaque]) -> None:
        super().__init__(kernels, branches)
        (branch,) = branches
        self._module: nn.Module = branch.module
        self._names = [name for name, _ in self._module.named_parameters()]

    @property
    def parameters(self) -> list[Tensor]:
        return list(self._module.parameters())

    @property
    def weight_count(self) -> int:
        return len(self._names)

    def forward(self, state: State, weights: Sequence[Tensor]) -> list[Term]:
        with torch.enable_grad():
            self._leaf = state.image.detach().requires_grad_()
            self._weights = [weight.detach().requires_grad_() for weight in weights]
            image = self._leaf.permute(0, 3, 1, 2)
            result = functional_call(self._module, dict(zip(self._names, self._weights, strict=True)), (image,))
            self._result = result.permute(0, 2, 3, 1).contiguous()
        return [Term(self._result.detach(), normalized=False)]

    def _pass_back(self, state: State, slot: Slot, by_weights: Rooms) -> None:
        inputs = [*([self._leaf] if state.slot else []), *(self._weights if by_weights is not None else [])]
        found = self._gradients(inputs, slot.buffer(self._result))
        if state.slot is not None:
            state.slot.add(found.pop(0))
        for room, gradient in zip(by_weights or [], found, strict=True):
            room.copy_(gradient)

    def _gradients(self, inputs: Sequence[Tensor], gradient: Tensor) -> list[Tensor]:
        """Return the gradients of the inputs, zero where the result does not depend on one."""
        if not inputs or not self._result.requires_grad:
            return [torch.zeros_like(one) for one in inputs]
        found = torch.autograd.grad(self._result, inputs, gradient, retain_graph=True, allow_unused=True)
        return [torch.zeros_like(one) if by is None else by for one, by in zip(inputs, found, strict=True)]


def group_branches(kernels: Kernels, branches: Sequence[Branch]) -> list[tuple[BranchGroup, list[int]]]:
    """Return the groups of all branches that leave a state, each with the numbers of its branches."""
    groups: dict[object, list[int]] = {}
    for number, branch in enumerate(branches):
        alone = isinstance(branch, Opaque) or (isinstance(branch, Dense) and not _is_pointwise(branch))
        groups.setdefault(number if alone else _group_key(branch), []).append(number)
    return [(_make_group(kernels, [branches[n] for n in numbers]), numbers) for numbers in groups.values()]


def _group_key(branch: Branch) -> object:
    """Return what branches of one group have in common."""
    if isinstance(branch, Dense):
        return Dense, branch.convolution.out_channels
    if isinstance(branch, Separable):
        return Separable, branch.stride, branch.pointwise[0].out_channels, branch.pointwise[-1].out_channels
    return branch


def _make_group(kernels: Kernels, branches: list[Branch]) -> BranchGroup:
    first = branches[0]
    if isinstance(first, Dense):
        return (PointwiseGroup if _is_pointwise(first) else ConvolutionGroup)(kernels, branches)  # type: ignore[arg-type]
    table: dict[type, type[BranchGroup]] = {
        Skip: SkipGroup,
        Pool: PoolGroup,
        Separable: SeparableGroup,
        Opaque: OpaqueGroup,
    }
    return table[type(first)](kernels, branches)


def _is_pointwise(branch: Dense) -> bool:
    """Return whether a convolution sees one pixel at a time."""
    like = branch.convolution
    return (like.kernel_size, like.stride, like.padding) == ((1, 1), (1, 1), (0, 0))
