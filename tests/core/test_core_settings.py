"""Settings are read off keywords, checked all at once, and survive a trip through TOML."""

from __future__ import annotations

import importlib
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, get_args

import pytest
from annotated_doc import Doc
from hypothesis import given
from hypothesis import strategies as st

from archloom.core.errors import SettingError
from archloom.core.settings import (
    Setting,
    check,
    expected,
    flat_schema,
    merge,
    parse_assignments,
    read_toml,
    schema,
    tables_of,
    write_toml,
)
from archloom.spaces import SPACES, Darts, Nb201


class Strategy:
    def __init__(
        self,
        space: object,
        rate: float = 1.0,
        *,
        temperature_start: Annotated[float, Doc("where cooling begins")] = 10.0,
        epochs: int,
        sampling: Literal["batch", "sample"] = "batch",
        milestones: tuple[int, ...] = (),
        folder: Path | None = None,
        exact: bool = False,
        untyped=None,  # type: ignore[no-untyped-def]
    ) -> None: ...


class Inherited(Strategy):
    pass


@dataclass(kw_only=True)
class Base:
    inherited: Annotated[int, Doc("from the parent")] = 1


@dataclass(kw_only=True)
class Source(Base):
    name: str
    sizes: Annotated[list[int], Doc("of the pictures")] = field(default_factory=lambda: [32])
    hidden: int = field(default=0, init=False)


def prepare(directory: Path, *, size: int = 32) -> None: ...


def problems(values: Mapping[str, Any]) -> list[str]:
    return check("strategy", Strategy, {"epochs": 1, **values})[1]


def one(wanted: Any, value: Any) -> Any:
    """The value as a keyword of the wanted type gets it; fails where it is refused."""
    coerced, lines = check("s", keyword_of(wanted), {"x": value})
    assert lines == []
    return coerced["x"]


def refused(wanted: Any, value: Any) -> str:
    coerced, lines = check("s", keyword_of(wanted), {"x": value})
    assert coerced == {}
    assert len(lines) == 1
    return lines[0]


def keyword_of(wanted: Any) -> Callable[..., None]:
    def target(*, x: Any) -> None: ...

    target.__annotations__["x"] = wanted
    return target


# --- schemas


def test_the_keywords_of_a_class_are_its_settings() -> None:
    settings = schema(Strategy)
    assert list(settings) == [
        "temperature_start",
        "epochs",
        "sampling",
        "milestones",
        "folder",
        "exact",
        "untyped",
    ]
    assert settings["temperature_start"] == Setting("temperature_start", float, 10.0, False, "where cooling begins")
    assert settings["epochs"] == Setting("epochs", int, None, True)
    assert settings["folder"].type == Path | None
    assert settings["untyped"].type is Any
    assert schema(Inherited) == settings


def test_the_fields_of_a_dataclass_are_its_settings() -> None:
    settings = schema(Source)
    assert settings["inherited"] == Setting("inherited", int, 1, False, "from the parent")
    assert settings["name"].required
    assert settings["sizes"] == Setting("sizes", list[int], [32], False, "of the pictures")
    assert "hidden" not in settings


def test_the_keywords_of_a_function_are_its_settings() -> None:
    assert schema(prepare) == {"size": Setting("size", int, 32, False)}


@pytest.mark.parametrize("space", [Nb201, Darts])
def test_what_a_space_keeps_for_itself_is_no_setting(space: type) -> None:
    assert "kept" not in schema(space)
    assert "kept" in schema(space, skip=())
    assert "nodes" not in schema(space, skip=["nodes"])


def test_the_doc_of_a_field_is_its_help_and_no_part_of_its_type() -> None:
    sharing = schema(Darts)["sharing"]
    assert sharing.help == "none: every cell makes its own choices"
    assert "none" in get_args(sharing.type)


@pytest.mark.parametrize("name", SPACES)
def test_the_settings_of_every_named_space_pass_their_own_check(name: str) -> None:
    space = SPACES[name].load()
    coerced, lines = check("space", space, SPACES[name].settings)
    assert lines == []
    space(**coerced)


