"""Settings that have a new name. Old recipes and run folders keep working; each use prints one line."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from archloom.core.settings import Settings, merge

RENAMED: Mapping[str, str] = {
    # old dotted name: new dotted name. `strategy[gibbs].name` is a setting of that strategy only.
    "search.chance_samples": "search.random_baseline_samples",
    "machine.workers": "machine.loader_threads",
    "machine.threads": "machine.torch_threads",
    "machine.processes": "machine.worker_processes",
}


class RenamedSettingWarning(UserWarning):
    """A configuration uses the old name of a setting."""


def rename_settings(given: Settings) -> dict[str, Any]:
    """Return a configuration, by section, with the new names of renamed settings.

    Where both names occur, the later one wins: `merge` keeps the order of its layers, the strongest of which is last.
    """
    renamed: dict[str, Any] = {}
    for section, table in given.items():
        tables = _rename_section(section, table) if isinstance(table, Mapping) else {section: table}
        renamed = merge(renamed, tables)
    return renamed


def new_name(old: str, *, of: str = "") -> str:
    """Return the name that a setting has now; `of` names what its section configures, such as the strategy."""
    section, _, setting = old.partition(".")
    return RENAMED.get(f"{section}[{of}].{setting}", RENAMED.get(old, old))


def _rename_section(section: str, table: Settings) -> dict[str, Any]:
    tables: dict[str, Any] = {section: {}}
    for setting, value in table.items():
        old = f"{section}.{setting}"
        new = new_name(old, of=str(table.get("name", "")))
        if new == old:
            tables = merge(tables, {section: {setting: value}})
        else:
            warnings.warn(f"{old} is now {new}; the old name still works", RenamedSettingWarning, stacklevel=2)
            tables = merge(tables, _nested(new, value))
    return tables


def _nested(name: str, value: Any) -> dict[str, Any]:
    first, _, rest = name.partition(".")
    return {first: _nested(rest, value) if rest else value}


__all__ = ["RENAMED", "RenamedSettingWarning", "new_name", "rename_settings"]
