from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from archloom.core.errors import DataError, SettingError
from archloom.data.augment import Augment
from archloom.data.folder import ImageFiles, decode_image, folder
from archloom.data.source import InMemory


def picture(path: Path, colour: tuple[int, int, int] = (200, 100, 50), size: tuple[int, int] = (12, 8)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)
    return path


def pets(root: Path, each: int = 5) -> Path:
    """Cats get brighter with their number; dogs are blue."""
    for number in range(each):
        picture(root / "cats" / f"{number}.png", (number * 10, 0, 0))
        picture(root / "dogs" / f"{number}.png", (0, 0, number * 10))
    return root


# --- layouts


def test_classes_are_the_sorted_sub_folders(tmp_path: Path) -> None:
    data = folder(pets(tmp_path), size=8).check()
    assert data.classes == ("cats", "dogs")
    assert data.train.shape == (3, 8, 8)
    assert data.train.labels.tolist() == [0] * 4 + [1] * 4
    assert data.test is not None and data.test.labels.tolist() == [0, 1]
    assert data.test.fetch(torch.tensor([0]))[0, :, 0, 0].tolist() == [40, 0, 0]  # the last cat
    assert data.augment == Augment(crop_padding=4, flip=True)


def test_a_folder_below_the_data_folder_is_named_by_path(tmp_path: Path) -> None:
    pets(tmp_path / "pets")
    data = folder(tmp_path, path="pets", size=4, test_fraction=0, crop_padding=1, flip=False)
    assert data.name == "pets"
    assert data.test is None and len(data.train) == 10
    assert data.augment == Augment(crop_padding=1)


@pytest.mark.parametrize("test_name", ["test", "val", "valid"])
def test_train_and_test_folders_are_recognised(tmp_path: Path, test_name: str) -> None:
    pets(tmp_path / "train", each=3)
    pets(tmp_path / test_name, each=2)
    data = folder(tmp_path, size=4).check()
    assert data.test is not None
    assert (len(data.train), len(data.test)) == (6, 4)
    assert data.classes == ("cats", "dogs")


def test_a_train_folder_alone_has_its_test_images_held_out(tmp_path: Path) -> None:
    pets(tmp_path / "train")
    data = folder(tmp_path, size=4)
    assert data.test is not None and len(data.test) == 2


def test_train_may_be_the_name_of_a_class(tmp_path: Path) -> None:
    picture(tmp_path / "train" / "express.png")
    picture(tmp_path / "plane" / "jet.png")
    assert folder(tmp_path, size=4).classes == ("plane", "train")


def test_files_of_other_kinds_and_hidden_ones_are_ignored_and_deeper_ones_found(tmp_path: Path) -> None:
    pets(tmp_path, each=1)
    (tmp_path / "cats" / "notes.txt").write_text("meow")
    (tmp_path / "cats" / "._0.png").write_bytes(b"resource fork")
    (tmp_path / ".cache").mkdir()
    (tmp_path / "README.md").write_text("pets")
    picture(tmp_path / "dogs" / "deeper" / "puppy.JPG")
    data = folder(tmp_path, size=4, test_fraction=0)
    assert data.train.labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize(("make", "message"), [
    (lambda root: None, "must have a sub-folder for each of at least 2 classes, got 0 sub-folders"),
    (lambda root: picture(root / "cats" / "a.png"), "at least 2 classes, got 1 sub-folders"),
    (lambda root: (pets(root), (root / "birds").mkdir()), r"birds' has no image files; known are \.bmp"),
    (lambda root: (pets(root / "train"), (root / "test").mkdir()), "test' has no image files"),
    (lambda root: (pets(root / "train"), picture(root / "test" / "birds" / "a.png")), "birds' is not a class of the"),
])  # fmt: skip
def test_folders_no_search_can_use_are_refused(tmp_path: Path, make: object, message: str) -> None:
    make(tmp_path)  # type: ignore[operator]
    with pytest.raises(DataError, match=message):
        folder(tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no folder '.*absent'"):
        folder(tmp_path, path="absent")
    with pytest.raises(DataError, match="data set 'folder' needs a data folder"):
        folder(None)


def test_bad_settings_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingError) as caught:
        folder(tmp_path, size=0, memory_limit_mb=-1)
    assert caught.value.problems == (
        "data.size must be at least 1, got 0",
        "data.memory_limit_mb must be 0 or more, got -1",
    )


# --- memory


def test_what_does_not_fit_in_memory_is_read_when_needed_and_is_the_same(tmp_path: Path) -> None:
    pets(tmp_path)
    kept, streamed = folder(tmp_path, size=8), folder(tmp_path, size=8, memory_limit_mb=0)
    assert isinstance(kept.train, InMemory)
    assert isinstance(streamed.train, ImageFiles)
    index = torch.tensor([7, 0, 3, 3])
    assert torch.equal(kept.train.fetch(index), streamed.train.fetch(index))
    assert (kept.mean, kept.std) == (streamed.mean, streamed.std)


@pytest.mark.parametrize(("in_memory", "kind"), [(True, InMemory), (False, ImageFiles)])
def test_in_memory_overrides_the_limit(tmp_path: Path, in_memory: bool, kind: type) -> None:
    data = folder(pets(tmp_path), size=8, in_memory=in_memory, memory_limit_mb=0 if in_memory else 2000)
    assert isinstance(data.train, kind) and isinstance(data.test, kind)


# --- decoding


