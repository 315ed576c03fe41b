"""Batch normalisation outside of cells by the fast kernels: a mixture of a single term."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from archloom.fast import Kernels, Slot, Term, current_kernels
from archloom.fast.kernel_arguments import check_normalizable


class BatchNorm(nn.BatchNorm2d):
    """Run `nn.BatchNorm2d`, by the fast kernels where it has neither parameters nor running statistics."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalised image."""
        plain = self.affine or self.track_running_stats or torch.compiler.is_compiling()
        kernels = None if plain else current_kernels()
        if kernels is None or input.dim() != 4:
            result: Tensor = super().forward(input)
            return result
        return _Function.apply(kernels, input)  # type: ignore[no-any-return, no-untyped-call]


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernels: Kernels, image: Tensor) -> Tensor:
        term = Term(to_nhwc(image.detach()), normalized=True)
        check_normalizable(term.image)
        result = kernels.mix([term], term.image.new_ones(1))
        ctx.kernels = kernels
        ctx.save_for_backward(image, term.moments)
        ctx.set_materialize_grads(False)
        return _own_memory(result.permute(0, 3, 1, 2))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None) -> tuple[None, Tensor | None]:
        refuse_second_derivative()
        if gradient is None:  # the loss does not depend on this image
            return None, None
        image, moments = ctx.saved_tensors
        term, slot = Term(to_nhwc(image.detach()), normalized=True, moments=moments), Slot()
        ctx.kernels.mix_backward(to_nhwc(gradient), [term], term.image.new_ones(1), [slot], weights_wanted=False)
        return None, slot.buffer(term.image).permute(0, 3, 1, 2)


def _own_memory(view: Tensor) -> Tensor:
    """Return a tensor with the memory of a view that no backward pass needs, without a copy, and no view itself.

    Autograd refuses to change a view from within a function in place, and `nn.ReLU(inplace=True)` after a normalization
    stands in nearly all public networks.
    """
    owned = torch.empty(0, dtype=view.dtype, device=view.device)
    return owned.set_(view.untyped_storage(), view.storage_offset(), view.size(), view.stride())


def to_nhwc(image: Tensor) -> Tensor:
    """Return an image as [batch, height, width, channels] with adjacent channels."""
    image = image.permute(0, 2, 3, 1)
    return image if image.stride(3) == 1 else image.contiguous()


def refuse_second_derivative() -> None:
    """Raise in a backward pass that builds a graph: it would silently miss this part."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "fused parts have no second derivative; compute the loss within archloom.fast.use_kernels('plain')"
        )
