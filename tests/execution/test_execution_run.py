"""Runs in their folders: begun, interrupted, resumed, described and reported, whatever they compute."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from archloom.core.errors import CheckpointError, SettingError, StorageError
from archloom.core.events import Noted, Recorded
from archloom.core.progress_file import progress_path
from archloom.execution.loop import Interrupted, Loop
from archloom.execution.run import FolderRun, RunOptions, begin_run, resume_run
from archloom.execution.run_folder import RunFolder


@dataclass(frozen=True)
class Count:
    at: int

    def to_json(self) -> dict[str, Any]:
        return {"at": self.at}


class Counting(Loop):
    """Counts to four, and notes the end."""

    unit = "step"
    total = 4

    def advance(self) -> Count:
        self.position += 1
        return Count(self.position)

    def conclude(self) -> int:
        self.emit(Noted({"ended": True}))
        return sum(record.at for record in self.history)

    def read_record(self, value: Any) -> Count:
        return Count(value["at"])


class CountingRun(FolderRun):
    """Writes its sum as the result, and what it knows as the report."""

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(folder, Counting())
        self.heard: list[Any] = []

    @property
    def settings(self) -> dict[str, Any]:
        return {"seed": 3}

    def make_listeners(self) -> list[Any]:
        assert self.folder.config_path.is_file()
        return [self.heard.append]

    def finish(self, outcome: int, seconds: float) -> dict[str, Any]:
        assert seconds >= 0
        self.folder.write_result({"sum": outcome})
        return {"sum": outcome}

    def write_report(self, result: dict[str, Any] | None) -> None:
        self.folder.write_text(self.folder.report_path.name, f"{result}, {len(self.loop.history)} records")


def begin(folder: RunFolder, **options: Any) -> Any:
    return begin_run(folder, lambda: CountingRun(folder), RunOptions(**options))


def resume(folder: RunFolder, **options: Any) -> Any:
    return resume_run(folder, lambda: CountingRun(folder), folder.read_result, RunOptions(**options))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


def test_a_run_leaves_its_configuration_metrics_notes_result_and_report(folder: RunFolder) -> None:
    events: list[Any] = []
    assert begin(folder, listeners=[events.append]) == {"sum": 10}
    assert folder.config == {"seed": 3}
    assert folder.read_metrics() == [{"at": at} for at in (1, 2, 3, 4)]
    assert folder.read_notes() == [{"ended": True}]
    assert folder.read_result() == {"sum": 10}
    assert folder.report_path.read_text() == "{'sum': 10}, 4 records"
    assert [event.record.at for event in events if isinstance(event, Recorded)] == [1, 2, 3, 4]


@pytest.mark.parametrize("stops", [False, True])
def test_the_progress_is_there_while_a_run_lasts_and_gone_afterwards(folder: RunFolder, stops: bool) -> None:
    seen: list[bool] = []

    def listen(event: Any) -> None:
        if isinstance(event, Recorded):
            seen.append(progress_path(folder.path).is_file())

    if stops:
        with pytest.raises(Interrupted):
            begin(folder, listeners=[listen], stop=lambda: True)
    else:
        begin(folder, listeners=[listen])
    assert seen == [True] * (1 if stops else 4)
    assert not progress_path(folder.path).exists()


def test_an_interrupted_run_reports_what_it_has_and_resumes_from_its_checkpoint(folder: RunFolder) -> None:
    stops = iter([False, True])
    with pytest.raises(Interrupted):
        begin(folder, stop=lambda: next(stops))
    assert folder.report_path.read_text() == "None, 2 records"
    assert folder.read_result() is None
    with folder.metrics_path.open("a") as file:
        file.write(json.dumps({"at": 99}) + "\n")  # a record after the last checkpoint, as a crash may leave it
    events: list[Any] = []
    assert resume(folder, listeners=[events.append]) == {"sum": 10}
    assert folder.read_metrics() == [{"at": at} for at in (1, 2, 3, 4)]
    assert [event.record.at for event in events if isinstance(event, Recorded)] == [3, 4]


def test_a_complete_run_is_read_and_not_built_again(folder: RunFolder) -> None:
    begin(folder)

    def build() -> Any:
        raise AssertionError("built")

    assert resume_run(folder, build, folder.read_result, RunOptions()) == {"sum": 10}


def test_a_complete_run_gets_what_a_kill_left_out(folder: RunFolder) -> None:
    begin(folder, report=False)
    folder.cell_path.touch()
    lines: list[str] = []

    def mend(**options: Any) -> Any:
        return resume_run(
            folder,
            lambda: pytest.fail("built"),
            folder.read_result,
            RunOptions(warn=lines.append, **options),
            write_report=lambda: folder.write_text("report.html", "mended"),
        )

    assert mend(report=False) == {"sum": 10}
    assert not folder.report_path.exists() and not lines
    assert mend() == mend() == {"sum": 10}
    assert folder.report_path.read_text() == "mended"
    assert lines == [f"{folder.path} was complete but for report.html, written now"]


def test_a_complete_run_on_a_disk_that_cannot_be_written_is_read(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(folder, report=False)
    lines: list[str] = []

    def refuse() -> None:
        raise StorageError("read-only file system")

    options = RunOptions(warn=lines.append)
    result = resume_run(folder, lambda: pytest.fail("built"), folder.read_result, options, write_report=refuse)
    assert result == {"sum": 10}
    assert lines == [f"{folder.path} lacks report.html, cell.svg: read-only file system"]


def test_the_next_start_removes_temporary_files_of_killed_processes(folder: RunFolder) -> None:
    stops = iter([True])
    with pytest.raises(Interrupted):
        begin(folder, stop=lambda: next(stops))
    living = folder.path / f".report.html.{os.getppid()}.tmp"
    dead = [folder.path / ".config.toml.99999999.tmp", folder.path / "checkpoints/.checkpoint-1.99999999.tmp"]
    for path in (living, *dead):
        path.touch()
    resume(folder)
    assert living.exists() and not any(path.exists() for path in dead)


def test_a_report_can_be_left_out(folder: RunFolder) -> None:
    begin(folder, report=False)
    assert not folder.report_path.exists()


def test_a_run_that_cannot_be_built_leaves_no_folder(folder: RunFolder) -> None:
    def build() -> Any:
        raise SettingError("bad data")

    with pytest.raises(SettingError, match="bad data"):
        begin_run(folder, build, RunOptions())
    assert not folder.path.exists()


def test_a_taken_folder_is_refused_before_anything_is_built(folder: RunFolder) -> None:
    begin(folder)
    with pytest.raises(SettingError, match="already holds a run"):
        begin(folder)


def test_a_checkpoint_that_does_not_fit_is_one_line(folder: RunFolder) -> None:
    RunFolder.create(folder.path, settings={"seed": 3})
    folder.checkpoints.save({"position": 1}, step=1)
    with pytest.raises(CheckpointError, match=r"does not fit its config\.toml \(KeyError"):
        resume(folder)
