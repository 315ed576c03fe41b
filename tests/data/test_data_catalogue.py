"""Data sets by name, and the one that needs no files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from archloom.core.errors import DataError, SettingError
from archloom.core.trust import trust_texts
from archloom.data import DATA, FACTS, load
from archloom.data.augment import Augment


@pytest.mark.parametrize("name", DATA)
def test_every_name_loads_a_function_and_describes_itself(name: str) -> None:
    assert callable(DATA[name].load())
    assert DATA[name].describe()


def test_listing_data_sets_does_not_import_torch() -> None:
    code = "import sys; from archloom.data import DATA; list(DATA); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_is_said_of_published_images_is_so(cifar10_dir: Path) -> None:
    assert set(FACTS) <= set(DATA)
    for name in ("digits", "strokes", "cifar10"):
        data = load(name, directory=cifar10_dir)
        assert (len(data.classes), data.train.shape) == (FACTS[name].classes, FACTS[name].image_shape)


def test_digits_come_without_a_folder() -> None:
    data = load("digits", directory=None)
    assert data.test is not None
    assert data.train.shape == data.test.shape == (1, 8, 8)
    assert len(data.train) + len(data.test) == 1797
    assert data.classes == tuple("0123456789")
    assert data.augment == Augment(crop_padding=1)
    images = data.train.fetch(torch.arange(len(data.train)))
    assert images.min() == 0 and images.max() == 1
    share = torch.bincount(data.test.labels) / (torch.bincount(data.test.labels) + torch.bincount(data.train.labels))
    assert share.tolist() == pytest.approx([0.2] * 10, abs=0.01)


def test_digits_are_always_held_out_alike() -> None:
    first, second = load("digits", directory=None), load("digits", directory=Path("elsewhere"))
    assert torch.equal(first.train.labels, second.train.labels)
    assert first.mean == second.mean


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(SettingError, match="unknown data set 'cifar'; did you mean 'cifar10'"):
        load("cifar", directory=None)


def test_all_unknown_settings_are_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError) as caught:
        load("folder", directory=tmp_path, sizes=3, flipp=True)
    assert caught.value.problems == (
        "unknown setting 'data.sizes'; did you mean 'size'?",
        "unknown setting 'data.flipp'; did you mean 'flip'?",
    )


def test_the_environment_says_where_the_data_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((4, 2, 2), np.uint8), labels=np.array([0, 1, 0, 1]))
    monkeypatch.setenv("ARCHLOOM_DATA", str(tmp_path))
    assert load("npz", directory=None).name == "a"
    with pytest.raises(DataError, match="there is no file"):  # a directory that is given comes first
        load("npz", directory=tmp_path / "absent")
    monkeypatch.delenv("ARCHLOOM_DATA")
    with pytest.raises(DataError, match="needs a data folder"):
        load("npz", directory=None)


PLUGIN = """
import torch
from archloom.data.arrays import from_tensors
from archloom.data.source import ImageData

def noise(directory, *, count: int = 4) -> ImageData:
    return from_tensors(torch.rand(count, 1, 2, 2), torch.arange(count) % 2)

def nothing(directory) -> ImageData:
    return None

def unreadable(directory) -> ImageData:
    open("/no/such/file")
"""


def test_a_plug_in_is_a_function_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "noise_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    trust_texts(["noise_plugin:noise", "noise_plugin:nothing", "noise_plugin:unreadable"])
    assert len(load("noise_plugin:noise", directory=None, count=6).train) == 6
    with pytest.raises(DataError, match="'noise_plugin:nothing' must return an ImageData or a TextData, got NoneType"):
        load("noise_plugin:nothing", directory=None)
    with pytest.raises(DataError, match=r"data set 'noise_plugin:unreadable' cannot be read: .*No such file"):
        load("noise_plugin:unreadable", directory=None)
