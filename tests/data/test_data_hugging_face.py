"""Data sets in the layout of `datasets.save_to_disk`, written here with pyarrow; the library itself is not needed."""

from __future__ import annotations

import importlib.util
import io
import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

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
