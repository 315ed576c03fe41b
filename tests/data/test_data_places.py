from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from archloom.core.errors import SettingError
from archloom.data.places import absolute_path, is_data_path, locate_data, recognize, suggest_path


def test_a_folder_of_pictures_is_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pictures" / "cat").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert recognize("pictures/") == {"name": "folder", "path": str(tmp_path / "pictures")}


def test_an_npz_file_is_data(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", images=np.zeros(1))
    assert recognize(tmp_path / "mine.npz") == {"name": "npz", "path": str(tmp_path / "mine.npz")}


@pytest.mark.parametrize("file", ["state.json", "dataset_dict.json"])
def test_a_hugging_face_data_set_on_disk_is_data(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_text("{}")
    assert recognize(tmp_path) == {"name": "huggingface", "path": str(tmp_path)}


@pytest.mark.parametrize(("folder", "name"), [("cifar-10-batches-py", "cifar10"), ("cifar-100-python", "cifar100")])
def test_published_folders_are_their_data_sets(tmp_path: Path, folder: str, name: str) -> None:
    (tmp_path / folder).mkdir()
    assert recognize(tmp_path / folder) == {"name": name, "directory": str(tmp_path)}


@pytest.mark.parametrize(
    ("file", "command"), [("config.toml", "resume"), ("pipeline.toml", "run"), ("comparison.toml", "compare")]
)
def test_a_run_is_no_data_and_the_line_says_how_to_continue_it(tmp_path: Path, file: str, command: str) -> None:
    (tmp_path / file).write_text("")
    with pytest.raises(SettingError, match=f"is a run, not data; continue it with: archloom {command} "):
        recognize(tmp_path)


def test_what_is_missing_or_no_data_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="there are no data at 'nowhere/'; data are a name"):
        recognize("nowhere/")
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(SettingError, match=r"must be a folder of pictures or an .npz file"):
        recognize(tmp_path / "notes.txt")
    (tmp_path / "mine.toml").write_text("")
    with pytest.raises(SettingError, match="is a recipe, not data"):
        recognize(tmp_path / "mine.toml")


def test_the_nearest_folder_or_file_is_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "mydata.npz").touch()
    (tmp_path / "mydata.txt").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingError, match=r"there are no data at 'picturs/'; did you mean 'pictures'\?$"):
        recognize("picturs/")
    assert suggest_path("mydat.npz") == "; did you mean 'mydata.npz'?"
    assert suggest_path(f"{tmp_path}/picture") == f"; did you mean '{tmp_path}/pictures'?"
    assert suggest_path("zebra") == suggest_path("nowhere/picture") == ""


def test_only_a_name_that_is_a_path_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cifar10").mkdir()  # called like a data set: the data set is meant
    (tmp_path / "mine").mkdir()
    for name in ("cifar10", "given", "own.module:images", "no_such_name"):
        assert locate_data({"name": name, "size": 8}) == {"name": name, "size": 8}
    assert locate_data({"name": "mine", "size": 8}) == {"name": "folder", "path": str(tmp_path / "mine"), "size": 8}
    assert is_data_path("a/b") and is_data_path("b.npz") and not is_data_path("b")


def test_relative_paths_start_at_the_user_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, data = tmp_path / "here", tmp_path / "data"
    for place in (here / "both", data / "both", data / "only"):
        place.mkdir(parents=True)
    monkeypatch.chdir(here)
    assert absolute_path("both", data) == str(here / "both")
    assert absolute_path("only", data) == str(data / "only")
    assert absolute_path("neither", data) == "neither"
    assert absolute_path("", data) == ""


def test_a_folder_of_texts_is_data(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("one two")
    assert recognize(tmp_path) == {"name": "text", "path": str(tmp_path)}
