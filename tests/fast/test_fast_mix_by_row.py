"""Mixing with several pixels side by side, or image by image: every number of them, and images far from zero."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor

from archloom.fast import Slot, Term, mix_by_row, mix_by_term

SHAPES = {(2, 4, 4, 8): 32, (3, 5, 7, 8): 1, (2, 3, 3, 600): 1, (1, 2, 3, 5): 2, (64, 4, 4, 1): 512}


def noise(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def mixed(images: list[Tensor], weights: Tensor, kinds: list[bool]) -> Tensor:
    """What is to be computed, in words of torch."""
    parts = []
    for image, weight, kind in zip(images, weights, kinds, strict=True):
        mean, variance = image.mean((0, 1, 2)), image.var((0, 1, 2), correction=0)
        parts.append(weight * ((image - mean) / torch.sqrt(variance + 1e-5) if kind else image))
    return torch.stack(parts).sum(0)


@pytest.mark.parametrize(("shape", "side"), SHAPES.items())
def test_pixels_side_by_side_are_as_many_as_fit_and_divide(shape: tuple[int, ...], side: int) -> None:
    assert mix_by_row.pixels_per_row(noise(*shape)) == side


@pytest.mark.parametrize("way", [mix_by_row, mix_by_term])
@pytest.mark.parametrize("weights_wanted", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_mixtures_of_any_shape_and_their_gradients(
    shape: tuple[int, ...], weights_wanted: bool, way: ModuleType
) -> None:
    kinds = [True, False, True]
    leaves = [noise(*shape, seed=number).requires_grad_() for number in range(3)]
    weights = noise(3, seed=5).requires_grad_()
    terms = [Term(leaf.detach(), kind) for leaf, kind in zip(leaves, kinds, strict=True)]
    expected, gradient = mixed(leaves, weights, kinds), noise(*shape, seed=9)
    torch.testing.assert_close(way.mix(terms, weights.detach()), expected)

    by_weights, *by_leaves = torch.autograd.grad(expected, [weights, *leaves], gradient)
    slots = [Slot(), None, Slot(torch.empty(shape, dtype=torch.float64))]
    found = way.mix_backward(gradient, terms, weights.detach(), slots, weights_wanted=weights_wanted)
    for slot, by_leaf in zip(slots, by_leaves, strict=True):
        if slot is not None:
            torch.testing.assert_close(slot.image, by_leaf)
    if weights_wanted:
        torch.testing.assert_close(found, by_weights)
    else:
        assert found is None


@pytest.mark.parametrize(("way", "lost"), [(mix_by_row, 2e-5), (mix_by_term, 5e-5)])  # the latter is torch's own loss
def test_images_far_from_zero_lose_no_more_than_torch_does(way: ModuleType, lost: float) -> None:
    """A mean of thirty deviations: what a difference of large sums would not survive."""
    image = 30 + noise(16, 8, 8, 8)
    gradient, one = noise(16, 8, 8, 8, seed=1), torch.ones(1, dtype=torch.float64)
    leaf = image.clone().requires_grad_()
    expected = mixed([leaf], one, [True])
    (by_image,) = torch.autograd.grad(expected, [leaf], gradient)
    term, slot = Term(image.float(), normalized=True), Slot()
    torch.testing.assert_close(way.mix([term], one.float()).double(), expected, atol=lost, rtol=0)
    way.mix_backward(gradient.float(), [term], one.float(), [slot], weights_wanted=False)
    assert slot.image is not None
    torch.testing.assert_close(slot.image.double(), by_image, atol=lost, rtol=0)


class Elsewhere(Tensor):
    """An image that is not on a CPU, as far as one can ask it."""

    is_cpu = False  # type: ignore[assignment]


def test_statistics_are_the_same_where_there_is_no_cpu() -> None:
    """On a GPU they come from another function."""
    images = [30 + noise(2, 4, 4, 8), noise(2, 4, 4, 8, seed=1)]
    found = {}
    for kind in (Tensor, Elsewhere):
        terms = [Term(image.as_subclass(kind), normalized=True) for image in images]
        total = mix_by_row.mix(terms, torch.ones(2, dtype=torch.float64)).as_subclass(Tensor)
        found[kind] = [total, *(term.moments.as_subclass(Tensor) for term in terms if term.moments is not None)]
    torch.testing.assert_close(found[Elsewhere], found[Tensor])
    torch.testing.assert_close(found[Elsewhere][0], mixed(images, torch.ones(2), [True, True]))


@pytest.mark.parametrize("side", [1, 2, 4])
def test_matrices_stand_along_the_diagonal_once_for_each_pixel(side: int) -> None:
    matrices = noise(2, 3, 5)
    for repeated, matrix in zip(mix_by_row.repeat_on_diagonal(matrices, side), matrices, strict=True):
        torch.testing.assert_close(repeated, torch.block_diag(*[matrix] * side))
