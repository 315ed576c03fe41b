"""Comparisons, pipelines and searches on a Ray cluster end as serial ones do, also where a node is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from clusters import ENVIRONMENT, ray_cluster, wait_until
from safetensors.torch import load_file

import archloom

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'archloom[ray]'")

SECONDS = 400  # far more than a command takes: only what hangs is given up
SMALL = {
    "space": {"name": "nb201_mini"},
    "data": {"name": "digits", "train_images": 128, "valid_images": 64},
    "network": {"channels": 2},
    "monitor": {"action": "off"},
    "machine": {"torch_threads": 1},
}
ONE_SHOT = {"epochs": 2, "random_baseline_samples": 2, "evaluation_images": 32, "batch_size": 32}
PIPELINE = """
seeds = "0-1"
retrainings = 2
pick_epochs = 1

[search]
space = { name = "nb201_mini" }
strategy = { name = "gdas" }
data = { name = "digits" }
network = { channels = 2 }
search = { epochs = 40, random_baseline_samples = 2, evaluation_images = 32 }
race = { contestants = 0 }
monitor = { action = "off" }
machine = { torch_threads = 1 }

[retrain]
recipe = "auto"
network = { channels = 2 }
training = { epochs = 2 }
machine = { torch_threads = 1 }
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setattr("ray._private.ray_constants.ENABLE_RAY_CLUSTER", False)  # read when Ray was imported
        with ray_cluster() as started:
            patch.setenv("RAY_ADDRESS", started.address)
            yield started
        ray.shutdown()


def read_search(folder: Path) -> Any:
    """Return all that a search found, without times and memory."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    result = json.loads((folder / "architecture.json").read_text())
    return (
        [drop_times(line) for line in lines],
        {name: result.get(name) for name in ("text", "architecture", "shared_score", "random_baseline")},
        [drop_times(one) for one in read_notes(folder)],
    )


def drop_times(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in ("seconds", "images_per_second", "memory_mb")}


def read_notes(folder: Path) -> list[dict[str, Any]]:
    """Return the records of the finalist race."""
    path = folder / "finalists.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_comparison(cluster: Any, tmp_path: Path) -> None:
    given = {
        "seeds": "0-1",
        "against": "rsps",
        "all": SMALL | {"search": ONE_SHOT, "race": {"contestants": 0}},
        "entry": {"rsps": {"strategy": {"name": "rsps"}}, "gdas": {"strategy": {"name": "gdas"}}},
    }
    results = [archloom.compare(given, out=tmp_path / on, on=on) for on in ("serial", "ray")]
    names = sorted(path.name for path in (tmp_path / "serial" / "runs").iterdir())
    assert names == ["gdas-0", "gdas-1", "rsps-0", "rsps-1"]
    for name in names:
        assert read_search(tmp_path / "ray" / "runs" / name) == read_search(tmp_path / "serial" / "runs" / name)
    serial, on_ray = (
        [[(one.seed, one.text, one.value) for one in entry.results] for entry in result.entries] for result in results
    )
    assert on_ray == serial


def test_the_finalist_race_of_a_search(cluster: Any, tmp_path: Path) -> None:
    race = {"race": {"contestants": 4, "steps": 4}}
    for on in ("serial", "ray"):
        archloom.search(
            "nb201_mini", "gdas", "digits", settings=SMALL | {"search": ONE_SHOT} | race, out=tmp_path / on, on=on
        )
    assert len(read_notes(tmp_path / "ray")) >= 4
    assert read_search(tmp_path / "ray") == read_search(tmp_path / "serial")


def test_trials_that_are_trained(cluster: Any, tmp_path: Path) -> None:
    trained = {"trials": 6, "trials_at_once": 3, "score": "training", "score_epochs": 1, "batch_size": 32}
    for on in ("serial", "ray"):
        archloom.search(
            "nb201_mini",
            "regularized_evolution",
            "digits",
            settings=SMALL | {"search": trained},
            out=tmp_path / on,
            on=on,
        )
    assert len(read_search(tmp_path / "ray")[0]) == 6
    assert read_search(tmp_path / "ray") == read_search(tmp_path / "serial")


def test_the_command_run_while_a_node_is_lost(cluster: Any, tmp_path: Path) -> None:
    """The last test: the cluster has one node afterwards."""
    recipe = tmp_path / "pipeline.toml"
    recipe.write_text(PIPELINE)
    serial, on_ray = tmp_path / "serial", tmp_path / "ray"
    finish(start(recipe, "serial", serial))
    command = start(recipe, "ray", on_ray)
    try:
        wait_until(lambda: count(on_ray, "metrics.jsonl") == 2)  # a search on each node
        assert count(on_ray, "architecture.json") == 0
        cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False)
    finally:
        finish(command)
    assert sorted(path.name for path in on_ray.glob("searches/*/.lease-*")) == [".lease-3", ".lease-4"]  # one resumed
    for seed in (0, 1):
        assert read_search(on_ray / "searches" / f"seed-{seed}") == read_search(serial / "searches" / f"seed-{seed}")
    models = sorted(path.relative_to(serial) for path in serial.rglob("last.safetensors"))
    assert len(models) == 4  # short trainings of both, and two of the better one
    for model in models:
        expected, found = load_file(serial / model), load_file(on_ray / model)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)


def start(recipe: Path, on: str, out: Path) -> subprocess.Popen[bytes]:
    arguments = ["run", str(recipe), "--on", on, "--out", str(out), "--quiet"]
    quiet = subprocess.DEVNULL
    return subprocess.Popen([sys.executable, "-m", "archloom", *arguments], stdout=quiet, stderr=quiet)


def count(folder: Path, name: str) -> int:
    return len(list(folder.glob(f"searches/*/{name}")))


def finish(command: subprocess.Popen[bytes]) -> None:
    try:
        assert command.wait(timeout=SECONDS) == 0
    finally:
        command.kill()
        command.wait()
