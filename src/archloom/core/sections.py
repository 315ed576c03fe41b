"""The one way to resolve a configuration: check each section against what it configures, and collect all problems."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from archloom.core.errors import suggestion
from archloom.core.problems import Problems
from archloom.core.registry import Catalogue, Entry
from archloom.core.renames import rename_settings
from archloom.core.settings import Settings, Target, check_values, merge, schema

Section = TypeVar("Section")
Made = TypeVar("Made")
MOST = 2**63  # seeds are below


class Sections:
    """The tables of a configuration, with the new names of renamed settings; `problems` has what is wrong so far."""

    def __init__(self, given: Settings, *, sections: Collection[str], others: Collection[str] = ()) -> None:
        self.problems = Problems()
        known = (*others, *sections)
        self.problems.add(
            *(f"unknown section '{name}'{suggestion(name, known)}" for name in given if name not in known)
        )
        self.given = rename_settings(given)
        self._tables = {name: self.table(name) for name in sections}
        self._unfit: set[str] = set()

    def table(self, section: str) -> dict[str, Any]:  # Any: not checked yet
        """Return a copy of a table as it was given."""
        value = self.given.get(section, {})
        if isinstance(value, Mapping):
            return dict(value)
        self.problems.add(f"{section} must be a table of settings, got {value!r}")
        return {}

    def take(self, section: str, name: str, default: Any = None) -> Any:
        """Remove what is no setting from a table, such as the name of a strategy, and return it."""
        return self._tables[section].pop(name, default)

    def put(self, section: str, values: Settings) -> None:
        """Add settings that were derived from what the user gave, or replace them."""
        self._tables[section] |= values
        self.given = merge(self.given, {section: values})

    def seed(self) -> int:
        """Return the seed of a run."""
        seed = self.given.get("seed", 0)
        if type(seed) is int and 0 <= seed < MOST:
            return seed
        self.problems.add(f"seed must be a whole number from 0, got {seed!r}")
        return 0

    def find(self, section: str, catalogue: Catalogue, default: str) -> tuple[str, Entry]:
        """Return the name in a section and the entry that it stands for; the default where there is none."""
        name = self.take(section, "name", default)
        entry = self.problems.attempt(lambda: catalogue.find(str(name)))
        return (default, catalogue[default]) if entry is None else (name, entry)

    def keywords(self, section: str, *targets: Target, defaults: Settings | None = None) -> Settings:
        """Return all settings of the targets that a section configures.

        The values come, from weakest to strongest, from the targets themselves, from `defaults`, and from the table.
        """
        known = {name: setting for target in targets for name, setting in schema(target).items()}
        values, lines = check_values(section, known, merge(defaults or {}, self._tables[section]))
        self.problems.add(*lines)
        self._unfit |= {section} if lines else set()
        return {name: values.get(name, setting.default) for name, setting in known.items()}

    def make(self, section: str, kind: type[Section], *, defaults: Settings | None = None) -> Section | None:
        """Return a section as its dataclass, or None where something is wrong with it."""
        keywords = self.keywords(section, kind, defaults=defaults)
        return self.attempt(section, lambda: kind(**keywords))

    def attempt(self, section: str, make: Callable[[], Made]) -> Made | None:
        """Return what `make` returns; None without trying if values of the section are of the wrong type."""
        return None if section in self._unfit else self.problems.attempt(make, what=section)
