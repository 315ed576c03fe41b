"""A Weights & Biases run of a search, offline (the `wandb` extra); `wandb sync` uploads it later, if ever."""

from __future__ import annotations

import math
import os
from pathlib import Path

from archloom.core.errors import SettingError
from archloom.core.events import Event, Listener, Recorded
from archloom.core.settings import Settings, flatten
from archloom.searches.history import list_figures
from archloom.searches.records import EpochRecord, TrialRecord


def wandb_listener(folder: Path, settings: Settings) -> Listener:
    """Return a listener that writes the settings, and the figures of every record, into a folder."""
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # before the import: nothing leaves the machine
    try:
        import wandb
    except ImportError as error:
        raise SettingError("search.wandb needs an extra: pip install 'archloom[wandb]'") from error
    plain = {name: value if isinstance(value, int | float) else str(value) for name, value in flatten(settings).items()}
    run = wandb.init(
        mode="offline",
        project="archloom",
        name=folder.parent.name,
        dir=str(folder.parent),  # it makes the folder `wandb` there
        config=plain,
        reinit="create_new",  # one process may run several searches
        settings=wandb.Settings(silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True),
    )

    def listen(event: Event) -> None:
        if not isinstance(event, Recorded):
            return
        record = event.record
        assert isinstance(record, EpochRecord | TrialRecord), "a listener of searches"
        run.log({name: value for name, value in list_figures(record).items() if math.isfinite(value)}, record.position)

    return listen
