"""Read architectures from any form: a text form, a published name, JSON, a file, or the run that found one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from archloom.core.errors import ParseError, SettingError, suggestion
from archloom.core.json_object import JsonObject
from archloom.core.settings import check
from archloom.spaces import SPACES, Architecture, SearchSpace
from archloom.spaces.published import PUBLISHED

RESULTS = ("architecture.json", "result.json")  # of a search, of a retraining
DEFAULT_SPACE = "nb201"
BEGINNINGS = {  # of text forms, and the space that each belongs to
    "Genotype(recurrent": "recurrent",
    "Genotype(": "darts",
    "|": "nb201",
}


@dataclass(frozen=True)
class FoundArchitecture:
    """An architecture, its space by name, and the contents of the file or run that held it."""

    space_name: str
    space: SearchSpace
    architecture: Architecture
    content: JsonObject


def find_architecture(given: str, *, space_name: str | None = None) -> FoundArchitecture:
    """Return the architecture that the text names, with the contents of its file."""
    content = _content(given) or {}
    saved = content.get("space")
    named = str(saved.get("name", DEFAULT_SPACE)) if isinstance(saved, Mapping) else _space_of_text(given, content)
    name = space_name or named
    as_named = name == named and name in SPACES  # then with the settings of its search
    space, architecture = read_architecture(given, space=None if as_named else find_space(name))
    return FoundArchitecture(name, space, architecture, content)


def read_architecture(given: str, *, space: SearchSpace | None = None) -> tuple[SearchSpace, Architecture]:
    """Return the architecture, and its space: the given one, else that of the run, else the one of the text form."""
    content = _content(given)
    if content is None:
        return _parse(given, space)
    chosen = content.get("architecture", content)
    space = space or _space_of(content.get("space"))
    if not isinstance(chosen, Mapping):
        raise ParseError(f"{_excerpt(given)}: 'architecture' must be an object of strings, got {_excerpt(str(chosen))}")
    return space, space.from_json(json.dumps(chosen))


def _parse(text: str, space: SearchSpace | None) -> tuple[SearchSpace, Architecture]:
    """Return the architecture of a published name or a text form."""
    if space is None and re.fullmatch(r"[\w./-]+", text) and text not in PUBLISHED:  # no text form looks like that
        raise ParseError(
            f"there is no run, file or published architecture '{_excerpt(text)}'{suggestion(text, PUBLISHED)}"
        )
    space = space or find_space(_space_of_text(text, {}))
    return space, space.parse(PUBLISHED[text][1] if text in PUBLISHED else text)


def _space_of_text(text: str, content: JsonObject) -> str:
    """Return the name of the space that a text form belongs to."""
    if content:
        return DEFAULT_SPACE
    if text in PUBLISHED:
        return PUBLISHED[text][0]
    return next((name for start, name in BEGINNINGS.items() if text.lstrip().startswith(start)), DEFAULT_SPACE)


def find_space(name: str, **settings: Any) -> SearchSpace:
    """Return a space by its name, with other settings if given."""
    entry = SPACES.find(name)
    kind = entry.load()
    values, problems = check("space", kind, {**entry.settings, **settings})
    if problems:
        raise SettingError(problems)
    space: SearchSpace = kind(**values)
    return space


def _space_of(saved: object) -> SearchSpace:
    """Return the space that a result names, with the settings of its search."""
    if not isinstance(saved, Mapping):
        return find_space(DEFAULT_SPACE)
    name = str(saved.get("name", DEFAULT_SPACE))
    return find_space(name, **{str(key): value for key, value in saved.items() if key != "name"})


def _content(given: str) -> JsonObject | None:
    """Return a JSON object, from a file or from the text itself; None if the text is no JSON and names no file."""
    if given.lstrip().startswith("{"):
        return _json(given, source="the architecture")
    path = _file(given)
    if path is None:
        return None
    try:
        return _json(path.read_text(encoding="utf-8"), source=str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ParseError(f"cannot read {path}: {reason}") from error


def _file(given: str) -> Path | None:
    """Return the file that the text names, if it names one."""
    path = Path(given)
    try:
        exists, folder = path.exists(), path.is_dir()
    except (OSError, ValueError):  # a genotype is too long for a file name
        return None
    if folder:
        return _result_of(path)
    if not exists and path.suffix == ".json":
        raise ParseError(f"no file {path}")
    return path if exists else None


def _result_of(run: Path) -> Path:
    found = next((run / name for name in RESULTS if (run / name).is_file()), None)
    if found is None:
        raise ParseError(
            f"{run} holds no {RESULTS[0]}: it is no run, or one that has not ended (`archloom resume {run}`)"
        )
    return found


def _json(text: str, *, source: str) -> JsonObject:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"{source} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ParseError(f"{source} must be a JSON object, got {_excerpt(text)}")
    return value


def _excerpt(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}..."
