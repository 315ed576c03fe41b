"""`archloom resume`: continue a run that was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from archloom.cli.console import open_message_console, print_line
from archloom.cli.interactive import note_unless, run_interactively
from archloom.cli.options import DataDir, Device, Quiet, Threads, data_settings, drop_unset
from archloom.cli.outcome import print_outcome
from archloom.cli.retrain import print_model


def resume(
    folder: Annotated[Path, typer.Argument(help="The run folder of a search or a retraining.")],
    *,
    device: Device = None,
    threads: Threads = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
) -> None:
    """Continue an interrupted run exactly where it was saved; a complete one shows its result again.

    The end is the same as that of a run without an interruption. Options are for what may differ from before.
    """
    from archloom.api import resume as resume_run
    from archloom.execution.run_folder import RunFolder
    from archloom.retrainings.folder import RetrainFolder, is_retraining

    is_model = is_retraining(folder)
    machine = {"device": device, "torch_threads": threads}
    settings = drop_unset({"machine": machine, "data": data_settings(None, data_dir)})
    show: Any = print_model if is_model else print_outcome
    if (RetrainFolder if is_model else RunFolder).open(folder).finished:
        note_unless(quiet)(f"{folder} is complete; this is its result")
    run_interactively(
        lambda listener, stop: resume_run(folder, settings=settings, listeners=[listener], stop=stop, warn=_warn),
        show,
        folder=folder,
        quiet=quiet,
    )


def _warn(message: str) -> None:
    print_line(f"warning: {message}", console=open_message_console())
