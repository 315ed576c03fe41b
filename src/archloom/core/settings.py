"""Settings: what a configuration may contain, read from the keywords of what it configures.

A strategy, a space or a data set declares its settings once, as typed keyword-only parameters with a `Doc` for help.
Checking, defaults, help and suggestions all come from there and cannot disagree with the code. A setting whose type is
a frozen dataclass is a table of its own: `[strategy.logits]`. Problems are collected, so that a user fixes all at once.
"""

from __future__ import annotations

import dataclasses
import datetime
import inspect
import math
import re
import tomllib
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, Union

import tomli_w
from annotated_doc import Doc

from archloom.core.errors import SettingError, suggestion

NOT_SETTINGS = ("kept",)  # a search space narrows this itself, see SearchSpace.restrict
LONGEST_QUOTE = 100
LARGEST_NUMBER = 2**63  # what TOML and torch count with

Target: TypeAlias = Callable[..., Any]  # a function or a class
Settings: TypeAlias = Mapping[str, Any]
"""Keywords whose types the thing that takes them declares: a strategy, a space, a network or a data set."""


@dataclass(frozen=True)
class Setting:
    """One keyword of a target; `default` has no meaning where the setting is required."""

    name: str
    type: Any
    default: Any
    required: bool
    help: str = ""

    @property
    def section(self) -> type | None:
        """Return the dataclass of the settings below this one, or None if it is no table."""
        members = typing.get_args(self.type) if is_union(self.type) else (self.type,)
        return next((member for member in members if is_section(member)), None)


@dataclass(frozen=True)
class Component:
    """Something that a configuration names (a space, a strategy, a data set), and all of its settings."""

    name: str
    settings: Settings

    def to_settings(self) -> Settings:
        """Return the table that a file has for it; the name comes first."""
        return {"name": self.name, **tables_of(self.settings)}


# --- reading a schema


def schema(target: Target, *, skip: Collection[str] = NOT_SETTINGS) -> dict[str, Setting]:
    """Return the settings of a function, a class or a dataclass: its keyword-only parameters.

    A class whose `__init__` ends in `**` has those of its parent too. Help is `Annotated[type, Doc("...")]`.
    What a caller provides (space, generator, directory) is positional, and therefore no setting.
    """
    try:
        declaring = _declaring(target)
        defaults = _field_defaults(target) if dataclasses.is_dataclass(target) else _parameter_defaults(declaring)
        hints = {name: hint for part in reversed(declaring) for name, hint in _hints(part).items()}
    except (NameError, TypeError, ValueError) as error:  # a plug-in may be anything
        raise SettingError(f"the settings of {_name(target)} cannot be read: {error}") from error
    return {
        name: Setting(
            name=name,
            type=_without_help(hints.get(name, Any)),
            default=None if default is dataclasses.MISSING else _typed(default, _without_help(hints.get(name, Any))),
            required=default is dataclasses.MISSING,
            help=_help(hints.get(name, Any)),
        )
        for name, default in defaults.items()
        if name not in skip
    }


def flat_schema(target: Target, prefix: str) -> dict[str, Setting]:
    """Return the settings by dotted name; a table of its own is replaced by the settings in it."""
    flat: dict[str, Setting] = {}
    for name, setting in schema(target).items():
        path = f"{prefix}.{name}"
        flat |= {path: setting} if setting.section is None else _flat_section(setting, path)
    return flat


def _flat_section(setting: Setting, path: str) -> dict[str, Setting]:
    assert setting.section is not None
    defaults = {} if setting.default is None else settings_of(setting.default)
    return {
        name: dataclasses.replace(inner, default=defaults.get(inner.name, inner.default))
        for name, inner in flat_schema(setting.section, path).items()
    }


def settings_of(made: Any) -> Settings:
    """Return the values that a frozen dataclass, such as a search space or a section, was made with."""
    return {
        field.name: getattr(made, field.name) for field in dataclasses.fields(made) if field.name not in NOT_SETTINGS
    }


def tables_of(value: Any) -> Any:
    """Return settings as a file has them: sections become tables, everything else stays as it is."""
    if isinstance(value, Mapping):
        return {name: tables_of(item) for name, item in value.items()}
    return tables_of(settings_of(value)) if is_section(type(value)) else value


