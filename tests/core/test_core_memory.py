"""Memory: what is free, within the limit of a container."""

from __future__ import annotations

from pathlib import Path

import pytest

from archloom.core import memory


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, file in (("MEMORY_FILE", "meminfo"), ("GROUP_LIMIT", "max"), ("GROUP_USED", "current")):
        monkeypatch.setattr(memory, name, tmp_path / file)
    return tmp_path


def test_nothing_is_known_without_the_files(files: Path) -> None:
    assert memory.available_memory() is None
    (files / "meminfo").write_text("MemAvailable: many kB\n")
    assert memory.available_memory() is None


def test_the_smaller_of_both_limits_counts(files: Path) -> None:
    (files / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   3 kB\n")
    assert memory.available_memory() == 3072
    (files / "max").write_text("max\n")
    (files / "current").write_text("100\n")
    assert memory.available_memory() == 3072
    (files / "max").write_text("1100\n")
    assert memory.available_memory() == 1000
    (files / "max").write_text("50\n")
    assert memory.available_memory() == 0
