"""Data sets in the layout of `datasets.save_to_disk`, written with pyarrow, or by the library if it is there."""

from __future__ import annotations

import importlib.util
import io
import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import archloom
from archloom.core.errors import DataError, SettingError
from archloom.data import load
from archloom.data.hugging_face import huggingface

pyarrow = pytest.importorskip("pyarrow")
FEATURES = {
    "image": {"_type": "Image"},
    "label": {"names": ["cat", "dog"], "_type": "ClassLabel"},
    "note": {"dtype": "string", "_type": "Value"},
}


def picture(shade: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (12, 8), (shade, 0, 0)).save(file, "PNG")
    return file.getvalue()


def write(root: Path, labels: Sequence[int | None], *, shards: int = 1, features: Any = FEATURES) -> Path:
    """Write one split: pictures whose red is ten times their row."""
    root.mkdir(parents=True, exist_ok=True)
    names = [f"data-{shard:05}-of-{shards:05}.arrow" for shard in range(shards)]
    rows = list(enumerate(labels))
    size = -(-len(rows) // shards)
    for shard, name in enumerate(names):
        part = rows[shard * size : (shard + 1) * size]
        table = pyarrow.table(
            {
                "image": [{"bytes": picture(10 * row), "path": None} for row, _ in part],
                "label": pyarrow.array([label for _, label in part], pyarrow.int64()),
                "note": ["" for _ in part],
            }
        )
        with pyarrow.OSFile(str(root / name), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    (root / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (root / "dataset_info.json").write_text(json.dumps({"features": features}))
    return root


def test_one_split_gives_images_classes_and_a_held_out_part(tmp_path: Path) -> None:
    data = huggingface(None, path=str(write(tmp_path / "pets", [0, 1] * 5, shards=3)), size=4)
    assert (data.name, data.classes, data.train.shape) == ("pets", ("cat", "dog"), (3, 4, 4))
    assert data.train.labels.tolist() == [0, 1] * 4  # the last of every class is held out
    assert data.test is not None and data.test.labels.tolist() == [0, 1]
    assert data.train.fetch(torch.tensor([3]))[0, 0].unique().tolist() == [30]
    assert data.test.fetch(torch.tensor([1]))[0, 0].unique().tolist() == [90]
    assert (data.augment.crop_padding, data.augment.flip) == (4, True)


def test_a_test_split_is_used_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / "train", [0, 1, 0])
    write(tmp_path / "validation", [1, 1])
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "validation"]}))
    data = load("huggingface", directory=tmp_path.parent, path=tmp_path.name, size=4)
    assert data.train.labels.tolist() == [0, 1, 0]
    assert data.test is not None and data.test.labels.tolist() == [1, 1]


def test_what_does_not_fit_into_memory_is_decoded_on_demand_and_can_be_pickled(tmp_path: Path) -> None:
    root = str(write(tmp_path / "pets", [0, 1] * 5))
    lazy, kept = huggingface(None, path=root, size=4, memory_limit_mb=0), huggingface(None, path=root, size=4)
    index = torch.tensor([7, 0, 2])
    expected = kept.train.fetch(index)
    assert torch.equal(lazy.train.fetch(index), expected)
    assert torch.equal(pickle.loads(pickle.dumps(lazy.train)).fetch(index), expected)  # noqa: S301 - our own object


def test_columns_can_be_named(tmp_path: Path) -> None:
    root = write(tmp_path / "pets", [0, 1] * 5, features={"image": {"_type": "Image"}, "label": {"dtype": "int64"}})
    with pytest.raises(DataError, match=r"one column of type ClassLabel, got 0; name one with data\.label_column"):
        huggingface(None, path=str(root))
    assert huggingface(None, path=str(root), label_column="label").classes == ("0", "1")
    with pytest.raises(SettingError, match=r"data\.label_column: .* has no column 'lable'; did you mean 'label'"):
        huggingface(None, path=str(root), label_column="lable")


def test_damage_is_one_line(tmp_path: Path) -> None:
    root = write(tmp_path / "pets", [0, 1] * 5)
    (root / "data-00000-of-00001.arrow").write_bytes(b"nothing")
    with pytest.raises(DataError, match="is not a readable Arrow file"):
        huggingface(None, path=str(root))
    (root / "state.json").write_text(json.dumps({"_data_files": [{"filename": "../other.arrow"}]}))
    with pytest.raises(DataError, match="names a file outside of its folder"):
        huggingface(None, path=str(root))
    with pytest.raises(DataError, match="1 rows without a label"):
        huggingface(None, path=str(write(tmp_path / "gaps", [0, None, 1])))


