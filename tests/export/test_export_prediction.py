"""Pictures of any kind, models of any form; what cannot be read does not stop the rest."""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from archloom.core.errors import DataError, SettingError
from archloom.export import prediction
from archloom.export.deployed import Deployed
from archloom.export.onnx import DIGEST, Session
from archloom.export.prediction import Predictor, find_pictures, open_predictor, predict_pictures, read_picture
from archloom.retrainings.model_file import save_model

Make = Callable[..., Deployed]
CLASSES = ("dark", "bright")


def by_brightness(images: Tensor) -> Tensor:
    mean = images.mean(dim=(1, 2, 3))
    return torch.stack([1 - mean, mean], dim=1) * 10


PREDICTOR = Predictor(CLASSES, (3, 4, 4), 4, by_brightness)


def lying_tiff(width: int, height: int) -> bytes:
    """A header that claims so many grey pixels, and no pixels."""
    values = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 200, 277: 1, 278: height, 279: width * height}
    tags = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in values.items())
    return b"II*\0" + struct.pack("<IH", 8, len(values)) + tags + bytes(100)


def test_labels_come_with_probabilities_the_best_first(tmp_path: Path) -> None:
    Image.new("RGB", (9, 7), (250, 250, 250)).save(tmp_path / "b.png")
    Image.new("L", (9, 7), 10).save(tmp_path / "a.png")
    found = list(predict_pictures(PREDICTOR, [tmp_path / "b.png", tmp_path / "a.png"], top=5))
    assert [answer.file.name for answer in found] == ["b.png", "a.png"]
    assert [answer.labels for answer in found] == [("bright", "dark"), ("dark", "bright")]
    assert sum(found[0].probabilities) == pytest.approx(1)
    brightness = 250 / 255
    expected = float(torch.tensor([10 * brightness, 10 * (1 - brightness)]).softmax(0)[0])
    assert found[0].probabilities[0] == pytest.approx(expected, rel=1e-4)
    assert [len(answer.labels) for answer in predict_pictures(PREDICTOR, [tmp_path / "a.png"], top=1)] == [1]


def test_what_cannot_be_read_does_not_stop_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "CHUNK", 2)
    Image.new("RGB", (9, 7)).save(tmp_path / "good.png")
    (tmp_path / "text.png").write_text("hello")
    (tmp_path / "lies.tif").write_bytes(lying_tiff(60_000, 50_000))
    (tmp_path / "half.tif").write_bytes(lying_tiff(12_000, 12_000))  # where Pillow itself only warns
    names = ["text.png", "lies.tif", "good.png", "half.tif", "missing.png", "good.png"]
    found = list(predict_pictures(PREDICTOR, [tmp_path / name for name in names], top=1))
    assert [answer.file.name for answer in found] == names
    assert [answer.labels for answer in found if not answer.problem] == [("dark",), ("dark",)]
    for answer in found:
        assert (answer.file.name != "good.png") == bool(answer.problem)
        assert not answer.problem or (answer.file.name in answer.problem and "\n" not in answer.problem)
    assert "there is no image" in found[4].problem


def test_a_model_that_gives_no_numbers_is_told(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    broken = Predictor(CLASSES, (3, 4, 4), 4, lambda images: torch.full((len(images), 2), float("nan")))
    (found,) = predict_pictures(broken, [tmp_path / "a.png"], top=1)
    assert "gives no numbers" in found.problem


def test_pictures_of_all_kinds_become_what_the_model_takes(tmp_path: Path) -> None:
    Image.new("RGB", (10, 20), (255, 0, 51)).save(tmp_path / "a.png")
    found = read_picture(tmp_path / "a.png", (3, 6, 4), square=6)
    assert found.shape == (3, 6, 4)
    assert torch.allclose(found[:, 0, 0], torch.tensor([1.0, 0.0, 0.2]))
    grey = read_picture(tmp_path / "a.png", (1, 5, 5), square=5)
    assert grey.shape == (1, 5, 5)
    assert float(grey[0, 0, 0]) == pytest.approx(0.299 + 0.2 * 0.114, abs=0.005)
    Image.fromarray(np.full((8, 8), 32768, dtype=np.uint16)).save(tmp_path / "deep.png")
    assert float(read_picture(tmp_path / "deep.png", (3, 4, 4), square=4).mean()) == pytest.approx(128 / 255)


def test_the_middle_is_taken_of_a_picture_scaled_to_more_than_the_model_sees(tmp_path: Path) -> None:
    """As images were judged that training saw parts of: the border is not seen."""
    framed = np.zeros((8, 8, 3), dtype=np.uint8)
    framed[2:6, 2:6] = 255
    Image.fromarray(framed).save(tmp_path / "framed.png")
    assert float(read_picture(tmp_path / "framed.png", (3, 4, 4), square=8).min()) == 1.0
    assert float(read_picture(tmp_path / "framed.png", (3, 4, 4), square=4).min()) < 0.1


def test_folders_stand_for_the_pictures_in_them(tmp_path: Path) -> None:
    for name in ("b.png", "deeper/a.JPG", "notes.txt", ".hidden.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert find_pictures([tmp_path, tmp_path / "notes.txt"]) == [
        tmp_path / "b.png",
        tmp_path / "deeper" / "a.JPG",
        tmp_path / "notes.txt",
    ]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="has no image files"):
        find_pictures([tmp_path / "empty"])


