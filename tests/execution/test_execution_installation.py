"""What is said of versions, extras, compiled loops and the data folder."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
from pathlib import Path

import pytest
import torch

from archloom import fast as kernels
from archloom.execution import installation as module
from archloom.execution.installation import CompiledKernels, built_libraries, compiled_kernels, installation


def test_versions_are_those_that_run() -> None:
    versions = installation("9.9").versions
    assert versions["archloom"] == "9.9"
    assert versions["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert set(versions) == {"archloom", "python", "torch", "numpy"}


def test_extras_are_read_off_the_requirements() -> None:
    requirements = ["torch>=2.4", "pytest>=8; extra == 'dev'", 'no-such-thing>=1 ; extra == "plots"',
                    'nor_this>2; python_version > "3" and extra == "plots"', "pytest; extra == 'plots'"]  # fmt: skip
    assert module.missing_of_extras(requirements) == {"dev": (), "plots": ("no-such-thing", "nor_this")}


def test_a_source_folder_that_is_not_installed_has_no_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", unknown)
    assert installation("1.0").extras == {}


@pytest.mark.parametrize(
    ("loaded", "built", "setting", "wanted", "line"),
    [
        ("native (avx2)", True, "", CompiledKernels("in use", "native (avx2)"), "native (avx2)"),
        ("", False, "", CompiledKernels("not built"), "none: not built"),
        ("", False, "off", CompiledKernels("not built"), "none: not built"),
        ("", True, "off", CompiledKernels("switched off", setting="off"), "none: switched off (ARCHLOOM_KERNELS=off)"),
        (
            "",
            True,
            "avx512",
            CompiledKernels("not for this processor", setting="avx512"),
            "none: not for this processor (ARCHLOOM_KERNELS=avx512)",
        ),
        ("", True, "", CompiledKernels("not for this processor"), "none: not for this processor"),
    ],
)
def test_compiled_loops_are_named_or_their_absence_explained(
    monkeypatch: pytest.MonkeyPatch, loaded: str, built: bool, setting: str, wanted: CompiledKernels, line: str
) -> None:
    monkeypatch.setattr(module, "_loaded_name", lambda: loaded)
    monkeypatch.setattr(module, "built_libraries", lambda folder: [Path("some")] if built else [])
    monkeypatch.setenv("ARCHLOOM_KERNELS", setting)
    assert compiled_kernels() == wanted
    assert wanted.line == line


def test_what_is_told_is_what_a_search_would_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARCHLOOM_KERNELS", raising=False)
    found = compiled_kernels()
    with kernels.use_kernels("auto"):
        current = kernels.current_kernels()
    assert current is not None
    assert (found.name or "torch") == current.name
    monkeypatch.setenv("ARCHLOOM_KERNELS", "off")
    assert compiled_kernels().state in ("switched off", "not built")


def test_libraries_are_files_with_the_ending_of_this_python(tmp_path: Path) -> None:
    ending = importlib.machinery.EXTENSION_SUFFIXES[0]
    (tmp_path / "native").mkdir()
    for name in (f"native/_fast{ending}", "native/fast.cpp", "fast.py"):
        (tmp_path / name).touch()
    assert built_libraries(tmp_path) == [tmp_path / "native" / f"_fast{ending}"]


def test_the_data_folder_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARCHLOOM_DATA", raising=False)
    assert (installation("1.0").data_folder, installation("1.0").data_folder_exists) == (None, False)
    monkeypatch.setenv("ARCHLOOM_DATA", str(tmp_path))
    assert (installation("1.0").data_folder, installation("1.0").data_folder_exists) == (str(tmp_path), True)
    monkeypatch.setenv("ARCHLOOM_DATA", str(tmp_path / "gone"))
    assert (installation("1.0").data_folder, installation("1.0").data_folder_exists) == (str(tmp_path / "gone"), False)
