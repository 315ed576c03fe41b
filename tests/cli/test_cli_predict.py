"""`archloom predict`: labels in a table or as JSON, and a line for each picture that cannot be read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from archloom.retrainings.model_file import ModelCard, save_model

Archloom = Callable[..., Any]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model that finds everything fishy, the more so the brighter."""
    card = ModelCard(
        space={"name": "nb201", "nodes": 2, "cells_per_stage": 1},
        architecture={"0->1": "none"},
        network={"channels": 2},
        classes=("cat", "dog [brown]", "fish"),
        image_shape=(3, 8, 8),
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
    )
    network = card.build()
    head: Any = network.get_submodule("head.4")
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.tensor([0.0, 1.0, 3.0]))
    save_model(tmp_path / "m.safetensors", card, network.state_dict())
    return tmp_path / "m.safetensors"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    Image.new("RGB", (9, 9)).save(folder / "a.png")
    Image.new("RGBA", (9, 9)).save(folder / "b.png")
    return folder


def test_every_picture_gets_a_row(archloom: Archloom, model: Path, pictures: Path, tmp_path: Path) -> None:
    finished = archloom("predict", model, "pictures")
    assert finished.code == 0 and finished.err == "runtime: torch\n"
    heading, first, second = finished.out.splitlines()
    assert heading.split() == ["file", "label", "probability", "runners-up"]
    assert first.split() == ["pictures/a.png", "fish", "84.4", "%", "dog", "[brown]", "11.4", "%,", "cat", "4.2", "%"]
    assert second.startswith("pictures/b.png")


def test_fewer_labels_may_be_told(archloom: Archloom, model: Path, pictures: Path) -> None:
    finished = archloom("predict", model, pictures / "a.png", "--top", "1", "--json")
    (found,) = json.loads(finished.out)
    assert found["file"] == str(pictures / "a.png")
    ((label, probability),) = [entry.values() for entry in found["predictions"]]
    assert label == "fish" and probability == pytest.approx(0.8438, abs=1e-3)
    finished = archloom("predict", model, pictures, "--top", "0")
    assert finished.code == 2 and finished.lines == ["error: --top must be at least 1, got 0"]


def test_the_others_are_labelled_when_one_cannot_be_read(archloom: Archloom, model: Path, pictures: Path) -> None:
    (pictures / "text.png").write_text("hello")
    finished = archloom("predict", model, "pictures", "nowhere.png")
    assert finished.code == 2
    assert len(finished.out.splitlines()) == 3
    assert [line.partition(":")[0] for line in finished.lines] == ["runtime", "error", "error"]
    assert "text.png" in finished.lines[1] and "there is no image 'nowhere.png'" in finished.lines[2]
    found = json.loads(archloom("predict", model, "pictures", "--json").out)
    assert ["error" in entry for entry in found] == [False, False, True]


def test_what_is_no_model_gets_one_line(archloom: Archloom, pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_text("hello")
    (tmp_path / "m.safetensors").write_text("hello")
    for given in ("m.onnx", "m.safetensors", "nowhere", "pictures"):
        finished = archloom("predict", given, "pictures")
        assert finished.code == 2 and finished.out == ""
        assert len(finished.lines) == 1 and given in finished.err


def test_the_runtime_can_be_chosen(archloom: Archloom, model: Path, pictures: Path) -> None:
    finished = archloom("predict", model, pictures, "--runtime", "torch")
    assert finished.code == 0 and finished.lines == ["runtime: torch"]
    finished = archloom("predict", model, pictures, "--runtime", "tensorflow")
    assert finished.code == 2 and finished.out == ""
    pytest.importorskip("onnxruntime")
    finished = archloom("predict", model, pictures, "--runtime", "onnx")
    assert finished.code == 2 and finished.out == ""
    assert len(finished.lines) == 1 and finished.err.startswith("error: --runtime onnx needs ")