def test_a_class_without_parameters_or_source_has_no_settings() -> None:
    assert schema(type("Bare", (), {})) == {}


def test_what_has_no_readable_signature_is_one_line() -> None:
    def unknown(*, x: Nowhere = 1) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(SettingError, match="the settings of unknown cannot be read: name 'Nowhere' is not defined"):
        schema(unknown)
    with pytest.raises(SettingError, match="the settings of min cannot be read"):
        schema(min)


def test_a_dataclass_resolves_names_where_each_parent_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "settings_elsewhere.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom typing import Literal as OneOf\n"
        "@dataclass(kw_only=True)\nclass Parent:\n    mode: OneOf['a', 'b'] = 'a'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("settings_elsewhere")

    @dataclass(kw_only=True)
    class Child(module.Parent):  # type: ignore[name-defined,misc]
        more: int = 1

    assert schema(Child)["mode"].type == Literal["a", "b"]


# --- values


def test_values_are_fitted_to_their_types() -> None:
    coerced, lines = check(
        "strategy",
        Strategy,
        {"temperature_start": 5, "epochs": 3, "milestones": [1, 2], "folder": "runs", "exact": True},
    )
    assert lines == []
    assert coerced == {
        "temperature_start": 5.0,
        "epochs": 3,
        "milestones": (1, 2),
        "folder": Path("runs"),
        "exact": True,
    }
    assert type(coerced["temperature_start"]) is float


def test_all_problems_are_collected() -> None:
    coerced, lines = check(
        "strategy", Strategy, {"temperature_strat": 5, "sampling": "x", "exact": 1, "temperature_start": 2.0}
    )
    assert lines == [
        "unknown setting 'strategy.temperature_strat'; did you mean 'temperature_start'?",
        "strategy.sampling must be one of batch, sample, got 'x'",
        "strategy.exact must be true or false, got 1",
        "strategy.epochs must be given: a whole number",
    ]
    assert coerced == {"temperature_start": 2.0}


def test_a_section_without_a_name_is_the_top() -> None:
    assert check("", prepare, {"size": "big"})[1] == ["size must be a whole number, got 'big'"]


def test_a_section_that_is_no_table_is_a_problem() -> None:
    assert check("strategy", Strategy, "gdas") == (  # type: ignore[arg-type]
        {},
        ["strategy must be a table of settings, got 'gdas'"],
    )


@pytest.mark.parametrize(
    ("wanted", "value", "result"),
    [
        (int, 3, 3),
        (float, 3, 3.0),
        (str, "a", "a"),
        (Any, {"a": [1]}, {"a": [1]}),
        (Path, "a/b", Path("a/b")),
        (Path, Path("a"), Path("a")),
        (Optional[int], None, None),  # noqa: UP045 - the older spelling is another type at run time
        (int | None, 3, 3),
        (float | int, 3, 3),
        (float | str, 3, 3.0),
        (Path | str, "a", "a"),
        (int | Literal["auto"], "auto", "auto"),
        (Literal[1, "a"], 1, 1),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[int, float], [1, 2], (1, 2.0)),
        (tuple, [1, "a"], (1, "a")),
        (tuple[tuple[str, int], ...], [["a", 1]], (("a", 1),)),
        (list[str], ("a",), ["a"]),
        (list, [1], [1]),
        (Sequence[float], [1], (1.0,)),
        (frozenset[str], ["a"], frozenset({"a"})),
        (dict[str, float], {"a": 1}, {"a": 1.0}),
        (Mapping[str, list[int]], {"a": (1,)}, {"a": [1]}),
        (dict, {"a": None}, {"a": None}),
        (Annotated[int, "seconds"], 3, 3),
        (Callable[[int], int], abs, abs),
    ],
)
def test_a_fitting_value_is_taken(wanted: Any, value: Any, result: Any) -> None:
    coerced = one(wanted, value)
    assert coerced == result
    assert type(coerced) is type(result)


