"""The kernels in plain torch against the formulas they stand for, differentiated by autograd in double precision."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from archloom.fast import Geometry, Kernels, Slot, Term
from archloom.fast.kernel_arguments import check_normalizable

KERNELS = Kernels()
SHAPE = (2, 6, 5, 4)


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def images(count: int, *, sliced: bool = False) -> list[Tensor]:
    """Pixels-last images, or the middle channels of wider ones."""
    batch, height, width, channels = SHAPE
    wide = [random(batch, height, width, channels + 3, seed=10 + number) for number in range(count)]
    return [image[..., 2 : 2 + channels] if sliced else image[..., :channels].contiguous() for image in wide]


def normalized(image: Tensor) -> Tensor:
    mean, variance = image.mean((0, 1, 2)), image.var((0, 1, 2), correction=0)
    return (image - mean) / torch.sqrt(variance + 1e-5)


def total(terms: Sequence[Term], leaves: Sequence[Tensor], weights: Tensor) -> Tensor:
    parts = [normalized(leaf) if term.normalized else leaf for term, leaf in zip(terms, leaves, strict=True)]
    return torch.stack([weight * part for weight, part in zip(weights, parts, strict=True)]).sum(dim=0)


@pytest.mark.parametrize("sliced", [False, True])
@pytest.mark.parametrize("kinds", [[True], [False], [True, False, True], [False, True, False, True]])
def test_a_mixture_is_the_weighted_sum_of_normalised_and_raw_images(kinds: list[bool], sliced: bool) -> None:
    leaves = [image.detach().requires_grad_() for image in images(len(kinds), sliced=sliced)]
    weights = random(len(kinds), seed=1).requires_grad_()
    terms = [Term(leaf.detach(), kind) for leaf, kind in zip(leaves, kinds, strict=True)]
    expected = total(terms, leaves, weights)
    torch.testing.assert_close(KERNELS.mix(terms, weights.detach()), expected)

    gradient = random(*SHAPE, seed=2)
    by_weights, *by_leaves = torch.autograd.grad(expected, [weights, *leaves], gradient)
    slots = [Slot() for _ in leaves]
    found = KERNELS.mix_backward(gradient, terms, weights.detach(), slots)
    torch.testing.assert_close(found, by_weights)
    for slot, by_leaf in zip(slots, by_leaves, strict=True):
        torch.testing.assert_close(slot.image, by_leaf)


def test_moments_are_the_mean_and_one_over_the_deviation() -> None:
    term = Term(images(1)[0], normalized=True)
    KERNELS.mix([term], torch.ones(1, dtype=torch.float64))
    assert term.moments is not None
    torch.testing.assert_close(term.moments[0], term.image.mean((0, 1, 2)))
    torch.testing.assert_close(term.moments[1], 1 / torch.sqrt(term.image.var((0, 1, 2), correction=0) + 1e-5))


def test_gradients_without_a_slot_or_a_wish_are_left_out() -> None:
    first, second = images(2)
    terms = [Term(first, normalized=True), Term(second, normalized=False)]
    weights = random(2)
    KERNELS.mix(terms, weights)
    slot = Slot()
    assert KERNELS.mix_backward(random(*SHAPE), terms, weights, [None, slot], weights_wanted=False) is None
    assert slot.image is not None


DEPTHWISE = [
    ([1], [Geometry()]),
    ([3], [Geometry()]),
    ([5], [Geometry(2, 2)]),
    ([3, 5, 7], [Geometry(1, 1), Geometry(1, 2), Geometry(1, 1)]),
    ([3, 3, 5], [Geometry(2, 1), Geometry(2, 2), Geometry(2, 1)]),
]


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("sizes", "geometry"), DEPTHWISE)
def test_depthwise_convolutions_of_the_rectified_image(
    sizes: list[int], geometry: list[Geometry], normalize: bool
) -> None:
    image = images(1)[0].requires_grad_()
    weights = [random(4, 1, size, size, seed=size).requires_grad_() for size in sizes]
    source = F.relu(normalized(image) if normalize else image).permute(0, 3, 1, 2)
    expected = torch.stack(
        [
            F.conv2d(source, weight, None, shape.stride, shape.dilation * (size // 2), shape.dilation, 4)
            for size, weight, shape in zip(sizes, weights, geometry, strict=True)
        ]
    ).permute(0, 1, 3, 4, 2)
    term, plain = Term(image.detach(), normalize), [weight.detach() for weight in weights]
    torch.testing.assert_close(KERNELS.depthwise(term, plain, geometry), expected)
    room = torch.empty_like(expected, memory_format=torch.contiguous_format)
    KERNELS.depthwise(term, plain, geometry, out=room)
    torch.testing.assert_close(room, expected)

    gradient = random(*expected.shape, seed=3)
    by_image, *by_weights = torch.autograd.grad(expected, [image, *weights], gradient)
    slot = Slot()
    found = [torch.empty_like(weight) for weight in plain]
    KERNELS.depthwise_backward(gradient, term, plain, geometry, slot, found)
    torch.testing.assert_close(slot.image, by_image)
    for one, other in zip(found, by_weights, strict=True):
        torch.testing.assert_close(one, other)
    alone = Slot()
    KERNELS.depthwise_backward(gradient, term, plain, geometry, alone)
    torch.testing.assert_close(alone.image, by_image)


@pytest.mark.parametrize("shared", [False, True])
def test_products_of_pixels_with_a_matrix_for_each_branch(shared: bool) -> None:
    several, matrices = random(3, *SHAPE), random(3, 4, 5, seed=1)
    images = several[:1] if shared else several
    found = KERNELS.products(images, matrices)
    assert found.shape == (3, *SHAPE[:3], 5)
    for number in range(3):
        torch.testing.assert_close(found[number], images[0 if shared else number] @ matrices[number])
    inner = KERNELS.inner_products(several, images)
    torch.testing.assert_close(inner, torch.einsum("nbhwx,nbhwy->nxy", several, images.expand(3, -1, -1, -1, -1)))
    room = torch.empty_like(inner)
    assert KERNELS.inner_products(several, images, out=room) is room
    assert torch.equal(room, inner)


@pytest.mark.parametrize("begun", [False, True])
def test_products_added_up_are_added_to_what_is_there(begun: bool) -> None:
    images, matrices = random(3, *SHAPE), random(3, 4, 5, seed=1)
    total = random(*SHAPE[:3], 5, seed=2)
    expected = torch.einsum("nbhwi,nio->bhwo", images, matrices) + (total if begun else 0)
    found = KERNELS.summed_products(images, matrices, total if begun else None)
    torch.testing.assert_close(found, expected)
    assert (found.data_ptr() == total.data_ptr()) == begun


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kind", ["average", "max"])
def test_pools_leave_the_border_out(kind: str, stride: int) -> None:
    image = images(1)[0].requires_grad_()
    first = image.permute(0, 3, 1, 2)
    if kind == "average":
        expected = F.avg_pool2d(first, 3, stride, 1, count_include_pad=False)
    else:
        expected = F.max_pool2d(first, 3, stride, 1)
    expected = expected.permute(0, 2, 3, 1)
    pool, backward = getattr(KERNELS, f"{kind}_pool"), getattr(KERNELS, f"{kind}_pool_backward")
    torch.testing.assert_close(pool(image.detach(), stride), expected)
    gradient, slot = random(*expected.shape, seed=4), Slot()
    backward(gradient, image.detach(), stride, slot)
    torch.testing.assert_close(slot.image, torch.autograd.grad(expected, image, gradient)[0])


def test_a_rectifier_passes_gradients_where_the_image_is_positive() -> None:
    image, gradient, slot = torch.tensor([-1.0, 0.0, 2.0]), torch.tensor([3.0, 4.0, 5.0]), Slot()
    KERNELS.rectify_backward(gradient, image, slot)
    torch.testing.assert_close(slot.image, torch.tensor([0.0, 0.0, 5.0]))


def test_a_slot_keeps_the_first_and_adds_the_rest() -> None:
    given = torch.full((2,), 9.0)
    for slot in (Slot(), Slot(given)):
        slot.add(torch.ones(2))
        slot.add(torch.full((2,), 2.0))
        torch.testing.assert_close(slot.image, torch.full((2,), 3.0))
    assert torch.equal(given, torch.full((2,), 3.0))


def test_a_single_value_per_channel_cannot_be_normalised() -> None:
    check_normalizable(torch.zeros(2, 1, 1, 4))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        check_normalizable(torch.zeros(1, 1, 1, 4))
