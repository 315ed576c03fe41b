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

from archloom.core.errors import SettingError, excerpt, one_line, suggestion
from archloom.core.trust import ADVICE, UntrustedError, is_trusted, trust_texts


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
        """Return the entry of a short name, or of a plug-in written `package.module:Class`.

        Raises:
            UntrustedError: If only a file names the plug-in: finding it would run code that the file chose.
            SettingError: If there is nothing of this name.
        """
        if name in self.entries:
            return self.entries[name]
        if ":" in name and self.makes:
            return self._plugin(name)
        raise SettingError(f"unknown {self.kind} '{excerpt(name)}'{suggestion(name, self.entries)}")

    def find_named_by_code(self, name: str) -> Entry:
        """Return the entry of a name that stands in code, such as the family of a space: code is trusted."""
        trust_texts(name)
        return self.find(name)

    def _plugin(self, name: str) -> Entry:
        module, _, attribute = name.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), attribute)):
            raise SettingError(f"{self.kind} '{excerpt(name)}': a plug-in is written package.module:Class")
        if not (self._is_packaged(name) or _is_imported(module, attribute) or is_trusted(name)):
            raise UntrustedError(f"{self.kind} '{excerpt(name)}' is a plug-in that only a file names; {ADVICE}")
        entry = Entry(name)
        try:
            thing = _import(entry)
        except ModuleNotFoundError as error:
            raise SettingError(f"{self.kind} '{name}': no module named '{error.name}' can be imported") from error
        except AttributeError as error:
            raise SettingError(f"{self.kind} '{name}': {error}") from error
        except Exception as error:  # an import of foreign code may fail in any way
            raise SettingError(f"{self.kind} '{name}' cannot be imported: {one_line(error)}") from error
        kind = Entry(self.makes).load()
        if missing := _missing_methods(thing, kind):
            raise SettingError(f"{self.kind} '{name}' must implement {', '.join(missing)}")
        if not _makes(thing, kind):
            wanted = self.makes.partition(":")[2]
            raise SettingError(
                f"{self.kind} '{name}' must be a complete class derived from {wanted}, "
                f"or a function annotated to return it, got {_describe_thing(thing)}"
            )
        trust_texts(name)  # worker processes import it by this name
        return entry

    def _is_packaged(self, name: str) -> bool:
        return any(entry.target == name for entry in self.entries.values())


def _is_imported(module: str, attribute: str) -> bool:
    """Return whether finding the class runs no code: its module was imported by the user's own code."""
    return module in sys.modules and attribute in vars(sys.modules[module])


def _import(entry: Entry) -> Any:
    """Import a plug-in; one in the working directory needs no installation."""
    if entry.target.partition(":")[0] not in sys.modules and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    return entry.load()


def _missing_methods(thing: Any, kind: type) -> list[str]:
    """Return the names of the abstract methods that a class of the right kind leaves out."""
    if not isinstance(thing, type) or not issubclass(thing, kind) or thing is kind:
        return []
    return sorted(f"{name}()" for name in getattr(thing, "__abstractmethods__", ()))


def _makes(thing: Any, kind: type) -> bool:
    if isinstance(thing, type):
        return issubclass(thing, kind) and not inspect.isabstract(thing)
    try:
        return inspect.isfunction(thing) and _is_kind(typing.get_type_hints(thing).get("return"), kind)
    except (NameError, TypeError):
        return False


def _is_kind(annotation: object, kind: type) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, kind)


def _first_docstring_line(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return ""
    docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))
    return docstring.splitlines()[0] if docstring else ""


def _describe_thing(thing: object) -> str:
    """Return what a name stands for, for people: a function has no address."""
    return "a function that is not annotated so" if inspect.isfunction(thing) else one_line(repr(thing))
