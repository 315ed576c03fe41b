"""Start several processes that are the ranks of one group, connected by loopback, and wait for them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SECONDS = 300  # far more than any group takes: only what hangs is given up


def start_ranks(command: Sequence[str], count: int) -> list[subprocess.Popen[bytes]]:
    """Start a command of Python as so many ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    return [
        subprocess.Popen(
            [sys.executable, *command], env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        )
        for rank in range(count)
    ]


def finish_ranks(processes: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """Wait for all ranks and return their exit codes; none outlives the call."""
    try:
        return [process.wait(timeout=SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run_ranks(command: Sequence[str], count: int) -> None:
    """Run a command as so many ranks, all of which must succeed."""
    assert finish_ranks(start_ranks(command, count)) == [0] * count


WORKER = str(Path(__file__).with_name("rank_worker.py"))
