"""TensorBoard events of a run, for those who watch their searches there (the `tensorboard` extra)."""

from __future__ import annotations

from pathlib import Path

from archloom.core.errors import SettingError
from archloom.core.events import Event, Listener, Recorded


def tensorboard_listener(folder: Path) -> Listener:
    """A listener that writes the figures of every record."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise SettingError("search.tensorboard needs an extra: pip install 'archloom[tensorboard]'") from error
    writer = SummaryWriter(str(folder))

    def listen(event: Event) -> None:
        if not isinstance(event, Recorded):
            return
        record = event.record
        step = record.get("epoch", record.get("trial", 0))
        figures = {**record.get("metrics", {}), **{name: record.get(name) for name in ("score", "derived_accuracy")}}
        if record.get("standing"):
            figures["table_test_accuracy"] = record["standing"]["test"]
        for name, value in figures.items():
            if value is not None:
                writer.add_scalar(name, value, step)
        writer.flush()

    return listen
