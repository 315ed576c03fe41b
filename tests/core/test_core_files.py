"""Files appear whole or not at all, whatever happens to the disk."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from archloom.core import files
from archloom.core.errors import StorageError
from archloom.core.files import write_atomically


def fail_with(code: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def test_writing_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]


def test_files_get_the_usual_permissions(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    write_atomically(tmp_path / "file", b"one")
    assert (tmp_path / "file").stat().st_mode == plain.stat().st_mode


def test_a_full_disk_is_one_line_and_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    monkeypatch.setattr(os, "fsync", fail_with(errno.ENOSPC))
    with pytest.raises(StorageError) as caught:
        write_atomically(path, b"new")
    assert str(caught.value) == (
        f"cannot write {path}: No space left on device; what was saved before is intact: free some space and try again"
    )
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupt_while_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_contents_and_then_the_folder_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append((os.fstat(descriptor).st_ino, path.exists())))
    write_atomically(path, b"data")
    assert flushed == [(path.stat().st_ino, False), (tmp_path.stat().st_ino, True)]


@pytest.mark.parametrize(("code", "harmless"), [(errno.EINVAL, True), (errno.EIO, False)])
def test_only_a_folder_that_cannot_be_flushed_at_all_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, harmless: bool
) -> None:
    def flush(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == tmp_path.stat().st_ino:
            fail_with(code)()

    monkeypatch.setattr(os, "fsync", flush)
    if harmless:
        write_atomically(tmp_path / "file", b"data")
    else:
        with pytest.raises(StorageError, match="cannot write"):
            write_atomically(tmp_path / "file", b"data")


def test_systems_that_cannot_open_folders_do_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    monkeypatch.setattr(files.os, "name", "nt")
    monkeypatch.setattr(files.os, "open", fail_with(errno.EACCES))
    files._flush_folder(folder)


def test_a_folder_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot write"):
        write_atomically(tmp_path / "file" / "inner", b"data")


def test_every_operation_of_a_write_can_be_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []
    monkeypatch.setattr(files, "before_operation", lambda operation, path: seen.append((operation, path.name)))
    write_atomically(tmp_path / "file", b"one")
    temporary = f".file.{os.getpid()}@{socket.gethostname()}.tmp"
    assert seen == [
        ("create", temporary),
        ("write", temporary),
        ("sync", temporary),
        ("rename", "file"),
        ("sync folder", tmp_path.name),
    ]


def test_what_another_machine_is_writing_is_left_alone_for_an_hour(tmp_path: Path) -> None:
    here, there = f"99999999@{socket.gethostname()}", "99999999@far.example.org"
    paths = {name: tmp_path / f".report.html.{name}.tmp" for name in (here, there)}
    for path in paths.values():
        path.touch()
    files.remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [paths[there].name]
    os.utime(paths[there], (1.0, 1.0))
    files.remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no ordinary file"):
        files.refuse_special(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "missing", Path(__file__)):
        files.refuse_special(path)


@pytest.mark.parametrize("text", ["9" * 400, "a\0b", "missing"])
def test_a_text_that_can_be_no_path_does_not_exist(text: str) -> None:
    assert not files.exists(Path(text))
    assert files.exists(Path(__file__))


def test_the_home_of_a_user_that_there_is_not_stays_as_it_is_written() -> None:
    assert files.expand("~no-such-user-of-ours/data") == Path("~no-such-user-of-ours/data")
    assert files.expand("~/data") == Path.home() / "data"