@pytest.mark.parametrize(
    ("wanted", "value", "line"),
    [
        (int, "ten", "s.x must be a whole number, got 'ten'"),
        (int, True, "s.x must be a whole number, got True"),
        (int, 3.0, "s.x must be a whole number, got 3.0"),
        (int, None, "s.x must be a whole number, got None"),
        (float, False, "s.x must be a finite number, got False"),
        (float, "1", "s.x must be a finite number, got '1'"),
        (float, math.nan, "s.x must be a finite number, got nan"),
        (float, -math.inf, "s.x must be a finite number, got -inf"),
        (float | None, math.inf, "s.x must be a finite number, got inf"),
        (bool, 0, "s.x must be true or false, got 0"),
        (str, 1, "s.x must be text, got 1"),
        (Path, 1, "s.x must be a path, got 1"),
        (Path, "", "s.x must be a path, got ''"),
        (Literal[1], True, "s.x must be one of 1, got True"),
        (Literal["a", "b"], ["a"], "s.x must be one of a, b, got ['a']"),
        (int | Literal["auto"], 1.5, "s.x must be a whole number or one of auto, got 1.5"),
        (tuple[int, ...], [1, "b"], "s.x must be a list of whole numbers, got [1, 'b']"),
        (tuple[int, str], [1], "s.x must be a list of 2: a whole number, text, got [1]"),
        (list[Literal["a"]], "a", "s.x must be a list of values, each one of a, got 'a'"),
        (list[str], "abc", "s.x must be a list of texts, got 'abc'"),
        (list, 3, "s.x must be a list, got 3"),
        (dict[str, int], {"a": "b"}, "s.x must be a table of whole numbers, got {'a': 'b'}"),
        (dict, [], "s.x must be a table, got []"),
        (Iterable[Path], 1, "s.x must be a list of paths, got 1"),
        (Callable[[int], int], 3, "s.x must be a Callable, got 3"),
        (slice, 3, "s.x must be a slice, got 3"),
    ],
)
def test_a_misfit_is_a_line(wanted: Any, value: Any, line: str) -> None:
    assert refused(wanted, value) == line


def test_a_number_too_large_for_a_float_is_a_line() -> None:
    assert refused(float, 10**400).startswith("s.x must be a finite number, got 1000")
    assert refused(float, 1 << 99_999) == "s.x must be a finite number, got a value too long to show"


def test_anything_is_described() -> None:
    assert expected(Any) == "any value"


@given(value=st.recursive(st.none() | st.booleans() | st.floats() | st.text() | st.integers(), st.lists))
def test_checking_never_raises(value: Any) -> None:
    for name in schema(Strategy):
        coerced, lines = check("strategy", Strategy, {"epochs": 1, name: value})
        assert (name in coerced) == (not lines)


# --- assignments


def test_assignments_nest_and_are_read_as_toml() -> None:
    settings, lines = parse_assignments(
        [
            "strategy.temperature_start=5",
            "data.name=cifar10",
            "seed = 3",
            "data.flip=true",
            "a.b.c=[1, 2]",
            'a.b.d="1"',
            "a.table={x = 1}",
            "a.path=../data/x=y",
            "a.empty=",
            "a.day=2024-05-01",
            "a.time=07:30:00",
            "a.rate=1e-3",
        ]
    )
    assert lines == []
    assert settings == {
        "strategy": {"temperature_start": 5},
        "data": {"name": "cifar10", "flip": True},
        "seed": 3,
        "a": {
            "b": {"c": [1, 2], "d": "1"},
            "table": {"x": 1},
            "path": "../data/x=y",
            "empty": "",
            "day": "2024-05-01",
            "time": "07:30:00",
            "rate": 0.001,
        },
    }


def test_the_last_assignment_of_a_name_wins() -> None:
    assert parse_assignments(["a=1", "a.b=2", "a.b=3"]) == ({"a": {"b": 3}}, [])
    assert parse_assignments(["a.b=2", "a=1"]) == ({"a": 1}, [])


@pytest.mark.parametrize("text", ["foo", "=3", "a..b=1", ".a=1", "", "a b=1", "a.=1"])
def test_what_is_no_assignment_is_a_line(text: str) -> None:
    assert parse_assignments([text, "seed=1"]) == ({"seed": 1}, [f"--set needs section.name=value, got {text!r}"])


