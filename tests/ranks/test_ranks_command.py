"""A search that torchrun starts: a killed rank ends it, and as many ranks resume it to the same end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_groups import SECONDS, finish_ranks, start_ranks

from archloom.core.errors import DivergedError, SettingError
from archloom.data.loader import Batch
from archloom.execution import launch
from archloom.execution.launch import make_command, start_or_join
from archloom.supernet import Gate
from archloom.supernet.ranks import ALONE, Ranks

SEARCH = ["-m", "archloom", "search", "--space", "nb201_mini", "--strategy", "gdas", "--data", "digits", "--quiet"]
SEARCH += ["--epochs", "6", "--channels", "4", "--threads", "1", "--device", "cpu", "--set", "race.contestants=0"]
SEARCH += ["--set", "search.random_baseline_samples=2", "--set", "search.evaluation_images=50"]


def end_of(folder: Path) -> Any:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    result = json.loads((folder / "architecture.json").read_text())
    figures = [(line["metrics"], line["probabilities"], line["derived_score"], line["text"]) for line in lines]
    return figures, result["text"], result["random_baseline"]


def test_a_killed_rank_ends_the_run_and_as_many_ranks_resume_it(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert finish_ranks(start_ranks([*SEARCH, "--out", str(whole)], 2)) == [0, 0]
    assert len(end_of(whole)[0]) == 6
    ranks = start_ranks([*SEARCH, "--out", str(broken)], 2)
    wait_for_checkpoint(broken)
    ranks[1].send_signal(signal.SIGKILL)
    assert finish_ranks(ranks) == [1, -signal.SIGKILL]
    assert not (broken / "architecture.json").exists()
    resume = ["-m", "archloom", "resume", str(broken), "--device", "cpu", "--quiet"]
    alone = subprocess.run([sys.executable, *resume], capture_output=True, text=True, timeout=SECONDS)
    assert alone.returncode == 2
    assert alone.stderr.strip().endswith(
        f"{broken} was begun with 2 ranks, now there are 1; use --devices 2, since statistics of batches and dropout "
        "depend on it"
    )
    assert finish_ranks(start_ranks(resume, 2)) == [0, 0]
    assert end_of(broken) == end_of(whole)


def wait_for_checkpoint(folder: Path) -> None:
    end = time.monotonic() + SECONDS
    while not any(folder.glob("checkpoints/*.safetensors")):
        assert time.monotonic() < end, "no epoch ended"
        time.sleep(0.01)


def test_sigterm_saves_on_all_devices_and_says_that_the_run_is_not_finished(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, *SEARCH, "--epochs", "500", "--out", str(folder), "--devices", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as started:
        try:
            wait_for_checkpoint(folder)
            started.send_signal(signal.SIGTERM)
            _, error = started.communicate(timeout=SECONDS)
        finally:
            started.kill()
    assert started.returncode == 128 + signal.SIGTERM
    assert "stopped and saved; continue with: archloom resume" in error and "Traceback" not in error
    assert (folder / "report.html").exists() and not (folder / "architecture.json").exists()


def test_devices_start_torchrun_on_loopback(tmp_path: Path) -> None:
    """The real torchrun, with a black-box strategy: every rank refuses it in one line, before any work."""
    arguments = [
        "search",
        "--space",
        "nb201_mini",
        "--strategy",
        "random_search",
        "--data",
        "digits",
        "--device",
        "cpu",
    ]
    command = [sys.executable, "-m", "archloom", *arguments, "--devices", "2", "--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 2
    assert "strategy 'random_search' has no supernet that 2 devices could share" in done.stderr
    assert not (tmp_path / "run" / "config.toml").exists()


def test_the_command_of_devices_names_only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    command = make_command(3, ["search", "--devices", "3"])
    assert command[1:3] == ["-m", "archloom.execution.torchrun"]
    assert {"--nproc-per-node=3", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"} <= set(command)
    assert command[-5:] == ["-m", "archloom", "search", "--devices", "3"]

    def become(program: str, arguments: list[str]) -> None:
        raise SystemExit(arguments[-1])  # a real execv does not return

    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(os, "execv", become)
    monkeypatch.setattr(sys, "argv", ["archloom", "search", "--devices=2"])
    with pytest.raises(SystemExit, match="--devices=2"):
        start_or_join(2, None)
    assert start_or_join(1, "cuda:1") is ALONE


def test_torchrun_and_devices_must_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(SettingError, match="be 4 as there, got 2"):
        start_or_join(2, None)
    with pytest.raises(SettingError, match="must be auto, cpu or cuda with several ranks"):
        launch._is_cuda("cuda:1")


def test_a_difference_between_ranks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def add(values: torch.Tensor) -> torch.Tensor:
        values[1] = 7
        return values

    monkeypatch.setattr(Ranks, "_sum", staticmethod(add))
    with pytest.raises(
        DivergedError, match=r"^architecture parameters differ between ranks \(rank 0: \w+, rank 1: 0+7\)"
    ):
        Ranks(0, 2).refuse_difference("architecture parameters", b"x")


def test_slices_cover_a_batch_once() -> None:
    batch = Batch(torch.arange(8.0).view(8, 1, 1, 1), torch.arange(8))
    parts = [Ranks(rank, 3).take(batch) for rank in range(3)]
    assert [len(part) for part in parts] == [2, 3, 3]
    assert torch.equal(torch.cat([part.images for part in parts]), batch.images)
    assert torch.equal(torch.cat([part.labels for part in parts]), batch.labels)
    gates = {"a": Gate(index=torch.arange(8), weights=torch.rand(8, 5)), "b": Gate(weights=torch.rand(5)), "c": Gate(1)}
    cut = Ranks(1, 3).take_gates(gates, 8)
    assert torch.equal(cut["a"].index, torch.arange(2, 5)) and torch.equal(cut["a"].weights, gates["a"].weights[2:5])
    assert cut["b"] == gates["b"] and cut["c"] == gates["c"]
    with pytest.raises(SettingError, match="an image for each of 3 ranks, got 2"):
        Ranks(0, 3).rows(2)
