"""Export to ONNX, the common format of inference runtimes: one file with graph, weights and metadata.

torch writes the graph, ONNX Runtime checks it. Both are extras: `pip install archloom[onnx]`.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from archloom.core.errors import ArchloomError, CheckpointError, one_line
from archloom.core.files import reading, write_atomically
from archloom.export.deployed import INPUT, OUTPUT, Deployed, Predict, measure_difference, read_version
from archloom.export.program import trace_model

OPSET = 18
BATCH = "batch"  # the axis that is free
FILE_NAME = "model.onnx"
DIGEST = "model_sha256"  # in the metadata: which model the file was written from
NEEDS = ("onnx", "onnxruntime", "onnxscript")


def export_onnx(model: Deployed, folder: Path) -> tuple[list[Path], float]:
    """Write the model as `model.onnx`; return its path and the largest difference from torch."""
    content = onnx_bytes(model)
    difference = measure_difference(model, Session(content).logits, what="ONNX")
    path = folder / FILE_NAME
    write_atomically(path, content)
    return [path], difference


def onnx_bytes(model: Deployed) -> bytes:
    """Return the model as the contents of an ONNX file, not checked yet."""
    import onnx

    with silence_torch():
        program = torch.onnx.export(
            trace_model(model),
            input_names=[INPUT],
            output_names=[OUTPUT],
            opset_version=OPSET,
            external_data=False,
            verbose=False,
        )
    assert program is not None
    written = program.model_proto
    _name_batch(written)
    onnx.helper.set_model_props(written, metadata(model))
    onnx.checker.check_model(written)
    content: bytes = written.SerializeToString()
    return content


def metadata(model: Deployed) -> dict[str, str]:
    """Return what a user of the file must know; lists are JSON."""
    card = model.card
    return {
        "classes": json.dumps(card.classes),
        "mean": json.dumps(card.mean),
        "std": json.dumps(card.std),
        "side": json.dumps(card.square),
        "input": "images [batch, channels, height, width], bytes scaled to 0..1; mean and std are applied inside",
        "text": card.text,
        "archloom": read_version(),
        DIGEST: model.digest(),
    }


class Session:
    """Run an ONNX model in ONNX Runtime on the CPU."""

    def __init__(self, content: bytes, *, threads: int | None = None) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors
        # threads that wait busily for the next call would take the cores from whatever else this process does
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if threads is not None:
            options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self.inputs: Mapping[str, list[Any]] = {entry.name: entry.shape for entry in self._session.get_inputs()}
        self.metadata: Mapping[str, str] = self._session.get_modelmeta().custom_metadata_map

    def logits(self, images: Tensor) -> Tensor:
        """Return the logits of images in 0..1."""
        (found,) = self._session.run([OUTPUT], {INPUT: np.ascontiguousarray(images.numpy())})
        return torch.from_numpy(found)


def open_onnx(path: Path) -> tuple[tuple[str, ...], tuple[int, int, int], int, Predict]:
    """Return classes, image shape, side of pictures and logits function of a file that `export_onnx` wrote."""
    with _opening(path):
        session = _open_session(path)
        classes = tuple(str(name) for name in json.loads(session.metadata["classes"]))
        _, channels, height, width = session.inputs[INPUT]
        shape = (int(channels), int(height), int(width))
        side = int(session.metadata["side"])
    return classes, shape, side, session.logits


def open_export(path: Path, model: Deployed) -> Predict:
    """Return the logits function of a file that was written from this very model.

    Raises:
        CheckpointError: If it was written from another model, such as one that was trained again since.
    """
    with _opening(path):
        session = _open_session(path)
    if session.metadata.get(DIGEST) != model.digest():
        raise CheckpointError(f"{path} was not written from this model")
    return session.logits


def _open_session(path: Path) -> Session:
    with reading(path):
        content = path.read_bytes()
    return Session(content, threads=torch.get_num_threads())


@contextmanager
def _opening(path: Path) -> Iterator[None]:
    """Convert whatever is wrong with an ONNX file into one line."""
    try:
        yield
    except ArchloomError:
        raise
    except Exception as error:  # the runtime has exceptions of its own, which derive from nothing but Exception
        raise CheckpointError(f"{path} is no ONNX model of archloom: {one_line(error)}") from error


def _name_batch(written: Any) -> None:
    """Call the free axis by a name that says what it is; torch numbers it."""
    graph = written.graph
    numbered = graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*graph.input, *graph.output, *graph.value_info):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param == numbered:
                axis.dim_param = BATCH


@contextmanager
def silence_torch() -> Iterator[None]:
    """Silence torch, which warns of packages that are not needed here."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
