"""Predict the classes of picture files with a trained model of any exported form."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from archloom.core.errors import ArchloomError, DataError, SettingError
from archloom.data.folder import EXTENSIONS, decode_image
from archloom.export import FOLDER
from archloom.export.deployed import Deployed, Predict
from archloom.export.folding import fold_normalizations
from archloom.export.onnx import FILE_NAME, open_export, open_onnx
from archloom.fast.compiled_network import CompiledNetwork
from archloom.retrainings.best_model import find_best_model
from archloom.retrainings.model_file import BEST, LAST

CHUNK = 64  # pictures in memory at a time
GREY, RGB = 1, 3

Runtime = Literal["auto", "torch", "onnx"]


@dataclass(frozen=True)
class Predictor:
    """Hold a model for prediction: images [n, *shape] in 0..1 in, logits [n, classes] out."""

    classes: tuple[str, ...]
    image_shape: tuple[int, ...]
    square: int  # the side that a picture is scaled to before its middle is taken
    logits: Predict
    caution: str = ""  # what a user must know before using the model
    runtime: str = "torch"  # what computes the logits, for people


@dataclass(frozen=True)
class Answer:
    """Hold the prediction for one picture, the most probable class first; or why there is none."""

    file: Path
    labels: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()
    problem: str = ""


def open_predictor(
    given: Path,
    *,
    runtime: Runtime = "auto",
    plugins: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Predictor:
    """Return the model of a path: a model file, an ONNX file, or the best model in the folder of a run.

    ONNX Runtime computes the logits if it is installed and `archloom export` has written this very model beside its
    file; else torch does, with normalisations folded. A model is never converted here: that takes seconds, which
    hundreds to thousands of pictures must save first.

    Args:
        given: The path.
        runtime: `torch` or `onnx` instead of this rule.
        plugins: Whether to import a plug-in that only the file names.
        tell: Called with the choice where a folder holds several models, and with what is wrong with an export.

    Raises:
        SettingError: If there is no model, or the runtime cannot run it.
    """
    exported = given / FILE_NAME
    if given.is_dir() and exported.is_file() and not any((given / name).is_file() for name in (BEST, LAST)):
        given = exported
    if given.suffix == ".onnx":
        predictor = _from_onnx(given, runtime)
    else:
        found = find_best_model(given)
        if found.reason:
            tell(found.reason)
        predictor = _from_model(found.path, runtime, plugins=plugins, tell=tell)
    if predictor.image_shape[0] not in (GREY, RGB):
        raise SettingError(
            f"pictures have {GREY} or {RGB} channels, but the images of this model have {predictor.image_shape[0]}"
        )
    return predictor


def _from_onnx(path: Path, runtime: Runtime) -> Predictor:
    if runtime == "torch":
        raise SettingError(f"--runtime torch needs a model file or a run, got {path}; leave it out")
    if not _has_onnxruntime():
        raise SettingError(f"{path} needs onnxruntime: pip install 'archloom[onnx]'")
    if not path.is_file():
        raise SettingError(f"there is no model {path}")
    return Predictor(*open_onnx(path), runtime=f"ONNX Runtime, {path}")


def _from_model(path: Path, runtime: Runtime, *, plugins: bool, tell: Callable[[str], None]) -> Predictor:
    model = Deployed.load(path, plugins=plugins)
    logits, name = _choose_logits(model, path, runtime, tell)
    card = model.card
    return Predictor(card.classes, card.image_shape, card.square, logits, card.details.caution, name)


def _choose_logits(model: Deployed, path: Path, runtime: Runtime, tell: Callable[[str], None]) -> tuple[Predict, str]:
    exported = path.parent / FOLDER / FILE_NAME
    if runtime == "onnx" or (runtime == "auto" and _has_onnxruntime() and exported.is_file()):
        try:
            return _open_beside(exported, model, path), f"ONNX Runtime, {exported}"
        except SettingError as error:
            if runtime == "onnx":
                raise
            tell(f"torch is used: {error}")
    return prepare_torch(model), "torch"


def prepare_torch(model: Deployed) -> Predict:
    """Return the logits of a model as torch finds them fastest.

    Many images run in one compiled call where the network has one, few with normalisations folded.
    """
    folded = fold_normalizations(model).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    compiled = getattr(model.network, "compiled", None)

    def find_logits(images: Tensor) -> Tensor:
        chosen = model if isinstance(compiled, CompiledNetwork) and compiled.fits(images) else folded
        return chosen(images)  # type: ignore[no-any-return]

    return find_logits


def _open_beside(exported: Path, model: Deployed, path: Path) -> Predict:
    """Return the logits function of the export beside a model file; a SettingError says why there is none."""
    if not _has_onnxruntime():
        raise SettingError("--runtime onnx needs onnxruntime: pip install 'archloom[onnx]'")
    command = f"archloom export {path} --format onnx"
    if not exported.is_file():
        raise SettingError(f"--runtime onnx needs {exported}; write it: {command}")
    try:
        return open_export(exported, model)
    except ArchloomError as error:
        raise SettingError(f"{error}; write it again: {command}") from error


def _has_onnxruntime() -> bool:
    return importlib.util.find_spec("onnxruntime") is not None


def find_pictures(given: Sequence[Path]) -> list[Path]:
    """Return the given files, and all image files below the given folders."""
    return [path for place in given for path in (_pictures_in(place) if place.is_dir() else [place])]


def _pictures_in(folder: Path) -> list[Path]:
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in EXTENSIONS and not path.name.startswith(".") and path.is_file()
    )
    if not found:
        raise DataError(f"'{folder}' has no image files; known are {', '.join(sorted(EXTENSIONS))}")
    return found


def predict_pictures(predictor: Predictor, files: Sequence[Path], *, top: int) -> Iterator[Answer]:
    """Yield the prediction for every file in order; a file that cannot be read does not stop the others."""
    for start in range(0, len(files), CHUNK):
        chunk = files[start : start + CHUNK]
        pictures: dict[Path, Tensor] = {}
        problems: dict[Path, str] = {}
        for file in chunk:
            try:
                pictures[file] = read_picture(file, predictor.image_shape, square=predictor.square)
            except ArchloomError as error:
                problems[file] = str(error)
        found = _predict_batch(predictor, pictures, top)
        yield from (found[file] if file in found else Answer(file, problem=problems[file]) for file in chunk)


def _predict_batch(predictor: Predictor, pictures: dict[Path, Tensor], top: int) -> dict[Path, Answer]:
    if not pictures:
        return {}
    with torch.no_grad():
        probabilities = predictor.logits(torch.stack(list(pictures.values()))).softmax(dim=1)
    values, indices = probabilities.topk(min(top, len(predictor.classes)))
    answered = {}
    for file, row, order in zip(pictures, values.tolist(), indices.tolist(), strict=True):
        finite = all(value == value for value in row)
        labels = tuple(predictor.classes[index] for index in order)
        problem = f"the model gives no numbers for '{file}': its weights are damaged or diverged"
        answered[file] = Answer(file, labels, tuple(row)) if finite else Answer(file, problem=problem)
    return answered


def read_picture(path: Path, image_shape: tuple[int, ...], *, square: int) -> Tensor:
    """Return a picture as model input [C, H, W] in 0..1: scaled, cropped to the middle, in the model's colours."""
    if not path.exists():
        raise DataError(f"there is no image '{path}'")
    channels, height, width = image_shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of sizes that are refused right after
        pixels = decode_image(path, size=square)
    top, left = (pixels.shape[1] - height) // 2, (pixels.shape[2] - width) // 2
    pixels = pixels[:, top : top + height, left : left + width]
    return (_grey(pixels) if channels == GREY else pixels).float() / 255


def _grey(pixels: Tensor) -> Tensor:
    picture = Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
    return torch.from_numpy(np.array(picture.convert("L")))[None]
