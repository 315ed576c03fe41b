"""Tables of what can be named in a configuration: short names, or `package.module:Class` for anybody's own.

Entries are import paths rather than classes, so that listing names does not import torch.
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
    """A table of entries of one kind ('strategy', 'space', ...).

    A plug-in must be a class derived from what `makes` names, or a function annotated to return it: a configuration
    from elsewhere cannot have just anything called.
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
        """The entry of a short name, or of a plug-in written `package.module:Class`."""
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
        if str(Path.cwd()) not in sys.path:  # a plug-in beside the recipe needs no installation
            sys.path.append(str(Path.cwd()))
        try:
            thing = entry.load()
        except ModuleNotFoundError as error:
            raise SettingError(f"{self.kind} '{name}': no module named '{error.name}' can be imported") from error
        except AttributeError as error:
            raise SettingError(f"{self.kind} '{name}': {error}") from error
        except Exception as error:  # a module of somebody else's may fail in any way while it is imported
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