def _field_defaults(target: Any) -> Settings:
    fields = [field for field in dataclasses.fields(target) if field.init and field.kw_only]
    made = {f.name: f.default_factory() for f in fields if f.default_factory is not dataclasses.MISSING}
    return {field.name: made.get(field.name, field.default) for field in fields}


def _parameter_defaults(declaring: Sequence[Any]) -> Settings:
    """Return the defaults of the functions given; where two have a parameter of the same name, the first one counts."""
    defaults: dict[str, object] = {}
    for function in declaring:
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY:
                missing = parameter.default is parameter.empty
                defaults.setdefault(parameter.name, dataclasses.MISSING if missing else parameter.default)
    return defaults


def _declaring(target: Any) -> tuple[Any, ...]:
    """Return what has the annotations: a dataclass and its parents, every `__init__` that gets keywords, a function."""
    if not inspect.isclass(target):
        return (target,)
    return inspect.getmro(target) if dataclasses.is_dataclass(target) else tuple(_initializers(target))


def _initializers(kind: type) -> Iterator[Any]:
    for parent in inspect.getmro(kind)[:-1]:  # all but object
        if "__init__" in vars(parent):
            function = vars(parent)["__init__"]
            yield function
            kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
            if inspect.Parameter.VAR_KEYWORD not in kinds:
                return


def _typed(default: Any, wanted: Any) -> Any:
    """Return a default as a file would give it back: 3 becomes 3.0 if the type is float."""
    return float(default) if wanted is float and type(default) is int else default


def _name(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind))


def _hints(declaration: Any) -> dict[str, Any]:  # Any: annotations have no common type
    return typing.get_type_hints(declaration, include_extras=True)


def _without_help(hint: Any) -> Any:
    return hint.__origin__ if typing.get_origin(hint) is Annotated else hint


def _help(hint: Any) -> str:
    notes = hint.__metadata__ if typing.get_origin(hint) is Annotated else ()
    return next((note.documentation for note in notes if isinstance(note, Doc)), "")


# --- checking values


class _UnfitError(Exception):
    """A value is not of the type wanted; the caller knows the name to report."""


def check(
    section: str, target: Target, values: Settings, *, skip: Collection[str] = NOT_SETTINGS
) -> tuple[Settings, list[str]]:
    """Return the given values as the target's keywords want them, and a line for each that does not fit.

    Settings that are not given are left out, so that the target's defaults apply.
    """
    return check_values(section, schema(target, skip=skip), values)


def check_values(section: str, settings: Mapping[str, Setting], values: Settings) -> tuple[Settings, list[str]]:
    """Do what `check` does, for the settings of several targets together."""
    if not isinstance(values, Mapping):
        return {}, [f"{section} must be a table of settings, got {_shown(values)}"]
    coerced: dict[str, object] = {}
    problems: list[str] = []
    for name, value in values.items():
        if name not in settings:
            problems.append(f"unknown setting '{_path(section, name)}'{suggestion(name, settings)}")
        elif settings[name].section is not None and isinstance(value, Mapping):
            made, lines = _check_section(_path(section, name), settings[name], value)
            problems += lines
            coerced |= {} if lines else {name: made}
        else:
            try:
                coerced[name] = _convert(value, settings[name].type)
            except _UnfitError:
                problems.append(
                    f"{_path(section, name)} must be {_expected(settings[name], value)}, got {_shown(value)}"
                )
    missing = [setting for setting in settings.values() if setting.required and setting.name not in values]
    problems += [f"{_path(section, setting.name)} must be given: {expected(setting.type)}" for setting in missing]
    return coerced, problems


def _expected(setting: Setting, value: Any) -> str:
    is_huge = setting.type is int and type(value) is int and abs(value) >= LARGEST_NUMBER
    return f"{expected(setting.type)}{' between -2^63 and 2^63' if is_huge else ''}"


def _check_section(path: str, setting: Setting, values: Settings) -> tuple[Any, list[str]]:
    """Return the section that a table of its own stands for; what the table leaves out is as in the default."""
    assert setting.section is not None
    before = {} if setting.default is None else settings_of(setting.default)
    optional = {n: dataclasses.replace(inner, required=False) for n, inner in schema(setting.section).items()}
    coerced, problems = check_values(path, optional if before else schema(setting.section), values)
    if problems:
        return None, problems
    try:
        return setting.section(**{**before, **coerced}), []
    except SettingError as error:
        return None, list(error.problems)


