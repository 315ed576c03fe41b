"""Find run folders below the folders that are served, without following any link out of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from archloom.core.leases import is_lease

Kind = Literal["search", "retraining", "comparison", "pipeline"]
KINDS: tuple[Kind, ...] = get_args(Kind)

DEEPEST = 8  # levels of folders that are no runs
MARKS: dict[str, Literal["run", "comparison", "pipeline"]] = {  # the file that makes a folder a run
    "config.toml": "run",
    "comparison.toml": "comparison",
    "pipeline.toml": "pipeline",
}
REMAINS = {"metrics.jsonl", "architecture.json", "result.json", "checkpoints", "comparison.json", "pipeline.json"}
PARTS = {"comparison": ("runs",), "pipeline": ("searches", "picking", "retrainings")}


@dataclass(frozen=True)
class Folder:
    """A folder that holds a run, or what is left of one."""

    key: str  # its address on the page: the name of the served folder, and the path below it
    path: Path
    mark: Literal["run", "comparison", "pipeline"]
    parent: str | None = None  # the comparison or pipeline that it is a part of
    names: frozenset[str] = frozenset()  # of its files and folders
    problem: str = ""  # why it cannot be read
    changed: int = 0  # when a file was last added, replaced or removed, in nanoseconds


@dataclass
class _Known:
    """What a folder held when it was last changed."""

    changed: int
    names: frozenset[str]
    inner: tuple[str, ...]  # folders in it
    outside: str  # the name of a link that leads out


@dataclass
class FolderTree:
    """The folders below some roots; a folder that did not change is not listed again."""

    roots: Sequence[Path]
    _known: dict[Path, _Known] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.roots = tuple(dict.fromkeys(Path(root).resolve() for root in self.roots))

    def find(self) -> list[Folder]:
        """Return all run folders."""
        found: list[Folder] = []
        for root, name in zip(self.roots, self._root_names(), strict=True):
            found += self._walk(root, name, parent=None, depth=0)
        return found

    def look_again(self, folder: Folder) -> Folder | None:
        """Return one folder as it is now; None if it is gone."""
        known = self._list(folder.path)
        if known is None:
            return None
        mark = next((MARKS[name] for name in MARKS if name in known.names), None)
        return replace(folder, names=known.names, problem=_problem(known, mark), changed=known.changed)

    def _root_names(self) -> list[str]:
        """Return a name for every root; roots of equal names get a number."""
        names: list[str] = []
        for root in self.roots:
            name = root.name or "root"
            same = sum(one.partition("~")[0] == name for one in names)
            names.append(f"{name}~{same + 1}" if same else name)
        return names

    def _walk(self, path: Path, key: str, *, parent: str | None, depth: int) -> Iterator[Folder]:
        known = self._list(path)
        if known is None or depth > DEEPEST:
            return
        mark = next((MARKS[name] for name in MARKS if name in known.names), None)
        if mark is None and not known.names & REMAINS and not _is_beginning(known.names):
            for name in known.inner:
                yield from self._walk(path / name, f"{key}/{name}", parent=parent, depth=depth + 1)
            return
        yield Folder(key, path, mark or _guess(known.names), parent, known.names, _problem(known, mark), known.changed)
        for part in PARTS.get(mark or "", ()):
            if part in known.inner:
                yield from self._walk(path / part, f"{key}/{part}", parent=key, depth=depth + 1)

    def _list(self, path: Path) -> _Known | None:
        try:
            changed = path.stat().st_mtime_ns
            known = self._known.get(path)
            if known is None or known.changed != changed:
                known = self._known[path] = self._scan(path, changed)
        except OSError:
            self._known.pop(path, None)
            return None
        return known

    def _scan(self, path: Path, changed: int) -> _Known:
        names, inner, outside = set(), [], ""
        with os.scandir(path) as entries:
            for entry in entries:
                names.add(entry.name)
                if entry.is_symlink() and not self.holds(Path(entry.path)):
                    outside = entry.name
                elif entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                    inner.append(entry.name)
        return _Known(changed, frozenset(names), tuple(sorted(inner)), outside)

    def holds(self, path: Path) -> bool:
        """Return whether a path, with all links followed, lies in a folder that is served."""
        try:
            real = path.resolve()
        except (OSError, RuntimeError):  # a loop of links
            return False
        return any(real.is_relative_to(root) for root in self.roots)


def _is_beginning(names: frozenset[str]) -> bool:
    """Return whether a process has taken an empty folder, and written nothing yet."""
    return bool(names) and all(is_lease(name) or name == ".lock" for name in names)


def _guess(names: frozenset[str]) -> Literal["run", "comparison", "pipeline"]:
    if "comparison.json" in names:
        return "comparison"
    return "pipeline" if "pipeline.json" in names else "run"


def _problem(known: _Known, mark: str | None) -> str:
    if known.outside:
        return f"{known.outside} is a link that leads out of the served folders; it is not read"
    if mark is not None or _is_beginning(known.names):
        return ""
    missing = next(name for name, kind in MARKS.items() if kind == _guess(known.names))
    return f"{missing} is missing"
