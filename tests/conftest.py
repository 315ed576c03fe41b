"""Where tests find real data: the folder `shared/data` beside the checkout; without it they are skipped, and say so."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from search_runs import make_run, make_trials  # noqa: F401 - fixtures of several folders

if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # under nohup; tests send this signal and expect an answer
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell script; likewise
    signal.signal(signal.SIGINT, signal.default_int_handler)

NEEDED = ("unpack", "cifar10/labels.npz", "nb201/nasbench201_compact.npz")


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Tests work on tiny tensors, where more threads only get in each other's way; torch, if ever imported, obeys."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    yield
    if before is None:
        del os.environ["OMP_NUM_THREADS"]
    else:
        os.environ["OMP_NUM_THREADS"] = before


@pytest.fixture(autouse=True)
def _keep_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server lowers the priority of its process; in a test that would be all tests that follow."""
    monkeypatch.setattr(os, "nice", lambda by: 0, raising=False)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data; one that is there but incomplete is a failure, not a reason to skip."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("ARCHLOOM_SHARED_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"needs real data: {folder} does not exist (ARCHLOOM_SHARED_DATA may name another folder)")
    unreadable = [name for name in NEEDED if not os.access(folder / name, os.R_OK)]
    if unreadable:
        pytest.fail(f"{folder} is incomplete: {', '.join(unreadable)} cannot be read")
    return folder


@pytest.fixture(scope="session")
def cifar10_dir(shared_data: Path) -> Path:
    """A data folder that holds `cifar-10-batches-py`; unpacked once and kept for later runs."""
    return _unpack(shared_data, "cifar10", "cifar-10-batches-py")


@pytest.fixture(scope="session")
def text_dir(shared_data: Path) -> Path:
    """A data folder that holds `ptb` and `wikitext-2`, likewise."""
    return _unpack(shared_data, "text", "ptb", "wikitext-2")


def _unpack(shared_data: Path, part: str, *folders: str) -> Path:
    kept = Path(tempfile.gettempdir()) / f"archloom-test-data-{os.getuid()}"
    if not all((kept / folder).is_dir() for folder in folders):
        kept.mkdir(mode=0o700, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=kept))  # moved into place when whole: another test run may be looking
        subprocess.run([sys.executable, str(shared_data / "unpack"), str(fresh), part], check=True)
        for folder in folders:
            with contextlib.suppress(OSError):  # another process was quicker
                (fresh / folder).rename(kept / folder)
        shutil.rmtree(fresh)
    return kept


@pytest.fixture(scope="session")
def nb201_dir(shared_data: Path) -> Path:
    """The folder of the NAS-Bench-201 tables."""
    return shared_data / "nb201"