def _path(section: str, name: str) -> str:
    return f"{section}.{name}" if section else name


def _shown(value: Any) -> str:
    """Return the value as a message quotes it: short enough for one line."""
    try:
        text = repr(value)
    except ValueError:  # Python declines to write out very long numbers
        return "a value too long to show"
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}..."


_ONE_AND_MANY = {
    bool: ("true or false", "true or false"),
    int: ("a whole number", "whole numbers"),
    float: ("a finite number", "finite numbers"),
    str: ("text", "texts"),
    Path: ("a path", "paths"),
    Any: ("any value", "any values"),
}


def expected(wanted: Any) -> str:
    """Return a type in words, for messages and help: 'a whole number', 'one of batch, sample', 'a list of paths'."""
    if is_union(wanted):
        members = [member for member in typing.get_args(wanted) if member is not type(None)]
        return " or ".join(expected(member) for member in members)
    if typing.get_origin(wanted) is Literal:
        return f"one of {', '.join(str(option) for option in typing.get_args(wanted))}"
    kind, arguments = typing.get_origin(wanted) or wanted, typing.get_args(wanted)
    if wanted in _ONE_AND_MANY:
        return _ONE_AND_MANY[wanted][0]
    if is_section(wanted):
        return "a table of settings"
    if is_class(kind, Mapping):
        return f"a table of {_many(arguments[1])}" if arguments else "a table"
    if is_class(kind, Iterable):
        return _expected_list(arguments)
    return f"a {_name(kind)}"


def _expected_list(arguments: tuple[Any, ...]) -> str:
    if not arguments:
        return "a list"
    if is_of_fixed_length(arguments):
        return f"a list of {len(arguments)}: {', '.join(expected(argument) for argument in arguments)}"
    return f"a list of {_many(arguments[0])}"


def _many(wanted: Any) -> str:
    return _ONE_AND_MANY[wanted][1] if wanted in _ONE_AND_MANY else f"values, each {expected(wanted)}"


def _convert(value: Any, wanted: Any) -> Any:
    """Return the value as the wanted type, or raise _UnfitError. Only a conversion that loses nothing is made."""
    if wanted is Any:
        return value
    if is_union(wanted):
        return _convert_to_one_of(value, typing.get_args(wanted))
    kind, arguments = typing.get_origin(wanted) or wanted, typing.get_args(wanted)
    if kind is Literal:
        return _require(value, any(value == option and type(value) is type(option) for option in arguments))
    if kind in (bool, int, str):  # exactly: True is no number, and 1 is not true
        return _require(value, type(value) is kind and (kind is not int or abs(value) < LARGEST_NUMBER))
    if kind is float:
        return _convert_to_float(value)
    if kind is Path:
        return Path(_require(value, isinstance(value, str | Path) and str(value) != ""))
    if is_class(kind, Mapping):
        return _convert_to_dict(value, arguments)
    if is_class(kind, Iterable):
        return _convert_to_sequence(value, kind, arguments)
    return _require(value, not isinstance(kind, type) or isinstance(value, kind))


def _require(value: Any, fits: bool) -> Any:
    if not fits:
        raise _UnfitError
    return value


def _convert_to_one_of(value: Any, members: tuple[Any, ...]) -> Any:
    """Return what the first member makes of the value that keeps its type, else the first that accepts it at all."""
    converted = []
    for member in members:
        try:
            converted.append(_convert(value, member))
        except _UnfitError:
            continue
    unchanged = [candidate for candidate in converted if type(candidate) is type(value)]
    return (unchanged or _require(converted, bool(converted)))[0]


def _convert_to_float(value: Any) -> float:
    _require(value, type(value) in (int, float))
    try:
        number = float(value)
    except OverflowError as error:
        raise _UnfitError from error
    return float(_require(number, math.isfinite(number)))


def _convert_to_dict(value: Any, arguments: tuple[Any, ...]) -> dict[Any, Any]:
    _require(value, isinstance(value, Mapping))
    of_key, of_value = arguments or (Any, Any)
    return {_convert(key, of_key): _convert(item, of_value) for key, item in value.items()}


