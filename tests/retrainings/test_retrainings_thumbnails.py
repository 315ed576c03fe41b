"""Thumbnails: what goes in comes out, whatever its size, colours and range."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from archloom.retrainings.thumbnails import SIDE, keep_thumbnails, read_thumbnails


def pixels(address: str) -> np.ndarray:
    data = base64.b64decode(address.removeprefix("data:image/png;base64,"))
    return np.asarray(Image.open(io.BytesIO(data)))


@pytest.mark.parametrize("colours", [1, 2, 3, 4])
@pytest.mark.parametrize("side", [8, 32, 224])
def test_images_keep_their_place_and_colour(side: int, colours: int, tmp_path: Path) -> None:
    images = torch.zeros(3, colours, side, side, dtype=torch.uint8)
    for place, level in enumerate((10, 120, 250)):
        images[place] = level
    keep_thumbnails(tmp_path / "row.png", images)
    squares = [pixels(address) for address in read_thumbnails(tmp_path / "row.png", 3)]
    assert [square.shape for square in squares] == [(SIDE, SIDE, 3)] * 3
    assert [int(square[SIDE // 2, SIDE // 2, 0]) for square in squares] == [10, 120, 250]


def test_channels_are_red_green_blue(tmp_path: Path) -> None:
    image = torch.tensor([200, 100, 50], dtype=torch.uint8).view(1, 3, 1, 1).expand(1, 3, 8, 8)
    keep_thumbnails(tmp_path / "row.png", image)
    assert pixels(read_thumbnails(tmp_path / "row.png", 1)[0])[40, 40].tolist() == [200, 100, 50]


def test_floats_are_scaled(tmp_path: Path) -> None:
    units = torch.tensor([[0.0, 0.2], [0.4, 0.6]]).view(1, 1, 2, 2)
    keep_thumbnails(tmp_path / "row.png", torch.cat([units, 4 * units - 1]))
    first, second = (pixels(address) for address in read_thumbnails(tmp_path / "row.png", 2))
    assert (first[0, 0, 0], first[-1, -1, 0]) == (0, 153)
    assert (second[0, 0, 0], second[-1, -1, 0]) == (0, 255)


def test_an_oblong_image_is_whole_and_in_the_middle(tmp_path: Path) -> None:
    keep_thumbnails(tmp_path / "row.png", torch.zeros(1, 3, 10, 40, dtype=torch.uint8))
    square = pixels(read_thumbnails(tmp_path / "row.png", 1)[0])
    assert square[0, 0].tolist() == [255, 255, 255] and square[SIDE // 2, 0].tolist() == [0, 0, 0]


def test_a_file_of_another_number_damaged_or_missing_gives_none(tmp_path: Path) -> None:
    path = tmp_path / "row.png"
    assert read_thumbnails(path, 2) == []
    keep_thumbnails(path, torch.zeros(3, 1, 8, 8))
    assert len(read_thumbnails(path, 3)) == 3 and read_thumbnails(path, 2) == []
    path.write_bytes(path.read_bytes()[:60])
    assert read_thumbnails(path, 3) == []