def test_a_run_or_a_file_is_opened(model_file: Path) -> None:
    for given in (model_file, model_file.parent):
        predictor = open_predictor(given)
        assert predictor.classes == ("cat", "dog", "fish")
        assert predictor.image_shape == (3, 8, 8)
        assert predictor.logits(torch.rand(2, 3, 8, 8)).shape == (2, 3)


def test_an_onnx_file_or_its_folder_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(prediction, "open_onnx", lambda path: (("x", str(path.name)), (3, 4, 4), 4, by_brightness))
    (tmp_path / "model.onnx").touch()
    for given in (tmp_path, tmp_path / "model.onnx"):
        assert open_predictor(given).classes == ("x", "model.onnx")
    with pytest.raises(SettingError, match="there is no model"):
        open_predictor(tmp_path / "other.onnx")


def keep_model(in_onnx: tuple[Deployed, bytes], folder: Path, content: bytes | None = None) -> Path:
    """Write a model file and, beside it, its ONNX file or another content."""
    model, right = in_onnx
    path = folder / "best.safetensors"
    save_model(path, model.card, model.network.state_dict())
    (folder / "export").mkdir()
    (folder / "export" / "model.onnx").write_bytes(right if content is None else content)
    return path


def test_an_export_of_the_same_model_is_used(
    in_onnx: tuple[Deployed, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, images = keep_model(in_onnx, tmp_path), in_onnx[0].example(5)
    calls = []
    right = Session.logits
    monkeypatch.setattr(Session, "logits", lambda self, images: calls.append(len(images)) or right(self, images))
    expected = in_onnx[0](images)
    for runtime, name, used in (("auto", "ONNX Runtime", 1), ("onnx", "ONNX Runtime", 1), ("torch", "torch", 0)):
        calls.clear()
        predictor = open_predictor(path, runtime=runtime)  # type: ignore[arg-type]
        found = predictor.logits(images)
        assert len(calls) == used and predictor.runtime.startswith(name)
        assert torch.allclose(found, expected, rtol=0, atol=1e-4 * float(expected.abs().max()))
        assert torch.equal(found.argmax(dim=1), expected.argmax(dim=1))
        assert (predictor.classes, predictor.image_shape, predictor.square) == (("cat", "dog", "fish"), (3, 8, 6), 8)


@pytest.mark.parametrize("change", ["weights", "card"])
def test_a_stale_export_is_not_used(in_onnx: tuple[Deployed, bytes], tmp_path: Path, change: str) -> None:
    path, model = keep_model(in_onnx, tmp_path), copy.deepcopy(in_onnx[0])
    if change == "weights":
        next(iter(model.network.state_dict().values())).flatten()[0].add_(1e-6)
    card = model.card if change == "weights" else replace(model.card, mean=(0.1, 0.2, 0.3))
    save_model(path, card, model.network.state_dict())
    messages: list[str] = []
    assert open_predictor(path, tell=messages.append).runtime == "torch"
    assert messages == [
        f"torch is used: {tmp_path}/export/model.onnx was not written from this model; write it again: archloom export "
        f"{path} --format onnx"
    ]
    with pytest.raises(SettingError, match="was not written from this model; write it again"):
        open_predictor(path, runtime="onnx")


def test_a_damaged_or_missing_export_is_not_used(in_onnx: tuple[Deployed, bytes], tmp_path: Path) -> None:
    path = keep_model(in_onnx, tmp_path, b"hello")
    messages: list[str] = []
    assert open_predictor(path, tell=messages.append).runtime == "torch"
    assert "is no ONNX model of archloom" in messages[0] and "\n" not in messages[0]
    (tmp_path / "export" / "model.onnx").unlink()
    messages.clear()
    assert open_predictor(path, tell=messages.append).runtime == "torch" and not messages
    with pytest.raises(SettingError, match=r"--runtime onnx needs .*model.onnx; write it: archloom export"):
        open_predictor(path, runtime="onnx")


def test_torch_predicts_where_onnxruntime_is_not_installed(
    in_onnx: tuple[Deployed, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = keep_model(in_onnx, tmp_path)
    monkeypatch.setattr(prediction, "_has_onnxruntime", lambda: False)
    assert open_predictor(path).runtime == "torch"
    for given, runtime in ((path, "onnx"), (tmp_path / "export" / "model.onnx", "auto")):
        with pytest.raises(SettingError, match="needs onnxruntime: pip install"):
            open_predictor(given, runtime=runtime)  # type: ignore[arg-type]


def test_torch_does_not_run_an_onnx_file(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="--runtime torch needs a model file or a run, got"):
        open_predictor(tmp_path / "m.onnx", runtime="torch")


def test_the_digest_is_that_of_weights_and_card(make: Make, in_onnx: tuple[Deployed, bytes]) -> None:
    model, content = in_onnx
    assert Session(content).metadata[DIGEST] == model.digest()
    other = copy.deepcopy(model)
    assert other.digest() == model.digest()
    next(iter(other.network.state_dict().values())).flatten()[0].add_(1e-6)
    assert other.digest() != model.digest()


def test_channels_that_pictures_do_not_have_are_told(make: Make, tmp_path: Path) -> None:
    model = make("nb201_mini", shape=(5, 8, 8))
    save_model(tmp_path / "m.safetensors", model.card, model.network.state_dict())
    with pytest.raises(SettingError, match="pictures have 1 or 3 channels, but the images of this model have 5"):
        open_predictor(tmp_path / "m.safetensors")
