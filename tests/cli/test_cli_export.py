"""`archloom export`: what it writes and says, and clear lines for what is no model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archloom.retrainings.model_file import ModelCard, save_model

Archloom = Callable[..., Any]


@pytest.fixture
def trained_run(tmp_path: Path) -> Path:
    card = ModelCard(
        space={"name": "nb201", "nodes": 2, "cells_per_stage": 1},
        architecture={"0->1": "nor_conv_3x3"},
        network={"channels": 2},
        classes=("cat", "dog"),
        image_shape=(3, 8, 8),
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
    )
    save_model(tmp_path / "trained" / "best.safetensors", card, card.build().state_dict())
    return tmp_path / "trained"


def test_a_run_is_exported_beside_its_model(archloom: Archloom, trained_run: Path) -> None:
    finished = archloom("export", trained_run, "--format", "standalone")
    assert finished.code == 0
    folder = trained_run / "export"
    assert sorted(path.name for path in folder.iterdir()) == ["model.py", "model.safetensors"]
    assert f"standalone: {folder / 'model.safetensors'}, {folder / 'model.py'}" in finished.out
    assert "(largest difference from torch: 0.0e+00)" in finished.out


def test_a_folder_may_be_chosen(archloom: Archloom, trained_run: Path, tmp_path: Path) -> None:
    model = trained_run / "best.safetensors"
    assert archloom("export", model, "--format", "standalone", "--out", tmp_path / "there").code == 0
    assert (tmp_path / "there" / "model.py").is_file()


def test_what_is_no_model_gets_one_line(archloom: Archloom, trained_run: Path, tmp_path: Path) -> None:
    for arguments, told in (
        (("nowhere",), "there is no model nowhere"),
        ((tmp_path,), "holds no trained model"),
        ((trained_run, "--format", "onx"), "unknown format 'onx'; did you mean 'onnx'?"),
    ):
        finished = archloom("export", *arguments)
        assert finished.code == 2
        assert len(finished.lines) == 1 and told in finished.err


def test_a_place_that_cannot_be_written_gets_one_line(archloom: Archloom, trained_run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    finished = archloom("export", trained_run, "--format", "standalone", "--out", tmp_path / "file" / "below")
    assert finished.code == 2
    assert finished.lines[-1].startswith("error: cannot write")
