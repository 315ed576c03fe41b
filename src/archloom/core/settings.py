"""Settings: what a configuration may say, read off the keywords of whatever it configures.

A strategy, a space or a data set declares its settings once, as typed keyword-only parameters. Checking, defaults, help
and suggestions all come from there, so that none of them can disagree with the code. Problems are collected, not
raised one by one: a user mends a configuration in one go.
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

Target: TypeAlias = Callable[..., Any]  # a function or a class


@dataclass(frozen=True)
class Setting:
    """One keyword of a target; `default` means nothing where the setting is required."""

    name: str
    type: Any
    default: Any
    required: bool
    help: str = ""


# --- reading a schema


def schema(target: Target, *, skip: Collection[str] = NOT_SETTINGS) -> dict[str, Setting]:
    """The settings of a function, a class or a dataclass: its keyword-only parameters.

    A class whose `__init__` ends in `**` has those of its parent too. Help is `Annotated[type, Doc("...")]`.
    What a caller provides itself (space, generator, directory) is positional, and so no setting.
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
            default=None if default is dataclasses.MISSING else default,
            required=default is dataclasses.MISSING,
            help=_help(hints.get(name, Any)),
        )
        for name, default in defaults.items()
        if name not in skip
    }


def settings_of(made: Any) -> dict[str, Any]:
    """The values that a frozen dataclass, such as a search space, was made with."""
    return {
        field.name: getattr(made, field.name) for field in dataclasses.fields(made) if field.name not in NOT_SETTINGS
    }


def _field_defaults(target: Any) -> dict[str, Any]:
    fields = [field for field in dataclasses.fields(target) if field.init and field.kw_only]
    made = {f.name: f.default_factory() for f in fields if f.default_factory is not dataclasses.MISSING}
    return {field.name: made.get(field.name, field.default) for field in fields}


def _parameter_defaults(declaring: Sequence[Any]) -> dict[str, Any]:
    """Of the functions given; where two name a parameter alike, the first one counts."""
    defaults: dict[str, Any] = {}
    for function in declaring:
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY:
                missing = parameter.default is parameter.empty
                defaults.setdefault(parameter.name, dataclasses.MISSING if missing else parameter.default)
    return defaults


def _declaring(target: Any) -> tuple[Any, ...]:
    """Whatever holds the annotations: a dataclass and its parents, an __init__ and those it hands on to, a function."""
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


def _name(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind))


def _hints(declaration: Any) -> dict[str, Any]:
    return typing.get_type_hints(declaration, include_extras=True)


def _without_help(hint: Any) -> Any:
    return hint.__origin__ if typing.get_origin(hint) is Annotated else hint


def _help(hint: Any) -> str:
    notes = hint.__metadata__ if typing.get_origin(hint) is Annotated else ()
    return next((note.documentation for note in notes if isinstance(note, Doc)), "")


# --- checking values


class _UnfitError(Exception):
    """A value is not of the kind wanted; the caller knows the name to report."""


def check(
    section: str, target: Target, values: Mapping[str, Any], *, skip: Collection[str] = NOT_SETTINGS
) -> tuple[dict[str, Any], list[str]]:
    """The given values as the target's keywords want them, and a line for each that cannot be.

    Settings not given are left out, so that defaults stay with the target.
    """
    settings = schema(target, skip=skip)
    if not isinstance(values, Mapping):
        return {}, [f"{section} must be a table of settings, got {_shown(values)}"]
    coerced: dict[str, Any] = {}
    problems = []
    for name, value in values.items():
        if name not in settings:
            problems.append(f"unknown setting '{_path(section, name)}'{suggestion(name, settings)}")
            continue
        try:
            coerced[name] = _convert(value, settings[name].type)
        except _UnfitError:
            problems.append(f"{_path(section, name)} must be {expected(settings[name].type)}, got {_shown(value)}")
    missing = [setting for setting in settings.values() if setting.required and setting.name not in values]
    problems += [f"{_path(section, setting.name)} must be given: {expected(setting.type)}" for setting in missing]
    return coerced, problems


def _path(section: str, name: str) -> str:
    return f"{section}.{name}" if section else name


def _shown(value: Any) -> str:
    """The value as a message quotes it: short enough for one line."""
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
    """A type in words, for messages and help: 'a whole number', 'one of batch, sample', 'a list of paths'."""
    if _is_union(wanted):
        members = [member for member in typing.get_args(wanted) if member is not type(None)]
        return " or ".join(expected(member) for member in members)
    if typing.get_origin(wanted) is Literal:
        return f"one of {', '.join(str(option) for option in typing.get_args(wanted))}"
    kind, arguments = typing.get_origin(wanted) or wanted, typing.get_args(wanted)
    if wanted in _ONE_AND_MANY:
        return _ONE_AND_MANY[wanted][0]
    if _is_class(kind, Mapping):
        return f"a table of {_many(arguments[1])}" if arguments else "a table"
    if _is_class(kind, Iterable):
        return _expected_list(arguments)
    return f"a {_name(kind)}"


