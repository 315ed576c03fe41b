"""Augmentation against a plain loop over images, which is what it must equal and must not be."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from archloom.data.augment import Augment
from archloom.errors import SettingError


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbered_images(count: int = 32, channels: int = 3, height: int = 6, width: int = 8) -> Tensor:
    """Every pixel has a number of its own, from 1 on, so that zeros can only come from padding."""
    return torch.arange(1, count * channels * height * width + 1).float().view(count, channels, height, width)


def test_default_changes_nothing() -> None:
    images = numbered_images()
    assert torch.equal(Augment()(images, generator()), images)


def test_every_crop_is_a_window_of_the_padded_image() -> None:
    images = numbered_images()
    padding = 2
    cropped = Augment(crop_padding=padding)(images, generator())
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


def test_crop_agrees_for_both_memory_layouts() -> None:
    images = numbered_images()
    augment = Augment(crop_padding=3, flip=True, cutout=3)
    last = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(augment(images, generator(4)), augment(last, generator(4)))


def test_flip_mirrors_some_images_whole_and_leaves_the_others() -> None:
    images = numbered_images()
    flipped = Augment(flip=True)(images, generator())
    mirrored = [torch.equal(new, old.flip(2)) for new, old in zip(flipped, images, strict=True)]
    same = [torch.equal(new, old) for new, old in zip(flipped, images, strict=True)]
    assert all(a != b for a, b in zip(mirrored, same, strict=True))
    assert 5 < sum(mirrored) < 27


@pytest.mark.parametrize("side", [1, 3, 4])
def test_cutout_is_one_square_cut_by_the_border(side: int) -> None:
    images = numbered_images(count=64)
    holes = Augment(cutout=side)(images, generator()) == 0
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
    assert torch.equal(augment(images, generator(3)), augment(images, generator(3)))
    assert not torch.equal(augment(images, generator(3)), augment(images, generator(4)))


def test_the_input_is_left_alone() -> None:
    images = numbered_images()
    Augment(crop_padding=1, flip=True, cutout=2)(images, generator())
    assert torch.equal(images, numbered_images())


def test_all_negative_settings_are_named_at_once() -> None:
    with pytest.raises(SettingError) as caught:
        Augment(crop_padding=-1, cutout=-2)
    assert caught.value.problems == (
        "augment.crop_padding must be 0 or more, got -1",
        "augment.cutout must be 0 or more, got -2",
    )
