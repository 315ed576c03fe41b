"""Catalogues: short names, plug-ins, and descriptions that import nothing."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from archloom.core.errors import SettingError
from archloom.core.registry import Catalogue, Entry
from archloom.core.trust import UntrustedError

THINGS = Catalogue(
    "thing",
    {
        "decoder": Entry("json:JSONDecoder", {"strict": False}),
        "encoder": Entry("json:JSONEncoder", summary="Writes JSON."),
    },
    makes="builtins:object",
)


def test_a_catalogue_is_a_mapping_of_entries() -> None:
    assert list(THINGS) == ["decoder", "encoder"]
    assert len(THINGS) == 2
    assert THINGS["decoder"].settings == {"strict": False}
    assert "nothing" not in THINGS


def test_a_short_name_is_found_and_loads_its_class() -> None:
    import json

    assert THINGS.find("decoder").load() is json.JSONDecoder


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(SettingError, match=r"^unknown thing 'decodr'; did you mean 'decoder'\?$"):
        THINGS.find("decodr")


def test_a_name_like_none_lists_what_there_is() -> None:
    with pytest.raises(SettingError, match=r"^unknown thing 'q'; known: decoder, encoder$"):
        THINGS.find("q")


def test_a_plugin_of_an_installed_package_is_loaded() -> None:
    from decimal import Decimal

    assert THINGS.find("decimal:Decimal").load() is Decimal


def test_a_plugin_beside_the_recipe_needs_no_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_thing.py").write_text('"""Mine."""\nclass Mine:\n    pass\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    entry = THINGS.find_named_by_code("my_own_thing:Mine")
    assert entry.load().__name__ == "Mine"
    assert entry.describe() == "Mine."
    del sys.modules["my_own_thing"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("not_there.at_all:Class", "thing 'not_there.at_all:Class': no module named 'not_there' can be imported"),
        ("json:Missing", "thing 'json:Missing': module 'json' has no attribute 'Missing'"),
        (":Class", "thing ':Class': a plug-in is written package.module:Class"),
        (".relative:Class", "thing '.relative:Class': a plug-in is written package.module:Class"),
        ("json:", "thing 'json:': a plug-in is written package.module:Class"),
        ("json:JSONDecoder()", "thing 'json:JSONDecoder()': a plug-in is written package.module:Class"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_says_why(name: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        THINGS.find_named_by_code(name)
    assert str(caught.value) == message


def test_a_summary_describes_an_entry() -> None:
    assert THINGS["encoder"].describe() == "Writes JSON."


def test_describing_reads_the_docstring_without_importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "explosive_thing.py").write_text('"""What it is.\n\nMore."""\nraise RuntimeError("imported")\n')
    monkeypatch.syspath_prepend(tmp_path)
    assert Entry("explosive_thing:Thing").describe() == "What it is."
    assert "explosive_thing" not in sys.modules


def test_a_module_without_docstring_or_source_has_no_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "silent_thing.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert Entry("silent_thing:value").describe() == ""
    assert Entry("no_such_module_anywhere:value").describe() == ""


SPACES_LIKE = Catalogue("space", {}, makes="archloom.spaces.base:SearchSpace")


@pytest.mark.parametrize(
    "name", ["os:system", "json:JSONDecoder", "subprocess:run", "math:pi", "archloom.spaces.base:SearchSpace"]
)
def test_a_plugin_of_another_kind_is_refused_before_it_is_called(name: str) -> None:
    with pytest.raises(SettingError, match=rf"space '{name}' must be a complete class derived from SearchSpace, or a"):
        SPACES_LIKE.find(name)


def test_a_function_counts_if_it_says_what_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("made_by_function.py").write_text(
        "from archloom.spaces import Nb201, SearchSpace\n"
        "def small(*, nodes: int = 3) -> SearchSpace:\n    return Nb201(nodes=nodes)\n"
        "def unsaid():\n    return Nb201()\n"
        "def unknown() -> 'Nothing':\n    return Nb201()\n"
    )
    assert SPACES_LIKE.find_named_by_code("made_by_function:small").load()().nodes == 3
    for name in ("unsaid", "unknown"):
        with pytest.raises(SettingError, match=r"annotated to return it, got a function that is not annotated so$"):
            SPACES_LIKE.find(f"made_by_function:{name}")


def test_a_plugin_that_fails_while_it_is_imported_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken_plugin.py").write_text("def f(:\n")
    with pytest.raises(SettingError, match=r"^space 'broken_plugin:f' cannot be imported: [^\n]*$"):
        SPACES_LIKE.find_named_by_code("broken_plugin:f")


def test_a_name_of_unknown_origin_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("unasked_plugin.py").write_text("raise RuntimeError('imported')\n")
    with pytest.raises(UntrustedError, match=r"^thing 'unasked_plugin:Thing' is a plug-in that only a file names; "):
        THINGS.find("unasked_plugin:Thing")
    assert "unasked_plugin" not in sys.modules


def test_a_class_whose_module_is_imported_is_found_without_running_code(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("imported_plugin")
    monkeypatch.setitem(sys.modules, "imported_plugin", module)
    module.Thing = type("Thing", (), {})  # type: ignore[attr-defined]
    module.__getattr__ = pytest.fail  # type: ignore[method-assign]
    assert THINGS.find("imported_plugin:Thing").target == "imported_plugin:Thing"
    with pytest.raises(UntrustedError):
        THINGS.find("imported_plugin:Other")


def test_a_packaged_class_may_go_by_its_import_path() -> None:
    assert THINGS.find("json:JSONDecoder").target == "json:JSONDecoder"


def test_a_catalogue_that_makes_nothing_has_no_plugins() -> None:
    with pytest.raises(SettingError, match="unknown section 'os:system'"):
        Catalogue("section", {}).find("os:system")


def test_a_module_without_source_has_no_description() -> None:
    assert Entry("math:pi").describe() == ""
