from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from archloom.core.errors import DataError
from archloom.data.source import FromTorchDataset, ImageData, InMemory, measure_statistics, to_channels_first


class Pairs:
    """A torch-style Dataset of a list."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.reads = 0

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        self.reads += 1
        return self.items[index]


def byte_images(count: int = 6, channels: int = 3) -> Tensor:
    return torch.randint(0, 256, (count, channels, 4, 5), generator=torch.Generator().manual_seed(0)).to(torch.uint8)


def sample_data(**changes: Any) -> ImageData:
    source = InMemory(byte_images(), torch.tensor([0, 1, 2, 0, 1, 2]))
    data = ImageData(name="sample", train=source, classes=("a", "b", "c"), mean=(0.5,) * 3, std=(0.2,) * 3)
    return replace(data, **changes)


# --- InMemory


def test_in_memory_fetches_by_index() -> None:
    images = byte_images()
    source = InMemory(images, torch.arange(6, dtype=torch.int32))
    assert len(source) == 6
    assert source.shape == (3, 4, 5)
    assert source.labels.dtype == torch.int64
    fetched, pixels = source.fetch(torch.tensor([4, 0, 4])), source.pixels(torch.tensor([4, 0, 4]))
    assert torch.equal(fetched, images[[4, 0, 4]]) and fetched.is_contiguous()
    assert torch.equal(pixels, images[[4, 0, 4]].permute(0, 2, 3, 1)) and pixels.is_contiguous()


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (torch.zeros(2, 3, 4), torch.zeros(2).long(), r"shape \[n, C, H, W\], none of it 0, got \[2, 3, 4\]"),
        (torch.zeros(0, 3, 4, 4), torch.zeros(0).long(), r"none of it 0, got \[0, 3, 4, 4\]"),
        (torch.zeros(2, 3, 4, 4).long(), torch.zeros(2).long(), "must be uint8 or float, got int64"),
        (torch.full((2, 1, 2, 2), torch.nan), torch.zeros(2).long(), "finite numbers"),
        (torch.zeros(2, 1, 2, 2), torch.zeros(3).long(), r"labels must have the shape \[2\].*got \[3\]"),
        (torch.zeros(2, 1, 2, 2), torch.zeros(2), "labels must be integers, got float32"),
        (torch.zeros(2, 1, 2, 2), torch.zeros(2).bool(), "labels must be integers, got bool"),
    ],
)
def test_in_memory_refuses_what_is_not_images_and_labels(images: Tensor, labels: Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        InMemory(images, labels)


# --- FromTorchDataset


def test_a_dataset_can_go_to_another_process_and_be_read_there_by_several_threads() -> None:
    images = torch.randint(0, 256, (4, 3, 2, 2), dtype=torch.uint8)
    source = FromTorchDataset(torch.utils.data.TensorDataset(images, torch.tensor([0, 1, 0, 1])))
    there = pickle.loads(pickle.dumps(source))  # noqa: S301 - our own
    assert torch.equal(there.fetch(torch.tensor([2, 0])), images[[2, 0]])
    assert torch.equal(there.labels, source.labels)
    assert there._lock is not source._lock


def test_a_real_torch_dataset_is_read_by_index() -> None:
    images = torch.rand(5, 3, 4, 4)
    source = FromTorchDataset(torch.utils.data.TensorDataset(images, torch.tensor([0, 1, 0, 1, 0])))
    assert source.shape == (3, 4, 4)
    assert source.labels.tolist() == [0, 1, 0, 1, 0]
    assert torch.equal(source.fetch(torch.tensor([3, 1])), images[[3, 1]])
    pixels = source.pixels(torch.tensor([3, 1]))
    assert torch.equal(pixels, images[[3, 1]].permute(0, 2, 3, 1)) and pixels.is_contiguous()


def test_given_labels_spare_the_pass_through_the_dataset() -> None:
    dataset = Pairs([(torch.zeros(1, 2, 2), 7)] * 50)
    source = FromTorchDataset(dataset, labels=[0, 1] * 25)
    assert source.labels.tolist() == [0, 1] * 25
    assert dataset.reads == 1


COLOURS = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (torch.ones(2, 4), torch.ones(1, 2, 4)),
        (np.ones((2, 4), np.float32), torch.ones(1, 2, 4)),
        (COLOURS, torch.from_numpy(COLOURS).permute(2, 0, 1)),
        (Image.fromarray(COLOURS), torch.from_numpy(COLOURS).permute(2, 0, 1)),
        (Image.new("L", (4, 2), 9), torch.full((1, 2, 4), 9, dtype=torch.uint8)),
        (Image.new("RGBA", (4, 2), (1, 1, 1, 1)), torch.ones(4, 2, 4, dtype=torch.uint8)),
        (Image.new("1", (4, 2), 1), torch.full((3, 2, 4), 255, dtype=torch.uint8)),
        (Image.new("F", (4, 2), 0.25), torch.full((1, 2, 4), 0.25)),
    ],
)
def test_every_kind_of_image_becomes_channels_first(image: Any, expected: Tensor) -> None:
    fetched = FromTorchDataset(Pairs([(image, 0)])).fetch(torch.tensor([0]))
    assert torch.equal(fetched[0], expected)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "the torch Dataset is empty"),
        ([torch.zeros(3, 2, 2)], r"pairs \(image, label\), item 0 is Tensor"),
        ([("cat.png", 0)], "image 0 of the Dataset must be a tensor, a numpy array or a PIL image, got str"),
        ([(torch.zeros(2), 0)], r"image 0 of the Dataset must have the shape \[C, H, W\] or \[H, W\].* got \[2\]"),
        ([(np.zeros((1, 1, 2, 2), np.uint8), 0)], r"must have the shape .* got \[1, 1, 2, 2\]"),
        ([(torch.zeros(1, 2, 2), torch.tensor(0.7))], "label 0 of the Dataset must be an integer"),
        ([(torch.zeros(1, 2, 2).int(), 0)], "image 0 of the Dataset must be uint8 or float, got int32"),
        ([(Image.new("I;16", (2, 2)), 0)], "image 0 of the Dataset must be uint8 or float, got uint16"),
        ([(torch.zeros(1, 2, 2), 0), (torch.zeros(1, 2, 2), "cat")], "label 1 of the Dataset must be an integer"),
    ],
)
def test_a_dataset_of_something_else_is_refused(items: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        FromTorchDataset(Pairs(items))


def test_images_of_different_shapes_are_named() -> None:
    source = FromTorchDataset(Pairs([(torch.zeros(1, 2, 2), 0), (torch.zeros(1, 2, 3), 1)]))
    with pytest.raises(DataError, match=r"image 0 has \[1, 2, 2\], image 1 has \[1, 2, 3\]"):
        source.fetch(torch.tensor([0, 1]))


# --- ImageData


def test_shape_of_a_data_set() -> None:
    data = sample_data()
    assert data.channels == 3
    assert data.resolution == (4, 5)
    assert data.check() is data


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": ("a",)}, r"'sample' must have at least 2 classes, got \['a'\]"),
        ({"classes": ("a", "b")}, r"training labels of data set 'sample' must lie in 0\.\.1, got 2"),
        ({"classes": ("a", "b", "c", "d")}, "no training image of class 'd'"),
        ({"mean": (0.5,)}, r"must have a mean for 3 channels, got \(0\.5,\)"),
        ({"mean": (0.5, 0.5, float("nan"))}, "must have a mean for 3 channels"),
        ({"std": (0.5, 0.5, 0.0)}, "std above 0"),
        ({"test": InMemory(byte_images(1), torch.tensor([-1]))}, r"test labels .* must lie in 0\.\.2, got -1"),
        ({"test": InMemory(byte_images(1, channels=1), torch.tensor([0]))}, r"\[3, 4, 5\], got \[1, 4, 5\]"),
    ],
)
def test_check_names_what_no_search_can_use(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        sample_data(**changes).check()


def test_check_refuses_an_empty_test_part() -> None:
    empty = InMemory(byte_images(1), torch.tensor([0]))
    empty.labels = torch.zeros(0, dtype=torch.int64)
    with pytest.raises(DataError, match="'sample' has no test images"):
        sample_data(test=empty).check()


# --- measuring


def test_measured_agrees_with_torch_on_bytes_and_floats() -> None:
    images = byte_images(250)
    floats = images.double() / 255
    for stored in (images, floats):
        mean, std = measure_statistics(InMemory(stored, torch.zeros(250, dtype=torch.int64)))
        assert mean == pytest.approx(floats.mean(dim=(0, 2, 3)).tolist(), abs=1e-6)
        assert std == pytest.approx(floats.std(dim=(0, 2, 3), correction=0).tolist(), abs=1e-6)


def test_measured_samples_a_large_source_evenly() -> None:
    """Images sorted by brightness: the first thousand alone would give half the mean."""
    images = torch.linspace(0, 1, 2000).view(2000, 1, 1, 1)
    mean, _ = measure_statistics(InMemory(images, torch.zeros(2000, dtype=torch.int64)))
    assert mean[0] == pytest.approx(0.5, abs=1e-3)


def test_a_constant_channel_gets_a_std_of_1() -> None:
    assert measure_statistics(InMemory(torch.full((3, 1, 2, 2), 0.3), torch.zeros(3).long()))[1] == (1.0,)


@pytest.mark.parametrize("shape", [(2, 4, 5, 3), (2, 3, 4, 5), (2, 4, 5)])
def test_channels_first_finds_the_channels(shape: tuple[int, ...]) -> None:
    channels = 3 if len(shape) == 4 else 1
    assert to_channels_first(np.zeros(shape, np.uint8)).shape == (2, channels, 4, 5)


def test_channels_first_reads_the_other_byte_order() -> None:
    values = np.arange(8, dtype=">f4").reshape(2, 2, 2)
    assert to_channels_first(values).flatten().tolist() == list(range(8))


def test_channels_first_refuses_text() -> None:
    with pytest.raises(DataError, match="images must be uint8 or float, got <U1"):
        to_channels_first(np.full((2, 2, 2), "x"))