def test_the_centred_square_is_taken_and_scaled(tmp_path: Path) -> None:
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 255  # white in the middle third, which is all that a square crop sees
    Image.fromarray(wide).save(tmp_path / "wide.png")
    assert decode_image(tmp_path / "wide.png", size=5).min() > 200  # the filter reaches a little beyond the square
    tall = tmp_path / "tall.png"
    Image.fromarray(wide.transpose(1, 0, 2)).save(tall)
    assert decode_image(tall, size=5)[:, 1:-1].min() == 255


@pytest.mark.parametrize(("mode", "colour", "expected"), [
    ("L", 90, [90, 90, 90]),
    ("RGBA", (10, 20, 30, 255), [10, 20, 30]),
    ("1", 1, [255, 255, 255]),
    ("P", 0, [0, 0, 0]),
    ("LA", (70, 255), [70, 70, 70]),
    ("I;16", 90 * 256 + 3, [90, 90, 90]),
])  # fmt: skip
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str, colour: object, expected: list[int]) -> None:
    path = tmp_path / "a.png"
    Image.new(mode, (4, 4), colour).save(path)  # type: ignore[arg-type]
    image = decode_image(path, size=4)
    assert image.dtype == torch.uint8 and image.shape == (3, 4, 4)
    assert image[:, 0, 0].tolist() == expected


def test_only_formats_of_the_known_suffixes_are_decoded(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.eps")
    (tmp_path / "a.eps").rename(tmp_path / "a.png")
    with pytest.raises(DataError, match="cannot identify image file"):
        decode_image(tmp_path / "a.png", size=4)


def test_pixels_of_32_bits_are_refused_rather_than_black(tmp_path: Path) -> None:
    Image.new("I", (4, 4), 200).save(tmp_path / "a.tiff")
    with pytest.raises(DataError, match="32-bit pixels have no known range; save the image with 8 or 16 bits"):
        decode_image(tmp_path / "a.tiff", size=4)
    Image.new("I;16", (4, 4), 200 * 256).save(tmp_path / "b.tiff")
    assert decode_image(tmp_path / "b.tiff", size=4)[:, 0, 0].tolist() == [200, 200, 200]


@pytest.mark.filterwarnings("error")
def test_a_palette_with_transparency_is_read_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.new("P", (4, 4), 1).save(path, transparency=bytes([0, 128]))
    assert decode_image(path, size=4).shape == (3, 4, 4)


def test_photographs_are_turned_upright(tmp_path: Path) -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:4] = 255
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    image = decode_image(tmp_path / "a.png", size=8)
    assert image[:, 0].max() == 0 and image[:, 7].min() == 255


def test_a_large_jpeg_shrinks_to_its_colour(tmp_path: Path) -> None:
    path = picture(tmp_path / "a.jpg", (200, 100, 50), (640, 480))
    assert decode_image(path, size=16).float().mean(dim=(1, 2)).tolist() == pytest.approx([200, 100, 50], abs=3)


@pytest.mark.parametrize("keep", [0, 20, 45])
def test_a_damaged_file_is_named_on_one_line(tmp_path: Path, keep: int) -> None:
    pets(tmp_path)
    file = tmp_path / "cats" / "2.png"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"cannot read the image '.*cats/2\.png': .+") as caught:
        folder(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_damaged_file_in_a_stream_is_named_when_read(tmp_path: Path) -> None:
    pets(tmp_path)
    source = folder(tmp_path, in_memory=False).train
    (tmp_path / "dogs" / "0.png").write_bytes(b"not an image")
    with pytest.raises(DataError, match=r"dogs/0\.png"):
        source.fetch(torch.arange(len(source)))


def huge_png(path: Path, side: int) -> Path:
    """A few bytes that claim to be an image of side x side pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    data = zlib.compress(b"\0" * 100)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b""))
    return path


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(("side", "message"), [(10_000, "at most 89478485 pixels, got 10000x10000"), (20_000, "bomb")])
def test_a_decompression_bomb_is_refused_unread(tmp_path: Path, side: int, message: str) -> None:
    with pytest.raises(DataError, match=rf"cannot read the image '.*bomb\.png': .*{message}"):
        decode_image(huge_png(tmp_path / "bomb.png", side), size=8)


def test_floating_point_pixels_are_refused(tmp_path: Path) -> None:
    Image.new("F", (4, 4), 0.5).save(tmp_path / "a.tif")
    with pytest.raises(DataError, match="floating-point pixels have no known range"):
        decode_image(tmp_path / "a.tif", size=4)


def test_a_class_of_two_has_one_to_judge_and_larger_ones_as_before(tmp_path: Path) -> None:
    for name, count in (("few", 2), ("many", 10), ("one", 1)):
        for number in range(count):
            place = tmp_path / name / f"{number:02d}.png"
            place.parent.mkdir(exist_ok=True)
            Image.new("RGB", (4, 4)).save(place)
    data = folder(tmp_path, size=4)
    assert data.test is not None
    assert torch.bincount(data.train.labels).tolist() == [1, 8, 1]
    assert torch.bincount(data.test.labels, minlength=3).tolist() == [1, 2, 0]
    nothing = folder(tmp_path, size=4, test_fraction=0.0)
    assert nothing.test is None and len(nothing.train) == 13


def test_random_parts_of_images_are_a_setting(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(3):
            Image.new("RGB", (9, 9), (10 * number, 0, 0)).save(tmp_path / name / f"{number}.png")
    data = folder(tmp_path, size=8, resized_crop=6, colour_jitter=0.4)
    assert (data.augment.resized_crop, data.augment.crop_padding, data.augment.colour_jitter) == (6, 0, 0.4)
    assert data.augment.size(*data.resolution) == (6, 6)
    with pytest.raises(SettingError, match=r"data.resized_crop must lie in 0..8 \(data.size\), got 9"):
        folder(tmp_path, size=8, resized_crop=9)
