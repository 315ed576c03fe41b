"""What Python code may pass as data, and the reason where it may not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from archloom.core.errors import DataError, SettingError
from archloom.data.source import ImageData
from archloom.data.user_data import as_data_set

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 8, 6, 3), dtype=np.uint8)
LABELS = np.arange(12) % 3
DATASET = TensorDataset(torch.rand(12, 3, 8, 6), torch.arange(12) % 3)


def convert(data: Any) -> ImageData:
    found = as_data_set(data)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "data",
    [
        (PIXELS, LABELS),
        [PIXELS, LABELS],
        (list(PIXELS), LABELS.tolist()),
        (PIXELS, LABELS[:, None]),
        (np.moveaxis(PIXELS, -1, 1), LABELS),
        (torch.from_numpy(PIXELS), torch.from_numpy(LABELS)),  # channels last, as is plain to see
        (torch.from_numpy(PIXELS).permute(0, 3, 1, 2), torch.from_numpy(LABELS)),
        ((PIXELS, LABELS), (PIXELS[:4], LABELS[:4])),
        {"images": PIXELS, "labels": LABELS},
        {"x_train": PIXELS, "y_train": LABELS, "x_test": PIXELS[:4], "y_test": LABELS[:4]},
        DATASET,
        DataLoader(DATASET, batch_size=4),
        [(image, int(label)) for image, label in zip(PIXELS, LABELS, strict=True)],
    ],
    ids=range(13),
)
def test_usual_forms_are_accepted(data: Any) -> None:
    found = convert(data)
    assert found.train.shape == (3, 8, 6)
    assert found.train.labels.tolist() == LABELS.tolist()


def test_pixels_arrive_unchanged_whatever_the_order_of_axes() -> None:
    first = torch.from_numpy(PIXELS[0]).permute(2, 0, 1)
    for images in (PIXELS, torch.from_numpy(PIXELS), list(PIXELS)):
        assert torch.equal(convert((images, LABELS)).train.fetch(torch.tensor([0]))[0], first)


def test_grey_images_get_a_channel() -> None:
    assert convert((PIXELS[..., 0], LABELS)).train.shape == (1, 8, 6)
    assert convert((torch.from_numpy(PIXELS[..., 0]), torch.from_numpy(LABELS))).train.shape == (1, 8, 6)


def test_test_images_are_kept_apart() -> None:
    found = convert(((PIXELS, LABELS), (PIXELS[:4], LABELS[:4])))
    assert found.test is not None and found.test.labels.tolist() == [0, 1, 2, 0]


def test_labels_may_be_names() -> None:
    names = np.array(["cat", "ant", "bee"])[LABELS]
    found = convert(((PIXELS, names), (PIXELS[:2], names[:2])))
    assert found.classes == ("ant", "bee", "cat")
    assert found.train.labels.tolist()[:3] == [2, 0, 1]
    assert found.test is not None and found.test.labels.tolist() == [2, 0]
    with pytest.raises(DataError, match="test labels must be classes of the training images, got 'dog'"):
        convert(((PIXELS, names), (PIXELS[:1], ["dog"])))


def test_names_and_paths_are_loaded_later(tmp_path: Path) -> None:
    assert as_data_set("digits") is as_data_set(tmp_path) is as_data_set(None) is None


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Rows:
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return {"image": None, "label": 0}


class Broken(Rows):
    def __getitem__(self, index: int) -> Any:
        raise RuntimeError("no such file")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (Endless(), "got an IterableDataset, which only goes from front to back; pass a map-style Dataset"),
        (DataLoader(Endless()), "got an IterableDataset"),
        (PIXELS, r"data must have labels, too: pass a pair \(images, labels\), got one ndarray"),
        ([PIXELS, LABELS, LABELS], r"data must be a pair \(images, labels\), got 3 entries, the first one an array"),
        (Rows(), "item 0 is a mapping of image, label; save a Hugging Face data set with save_to_disk"),
        (Broken(), "item 0 of the data cannot be read: RuntimeError: no such file"),
        ({"pictures": PIXELS}, "a mapping of data must hold 'images' and 'labels' or 'x_train' and 'y_train', got pic"),
        (([PIXELS[0], PIXELS[1, :4]], [0, 1]), r"images must have one shape, got \[8, 6, 3\] and \[4, 6, 3\]"),
        ((PIXELS, LABELS / 2), "labels must be integers, got float64"),
    ],
)
def test_the_reason_of_a_refusal_is_true(data: Any, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        as_data_set(data)


def test_what_is_no_data_at_all_is_a_wrong_setting() -> None:
    with pytest.raises(SettingError, match=r"data must be a name, a path, an ImageData, .*, a pair .*, got int"):
        as_data_set(3)
