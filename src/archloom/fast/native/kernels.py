"""The kernels of a fused cell by a compiled library; torch computes what the library does not cover.

The library reads float32 images with a constant stride between pixels: whole images and slices of their channels.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain

import torch
from torch import Tensor

from archloom.fast.deferred_logits import DeferredLogits
from archloom.fast.kernel_arguments import Geometries, Slot, Slots, Term, Terms
from archloom.fast.kernels import Kernels
from archloom.fast.native.arguments import WIDEST, address_of, check_memory, is_dense, pointer_to
from archloom.fast.native.decoder import NativeDecoder
from archloom.fast.native.recurrent import NativeSegment
from archloom.fast.native.workspaces import Workspaces
from archloom.fast.recurrent_segment import Cell, SegmentRunner, SegmentTensors

INTERFACE = 9  # of the library; kernels.hpp has the same number

_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
_IMAGE = (_POINTER, _NUMBER)  # first pixel, floats from one pixel to the next
_SLOT = (*_IMAGE, _NUMBER)  # and whether to add to it
SIGNATURES: dict[str, tuple[type, ...]] = {
    "moments": (*_IMAGE, _NUMBER, _NUMBER, _POINTER, _NUMBER),
    "mix": (_POINTER, _NUMBER, _POINTER, _NUMBER, _NUMBER, _POINTER, _NUMBER),
    "mix_backward": (*_IMAGE, _POINTER, _NUMBER, _POINTER, _NUMBER, _NUMBER, _POINTER, _NUMBER),
    "depthwise": (*_IMAGE, _POINTER, _POINTER, _POINTER, _NUMBER, _POINTER, _NUMBER),
    "depthwise_backward": (
        _POINTER, _NUMBER, _NUMBER, *_IMAGE, _POINTER, _POINTER, _POINTER, _NUMBER, *_SLOT, _NUMBER, _NUMBER,
    ),
    "rectify_backward": (*_IMAGE, *_IMAGE, _POINTER, *_SLOT, _NUMBER),
    "average_pool": (*_IMAGE, _POINTER, _POINTER, _NUMBER),
    "average_pool_backward": (*_IMAGE, *_IMAGE, _POINTER, *_SLOT, _NUMBER),
    "max_pool": (*_IMAGE, _POINTER, _POINTER, _NUMBER),
    "max_pool_backward": (*_IMAGE, *_IMAGE, _POINTER, *_SLOT, _NUMBER),
    "products": (_POINTER, _POINTER, _POINTER, _POINTER, _NUMBER, _NUMBER, _NUMBER),
    "inner_products": (_POINTER, _POINTER, _POINTER, _POINTER, _NUMBER),
    "clear": (_POINTER, _NUMBER),
    "lanes": (),
    "network": (_POINTER, _NUMBER, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER, _NUMBER),
    "network_backward": (_POINTER, _NUMBER, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER, _NUMBER),
    "recurrent": (_POINTER, _POINTER, _NUMBER),
    "recurrent_backward": (_POINTER, _POINTER, _POINTER, _POINTER, _POINTER, _NUMBER),
    "recurrent_weights": (_POINTER, _POINTER, _POINTER, _NUMBER),
    "decoder": (_POINTER, _POINTER, _NUMBER),
    "decoder_backward": (_POINTER, _POINTER, _POINTER, _NUMBER),
    "decoder_weights": (_POINTER, _POINTER, _POINTER, _NUMBER),
}  # fmt: skip


class NativeKernels(Kernels):
    """Run the operations in compiled code; fall back to torch for what it does not support."""

    def __init__(self, level: str, functions: Mapping[str, Callable[..., int]]) -> None:
        self.name = f"native ({level})"
        self._functions = functions
        self.lanes = functions["lanes"]() if "lanes" in functions else 0  # images that a vector holds
        self._segments, self._decoders = Workspaces(self.make_workspace), Workspaces(self.make_workspace)

    # --- whole networks

    def make_workspace(self, floats: int) -> Tensor:
        """Return zeros, in large pages where the system has them."""
        workspace = torch.empty(floats)
        self._functions["clear"](workspace.data_ptr(), floats)
        return workspace

    def run_network(
        self, plan: int, workspace: Tensor, pointers: array[int], images: Tensor, out: Tensor, shown: Tensor | None
    ) -> None:
        """Write the results of a planned network (`fast.network_plan`), and leave what its backward pass reads."""
        strides = array("q", images.stride())
        check_memory(
            self._functions["network"](
                plan, len(images), workspace.data_ptr(), address_of(pointers), images.data_ptr(), address_of(strides),
                out.data_ptr(), pointer_to(shown), torch.get_num_threads(),
            )
        )  # fmt: skip

    def run_network_backward(
        self,
        plan: int,
        workspace: Tensor,
        pointers: array[int],
        images: int,
        by_means: Tensor,
        by_shown: Tensor | None,
        out: Tensor,
    ) -> None:
        """Write the gradients of all parameters that the result depends on."""
        check_memory(
            self._functions["network_backward"](
                plan, images, workspace.data_ptr(), address_of(pointers), by_means.data_ptr(), pointer_to(by_shown),
                out.data_ptr(), torch.get_num_threads(),
            )
        )  # fmt: skip

    # --- recurrent cells

    def segment(self, cell: Cell, tensors: SegmentTensors) -> SegmentRunner:
        fits = all(one is None or (one.dtype is torch.float32 and one.is_cpu) for one in tensors)
        if not fits:
            return super().segment(cell, tensors)
        return NativeSegment(self._functions, self._segments, cell, tensors)

    def decode(self, states: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
        given = states, weights, bias
        fits = all(one.dtype is torch.float32 and one.is_cpu and one.numel() for one in given)
        if not fits or any(one.is_inference() for one in given):  # those do not say whether they were changed
            return super().decode(states, weights, bias)
        return DeferredLogits(partial(NativeDecoder, self._functions, self._decoders), states, weights, bias)

    # --- normalise, weigh and add up

    def mix(self, terms: Terms, weights: Tensor) -> Tensor:
        first = terms[0].image
        rows = _term_rows(terms, weights, first.shape)
        if rows is None:
            return super().mix(terms, weights)
        missing = {number: term for number, term in enumerate(terms) if term.normalized and term.moments is None}
        if missing:
            found = _empty(first, (len(missing), 2, first.shape[-1])).unbind()
            for (number, term), moments in zip(missing.items(), found, strict=True):
                term.moments = moments
                rows[number][2:4] = moments.data_ptr(), True
        out, table = _empty(first, first.shape), _join(rows)
        check_memory(
            self._functions["mix"](
                address_of(table), len(terms), weights.data_ptr(), _pixels(first), first.shape[-1], out.data_ptr(),
                torch.get_num_threads(),
            )
        )  # fmt: skip
        return out

    def mix_backward(
        self, gradient: Tensor, terms: Terms, weights: Tensor, slots: Slots, *, weights_wanted: bool = True
    ) -> Tensor | None:
        shape, distance = gradient.shape, _pixel_stride(gradient)
        rows = (
            _term_rows(terms, weights, shape)
            if distance and _have_moments(terms) and _are_writable(slots, shape)
            else None
        )
        if rows is None:
            return super().mix_backward(gradient, terms, weights, slots, weights_wanted=weights_wanted)
        by_weight = torch.empty_like(weights) if weights_wanted else None
        for row, term, slot in zip(rows, terms, slots, strict=True):
            row[4:] = _slot_arguments(slot, term.image)
        table = _join(rows)
        check_memory(
            self._functions["mix_backward"](
                gradient.data_ptr(), distance, address_of(table), len(terms), weights.data_ptr(), _pixels(gradient),
                shape[-1], pointer_to(by_weight), torch.get_num_threads(),
            )
        )  # fmt: skip
        return by_weight

    # --- depthwise convolutions of a rectified image

    def depthwise(
        self, term: Term, weights: Sequence[Tensor], geometry: Geometries, *, out: Tensor | None = None
    ) -> Tensor:
        image = term.image
        if not _is_covered(term, weights, geometry):
            return super().depthwise(term, weights, geometry, out=out)
        size = (len(weights), *_output_shape(image.shape, geometry[0].stride))
        if out is None:
            out = _empty(image, size)
        elif out.shape != size or not is_dense(out):
            return super().depthwise(term, weights, geometry, out=out)
        moments = self._moments(term)
        shape, kernels = array("q", (*image.shape, geometry[0].stride)), _kernel_rows(weights, geometry, None)
        check_memory(
            self._functions["depthwise"](
                image.data_ptr(), _term_stride(term), pointer_to(moments), address_of(shape), address_of(kernels),
                len(weights), out.data_ptr(), torch.get_num_threads(),
            )
        )  # fmt: skip
        return out

    def depthwise_backward(
        self,
        gradients: Tensor,
        term: Term,
        weights: Sequence[Tensor],
        geometry: Geometries,
        slot: Slot | None,
        by_weights: Sequence[Tensor] | None = None,
    ) -> None:
        image = term.image
        fits = _is_covered(term, weights, geometry) and _have_moments([term]) and _are_writable([slot], image.shape)
        size = _output_shape(image.shape, geometry[0].stride)
        distance = _pixel_stride(gradients[0]) if fits and gradients.shape == (len(weights), *size) else 0
        if not distance or not all(map(is_dense, by_weights or [])):
            super().depthwise_backward(gradients, term, weights, geometry, slot, by_weights)
            return
        shape, kernels = array("q", (*image.shape, geometry[0].stride)), _kernel_rows(weights, geometry, by_weights)
        moments = self._moments(term)
        check_memory(
            self._functions["depthwise_backward"](
                gradients.data_ptr(), gradients.stride(0), distance, image.data_ptr(), _term_stride(term),
                pointer_to(moments), address_of(shape), address_of(kernels), len(weights),
                *_slot_arguments(slot, image), by_weights is not None, torch.get_num_threads(),
            )
        )  # fmt: skip

    def _moments(self, term: Term) -> Tensor | None:
        """Return mean and 1/std of a normalised term, computed if they are missing."""
        if term.normalized and term.moments is None:
            image = term.image
            moments = _empty(image, (2, image.shape[-1]))
            check_memory(
                self._functions["moments"](
                    image.data_ptr(), _term_stride(term), _pixels(image), image.shape[-1], moments.data_ptr(),
                    torch.get_num_threads(),
                )
            )  # fmt: skip
            term.moments = moments
        return term.moments if term.normalized else None

    # --- 1x1 convolutions

    def products(self, images: Tensor, matrices: Tensor) -> Tensor:
        if not _can_multiply(images, matrices):
            return super().products(images, matrices)
        out = _empty(images, (len(matrices), *images.shape[1:4], matrices.shape[2]))
        self._multiply(images, matrices, out, into_one=False, add=False)
        return out

    def summed_products(self, images: Tensor, matrices: Tensor, total: Tensor | None) -> Tensor:
        if not _can_multiply(images, matrices) or not (total is None or is_dense(total)):
            return super().summed_products(images, matrices, total)
        out = _empty(images, (*images.shape[1:4], matrices.shape[2])) if total is None else total
        self._multiply(images, matrices, out, into_one=True, add=total is not None)
        return out

    def _multiply(self, images: Tensor, matrices: Tensor, out: Tensor, *, into_one: bool, add: bool) -> None:
        branches = _product_sizes(images, matrices.shape[0], matrices.shape[1], matrices.shape[2], images)
        check_memory(
            self._functions["products"](
                images.data_ptr(), matrices.data_ptr(), address_of(branches), out.data_ptr(), into_one, add,
                torch.get_num_threads(),
            )
        )  # fmt: skip

    def inner_products(self, left: Tensor, right: Tensor, *, out: Tensor | None = None) -> Tensor:
        fits = is_dense(left) and is_dense(right) and right.shape[-1] % WIDEST == 0 and left.numel()
        if not fits or not (out is None or is_dense(out)):
            return super().inner_products(left, right, out=out)
        if out is None:
            out = _empty(left, (len(left), left.shape[-1], right.shape[-1]))
        branches = _product_sizes(left, len(left), left.shape[-1], right.shape[-1], right)
        check_memory(
            self._functions["inner_products"](
                left.data_ptr(), right.data_ptr(), address_of(branches), out.data_ptr(), torch.get_num_threads()
            )
        )
        return out

    def rectify_backward(self, gradient: Tensor, image: Tensor, slot: Slot) -> None:
        if not self._pass_back("rectify_backward", gradient, image, 1, slot):
            super().rectify_backward(gradient, image, slot)

    # --- 3x3 pools without padding

    def average_pool(self, image: Tensor, stride: int) -> Tensor:
        out = self._pool("average_pool", image, stride)
        return super().average_pool(image, stride) if out is None else out

    def average_pool_backward(self, gradient: Tensor, image: Tensor, stride: int, slot: Slot) -> None:
        if not self._pass_back("average_pool_backward", gradient, image, stride, slot):
            super().average_pool_backward(gradient, image, stride, slot)

    def max_pool(self, image: Tensor, stride: int) -> Tensor:
        out = self._pool("max_pool", image, stride)
        return super().max_pool(image, stride) if out is None else out

    def max_pool_backward(self, gradient: Tensor, image: Tensor, stride: int, slot: Slot) -> None:
        if not self._pass_back("max_pool_backward", gradient, image, stride, slot):
            super().max_pool_backward(gradient, image, stride, slot)

    def _pool(self, name: str, image: Tensor, stride: int) -> Tensor | None:
        """Return the pooled image, None if the library does not cover it."""
        distance = _pixel_stride(image)
        if not distance or stride not in (1, 2):
            return None
        out = _empty(image, _output_shape(image.shape, stride))
        function, shape = self._functions[name], array("q", (*image.shape, stride))
        check_memory(function(image.data_ptr(), distance, address_of(shape), out.data_ptr(), torch.get_num_threads()))
        return out

    def _pass_back(self, name: str, gradient: Tensor, image: Tensor, stride: int, slot: Slot) -> bool:
        """Add the gradient of an image to the slot; return False if the library does not cover it."""
        distances = _pixel_stride(gradient), _pixel_stride(image)
        fits = all(distances) and stride in (1, 2) and gradient.shape == _output_shape(image.shape, stride)
        if not fits or not _are_writable([slot], image.shape):
            return False
        shape = array("q", (*image.shape, stride))
        check_memory(
            self._functions[name](
                gradient.data_ptr(), distances[0], image.data_ptr(), distances[1], address_of(shape),
                *_slot_arguments(slot, image), torch.get_num_threads(),
            )
        )  # fmt: skip
        return True


# --- what the library can read


def _pixel_stride(image: Tensor) -> int:
    """Return the floats from one pixel to the next, 0 if the library cannot read this image."""
    if image.dtype is not torch.float32 or not image.is_cpu or not image.numel():
        return 0
    if image.is_contiguous():
        return image.shape[-1]
    (batch, height, width, channels), strides = image.shape, image.stride()
    distance = strides[2] if width > 1 else strides[1] if height > 1 else strides[0]
    even = (height * width * distance, width * distance, distance, 1)
    if strides != even:  # the stride of a dimension of size 1 means nothing and may differ
        sizes = (batch, height, width, channels)
        if any(size > 1 and stride != step for size, stride, step in zip(sizes, strides, even, strict=True)):
            return 0
    return distance if distance >= channels else 0


def _term_stride(term: Term) -> int:
    """Return the floats from one pixel of a term to the next; its image stays the same in all calls."""
    if term.pixel_stride is None:
        term.pixel_stride = _pixel_stride(term.image)
    return term.pixel_stride


def _is_readable(term: Term) -> bool:
    return bool(_term_stride(term)) and (term.moments is None or is_dense(term.moments))


def _have_moments(terms: Terms) -> bool:
    """Return whether the forward pass has stored the moments that the backward pass needs."""
    return all(term.moments is not None or not term.normalized for term in terms)


def _are_writable(slots: Slots, shape: torch.Size) -> bool:
    images = [slot.image for slot in slots if slot is not None and slot.image is not None]
    return all(image.shape == shape and _pixel_stride(image) for image in images)


def _is_covered(term: Term, weights: Sequence[Tensor], geometry: Geometries) -> bool:
    """Return whether the library has loops for these kernels."""
    channels, stride = term.image.shape[-1], geometry[0].stride
    return (
        stride in (1, 2)
        and len(weights) == len(geometry)
        and _is_readable(term)
        and all(
            shape.stride == stride
            and shape.dilation in (1, 2)
            and weight.shape[-1] in (3, 5, 7)
            and weight.shape == (channels, 1, weight.shape[-1], weight.shape[-1])
            and is_dense(weight)
            for weight, shape in zip(weights, geometry, strict=True)
        )
    )


def _can_multiply(images: Tensor, matrices: Tensor) -> bool:
    return is_dense(images) and is_dense(matrices) and matrices.shape[2] % WIDEST == 0 and bool(images.numel())


# --- the form of its arguments


def _term_rows(terms: Terms, weights: Tensor, shape: torch.Size) -> list[list[int]] | None:
    """Return the terms as 64-bit numbers (`Term` in mix.hpp) without slots, None if the library does not cover them."""
    if weights.shape != (len(terms),) or not is_dense(weights):
        return None
    rows = []
    for term in terms:
        image, moments = term.image, term.moments if term.normalized else None
        distance = _term_stride(term)
        if not distance or image.shape != shape or (moments is not None and not is_dense(moments)):
            return None
        rows.append([image.data_ptr(), distance, pointer_to(moments), False, 0, 0, False])
    return rows


def _join(rows: list[list[int]]) -> array[int]:
    return array("q", chain.from_iterable(rows))


def _kernel_rows(weights: Sequence[Tensor], geometry: Geometries, by_weight: Sequence[Tensor] | None) -> array[int]:
    """Return the kernels as rows of 64-bit numbers (`Kernel` in depthwise.hpp)."""
    rows = array("q")
    for number, (weight, shape) in enumerate(zip(weights, geometry, strict=True)):
        result = None if by_weight is None else by_weight[number]
        rows.extend((weight.data_ptr(), weight.shape[-1], shape.dilation, pointer_to(result)))
    return rows


def _slot_arguments(slot: Slot | None, like: Tensor) -> tuple[int, int, bool]:
    """Return a slot's address, stride and whether to add to it, and mark it as filled."""
    if slot is None:
        return 0, 0, False
    distance = like.shape[-1] if slot.image is None else _pixel_stride(slot.image)
    before, slot.filled = slot.filled, True
    return slot.buffer(like).data_ptr(), distance, before


def _output_shape(shape: torch.Size, stride: int) -> tuple[int, int, int, int]:
    batch, height, width, channels = shape
    return batch, (height - 1) // stride + 1, (width - 1) // stride + 1, channels


def _empty(like: Tensor, shape: Sequence[int]) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device)


def _pixels(image: Tensor) -> int:
    return image.numel() // image.shape[-1]


def _product_sizes(images: Tensor, count: int, rows: int, columns: int, perhaps_shared: Tensor) -> array[int]:
    """Return the sizes of products (`Branches` in products.hpp); one image may serve all branches."""
    step = 0 if len(perhaps_shared) == 1 else perhaps_shared[0].numel()
    return array("q", (count, images[0].numel() // images.shape[-1], rows, columns, step))
