"""Tables of what a configuration can name: short names, or `package.module:Class` for a plug-in.

Entries are import paths rather than classes: listing names does not import torch.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import sys
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from archloom.core.errors import SettingError, one_line, suggestion


@dataclass(frozen=True)
class Entry:
    """The import path of a named class or function, and the settings that the name stands for."""

    target: str
    settings: Mapping[str, Any] = field(default_factory=dict)  # keywords that the target declares
    summary: str = ""

    def load(self) -> Any:
        """Import the class or function."""
        module, _, attribute = self.target.partition(":")
        return getattr(importlib.import_module(module), attribute)

    def describe(self) -> str:
        """Return a one-line description: the summary, else the first line of the module's docstring, unimported."""
        return self.summary or _first_docstring_line(self.target.partition(":")[0])


@dataclass(frozen=True)
class Catalogue(Mapping[str, Entry]):
    """A table of entries of one kind ('strategy', 'space', ...).

    A plug-in must be a class derived from what `makes` names, or a function annotated to return it. A configuration
    cannot call anything else.
    """

    kind: str
    entries: Mapping[str, Entry]
    makes: str = ""  # `package.module:Class`; without it there are no plug-ins

    def __getitem__(self, name: str) -> Entry:
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def find(self, name: str) -> Entry:
        """Return the entry of a short name, or of a plug-in written `package.module:Class`."""
        if name in self.entries:
            return self.entries[name]
        if ":" in name and self.makes:
            return self._plugin(name)
        raise SettingError(f"unknown {self.kind} '{name}'{suggestion(name, self.entries)}")

    def _plugin(self, name: str) -> Entry:
        module, _, attribute = name.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), attribute)):
            raise SettingError(f"{self.kind} '{name}': a plug-in is written package.module:Class")
        entry = Entry(name)
        if str(Path.cwd()) not in sys.path:  # a plug-in in the working directory needs no installation
            sys.path.append(str(Path.cwd()))
        try:
            thing = entry.load()
        except ModuleNotFoundError as error:
            raise SettingError(f"{self.kind} '{name}': no module named '{error.name}' can be imported") from error
        except AttributeError as error:
            raise SettingError(f"{self.kind} '{name}': {error}") from error
        except Exception as error:  # an import of foreign code may fail in any way
            raise SettingError(f"{self.kind} '{name}' cannot be imported: {one_line(error)}") from error
        if not _makes(thing, Entry(self.makes).load()):
            wanted = self.makes.partition(":")[2]
            raise SettingError(
                f"{self.kind} '{name}' must be a complete class derived from {wanted}, "
                f"or a function annotated to return it, got {one_line(repr(thing))}"
            )
        return entry


def _makes(thing: Any, kind: type) -> bool:
    if isinstance(thing, type):
        return issubclass(thing, kind) and not inspect.isabstract(thing)
    try:
        return inspect.isfunction(thing) and typing.get_type_hints(thing).get("return") is kind
    except (NameError, TypeError):
        return False


def _first_docstring_line(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return ""
    docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))
    return docstring.splitlines()[0] if docstring else ""