@pytest.mark.parametrize("value", ["[1, 2", "{x =", '"open', "'open"])
def test_toml_begun_and_not_finished_is_a_line(value: str) -> None:
    settings, lines = parse_assignments([f"a.b={value}"])
    assert settings == {}
    assert lines == [f"--set a.b must be a TOML value or a plain word, got {value!r}"]


def test_a_long_value_is_quoted_in_part() -> None:
    lines = parse_assignments(["a.b=" + "[" * 10_000])[1]
    assert lines == [f"--set a.b must be a TOML value or a plain word, got '{'[' * 99}..."]


@pytest.mark.parametrize("value", ["1\nother = 2", "\udcff"])
def test_a_value_that_no_file_could_hold_is_a_line(value: str) -> None:
    settings, lines = parse_assignments([f"a={value}"])
    assert settings == {}
    assert "must be printable text" in lines[0]
    assert "\n" not in lines[0]


# --- layers and files


def test_later_layers_win_and_earlier_ones_stay_as_they_are() -> None:
    below = {"a": {"x": 1, "y": 2}, "b": 1, "c": {"z": 1}}
    merged = merge(below, {"a": {"y": 3}, "b": {"w": 1}, "c": 5})
    assert merged == {"a": {"x": 1, "y": 3}, "b": {"w": 1}, "c": 5}
    merged["a"]["x"] = 100
    assert below == {"a": {"x": 1, "y": 2}, "b": 1, "c": {"z": 1}}
    assert merge() == {}


def failure(path: Path) -> str:
    with pytest.raises(SettingError) as caught:
        read_toml(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_toml_is_read_with_or_without_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b"\xef\xbb\xbfa = 1")
    assert read_toml(path) == {"a": 1}
    path.write_text("a = 2")
    assert read_toml(path) == {"a": 2}


def test_a_missing_file_suggests_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "digits.toml").touch()
    (tmp_path / "digits.txt").touch()
    assert failure(tmp_path / "digit.toml") == f"no file {tmp_path / 'digit.toml'}; did you mean 'digits.toml'?"
    nowhere = tmp_path / "nowhere"
    assert failure(nowhere / "a.toml") == f"no file {nowhere / 'a.toml'}; there is no folder {nowhere}"


def test_files_that_are_no_toml_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("a = 1\nb = = 2")
    assert failure(path).startswith(f"{path} is not a TOML file: ")
    assert "line 2" in failure(path)
    path.write_bytes(b"a = '\xff'")
    assert failure(path) == f"{path} is not a TOML file: it is not UTF-8 text"
    path.write_text("a = " + "[" * 10_000)
    assert failure(path).startswith(f"{path} is not a TOML file: ")
    assert failure(tmp_path) == f"{tmp_path} is a folder; a TOML file is needed"
    assert failure(path / "inner.toml") == f"cannot read {path / 'inner.toml'}: Not a directory"


def test_settings_are_written_as_toml() -> None:
    settings = {"data": {"root": Path("a/b"), "size": None, "shape": (1, (2, 3))}, "seed": 3, "unset": None}
    text = write_toml(settings)
    assert tomllib.loads(text) == {"seed": 3, "data": {"root": "a/b", "shape": [1, [2, 3]]}}
    assert text.index("seed") < text.index("[data]")
    assert write_toml(tomllib.loads(text)) == text


values = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(settings=st.dictionaries(st.text(), values, max_size=4))
def test_what_is_written_reads_back(settings: dict[str, Any]) -> None:
    assert tomllib.loads(write_toml(settings)) == settings


class _Parent:
    def __init__(
        self,
        space: object,
        *,
        rate: Annotated[float, Doc("of the parent")] = 0.5,
        decay: Annotated[float, Doc("of the parent")] = 0.0,
    ) -> None: ...


class _Child(_Parent):
    def __init__(
        self,
        space: object,
        *,
        rate: Annotated[float, Doc("of the child")] = 0.1,
        steps: Annotated[int, Doc("of the child")] = 3,
        **common: Any,
    ) -> None: ...


