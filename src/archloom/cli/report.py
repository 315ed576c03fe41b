"""`archloom report`: write a run's page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from archloom.cli.console import open_result_console, print_line
from archloom.cli.options import AnyRun
from archloom.core.lazy_imports import lazy_imports

with lazy_imports():  # help needs no torch
    import archloom.api as api


def report(
    directory: AnyRun,
    *,
    out: Annotated[Path | None, typer.Option(help="Another folder to write to, for a run on a read-only disk.")] = None,
) -> None:
    """Write report.html of a run, finished or not, and print where it is.

    The page needs no network: it can be mailed or archived as it is.
    """
    print_line(str(api.write_report(directory, out=out)), console=open_result_console())
