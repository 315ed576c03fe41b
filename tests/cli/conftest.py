"""The command line in this process: what it prints and how it exits; and one tiny run that many tests look at."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from archloom.benchmarks.digits import DigitsTable
from archloom.cli.main import run
from archloom.searches import run as searches

TINY: dict[str, Any] = {
    "data": {"train_images": 64, "valid_images": 64},
    "search": {"batch_size": 32, "evaluation_images": 32, "random_baseline_samples": 2},
}
TINY_OPTIONS = tuple(
    part
    for section, values in TINY.items()
    for name, value in values.items()
    for part in ("--set", f"{section}.{name}={value}")
)


@dataclass(frozen=True)
class Finished:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Standard error, line by line."""
        return self.err.splitlines()


Archloom = Callable[..., Finished]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own, a plain terminal of 80 columns, no data folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("ARCHLOOM_DATA", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def archloom(capsys: pytest.CaptureFixture[str]) -> Archloom:
    """`archloom(arguments...)` as a shell would see it."""

    def call(*arguments: str | Path) -> Finished:
        with pytest.raises(SystemExit) as ended:
            run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        code = ended.value.code
        return Finished(code if isinstance(code, int) else 0, captured.out, captured.err)

    return call


@pytest.fixture
def tiny() -> tuple[str, ...]:
    """Options that make a search take a moment."""
    return TINY_OPTIONS


@pytest.fixture
def without_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing a report takes longer than a tiny search; here it does not matter."""
    monkeypatch.setattr(searches, "_write_report", lambda folder, *others, **options: folder.report_path)


@pytest.fixture(scope="session")
def kept_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "kept"
    searches.search("nb201_mini", "gdas", "digits", epochs=2, out=folder, settings=TINY)
    return folder


@pytest.fixture
def finished_run(kept_run: Path, tmp_path: Path) -> Path:
    """A complete run that a test may change."""
    return Path(shutil.copytree(kept_run, tmp_path / "finished"))


@pytest.fixture
def unfinished_run(finished_run: Path) -> Path:
    """A run that has its checkpoints and no result."""
    (finished_run / "architecture.json").unlink()
    return finished_run


@pytest.fixture
def digits_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up table in the place of the packaged one: row n scores n/2 on test."""
    path = tmp_path / "digits.json"
    content = {
        "space": {"nodes": 3},
        "protocol": {"epochs": 30},
        "seeds": [0],
        "test": [[row / 2] for row in range(125)],
        "valid": [[50.0]] * 125,
    }
    path.write_text(json.dumps(content))
    monkeypatch.setattr(DigitsTable, "file_name", str(path))
    return path
