from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from archloom.core.errors import DataError, SettingError
from archloom.data.arrays import from_dataset, from_tensors, npz
from archloom.data.augment import Augment


def images(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def save(root: Path, **arrays: Any) -> Path:
    np.savez(root / "mine.npz", **arrays)
    return root


LABELS = np.array([0, 1, 2] * 5)

# --- tensors and datasets


def test_from_tensors_measures_and_numbers_the_classes() -> None:
    pixels = torch.rand(6, 2, 4, 4)
    data = from_tensors(pixels, torch.tensor([0, 1, 2] * 2), augment=Augment(flip=True))
    assert data.name == "tensors"
    assert data.classes == ("0", "1", "2")
    assert data.mean == pytest.approx(pixels.mean(dim=(0, 2, 3)).tolist(), abs=1e-5)
    assert data.test is None and data.augment.flip


def test_from_tensors_takes_names_and_a_test_part() -> None:
    pixels, labels = torch.rand(4, 1, 2, 2), torch.tensor([0, 1, 0, 1])
    data = from_tensors(pixels, labels, name="coins", test=(pixels[:2], labels[:2]), classes=["heads", "tails"])
    assert (data.name, data.classes) == ("coins", ("heads", "tails"))
    assert data.test is not None and len(data.test) == 2


def test_from_dataset_wraps_both_parts() -> None:
    dataset = torch.utils.data.TensorDataset(torch.rand(4, 1, 2, 2), torch.tensor([0, 1, 0, 1]))
    data = from_dataset(dataset, dataset, name="own")
    assert data.name == "own"
    assert data.test is not None and len(data.test) == len(data.train) == 4
    assert from_dataset(dataset).test is None


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 0, 0], "at least 2 classes"),
        ([0, 2, 2], "no training image of class '1'"),
        ([0, -1, 1], r"labels must count the classes from 0, got -1\.\.1"),
        ([0, 10**12, 1], r"labels must count the classes from 0, got 0\.\.1000000000000"),
    ],
)
def test_labels_no_search_can_use_are_refused(labels: list[int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_tensors(torch.rand(3, 1, 2, 2), torch.tensor(labels))


# --- npz


@pytest.mark.parametrize("shape", [(15, 4, 5), (15, 4, 5, 3), (15, 3, 4, 5)])
def test_npz_reads_every_order_of_axes(tmp_path: Path, shape: tuple[int, ...]) -> None:
    data = npz(save(tmp_path, images=images(*shape), labels=LABELS), test_fraction=0)
    assert data.name == "mine"
    assert data.train.shape == ((1 if len(shape) == 3 else 3), 4, 5)
    assert data.train.labels.tolist() == LABELS.tolist()
    assert data.test is None


def test_npz_holds_out_a_fifth_of_every_class(tmp_path: Path) -> None:
    pixels = images(15, 4, 4)
    data = npz(save(tmp_path, images=pixels, labels=LABELS), crop_padding=2, flip=True)
    assert data.test is not None
    assert data.test.labels.tolist() == [0, 1, 2]
    assert torch.equal(data.test.fetch(torch.arange(3))[:, 0], torch.from_numpy(pixels[12:]))
    assert len(data.train) == 12
    assert data.augment == Augment(crop_padding=2, flip=True)


def test_npz_reads_the_names_and_columns_of_keras(tmp_path: Path) -> None:
    column = LABELS[:, None].astype(np.uint8)
    save(tmp_path, x_train=images(15, 4, 4), y_train=column, x_test=images(15, 4, 4), y_test=column)
    data = npz(tmp_path / "mine.npz")
    assert data.test is not None
    assert len(data.test) == len(data.train) == 15


def test_npz_reads_floats_as_they_are(tmp_path: Path) -> None:
    pixels = np.linspace(0, 1, 15 * 4).reshape(15, 2, 2).astype(np.float64)
    data = npz(save(tmp_path, images=pixels, labels=LABELS), path="mine.npz", test_fraction=0)
    assert data.mean[0] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"pictures": images(3, 2, 2)}, "must hold 'images' and 'labels' or 'x_train' and 'y_train', got pictures"),
        ({"images": images(15, 4), "labels": LABELS}, r"shape \[n, C, H, W\].*got \[15, 4\]"),
        ({"images": images(15, 4, 4).astype(np.int64), "labels": LABELS}, "must be uint8 or float, got int64"),
        ({"images": images(15, 4, 4), "labels": LABELS[:3]}, r"labels must have the shape \[15\].*got \[3\]"),
        ({"images": images(15, 4, 4), "labels": LABELS - 1}, r"labels must count the classes from 0, got -1\.\.1"),
        ({"images": images(15, 4, 4), "labels": LABELS / 2}, "'labels' must hold integers, got float64"),
        ({"images": images(15, 4, 4), "labels": np.eye(15, dtype=int)}, r"one per image, got \[15, 15\]"),
    ],
)
def test_npz_of_other_content_is_refused_by_name(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=rf"mine\.npz': .*{message}"):
        npz(save(tmp_path, **arrays))


