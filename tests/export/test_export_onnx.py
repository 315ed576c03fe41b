"""ONNX: one file for any batch that says what it is for, and is not written if it computes something else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from archloom.core.errors import CheckpointError, StorageError
from archloom.export import onnx as exporter
from archloom.export.deployed import Deployed
from archloom.export.onnx import Session, export_onnx, open_onnx

onnx = pytest.importorskip("onnx")


@pytest.fixture
def model(in_onnx: tuple[Deployed, bytes]) -> Deployed:
    return in_onnx[0]


@pytest.fixture
def exported(in_onnx: tuple[Deployed, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(exporter, "onnx_bytes", lambda model: in_onnx[1])
    (path,), difference = export_onnx(in_onnx[0], tmp_path / "onnx")
    assert 0 <= difference < 1e-4
    return path


def test_any_number_of_images_is_answered_alike(model: Deployed, exported: Path) -> None:
    classes, shape, side, logits = open_onnx(exported)
    assert (classes, shape, side) == (("cat", "dog", "fish"), (3, 8, 6), 8)
    for count in (1, 2, 7):
        images = model.example(count, seed=5)
        assert torch.allclose(logits(images), model(images), rtol=1e-4, atol=1e-5)


def test_the_graph_says_what_it_is(model: Deployed, exported: Path) -> None:
    graph = onnx.load(exported)
    assert [entry.version for entry in graph.opset_import if entry.domain == ""] == [exporter.OPSET]
    (images,), (logits,) = graph.graph.input, graph.graph.output
    assert (images.name, logits.name) == ("images", "logits")
    axes = [axis.dim_param or axis.dim_value for axis in images.type.tensor_type.shape.dim]
    assert axes == ["batch", 3, 8, 6]
    assert logits.type.tensor_type.shape.dim[0].dim_param == "batch"
    told = {entry.key: entry.value for entry in graph.metadata_props}
    assert json.loads(told["classes"]) == ["cat", "dog", "fish"]
    assert json.loads(told["mean"]) == list(model.card.mean)
    assert json.loads(told["std"]) == list(model.card.std)
    assert told["text"] == "|nor_conv_3x3~0|"
    assert "0..1" in told["input"]
    assert [path.name for path in exported.parent.iterdir()] == ["model.onnx"]  # weights are inside


def test_a_graph_that_computes_something_else_is_not_written(
    model: Deployed, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Session.logits
    monkeypatch.setattr(Session, "logits", lambda self, images: 1.001 * right(self, images))
    with pytest.raises(CheckpointError, match="the ONNX model differs from torch"):
        export_onnx(model, tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()


def test_another_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "other.onnx"
    path.write_text("hello")
    with pytest.raises(CheckpointError, match=r"other\.onnx is no ONNX model of archloom"):
        open_onnx(path)
    with pytest.raises(StorageError, match="cannot read"):
        open_onnx(tmp_path / "missing.onnx")
