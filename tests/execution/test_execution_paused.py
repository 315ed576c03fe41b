"""A search that is stopped beyond its lease and taken over by another process neither loses nor corrupts anything."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import archloom
from archloom.core.leases import waiting_for_leases

SECONDS = 300  # far more than the search takes: only what hangs is given up
SETTINGS = {
    "network": {"channels": 2},
    "search": {"epochs": 12, "random_baseline_samples": 2, "evaluation_images": 50},
    "race": {"contestants": 0},
    "monitor": {"action": "off"},
    "machine": {"torch_threads": 1},
}
SEARCH = """
import json, sys
from functools import partial
from archloom.core import leases
from archloom.execution import run_folder
run_folder.hold_lease = partial(leases.hold_lease, seconds=1.0)
import archloom
try:
    archloom.search("nb201_mini", "gdas", "digits", seed=0, out=sys.argv[1], settings=json.loads(sys.argv[2]))
except leases.LeaseLostError as error:
    sys.exit(str(error))
"""
TIMES = {"seconds", "images_per_second", "memory_mb"}


def test_a_search_that_was_stopped_too_long_leaves_the_run_to_the_process_that_took_it_over(tmp_path: Path) -> None:
    whole = archloom.search("nb201_mini", "gdas", "digits", seed=0, out=tmp_path / "whole", settings=SETTINGS)
    folder = tmp_path / "run"
    paused = start(folder)
    try:
        wait_for_checkpoint(folder)
        paused.send_signal(signal.SIGSTOP)
        with waiting_for_leases(SECONDS):
            resumed = archloom.resume(folder)
        written = read_files(folder)
        paused.send_signal(signal.SIGCONT)
        _, error = paused.communicate(timeout=SECONDS)
    finally:
        paused.kill()
        paused.wait()
    assert isinstance(resumed, archloom.SearchResult)
    assert paused.returncode == 1
    assert f"{folder} was taken over by pid {os.getpid()}: this process did not refresh its lease for 1 s" in error
    assert read_files(folder) == written  # not a byte more
    assert resumed.text == whole.text and resumed.random_baseline == whole.random_baseline
    assert [drop_times(record) for record in resumed.history] == [drop_times(record) for record in whole.history]


def start(folder: Path) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", SEARCH, str(folder), json.dumps(SETTINGS)]
    return subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)


def wait_for_checkpoint(folder: Path) -> None:
    end = time.monotonic() + SECONDS
    while not any(folder.glob("checkpoints/*.safetensors")):
        assert time.monotonic() < end, "no epoch ended"
        time.sleep(0.01)
    assert not (folder / "architecture.json").exists()


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files but leases."""
    paths = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".lease-")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def drop_times(record: object) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in TIMES}