def test_a_missing_library_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(tmp_path / "pets", [0, 1] * 5)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SettingError, match=r"needs pyarrow: pip install 'archloom\[huggingface\]'"):
        huggingface(None, path=str(root))


# --- folders that the library itself wrote


@pytest.fixture
def datasets() -> Any:
    return pytest.importorskip("datasets", reason="needs the library datasets, which archloom itself does not")


def save(datasets: Any, path: Path, count: int, *, grey: bool = False, **options: Any) -> Path:
    """Write `count` pictures of two classes by `save_to_disk`."""
    shape = (12, 8) if grey else (12, 8, 3)
    columns = {
        "image": [np.full(shape, 10 * (row % 20), dtype=np.uint8) for row in range(count)],
        "label": [row % 2 for row in range(count)],
    }
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    datasets.Dataset.from_dict(columns, features=datasets.Features(features)).save_to_disk(str(path), **options)
    return path


@pytest.mark.parametrize("grey", [False, True])
def test_a_folder_of_the_library_is_read(datasets: Any, tmp_path: Path, grey: bool) -> None:
    data = huggingface(None, path=str(save(datasets, tmp_path / "pets", 20, grey=grey, num_shards=3)), size=4)
    assert (data.classes, data.train.shape) == (("cat", "dog"), (3, 4, 4))
    assert data.train.labels.tolist() == [0, 1] * 8
    assert data.train.fetch(torch.tensor([3]))[0, 0].unique().tolist() == [30]


def test_splits_and_selected_rows_of_the_library_are_read(datasets: Any, tmp_path: Path) -> None:
    whole = datasets.load_from_disk(str(save(datasets, tmp_path / "whole", 20)))
    parts = datasets.DatasetDict(train=whole.select(range(0, 20, 3)), test=whole.select([1, 2]))
    parts.save_to_disk(str(tmp_path / "parts"))
    data = huggingface(None, path=str(tmp_path / "parts"), size=4)
    assert data.train.labels.tolist() == [row % 2 for row in range(0, 20, 3)]
    assert data.test is not None and data.test.labels.tolist() == [1, 0]


def test_a_folder_of_the_library_is_searched_by_its_path(datasets: Any, tmp_path: Path) -> None:
    settings = {"search": {"batch_size": 8, "random_baseline_samples": 2}, "race": {"steps": 0}}
    result = archloom.search(
        "nb201_mini",
        "rsps",
        str(save(datasets, tmp_path / "pets", 60)),
        epochs=1,
        out=tmp_path / "run",
        settings=settings,
    )
    assert result.data == "pets" and len(result.history) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("dataset_info.json", {"features": {**FEATURES, "label": {"names": 5, "_type": "ClassLabel"}}}, "a list"),
        ("dataset_info.json", {"features": {**FEATURES, "label": {"names": [], "_type": "ClassLabel"}}}, None),
        (
            "dataset_info.json",
            {"features": {"photo": FEATURES["image"], "label": FEATURES["label"]}},
            "one column 'pho",
        ),
        ("dataset_info.json", {"features": {**FEATURES, "label": {"names": ["a"], "_type": "ClassLabel"}}}, "0..0"),
        ("state.json", {"_data_files": []}, "must list the files"),
        ("state.json", {"_data_files": [{"filename": "a\0b"}]}, "outside of its folder"),
    ],
)
def test_a_folder_with_strange_files_is_refused_in_one_line(
    tmp_path: Path, name: str, content: Any, message: str | None
) -> None:
    root = write(tmp_path / "pets", [0, 1] * 5)
    (root / name).write_text(json.dumps(content))
    if message is None:
        assert huggingface(None, path=str(root), size=4).classes == ("0", "1")
        return
    with pytest.raises(DataError, match=message) as raised:
        huggingface(None, path=str(root), size=4)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("column", "labels"), [("note", [0, 1]), ("label", [0, -1]), ("label", [0, 10**12])])
def test_labels_that_are_no_classes_are_refused(tmp_path: Path, column: str, labels: list[int]) -> None:
    unnamed = {**FEATURES, "label": {"_type": "ClassLabel"}}
    root = write(tmp_path / "pets", labels * 5, features=unnamed)
    with pytest.raises(DataError, match=r"must hold numbers of classes|must lie in"):
        huggingface(None, path=str(root), size=4, label_column=column)


def test_splits_that_are_no_list_are_refused(tmp_path: Path) -> None:
    (tmp_path / "dataset_dict.json").write_text('{"splits": 5}')
    with pytest.raises(DataError, match="must list the splits, got 5"):
        huggingface(None, path=str(tmp_path))
