"""The settings of a run inside its checkpoints: a configuration that was edited since is noticed before it is resumed.

A checkpoint that continues under other settings would be a mixture of two experiments, and look like neither.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from archloom.core.errors import LONGEST_LIST, SettingError, one_line
from archloom.core.settings import Settings, flatten

SETTINGS = "settings"  # of a checkpoint
MAY_DIFFER = ("machine.", "data.directory")  # where a run is resumed; neither changes what it finds


def select_determining(settings: Settings, may_differ: tuple[str, ...]) -> dict[str, Any]:
    """Return the settings that determine a run by dotted name, as JSON has them; None is kept, it is a value too."""
    flat = {name: value for name, value in flatten(settings).items() if not name.startswith(may_differ)}
    plain: dict[str, Any] = json.loads(json.dumps(flat, default=str))
    return plain


def refuse_changed_settings(config: Path, state: Any, now: Mapping[str, Any]) -> None:
    """Raise a SettingError that names each setting whose value is not the one that the checkpoint began with.

    Checkpoints of earlier versions hold no settings. A name that only one side has belongs to another version.
    """
    begun = state.get(SETTINGS) if isinstance(state, Mapping) else None
    changes = list(_list_changes(config, begun, now)) if isinstance(begun, Mapping) else []
    if changes:
        more = [f"... and {len(changes) - LONGEST_LIST} more settings"] if len(changes) > LONGEST_LIST else []
        raise SettingError([*changes[:LONGEST_LIST], *more])


def _list_changes(config: Path, begun: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name, value in begun.items():
        if name in now and now[name] != value:
            yield (
                f"{config} was changed: the run began with {name} = {one_line(repr(value))}, now it is "
                f"{one_line(repr(now[name]))}; change it back, or begin another run"
            )