def test_npz_refuses_pickled_objects(tmp_path: Path) -> None:
    save(tmp_path, images=np.array([{"a": 1}], dtype=object), labels=LABELS)
    with pytest.raises(DataError, match=r"mine\.npz' is not a readable \.npz file of plain arrays"):
        npz(tmp_path)


@pytest.mark.parametrize("keep", [0, 30, 200])
def test_npz_names_a_truncated_file(tmp_path: Path, keep: int) -> None:
    file = save(tmp_path, images=images(15, 4, 4), labels=LABELS) / "mine.npz"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(DataError, match="is not a readable"):
        npz(tmp_path)


def test_npz_refuses_a_single_array(tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", LABELS)
    with pytest.raises(DataError, match=r"mine\.npy' .* is no zip file; write images and labels with numpy\.savez"):
        npz(tmp_path / "mine.npy")


def test_npz_must_know_which_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'npz' needs a data folder"):
        npz(None)
    with pytest.raises(DataError, match=r"must hold one \.npz file, got 0; name one with data\.path"):
        npz(tmp_path)
    with pytest.raises(DataError, match=r"there is no file '.*absent\.npz'"):
        npz(tmp_path, path="absent.npz")


def test_npz_setting_errors_stay_setting_errors(tmp_path: Path) -> None:
    save(tmp_path, images=images(15, 4, 4), labels=LABELS)
    with pytest.raises(SettingError, match=r"data\.test_fraction must lie in"):
        npz(tmp_path, test_fraction=1.5)


def test_npz_reads_the_names_of_the_classes(tmp_path: Path) -> None:
    for names in (np.array(["ant", "bee", "cat"]), np.array([b"ant", b"bee", b"cat"])):
        data = npz(save(tmp_path, images=images(15, 4, 4), labels=LABELS, classes=names))
        assert data.classes == ("ant", "bee", "cat")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (np.array(["ant", "bee"]), "'classes' must hold a different name for each of 3 classes, got 2 names"),
        (np.array(["ant", "ant", "bee"]), "a different name for each of 3 classes"),
        (np.array([1, 2, 3]), r"'classes' must hold text, as numpy.array\(\['cat', 'dog'\]\) does, got int64"),
    ],
)
def test_names_that_do_not_fit_the_classes_are_refused(tmp_path: Path, names: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        npz(save(tmp_path, images=images(15, 4, 4), labels=LABELS, classes=names))


@pytest.mark.parametrize(("side", "shift"), [(32, 4), (8, 1), (4, 0)])
def test_npz_has_the_augmentation_of_a_folder_scaled_to_its_images(tmp_path: Path, side: int, shift: int) -> None:
    root = save(tmp_path, images=images(15, side, side, 3), labels=LABELS)
    assert npz(root).augment == Augment(crop_padding=shift, flip=True)
    assert npz(root, crop_padding=0, flip=False).augment == Augment()
