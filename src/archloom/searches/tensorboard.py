"""TensorBoard events of a search (the `tensorboard` extra)."""

from __future__ import annotations

from pathlib import Path

from archloom.core.errors import SettingError
from archloom.core.events import Event, Listener, Recorded
from archloom.searches.history import list_figures
from archloom.searches.records import EpochRecord, TrialRecord


def tensorboard_listener(folder: Path) -> Listener:
    """Return a listener that writes the figures of every record."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise SettingError("search.tensorboard needs an extra: pip install 'archloom[tensorboard]'") from error
    writer = SummaryWriter(str(folder))

    def listen(event: Event) -> None:
        if not isinstance(event, Recorded):
            return
        record = event.record
        assert isinstance(record, EpochRecord | TrialRecord), "a listener of searches"
        for name, value in list_figures(record).items():
            writer.add_scalar(name, value, record.position)
        writer.flush()

    return listen
