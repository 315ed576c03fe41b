"""Lazy imports: what is loaded, and when."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from archloom.core.lazy_imports import lazy_imports


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a package whose modules write their names to `loaded` when they run."""
    folder = tmp_path / "lazy_example"
    folder.mkdir()
    record = "import builtins\nbuiltins.loaded.append(__name__)\n"
    (folder / "__init__.py").write_text(record + "VALUE = 1\n")
    (folder / "first.py").write_text(record + "from lazy_example.second import SECOND\nFIRST = SECOND + 1\n")
    (folder / "second.py").write_text(record + "__all__ = ['SECOND']\nSECOND = 2\n")
    (folder / "failing.py").write_text(record + "if len(builtins.loaded) < 3: raise OSError('not yet')\nDONE = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("builtins.loaded", [], raising=False)
    yield folder.name  # type: ignore[misc]
    for name in [name for name in sys.modules if name.split(".")[0] == folder.name]:
        del sys.modules[name]


def loaded() -> list[str]:
    import builtins

    return builtins.loaded  # type: ignore[attr-defined, no-any-return]


def lazily(name: str) -> ModuleType:
    with lazy_imports():
        return importlib.import_module(name)


def test_a_module_is_loaded_at_its_first_use(package: str) -> None:
    first = lazily(f"{package}.first")
    assert loaded() == []
    assert first.FIRST == 3
    assert loaded() == ["lazy_example", "lazy_example.first", "lazy_example.second"]
    assert type(first) is ModuleType


def test_the_statement_import_as_loads_neither_module_nor_package(package: str) -> None:
    with lazy_imports():
        import lazy_example.second as second  # type: ignore[import-not-found]
    assert loaded() == []
    assert second.SECOND == 2
    assert loaded() == ["lazy_example", "lazy_example.second"]


def test_a_module_that_its_package_imports_is_loaded_once(package: str) -> None:
    Path(importlib.util.find_spec(package).origin or "").write_text(  # type: ignore[union-attr]
        "import builtins\nbuiltins.loaded.append(__name__)\nfrom lazy_example.second import SECOND\n"
    )
    assert lazily(f"{package}.second").SECOND == 2
    assert loaded() == ["lazy_example", "lazy_example.second"]


def test_a_module_is_loaded_by_the_list_of_its_exports(package: str) -> None:
    second = lazily(f"{package}.second")
    assert second.__name__ == f"{package}.second" and loaded() == []
    assert second.__all__ == ["SECOND"]


def test_a_package_is_loaded_when_it_is_used_itself(package: str) -> None:
    second = lazily(f"{package}.second")
    assert importlib.import_module(package).VALUE == 1
    assert sys.modules[package].second is second
    assert loaded() == ["lazy_example"]


def test_an_ordinary_import_of_a_lazy_module_gets_the_same_module(package: str) -> None:
    second = lazily(f"{package}.second")
    assert importlib.import_module(f"{package}.second") is second
    assert loaded() == []


def test_imports_after_the_block_are_not_lazy(package: str) -> None:
    before = list(sys.meta_path)
    with lazy_imports():
        pass
    assert sys.meta_path == before
    importlib.import_module(package)
    assert loaded() == ["lazy_example"]


def test_a_module_that_does_not_exist_is_an_error_in_the_block(package: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"lazy_example\.other"):
        lazily(f"{package}.other")


def test_a_module_that_failed_is_tried_again(package: str) -> None:
    failing = lazily(f"{package}.failing")
    with pytest.raises(OSError, match="not yet"):
        _ = failing.DONE
    assert failing.DONE is True
