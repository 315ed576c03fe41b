"""Processes that share a study in PostgreSQL, from Debian's packages, on loopback."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("optuna")
pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'archloom[postgresql]'")

OWNER = "postgres" if os.getuid() == 0 else None  # the server refuses to run as root
SEARCH = """
import sys
import archloom
settings = {"search": {"trials": 12, "study": sys.argv[1]}, "machine": {"torch_threads": 1}}
archloom.search("nb201_mini", "regularized_evolution", "digits", seed=0, out=sys.argv[2], settings=settings)
"""


def find_program(name: str) -> str | None:
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(installed[-1]) if installed else None)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """Start a server of its own on a free port, and end it."""
    if find_program("postgres") is None or find_program("initdb") is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="archloom-postgresql-"))
    if OWNER is not None:
        shutil.chown(folder, OWNER)
    data = folder / "data"
    make = [find_program("initdb"), "-D", str(data), "-U", "archloom", "--auth=trust", "--no-sync"]
    subprocess.run(make, check=True, capture_output=True, user=OWNER, cwd=folder)
    command = [find_program("postgres"), "-D", str(data), "-h", "127.0.0.1", "-p", str(port), "-k", str(folder)]
    server = subprocess.Popen(command, user=OWNER, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, server)
        yield f"postgresql+psycopg://archloom@127.0.0.1:{port}/postgres"
    finally:
        server.terminate()
        server.wait(timeout=60)
        shutil.rmtree(folder)


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    import psycopg

    end = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(host="127.0.0.1", port=port, user="archloom", dbname="postgres").close()
        except psycopg.OperationalError:
            assert server.poll() is None and time.monotonic() < end, "the server does not start"
            time.sleep(0.05)
        else:
            return


def trials_of(run: Path) -> list[tuple[int, str]]:
    return sorted(
        (one["trial"], one["text"]) for one in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    )


def test_three_processes_share_a_study(database: str, tmp_path: Path) -> None:
    names = ("one", "two", "three")
    started = [subprocess.Popen([sys.executable, "-c", SEARCH, database, str(tmp_path / name)]) for name in names]
    try:
        assert [process.wait(timeout=200) for process in started] == [0, 0, 0]
    finally:
        for process in started:
            process.kill()
            process.wait()
    first = trials_of(tmp_path / "one")
    assert len(first) == 12
    assert trials_of(tmp_path / "two") == trials_of(tmp_path / "three") == first  # each learned of all trials


def test_no_private_name_of_optuna_is_used() -> None:
    """They change without notice; `optuna<6` in pyproject.toml covers the public ones."""
    source = Path(__file__).parents[2] / "src" / "archloom"
    private = re.compile(
        r"optuna(\.\w+)*\._[a-z]|from optuna[\w.]*\._|\bself\._study\._|\brunning\._|\basked\._|sampler\._"
    )
    found = [str(path) for path in source.rglob("*.py") if private.search(path.read_text())]
    assert found == []
    assert '"optuna>=5.0,<6"' in (source.parents[1] / "pyproject.toml").read_text()
