"""`archloom export`: a trained model in forms that others can run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from archloom.cli.console import open_message_console, open_result_console, print_line
from archloom.core.lazy_imports import lazy_imports

with lazy_imports():  # help needs no torch
    import archloom.export as exports


def export(
    model: Annotated[Path, typer.Argument(help="The folder of any run with a trained model, or a model file.")],
    *,
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format", help="onnx, torch or standalone; may be repeated. Default: all that can be written here."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder to write to. Default: `export` beside the model's file.")
    ] = None,
) -> None:
    """Export a trained model: ONNX, a torch.export program, or plain PyTorch source that needs no archloom.

    Each file is compared with the model itself before it is written. All take images in 0..1 and give logits; mean and
    std are applied inside.

        archloom export runs/run-pictures

        archloom export model.safetensors --format onnx --out deployed
    """
    exported = exports.export_model(
        model,
        formats=formats,
        out=out,
        tell=lambda line: print_line(line, console=open_message_console()),
    )
    for entry in exported:
        listed = ", ".join(str(path) for path in entry.paths)
        print_line(
            f"{entry.format}: {listed} (largest difference from torch: {entry.difference:.1e})",
            console=open_result_console(),
        )