def _expected_list(arguments: tuple[Any, ...]) -> str:
    if not arguments:
        return "a list"
    if _is_of_fixed_length(arguments):
        return f"a list of {len(arguments)}: {', '.join(expected(argument) for argument in arguments)}"
    return f"a list of {_many(arguments[0])}"


def _many(wanted: Any) -> str:
    return _ONE_AND_MANY[wanted][1] if wanted in _ONE_AND_MANY else f"values, each {expected(wanted)}"


def _convert(value: Any, wanted: Any) -> Any:
    """The value as the wanted type, or _UnfitError. Only what loses nothing is converted."""
    if wanted is Any:
        return value
    if _is_union(wanted):
        return _convert_to_one_of(value, typing.get_args(wanted))
    kind, arguments = typing.get_origin(wanted) or wanted, typing.get_args(wanted)
    if kind is Literal:
        return _require(value, any(value == option and type(value) is type(option) for option in arguments))
    if kind in (bool, int, str):  # exactly: True is no number, and 1 is not true
        return _require(value, type(value) is kind)
    if kind is float:
        return _convert_to_float(value)
    if kind is Path:
        return Path(_require(value, isinstance(value, str | Path) and str(value) != ""))
    if _is_class(kind, Mapping):
        return _convert_to_dict(value, arguments)
    if _is_class(kind, Iterable):
        return _convert_to_sequence(value, kind, arguments)
    return _require(value, not isinstance(kind, type) or isinstance(value, kind))


def _require(value: Any, fits: bool) -> Any:
    if not fits:
        raise _UnfitError
    return value


def _convert_to_one_of(value: Any, members: tuple[Any, ...]) -> Any:
    """The first member that takes the value unchanged, else the first that takes it at all."""
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
    if _is_of_fixed_length(arguments):
        _require(value, len(value) == len(arguments))
        return tuple(_convert(item, argument) for item, argument in zip(value, arguments, strict=True))
    items = [_convert(item, arguments[0] if arguments else Any) for item in value]
    return items if kind is list else kind(items) if kind in (set, frozenset) else tuple(items)


def _is_of_fixed_length(arguments: tuple[Any, ...]) -> bool:
    """tuple[int, str] has a length; tuple[int, ...] and list[int] have none."""
    return len(arguments) > 1 and arguments[1] is not Ellipsis


def _is_union(wanted: Any) -> bool:
    return typing.get_origin(wanted) in (Union, types.UnionType)


def _is_class(kind: Any, parent: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, parent)


# --- settings from the command line and from files


def parse_assignments(texts: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """`strategy.epochs=5` and the like as nested settings (the last of one name wins), and a line for each misfit."""
    layers = []
    problems = []
    for text in texts:
        try:
            layers.append(_parse_assignment(text))
        except _UnfitError as error:
            problems.append(str(error))
    return merge(*layers), problems


def _parse_assignment(text: str) -> dict[str, Any]:
    path, equals, written = text.partition("=")
    names = [name.strip() for name in path.split(".")]
    if not equals or not all(re.fullmatch(r"[\w-]+", name) for name in names):
        raise _UnfitError(f"--set needs section.name=value, got {_shown(text)}")
    nested = _parse_value(written.strip(), path=path.strip())
    for name in reversed(names):
        nested = {name: nested}
    return typing.cast(dict[str, Any], nested)


def _parse_value(text: str, *, path: str) -> Any:
    """A TOML value, or the text itself where it is none: quotes around a word are a nuisance in a shell."""
    if not text.isprintable():
        raise _UnfitError(f"--set {path} must be printable text, got {_shown(text)}")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError) as error:
        if text[:1] in tuple("[{\"'"):  # begun as TOML, so that taking it for a word would hide a slip
            raise _UnfitError(f"--set {path} must be a TOML value or a plain word, got {_shown(text)}") from error
        return text
    return text if isinstance(value, datetime.date | datetime.time) else value  # no setting is a date; a name may be


def named_sections(names: Mapping[str, str], settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Settings by section as a file has them: the name of what a section configures comes first."""
    called = {section: {"name": name} for section, name in names.items()}
    return {section: {**called.get(section, {}), **values} for section, values in settings.items()}


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """One mapping of all layers, tables merged within; a later layer wins. The layers themselves stay as they are."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            if isinstance(value, Mapping):
                before = merged.get(name)
                merged[name] = merge(before if isinstance(before, Mapping) else {}, value)
            else:
                merged[name] = value
    return merged


def read_toml(path: Path) -> dict[str, Any]:
    """The contents of a TOML file, or one line on why there are none."""
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


def write_toml(settings: Mapping[str, Any]) -> str:
    """The settings as TOML. What is None is left out, since TOML knows no such value and None is a default."""
    return tomli_w.dumps(_plain(settings))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
