"""Tables of what can be named in a configuration: short names, or `package.module:Class` for anybody's own.

Entries are import paths rather than classes, so that listing names does not import torch.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from archloom.errors import SettingError, suggestion


@dataclass(frozen=True)
class Entry:
    """Where a named thing lives (`package.module:attribute`), and the settings that the name stands for."""

    target: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    summary: str = ""

    def load(self) -> Any:
        module, _, attribute = self.target.partition(":")
        return getattr(importlib.import_module(module), attribute)

    def describe(self) -> str:
        """One line on what this is: the given summary, or the first line of the module's docstring, read unimported."""
        return self.summary or _first_docstring_line(self.target.partition(":")[0])


@dataclass(frozen=True)
class Catalogue(Mapping[str, Entry]):
    """A table of entries of one kind ('strategy', 'space', ...)."""

    kind: str
    entries: Mapping[str, Entry]

    def __getitem__(self, name: str) -> Entry:
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def find(self, name: str) -> Entry:
        """The entry of a short name, or of a plug-in written `package.module:Class`."""
        if name in self.entries:
            return self.entries[name]
        if ":" in name:
            return self._plugin(name)
        raise SettingError(f"unknown {self.kind} '{name}'{suggestion(name, self.entries)}")

    def _plugin(self, name: str) -> Entry:
        module, _, attribute = name.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), attribute)):
            raise SettingError(f"{self.kind} '{name}': a plug-in is written package.module:Class")
        entry = Entry(name)
        if str(Path.cwd()) not in sys.path:  # a plug-in beside the recipe needs no installation
            sys.path.append(str(Path.cwd()))
        try:
            entry.load()
        except ModuleNotFoundError as error:
            raise SettingError(f"{self.kind} '{name}': no module named '{error.name}' can be imported") from error
        except AttributeError as error:
            raise SettingError(f"{self.kind} '{name}': {error}") from error
        return entry


def _first_docstring_line(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return ""
    docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))
    return docstring.splitlines()[0] if docstring else ""
