"""Export as a `torch.export` program: a graph of torch operations with its weights, which needs torch alone."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import torch
from torch.export import Dim, ExportedProgram

from archloom.core.files import write_atomically
from archloom.export.deployed import INPUT, Deployed, measure_difference
from archloom.export.folding import fold_normalizations

FILE_NAME = "model.pt2"
TRACED_WITH = 2  # images: torch takes 0 and 1 for constants


def trace_model(model: Deployed) -> ExportedProgram:
    """Return the graph of a model with its normalisations folded, for any number of images."""
    folded = fold_normalizations(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about its own parts
        return torch.export.export(
            folded, (model.example(TRACED_WITH),), dynamic_shapes={INPUT: {0: Dim("batch", min=1)}}
        )


def export_program(model: Deployed, folder: Path) -> tuple[list[Path], float]:
    """Write the model as `model.pt2`; return its path and the largest difference from torch.

    The check reads the bytes that are written. Programs of others are never loaded: the format may hold pickles.
    """
    written = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(trace_model(model), written)
        content = written.getvalue()
        again = torch.export.load(io.BytesIO(content)).module()
    difference = measure_difference(model, again, what="torch.export")
    path = folder / FILE_NAME
    write_atomically(path, content)
    return [path], difference
