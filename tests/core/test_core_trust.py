"""Trust: passed texts count, files do not, and permissions end where they should."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import archloom
from archloom.core.trust import (
    Trust,
    UntrustedError,
    current_trust,
    forgetting,
    is_trusted,
    trust_texts,
    trusting,
)
from archloom.execution.process_executor import ProcessExecutor
from archloom.searches.spec import SearchSpec

MODULE = "passed_plugin"
CODE = """
from dataclasses import dataclass
from archloom.spaces import Nb201

@dataclass(frozen=True, kw_only=True)
class Space(Nb201):
    nodes: int = 3
    cells_per_stage: int = 1
"""
SETTINGS: dict[str, Any] = {"search": {"trials": 2}, "machine": {"torch_threads": 1}}


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("ARCHLOOM_PLUGINS", raising=False)
    with forgetting():
        yield


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / f"{MODULE}.py").write_text(CODE)
    yield f"{MODULE}:Space"
    sys.modules.pop(MODULE, None)


def forget(module: str = MODULE) -> None:
    """Be as a new process is."""
    sys.modules.pop(module, None)


def test_texts_are_trusted_wherever_they_are_nested() -> None:
    trust_texts({"a": {"b": ["c:D", ("e:F", 3)]}, "g": None})
    assert is_trusted("c:D") and is_trusted("e:F")
    assert not is_trusted("a") and not is_trusted("c:D ")


def test_permission_ends_with_its_context_and_texts_stay() -> None:
    with trusting("a:B", plugins=True):
        assert is_trusted("anything")
        with trusting(plugins=False):
            assert is_trusted("anything")
    assert not is_trusted("anything") and is_trusted("a:B")


def test_an_error_takes_permission_back_too() -> None:
    with pytest.raises(KeyError), trusting(plugins=True):
        raise KeyError
    assert not current_trust().plugins


def test_forgetting_restores_what_was_trusted_before() -> None:
    before = current_trust()
    with forgetting():
        trust_texts("forgotten:Text")
        assert current_trust() == Trust(texts=before.texts | {"forgotten:Text"})
    assert current_trust() == before


@pytest.mark.parametrize(("value", "allowed"), [("1", True), ("0", False), ("", False), ("no", False)])
def test_the_environment_allows_plugins_by_1_only(monkeypatch: pytest.MonkeyPatch, value: str, allowed: bool) -> None:
    monkeypatch.setenv("ARCHLOOM_PLUGINS", value)
    assert is_trusted("anything") is allowed and current_trust().plugins is allowed


def test_a_run_of_a_passed_plugin_resumes_in_the_same_process(plugin: str, tmp_path: Path) -> None:
    result = archloom.search(plugin, "random_search", out=tmp_path / "run", settings=SETTINGS)
    assert archloom.resume(tmp_path / "run").text == result.text


def test_a_folder_from_elsewhere_needs_permission_in_python(plugin: str, tmp_path: Path) -> None:
    with forgetting():
        archloom.search(plugin, "random_search", out=tmp_path / "run", settings=SETTINGS)
    forget()
    for call in (archloom.resume, archloom.write_report, archloom.rank, archloom.posterior):
        with pytest.raises(archloom.SettingError, match=r"passed_plugin:Space' is a plug-in .* plugins=True"):
            call(tmp_path / "run")
    assert MODULE not in sys.modules
    assert archloom.write_report(tmp_path / "run", plugins=True).is_file()
    assert MODULE in sys.modules and not current_trust().plugins


def test_an_imported_class_needs_no_permission(plugin: str, tmp_path: Path) -> None:
    with forgetting():
        archloom.search(plugin, "random_search", out=tmp_path / "run", settings=SETTINGS)
    assert archloom.resume(tmp_path / "run").space_name == plugin


def test_workers_trust_what_their_parent_trusts(plugin: str, tmp_path: Path) -> None:
    entry = {"space": {"name": plugin}, "strategy": {"name": "random_search"}, **SETTINGS}
    executor = ProcessExecutor(1)
    result = archloom.compare({"seeds": "0", "entry": {"one": entry}}, out=tmp_path / "all", executor=executor)
    assert not result.failures and result.missing == 0


def test_a_study_is_trusted_by_its_absolute_path_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    given = {"strategy": {"name": "random_search"}, "search": {"study": "trials.db"}}
    with pytest.raises(UntrustedError, match=r"search\.study '.*trials\.db' is a database to write to"):
        SearchSpec.resolve(given).search.refuse_untrusted_study()
    with trusting(given):
        SearchSpec.resolve(given)
    assert is_trusted(str(tmp_path / "trials.db"))
    SearchSpec.resolve({**given, "search": {"study": str(tmp_path / "trials.db")}}).search.refuse_untrusted_study()
