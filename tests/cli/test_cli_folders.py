"""The folder of any search, retraining, comparison or pipeline is an argument of the commands that use runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

Archloom = Callable[..., Any]
STORED = Path(__file__).parents[1] / "data_files" / "first_edition"
WITH_A_MODEL, WITHOUT = ("retrain", "pipeline"), ("search_gdas", "comparison")


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    place = tmp_path / request.param
    shutil.copytree(STORED / request.param, place)
    return place


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    file = tmp_path / "picture.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (8, 8), dtype=np.uint8)).save(file)
    return file


@pytest.mark.parametrize("folder", WITH_A_MODEL, indirect=True)
def test_a_folder_predicts_with_the_best_model_in_it(archloom: Archloom, folder: Path, picture: Path) -> None:
    done = archloom("predict", folder, picture, "--json")
    assert done.code == 0
    assert Path(json.loads(done.out)[0]["file"]).name == "picture.png"
    assert ("the only model in" in done.err) == (folder.name == "pipeline")  # a retraining has no choice to tell


@pytest.mark.parametrize("command", [("predict", "picture.png"), ("export",)], ids=["predict", "export"])
@pytest.mark.parametrize("folder", WITHOUT, indirect=True)
def test_a_folder_without_a_model_names_the_command_that_makes_one(
    archloom: Archloom, folder: Path, command: tuple[str, ...]
) -> None:
    done = archloom(command[0], folder, *command[1:])
    assert done.code == 2
    assert len(done.lines) == 1
    assert "holds no trained model" in done.err and "archloom retrain" in done.err


@pytest.mark.parametrize("command", ["report", "resume"])
@pytest.mark.parametrize("folder", (*WITH_A_MODEL, *WITHOUT), indirect=True)
def test_every_folder_is_reported_and_shown_again(archloom: Archloom, folder: Path, command: str) -> None:
    assert archloom(command, folder).code == 0
    assert list(folder.glob("*.html"))
