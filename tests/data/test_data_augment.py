"""Augmentation against a plain loop over images, which is what it must equal and must not be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from archloom.core.errors import SettingError
from archloom.data.augment import Augment


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbered_images(count: int = 32, channels: int = 3, height: int = 6, width: int = 8) -> Tensor:
    """Every pixel has a number of its own, from 1 on, so that zeros can only come from padding."""
    return torch.arange(1, count * channels * height * width + 1).float().view(count, channels, height, width)


def byte_images(*shape: int) -> Tensor:
    return torch.randint(256, shape, generator=generator(11), dtype=torch.uint8)


def augmented(
    augment: Augment, images: Tensor, seed: int = 0, normalize: Callable[[Tensor], Tensor] = torch.clone
) -> Tensor:
    """Images [b, C, H, W], augmented; `augment` itself has the channels last."""
    pixels = images.permute(0, 2, 3, 1).contiguous()
    return augment(pixels, normalize, generator(seed)).permute(0, 3, 1, 2)


# --- against a loop


def looped(augment: Augment, images: Tensor, seed: int) -> Tensor:
    """What happens to normalised images [b, C, H, W], one by one; only the draws are made for all at once."""
    count, _, height, width = images.shape
    source = generator(seed)

    def draws(high: int, wanted: float) -> list[int]:
        return torch.randint(high, (count,), generator=source).tolist() if wanted else [0] * count

    padding, side = augment.crop_padding, augment.cutout
    tops, lefts = draws(2 * padding + 1, padding), draws(2 * padding + 1, padding)
    flips = draws(2, augment.flip)
    rows, columns = draws(height, side), draws(width, side)
    results = []
    for image, top, left, flip, row, column in zip(images, tops, lefts, flips, rows, columns, strict=True):
        frame = torch.zeros(len(image), height + 2 * padding, width + 2 * padding)
        frame[:, padding : padding + height, padding : padding + width] = image
        result = frame[:, top : top + height, left : left + width].clone()
        if flip:
            result = result.flip(2)
        for y in range(row - side // 2, row - side // 2 + side):
            for x in range(column - side // 2, column - side // 2 + side):
                if 0 <= y < height and 0 <= x < width:
                    result[:, y, x] = 0
        results.append(result)
    return torch.stack(results)


AUGMENTS = [
    Augment(),
    Augment(flip=True),
    Augment(crop_padding=1),
    Augment(crop_padding=4, flip=True),
    Augment(cutout=3),
    Augment(flip=True, cutout=2),
    Augment(crop_padding=2, cutout=4),
    Augment(crop_padding=9, flip=True, cutout=20),  # padding and square beyond the image
]


@pytest.mark.parametrize("shape", [(16, 3, 6, 8), (5, 1, 7, 5), (16, 4, 1, 3), (1, 2, 9, 1)], ids=str)
@pytest.mark.parametrize("augment", AUGMENTS, ids=str)
def test_bytes_become_what_a_loop_makes_of_normalised_images(augment: Augment, shape: tuple[int, ...]) -> None:
    mean = torch.linspace(0.2, 0.6, shape[1])  # no byte has these values, so that padding cannot hide among pixels
    std = torch.linspace(0.1, 0.3, shape[1])

    def normalize(pixels: Tensor) -> Tensor:
        return (pixels.float() / 255 - mean) / std

    images = byte_images(*shape)
    normalised = normalize(images.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    for seed in range(3):
        assert torch.equal(augmented(augment, images, seed, normalize), looped(augment, normalised, seed))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_stored_floats_are_moved_like_bytes(dtype: torch.dtype) -> None:
    augment, images = Augment(crop_padding=2, flip=True, cutout=3), byte_images(8, 3, 5, 6)
    moved = augmented(augment, images.to(dtype), 7, lambda pixels: pixels.to(torch.float32, copy=True))
    assert torch.equal(moved, looped(augment, images.float(), 7))


# --- what the draws are like


def test_default_changes_nothing() -> None:
    images = numbered_images()
    assert torch.equal(augmented(Augment(), images), images)


def test_every_crop_is_a_window_of_the_padded_image() -> None:
    images = numbered_images()
    padding = 2
    cropped = augmented(Augment(crop_padding=padding), images)
    padded = torch.nn.functional.pad(images, (padding,) * 4)
    offsets = set()
    for image, whole in zip(cropped, padded, strict=True):
        matches = [
            (top, left)
            for top in range(2 * padding + 1)
            for left in range(2 * padding + 1)
            if torch.equal(whole[:, top : top + 6, left : left + 8], image)
        ]
        assert len(matches) == 1
        offsets.add(matches[0])
    assert len(offsets) > 10  # images draw their own crops
    assert {top for top, _ in offsets} == {left for _, left in offsets} == set(range(5))


def test_flip_mirrors_some_images_whole_and_leaves_the_others() -> None:
    images = numbered_images()
    flipped = augmented(Augment(flip=True), images)
    mirrored = [torch.equal(new, old.flip(2)) for new, old in zip(flipped, images, strict=True)]
    same = [torch.equal(new, old) for new, old in zip(flipped, images, strict=True)]
    assert all(a != b for a, b in zip(mirrored, same, strict=True))
    assert 5 < sum(mirrored) < 27


@pytest.mark.parametrize("side", [1, 3, 4])
def test_cutout_is_one_square_cut_by_the_border(side: int) -> None:
    images = numbered_images(count=64)
    holes = augmented(Augment(cutout=side), images) == 0
    assert torch.equal(holes.all(dim=1), holes.any(dim=1))  # the same pixels in every channel
    areas = set()
    for hole in holes[:, 0]:
        rows, columns = hole.any(dim=1).sum().item(), hole.any(dim=0).sum().item()
        assert hole.sum() == rows * columns
        assert 1 <= rows <= side and 1 <= columns <= side
        areas.add((rows, columns))
    assert (side, side) in areas


def test_same_generator_state_gives_the_same_images() -> None:
    augment, images = Augment(crop_padding=1, flip=True, cutout=2), numbered_images()
    assert torch.equal(augmented(augment, images, 3), augmented(augment, images, 3))
    assert not torch.equal(augmented(augment, images, 3), augmented(augment, images, 4))


@pytest.mark.parametrize("augment", AUGMENTS, ids=str)
def test_the_input_is_left_alone(augment: Augment) -> None:
    pixels = numbered_images().permute(0, 2, 3, 1).contiguous()
    before = pixels.clone()
    augment(pixels, torch.clone, generator())
    assert torch.equal(pixels, before)


def test_all_negative_settings_are_named_at_once() -> None:
    with pytest.raises(SettingError) as caught:
        Augment(crop_padding=-1, cutout=-2)
    assert caught.value.problems == (
        "augment.crop_padding must be 0 or more, got -1",
        "augment.cutout must be 0 or more, got -2",
    )


# --- parts of an image, and colours


def resized(images: Tensor, side: int, seed: int = 0) -> Tensor:
    return augmented(Augment(resized_crop=side), images, seed)


def test_a_random_part_is_scaled_without_being_turned_or_torn() -> None:
    rows = torch.arange(40).float().view(1, 1, 40, 1).expand(200, 1, 40, 40)
    columns = rows.transpose(2, 3)
    down, across = resized(rows / 40, 16)[:, 0] * 40, resized(columns / 40, 16)[:, 0] * 40
    assert torch.allclose(down, down[:, :, :1].expand_as(down), atol=1e-3)  # rows stay rows
    assert (down.diff(dim=1) >= -1e-4).all() and (across.diff(dim=2) >= -1e-4).all()
    height = (down[:, -1, 0] - down[:, 0, 0]) * 16 / 15  # from the first to the last centre
    width = (across[:, 0, -1] - across[:, 0, 0]) * 16 / 15
    area, shape = height * width / 40**2, width / height
    inside = (down[:, 0, 0] > 0.6) & (down[:, -1, 0] < 38.4) & (across[:, 0, 0] > 0.6) & (across[:, 0, -1] < 38.4)
    assert inside.sum() > 30  # at the border, interpolation has nothing beyond
    assert 0.07 < float(area[inside].min()) < 0.25 and float(area[inside].max()) > 0.5
    assert 0.74 < float(shape[inside].min()) < 0.85 and 1.18 < float(shape[inside].max()) < 1.35


def test_parts_lie_within_the_image_and_a_constant_one_stays_so() -> None:
    image = torch.full((64, 3, 20, 30), 0.25)
    assert torch.allclose(resized(image, 8), torch.full((64, 3, 8, 8), 0.25), atol=1e-6)
    assert resized(byte_images(4, 3, 20, 30), 8).max() <= 1  # bytes become units before they are mixed


def test_the_middle_is_what_judges() -> None:
    images = numbered_images(height=8, width=8)
    augment = Augment(resized_crop=4, flip=True, colour_jitter=0.4).for_evaluation()
    assert augment == Augment(centre_crop=4)
    assert torch.equal(augmented(augment, images), images[:, :, 2:6, 2:6])
    assert augment.size(8, 8) == (4, 4) and Augment(cutout=2).size(8, 6) == (8, 6)
    assert Augment(crop_padding=4, flip=True).for_evaluation() == Augment()
    with pytest.raises(SettingError, match="a centre of 9 pixels must lie within the image, got 8x8"):
        augmented(Augment(centre_crop=9), images)


def test_colours_change_by_image_within_bounds() -> None:
    images = torch.full((300, 3, 2, 2), 0.5)  # of one grey: contrast and saturation do nothing
    changed = augmented(Augment(colour_jitter=0.4), images)
    factors = changed[:, 0, 0, 0] / 0.5
    assert 0.6 <= float(factors.min()) < 0.65 and 1.35 < float(factors.max()) <= 1.4
    assert abs(float(factors.mean()) - 1) < 0.05
    assert torch.allclose(changed, changed[:, :1, :1, :1].expand_as(changed), atol=1e-6)


def test_grey_stays_grey_and_nothing_leaves_its_range() -> None:
    grey = torch.rand(50, 1, 5, 5, generator=generator(1)).expand(-1, 3, -1, -1)
    changed = augmented(Augment(colour_jitter=1.0), grey)
    assert torch.allclose(changed[:, 0], changed[:, 2], atol=1e-5)
    assert changed.min() >= 0 and changed.max() <= 1
    assert not torch.equal(changed, grey)


def test_two_kinds_of_crops_exclude_each_other() -> None:
    with pytest.raises(SettingError, match=r"only one of augment.crop_padding, resized_crop and centre_crop"):
        Augment(crop_padding=4, resized_crop=8)
