"""`archloom draw`: an architecture as text or as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from archloom.cli.console import open_result_console, print_line
from archloom.core.errors import ArchloomError
from archloom.core.lazy_imports import lazy_imports
from archloom.searches.architectures import find_space, read_architecture

with lazy_imports():  # help needs no torch
    import archloom.reports.cells as cells

PICTURE = ".svg"


def draw(
    architecture: Annotated[
        str, typer.Argument(help="Its text form (in quotes), JSON, a JSON file, or the folder of a run.")
    ],
    *,
    space: Annotated[
        str | None, typer.Option(help="The space it belongs to. Default: that of the run, or nb201.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write a picture (.svg) instead of printing text.")] = None,
) -> None:
    """Draw the cells of an architecture.

    Without --out the drawing is printed as text.
    """
    if out is not None and out.suffix.lower() != PICTURE:
        raise ArchloomError(f"--out must end in {PICTURE}, got '{out}'")
    home, chosen = read_architecture(architecture, space=None if space is None else find_space(space))
    graphs = home.graphs(chosen)
    if out is None:
        for graph in graphs:
            print_line(cells.draw_text(graph), console=open_result_console())
    else:
        _write(out, cells.draw_cells(graphs))
        print_line(str(out), console=open_result_console())


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ArchloomError(f"cannot write {path}: {error.strerror}") from error
