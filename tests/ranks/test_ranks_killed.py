"""A rank that is killed ends the run on all ranks; as many ranks resume it to the end of an unbroken one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_killer import COMPLETE, FINISHED, LOST, REFUSED, STRATEGIES, VICTIMS
from rank_worker import RETRAINING
from safetensors.torch import load_file

SECONDS = 500  # far more than all groups take: only what hangs is given up
SCRIPT = Path(__file__).with_name("rank_killer.py")
CASES = [(name, count) for name in [*STRATEGIES, RETRAINING] for count in VICTIMS]
TIMES = ("seconds", "valid_seconds", "images_per_second", "memory_mb")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, list[int]]]]:
    """Return the folder of all runs and the exit codes of their ranks; one process forks all of them."""
    folder = tmp_path_factory.mktemp("killed")
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    with (folder / "errors.txt").open("w") as errors:
        subprocess.run(
            [sys.executable, str(SCRIPT), str(folder)], env=environment, stderr=errors, timeout=SECONDS, check=True
        )
    return folder, json.loads((folder / "codes.json").read_text())


@pytest.mark.parametrize(("name", "count"), CASES)
def test_a_killed_rank_ends_the_run_and_as_many_ranks_resume_it(name: str, count: int, runs: Any) -> None:
    folder, codes = runs[0] / f"{name}-{count}", runs[1][f"{name} {count}"]
    lost = [-signal.SIGKILL if rank == VICTIMS[count] else LOST for rank in range(count)]
    assert codes == {
        "whole": [FINISHED] * count,
        "broken": lost,
        "fewer": [REFUSED] * (count - 1),
        "resumed": [FINISHED] * count,
    }
    assert read_metrics(folder / "broken") == read_metrics(folder / "whole")
    expected, found = (read_last_state(folder / run) for run in ("whole", "broken"))
    assert found.keys() == expected.keys() and len(expected) > 3
    assert [key for key in expected if not torch.equal(found[key], expected[key])] == []


@pytest.mark.parametrize("name", COMPLETE)
def test_a_complete_run_is_resumed_by_all_ranks(name: str, runs: Any) -> None:
    """Rank 0 reads the result, and the others end."""
    assert runs[1][f"complete {name}"] == {"complete": [FINISHED, FINISHED]}


def test_another_number_of_ranks_is_refused_with_a_reason(runs: Any) -> None:
    lines = (runs[0] / "errors.txt").read_text().splitlines()
    for name, count in CASES:
        folder = runs[0] / f"{name}-{count}" / "broken"
        line = f"{folder} was begun with {count} ranks, now there are {count - 1}; use --devices {count}, since "
        assert sum(found.startswith(line) for found in lines) == count - 1  # by every rank


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 3
    return [{key: value for key, value in line.items() if key not in TIMES} for line in lines]


def read_last_state(folder: Path) -> dict[str, torch.Tensor]:
    """Return all tensors of the last checkpoint: weights, optimizers, architecture parameters, generators."""
    last = max((folder / "checkpoints").glob("*.safetensors"), key=lambda path: int(path.stem.rpartition("-")[2]))
    return load_file(last)
