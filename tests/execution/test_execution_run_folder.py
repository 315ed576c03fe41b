"""A run's folder is never overwritten, never half written, and never shared."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from archloom.core.errors import ArchloomError, CheckpointError, SettingError, StorageError
from archloom.core.leases import LeaseLostError
from archloom.execution import run_folder
from archloom.execution.run_folder import RunFolder

SETTINGS = {"seed": 3, "strategy": {"name": "gdas", "limit": None}}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", settings=SETTINGS)


def append(run: RunFolder, record: dict[str, object]) -> None:
    with run.open_metrics() as write:
        write(record)


def message(kind: type[ArchloomError], action: Callable[[], object]) -> str:
    with pytest.raises(kind) as caught:
        action()
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- beginning and returning


def test_a_run_holds_its_configuration(run: RunFolder) -> None:
    assert run.config == {"seed": 3, "strategy": {"name": "gdas"}}
    assert RunFolder.open(run.path).config == run.config
    assert repr(run) == f"RunFolder('{run.path}')"
    assert not run.finished


def test_an_existing_run_is_not_overwritten(run: RunFolder) -> None:
    assert message(SettingError, lambda: RunFolder.create(run.path, settings={})) == (
        f"{run.path} already holds a run; `archloom resume {run.path}` continues it, or choose another --out"
    )
    assert run.config["seed"] == 3


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    expected = f"{tmp_path} exists and is not a run; choose another --out"
    assert message(SettingError, lambda: RunFolder.create(tmp_path, settings={})) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_no_place_for_a_run(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    assert "exists and is not a run" in message(SettingError, lambda: RunFolder.create(path, settings={}))
    inner = path / "run"
    assert "Not a directory" in message(StorageError, lambda: RunFolder.create(inner, settings={}))


def test_a_run_may_begin_in_an_empty_folder_or_after_a_start_cut_short(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, settings={})
    (tmp_path / "config.toml").rename(tmp_path / ".config.toml.77.tmp")
    RunFolder.create(tmp_path, settings={"seed": 4})
    assert RunFolder.open(tmp_path).config == {"seed": 4}


def test_a_process_that_was_quicker_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder, "remove_leftovers", lambda folder: (folder / "config.toml").write_text("seed = 1"))
    with pytest.raises(SettingError, match="already holds a run"):
        RunFolder.create(tmp_path / "run", settings={"seed": 2})
    assert RunFolder.open(tmp_path / "run").config == {"seed": 1}


def test_a_missing_run_suggests_its_neighbours(run: RunFolder) -> None:
    near = run.path.with_name("runn")
    assert message(SettingError, lambda: RunFolder.open(near)) == (
        f"no run at {near}: config.toml is missing; did you mean 'run'?"
    )
    assert message(SettingError, lambda: RunFolder.open(run.path.parent)).endswith("is missing; known: run")
    far = run.path / "a" / "b"
    assert message(SettingError, lambda: RunFolder.open(far)) == f"no run at {far}: config.toml is missing"


def test_a_folder_that_may_not_be_entered_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refuse)
    monkeypatch.setattr(Path, "exists", refuse)
    path = tmp_path / "run"
    assert message(StorageError, lambda: RunFolder.open(path)) == f"cannot read {path}: Permission denied"
    assert "cannot write" in message(StorageError, lambda: RunFolder.create(path, settings={}))


def test_numbers_go_on_after_the_highest(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    assert RunFolder.next_free(root, "nb201-gdas") == root / "nb201-gdas-1"
    for name in ("nb201-gdas-1", "nb201-gdas-10", "nb201-gdas-digits-70", "nb201-gdas-x", "nb201-gdas"):
        (root / name).mkdir(parents=True)
    assert RunFolder.next_free(root, "nb201-gdas") == root / "nb201-gdas-11"
    assert RunFolder.next_free(root, "my.module:Class/x").name == "my.module-Class-x-1"


# --- contents


def test_checkpoints_lie_in_a_folder_of_their_own(run: RunFolder) -> None:
    path = run.checkpoints.save({"epoch": 1}, step=1)
    assert path.parent == run.path / "checkpoints"
    assert RunFolder.open(run.path).checkpoints.load_latest(warn=pytest.fail) == {"epoch": 1}


def test_metrics_are_appended_and_rewritten(run: RunFolder) -> None:
    assert run.read_metrics() == []
    run.write_metrics([])
    assert run.read_metrics() == []
    for epoch in range(3):
        append(run, {"epoch": epoch, "loss": 0.5})
    assert [record["epoch"] for record in run.read_metrics()] == [0, 1, 2]
    run.write_metrics([{"epoch": 0}])
    append(run, {"epoch": 1})
    assert run.read_metrics() == [{"epoch": 0}, {"epoch": 1}]


def test_notes_are_kept_in_their_order_and_a_torn_one_is_dropped(run: RunFolder) -> None:
    assert run.read_notes() == []
    for steps in (20, 60):
        run.note({"steps": steps, "valid_loss": 0.1 + 0.2})
    assert run.read_notes() == [{"steps": steps, "valid_loss": 0.1 + 0.2} for steps in (20, 60)]
    run.notes_path.write_bytes(run.notes_path.read_bytes() + b'{"steps": 1')
    run.note({"steps": 180})
    assert [record["steps"] for record in run.read_notes()] == [20, 60, 180]
    assert run.read_metrics() == []


def test_what_is_no_number_in_json_becomes_null(run: RunFolder) -> None:
    append(run, {"loss": math.nan, "nested": {"bounds": (-math.inf, 1.0)}})
    assert run.metrics_path.read_text() == '{"loss": null, "nested": {"bounds": [null, 1.0]}}\n'
    run.write_result({"score": math.inf})
    assert run.read_result() == {"score": None}


@pytest.mark.parametrize("torn", [b'{"epoch": 2, "lo', b"\0\0\0\0", b"\xff\n", b"2\n"])
def test_a_torn_last_line_is_dropped(run: RunFolder, torn: bytes) -> None:
    run.write_metrics([{"epoch": 0}, {"epoch": 1}])
    run.metrics_path.write_bytes(run.metrics_path.read_bytes() + torn)
    assert run.read_metrics() == [{"epoch": 0}, {"epoch": 1}]


def test_a_last_line_that_lacks_only_its_end_is_kept(run: RunFolder) -> None:
    run.metrics_path.write_text('{"epoch": 0}\n{"epoch": 1}')
    assert run.read_metrics() == [{"epoch": 0}, {"epoch": 1}]


@pytest.mark.parametrize("line", ['{"epoch": 1', "3", "", "[" * 100_000], ids=["cut", "number", "blank", "deep"])
def test_a_damaged_line_in_the_middle_is_named(run: RunFolder, line: str) -> None:
    run.metrics_path.write_text(f'{{"epoch": 0}}\n{line}\n{{"epoch": 2}}\n')
    assert message(CheckpointError, run.read_metrics).startswith(f"line 2 of {run.metrics_path} is damaged (")


def test_a_full_disk_while_appending_is_one_line(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "open", fail)
    line = message(StorageError, lambda: append(run, {}))
    assert line.startswith(f"cannot write {run.metrics_path}: No space left on device; ")


def test_a_result_makes_a_run_finished(run: RunFolder) -> None:
    assert run.read_result() is None
    run.write_result({"architecture": {"0->1": "skip_connect"}, "score": 0.5})
    assert run.finished
    assert run.read_result() == json.loads(run.architecture_path.read_text())


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_result_is_none(run: RunFolder, text: str) -> None:
    run.architecture_path.write_text(text)
    assert not run.finished
    assert message(CheckpointError, run.read_result).startswith(f"{run.architecture_path} is damaged (")


def test_a_result_that_cannot_be_read_is_one_line(run: RunFolder) -> None:
    run.architecture_path.mkdir()
    assert message(StorageError, run.read_result) == f"cannot read {run.architecture_path}: Is a directory"


def test_a_finished_run_knows_which_files_it_lacks(run: RunFolder) -> None:
    assert run.list_missing() == ["report.html", "cell.svg"]
    run.cell_path.touch()
    assert run.list_missing() == ["report.html"]


def test_texts_are_written_beside_the_rest(run: RunFolder) -> None:
    run.write_text("report.html", "<p>été</p>")
    run.write_text("cell.svg", "<svg/>")
    assert run.report_path.read_text(encoding="utf-8") == "<p>été</p>"
    assert run.cell_path.read_text(encoding="utf-8") == "<svg/>"
    with pytest.raises(AssertionError):
        run.write_text("../escape", "")


# --- the lock


def test_a_run_in_use_is_refused_and_names_the_process(run: RunFolder) -> None:
    with run.lock():
        expected = f"{run.path} is in use by another process (pid {os.getpid()})"
        assert message(ArchloomError, run.lock().__enter__) == expected
        assert message(ArchloomError, run.lock().__enter__) == expected  # the first refusal wiped nothing
    with run.lock():
        pass


def test_a_lock_is_released_after_an_error(run: RunFolder) -> None:
    with pytest.raises(RuntimeError), run.lock():
        raise RuntimeError
    with run.lock():
        pass


def test_checkpoints_of_a_taker_are_not_removed_by_the_holder_of_before(run: RunFolder) -> None:
    with pytest.raises(LeaseLostError), run.lock():
        run.checkpoints.save({"epoch": 1}, step=1)
        (run.path / ".lease-2").unlink()  # another process took the folder over
        run.checkpoints.save({"epoch": 2}, step=2)
    assert [path.name for path in run.checkpoints.paths()] == ["checkpoint-000000001.safetensors"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", ["metrics.jsonl", "finalists.jsonl", "architecture.json"])
def test_a_pipe_in_a_run_folder_is_one_line(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    folder = RunFolder(tmp_path)
    read = {"metrics": folder.read_metrics, "finalists": folder.read_notes, "architecture": folder.read_result}
    with pytest.raises(StorageError, match="it is no ordinary file"):
        read[name.partition(".")[0]]()
