"""`archloom resume`: go on with a run that was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from archloom.cli.attend import attend
from archloom.cli.console import messages, say
from archloom.cli.retrain import attend_retraining
from archloom.cli.search import said


def resume(
    directory: Annotated[Path, typer.Argument(help="The folder of the run.")],
    *,
    device: Annotated[str | None, typer.Option(help="Go on on another device.")] = None,
    threads: Annotated[int | None, typer.Option(help="Go on with another number of threads.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="The data folder, if it has moved.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")] = False,
) -> None:
    """Go on with an interrupted run, exactly where it was saved; a complete one shows its result again.

    The end is the same as that of a run which was never interrupted.
    """
    from archloom.api import resume as resume_run
    from archloom.execution.run_folder import RunFolder
    from archloom.retrainings.folder import is_retraining

    settings = said({"machine": {"device": device, "torch_threads": threads}, "data": {"directory": data_dir}})
    if is_retraining(directory):
        attend_retraining(
            lambda listener, stop: resume_run(
                directory, settings=settings, listeners=[listener], stop=stop, warn=_warn
            ),
            directory=directory,
            quiet=quiet,
        )
        return
    if RunFolder.open(directory).finished and not quiet:
        say(f"{directory} is complete; this is what it found", console=messages())
    attend(
        lambda listener, stop: resume_run(directory, settings=settings, listeners=[listener], stop=stop, warn=_warn),
        directory=directory,
        quiet=quiet,
    )


def _warn(message: str) -> None:
    say(f"warning: {message}", console=messages())
