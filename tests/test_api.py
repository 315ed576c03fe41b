"""The public API: every export is documented, and its example runs."""

from __future__ import annotations

import builtins
import doctest
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import archloom
import archloom.testing
from archloom.execution.executors import SerialExecutor

MODULES = (archloom, archloom.testing)
EXPORTS = {name: getattr(module, name) for module in MODULES for name in module.__all__}
DOCUMENTED = {name: value for name, value in EXPORTS.items() if inspect.isclass(value) or inspect.isfunction(value)}
TINY = {
    "strategy": {"logits": {"images": 8}},
    "data": {"train_images": 64, "valid_images": 64},
    "network": {"channels": 4},
    "search": {"batch_size": 16, "evaluation_images": 40, "random_baseline_samples": 2, "finalist_steps": 0},
    "monitor": {"action": "off"},
}
TABLE_ONLY = {"space": {"name": "nb201_mini"}, "strategy": {"name": "random_search"}, "search": {"trials": 3}}
RETRAINING = {
    "recipe": "nb201_12",
    "data": {"split": "random"},
    "training": {"epochs": 1},
    "network": {"channels": 4},
    "space": {"cells_per_stage": 1},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with the runs that examples read: `runs/first`, `runs/compare-first`, `runs/run-first`."""
    folder, before = tmp_path_factory.mktemp("api"), Path.cwd()
    os.chdir(folder)
    archloom.search("nb201_mini", "gibbs", "digits", epochs=2, out="runs/first", settings=TINY)
    comparison = {"title": "First", "seeds": "0-1", "all": TABLE_ONLY, "entry": {"random": {}}}
    archloom.compare(comparison, out="runs/compare-first", executor=SerialExecutor())
    pipeline = {"title": "First", "searches": 1, "retrainings": 1, "search": TABLE_ONLY, "retrain": RETRAINING}
    archloom.run(pipeline, out="runs/run-first", executor=SerialExecutor())
    yield folder
    os.chdir(before)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_example_of_every_export_runs(name: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = doctest.DocTestFinder(recurse=False).find(DOCUMENTED[name], name, globs={})
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(found)
    assert result.attempted > 0, f"{name} has no example"
    assert result.failed == 0, capsys.readouterr().out


def test_every_function_documents_arguments_and_result() -> None:
    functions = {name: value for name, value in DOCUMENTED.items() if inspect.isfunction(value)}
    for name, function in functions.items():
        text, signature = inspect.getdoc(function) or "", inspect.signature(function)
        assert not signature.parameters or "Args:" in text, name
        assert signature.return_annotation in (None, "None") or "Returns:" in text, name
        missing = [key for key in signature.parameters if f"    {key}:" not in text]
        assert not missing, f"{name} does not document {missing}"


def test_every_function_that_raises_says_so() -> None:
    for name in ("search", "retrain", "compare", "run", "resume", "write_report", "posterior", "rank", "require"):
        assert "Raises:" in (inspect.getdoc(DOCUMENTED[name]) or ""), name


def test_every_error_that_a_docstring_names_can_be_caught_by_that_name() -> None:
    members = {f"{name}.{key}": part for name, value in DOCUMENTED.items() if inspect.isclass(value)
               for key, part in public_members(value).items()}  # fmt: skip
    named = set()
    for name, value in {**DOCUMENTED, **members}.items():
        section = (inspect.getdoc(value) or "").partition("Raises:\n")[2].split("\n\n")[0]
        errors = re.findall(r"^    (\w+): ", section, re.MULTILINE)
        assert all(hasattr(archloom, error) or hasattr(builtins, error) for error in errors), (name, errors)
        named |= set(errors)
    assert {"Interrupted", "SettingError"} <= named


def public_members(kind: type) -> dict[str, Any]:
    """Return methods and properties that the class itself defines."""
    own = {name: value for name, value in vars(kind).items() if not name.startswith("_")}
    return {name: value for name, value in own.items() if callable(value) or hasattr(value, "__get__")}


def test_almost_everything_public_has_a_docstring() -> None:
    documented = dict(DOCUMENTED)
    for name, value in DOCUMENTED.items():
        if inspect.isclass(value):
            documented |= {f"{name}.{member}": part for member, part in public_members(value).items()}
    without = [name for name, value in documented.items() if not inspect.getdoc(value)]
    share = 1 - len(without) / len(documented)
    print(f"docstring coverage of the public API: {share:.1%} of {len(documented)}")
    assert share >= 0.95, without


def test_exports_are_listed_and_import_no_torch() -> None:
    code = "import sys, archloom; print(dir(archloom) == sorted(archloom.__all__), 'torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["True", "False"]
    with pytest.raises(AttributeError, match="has no attribute 'serch'"):
        archloom.serch  # noqa: B018