class _Heir(_Child):
    """Has no __init__ of its own."""


class _Closed(_Parent):
    def __init__(self, space: object, *, steps: int = 3) -> None: ...


def test_a_class_that_hands_keywords_on_has_those_of_its_parent_too() -> None:
    for kind in (_Child, _Heir):
        settings = schema(kind)
        assert {name: (s.type, s.default, s.help) for name, s in settings.items()} == {
            "rate": (float, 0.1, "of the child"),
            "steps": (int, 3, "of the child"),
            "decay": (float, 0.0, "of the parent"),
        }
    assert list(schema(_Closed)) == ["steps"]
    assert check("strategy", _Child, {"decay": "x"})[1] == ["strategy.decay must be a finite number, got 'x'"]


# --- tables within a section


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: Annotated[float, Doc("learning rate")] = 0.1
    steps: Annotated[int, Doc("how many")] = 3

    def __post_init__(self) -> None:
        if self.rate <= 0:
            raise SettingError(f"strategy.logits.rate must be above 0, got {self.rate}")


class Nested:
    def __init__(
        self,
        *,
        seed: int = 0,
        logits: Annotated[Inner, Doc("of the logits")] = Inner(steps=5),
        extra: Inner | None = None,
    ) -> None: ...


def test_a_setting_that_is_a_dataclass_is_a_table_whose_rest_is_as_in_the_default() -> None:
    values, lines = check("strategy", Nested, {"logits": {"rate": 1}, "extra": {}})
    assert lines == []
    assert values == {"logits": Inner(rate=1.0, steps=5), "extra": Inner()}
    assert check("strategy", Nested, {"logits": Inner(steps=7)})[0] == {"logits": Inner(steps=7)}


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"logits": {"rat": 1}}, "unknown setting 'strategy.logits.rat'; did you mean 'rate'?"),
        ({"logits": {"rate": "x"}}, "strategy.logits.rate must be a finite number, got 'x'"),
        ({"logits": {"rate": -1}}, "strategy.logits.rate must be above 0, got -1.0"),
        ({"logits": 3}, "strategy.logits must be a table of settings, got 3"),
    ],
)
def test_problems_of_a_table_have_its_dotted_name(given: dict[str, Any], line: str) -> None:
    assert check("strategy", Nested, given) == ({}, [line])


def test_assignments_reach_into_a_table() -> None:
    given, lines = parse_assignments(["strategy.logits.rate=0.5", "strategy.logits.steps=2"])
    assert lines == []
    assert check("strategy", Nested, given["strategy"])[0] == {"logits": Inner(rate=0.5, steps=2)}


def test_tables_survive_a_file_and_are_listed_by_dotted_name() -> None:
    settings = {"strategy": {"seed": 1, "logits": Inner(rate=0.5)}}
    written = tomllib.loads(write_toml(settings))
    assert written == tables_of(settings) == {"strategy": {"seed": 1, "logits": {"rate": 0.5, "steps": 3}}}
    listed = flat_schema(Nested, "strategy")
    assert list(listed) == [
        "strategy.seed",
        "strategy.logits.rate",
        "strategy.logits.steps",
        "strategy.extra.rate",
        "strategy.extra.steps",
    ]
    assert listed["strategy.logits.steps"] == Setting("steps", int, 5, False, "how many")


def test_numbers_keep_their_type_through_a_file() -> None:
    def target(*, rate: float = 3, count: int = 3) -> None: ...

    settings = schema(target)
    assert (type(settings["rate"].default), type(settings["count"].default)) == (float, int)
    written = tomllib.loads(write_toml({name: setting.default for name, setting in settings.items()}))
    assert {name: type(value) for name, value in written.items()} == {"rate": float, "count": int}


@pytest.mark.parametrize("number", [2**63, -(2**63), 10**30])
def test_whole_numbers_beyond_reason_are_refused(number: int) -> None:
    def target(*, count: int = 3) -> None: ...

    assert check("a", target, {"count": number})[1] == [
        f"a.count must be a whole number between -2^63 and 2^63, got {number}"
    ]
    assert check("a", target, {"count": 2**63 - 1})[1] == []
