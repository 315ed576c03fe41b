"""`archloom resume`: continue a run that was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from archloom.cli.console import print_warning
from archloom.cli.interactive import note_unless, run_interactively
from archloom.cli.options import DataDir, Device, Devices, On, Quiet, Threads, data_settings, drop_unset
from archloom.cli.outcome import print_outcome
from archloom.cli.retrain import print_model
from archloom.core.lazy_imports import lazy_imports

with lazy_imports():  # help needs no torch
    import archloom.api as api
    import archloom.execution.launch as launch
    import archloom.execution.run_folder as run_folder
    import archloom.retrainings.folder as retrain_folder


def resume(
    folder: Annotated[Path, typer.Argument(help="The run folder of a search or a retraining.")],
    *,
    device: Device = None,
    threads: Threads = None,
    devices: Devices = 1,
    on: On = "processes",
    data_dir: DataDir = None,
    quiet: Quiet = False,
) -> None:
    """Continue an interrupted run exactly where it was saved; a complete one shows its result again.

    The end is the same as that of a run without an interruption. Options are for what may differ from before.
    """
    ranks = launch.start_or_join(devices, device)
    quiet = quiet or not ranks.is_first
    is_model = retrain_folder.is_retraining(folder)
    machine = {"device": launch.device_of(ranks, device), "torch_threads": threads}
    settings = drop_unset({"machine": machine, "data": data_settings(None, data_dir)})
    show: Any = print_model if is_model else print_outcome
    if (retrain_folder.RetrainFolder if is_model else run_folder.RunFolder).open(folder).finished:
        note_unless(quiet)(f"{folder} is complete; this is its result")
    run_interactively(
        lambda listener, stop: api.resume(
            folder, settings=settings, listeners=[listener], stop=stop, warn=print_warning, on=on, ranks=ranks
        ),
        show,
        folder=folder,
        quiet=quiet,
    )