def _convert_to_sequence(value: Any, kind: type, arguments: tuple[Any, ...]) -> Any:
    _require(value, isinstance(value, list | tuple))
    if is_of_fixed_length(arguments):
        _require(value, len(value) == len(arguments))
        return tuple(_convert(item, argument) for item, argument in zip(value, arguments, strict=True))
    items = [_convert(item, arguments[0] if arguments else Any) for item in value]
    return items if kind is list else kind(items) if kind in (set, frozenset) else tuple(items)


def is_of_fixed_length(arguments: tuple[Any, ...]) -> bool:
    """Return whether a sequence has a length: tuple[int, str] has one; tuple[int, ...] and list[int] have none."""
    return len(arguments) > 1 and arguments[1] is not Ellipsis


def is_union(wanted: Any) -> bool:
    """Return whether a type is one of several."""
    return typing.get_origin(wanted) in (Union, types.UnionType)


def is_section(kind: Any) -> bool:
    """Return whether a type is a table of its own: a dataclass whose settings a file can contain."""
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def is_class(kind: Any, parent: type) -> bool:
    """Return whether a type is a class derived from another."""
    return isinstance(kind, type) and issubclass(kind, parent)


# --- settings from the command line and from files


def parse_assignments(texts: Sequence[str]) -> tuple[Settings, list[str]]:
    """Return `strategy.epochs=5` and the like as nested settings, and a line for each that is malformed.

    Of two values for one name the last one wins.
    """
    layers = []
    problems = []
    for text in texts:
        try:
            layers.append(_parse_assignment(text))
        except _UnfitError as error:
            problems.append(str(error))
    return merge(*layers), problems


def _parse_assignment(text: str) -> Settings:
    path, equals, written = text.partition("=")
    names = [name.strip() for name in path.split(".")]
    if not equals or not all(re.fullmatch(r"[\w-]+", name) for name in names):
        raise _UnfitError(f"--set needs section.name=value, got {_shown(text)}")
    nested = _parse_value(written.strip(), path=path.strip())
    for name in reversed(names):
        nested = {name: nested}
    return typing.cast(Settings, nested)


def _parse_value(text: str, *, path: str) -> Any:
    """Return a TOML value, or the text itself where it is none: quotes around a word are a nuisance in a shell."""
    if not text.isprintable():
        raise _UnfitError(f"--set {path} must be printable text, got {_shown(text)}")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError) as error:
        if text[:1] in tuple("[{\"'"):  # it begins like TOML: reading it as a word would hide a typing error
            raise _UnfitError(f"--set {path} must be a TOML value or a plain word, got {_shown(text)}") from error
        return text
    return text if isinstance(value, datetime.date | datetime.time) else value  # no setting is a date; a name may be


def merge(*layers: Settings) -> Settings:
    """Return one mapping of all layers, with tables merged; a later layer wins. The layers are not changed."""
    merged: dict[str, object] = {}
    for layer in layers:
        for name, value in layer.items():
            if isinstance(value, Mapping):
                before = merged.get(name)
                merged[name] = merge(before if isinstance(before, Mapping) else {}, value)
            else:
                merged[name] = value
    return merged


def flatten(tables: Settings, prefix: str = "") -> Settings:
    """Return nested tables as one, by dotted name."""
    flat: dict[str, object] = {}
    for name, value in tables.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def read_toml(path: Path) -> Settings:
    """Return the contents of a TOML file; a SettingError says in one line why it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise SettingError(f"no file {path}{_near_files(path)}") from error
    except IsADirectoryError as error:
        raise SettingError(f"{path} is a folder; a TOML file is needed") from error
    except OSError as error:
        raise SettingError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingError(f"{path} is not a TOML file: it is not UTF-8 text") from error
    except (ValueError, RecursionError) as error:  # TOMLDecodeError says the line and column
        raise SettingError(f"{path} is not a TOML file: {error}") from error


def _near_files(path: Path) -> str:
    if not path.parent.is_dir():
        return f"; there is no folder {path.parent}"
    return suggestion(path.name, [near.name for near in path.parent.glob("*.toml")])


def write_toml(settings: Settings) -> str:
    """Return the settings as TOML. None is left out: TOML has no such value, and None is a default."""
    return tomli_w.dumps(plain_value(settings))


def plain_value(value: Any) -> Any:
    """Return a value as TOML and JSON have it."""
    if isinstance(value, Mapping):
        return {str(name): plain_value(item) for name, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    if is_section(type(value)):
        return plain_value(settings_of(value))
    return str(value) if isinstance(value, Path) else value
