"""Measure what runs beyond one machine cost, with all processes on this one: prints one JSON object.

    python benchmarks/scale.py jobs --data-dir DATA --out FOLDER     24 trainings: serial, Ray with a lost node, --join
    python benchmarks/scale.py driver --jobs 10000                   jobs per second of a driver and of a folder
    python benchmarks/scale.py ranks --out FOLDER                    steps and traffic of two ranks against one process
    python benchmarks/scale.py exact --out FOLDER                    the same in double precision, without batch norm

Ray and the ranks use loopback only. Every process that is started here is ended here.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

RESULT_FIELDS = ("text", "architecture", "derived", "shared_score", "random_baseline")
SEARCHES: dict[str, Any] = {
    "title": "24 trainings of supernets on CIFAR-10",
    "seeds": "0-11",
    "all": {
        "space": {"name": "nb201", "cells_per_stage": 1},
        "data": {"name": "cifar10", "train_images": 2000, "valid_images": 1000},
        "network": {"channels": 8},
        "search": {"epochs": 3, "random_baseline_samples": 5, "evaluation_images": 250},
        "race": {"contestants": 0},
        "monitor": {"action": "off"},
        "machine": {"torch_threads": 1},
    },
    "entry": {"gdas": {"strategy": {"name": "gdas"}}, "rsps": {"strategy": {"name": "rsps", "candidates": 10}}},
}
JOIN = """
import sys
from archloom.comparisons.run import compare
from archloom.execution.executors import SerialExecutor
compare(sys.argv[1], executor=SerialExecutor(), join=True)
"""


def measure_jobs(data: Path, out: Path) -> dict[str, Any]:
    """Return times of 24 searches in three ways, and whether their results are the same."""
    from archloom.comparisons.run import run_comparison
    from archloom.comparisons.spec import ComparisonSpec
    from archloom.execution.executors import SerialExecutor

    spec = ComparisonSpec.resolve(SEARCHES, overrides={"data": {"directory": str(data)}})
    found: dict[str, Any] = {}
    start = time.perf_counter()
    run_comparison(spec, out / "serial", executor=SerialExecutor())
    found["serial_seconds"] = time.perf_counter() - start
    expected = read_results(out / "serial")
    found["searches"] = len(expected)
    found["mean_search_seconds"] = statistics.mean(list_seconds(out / "serial"))

    found |= {f"ray_{name}": value for name, value in _run_on_ray(spec, out / "ray").items()}
    found["ray_equal"] = read_results(out / "ray") == expected
    found |= {f"join_{name}": value for name, value in _run_joined(spec, out / "join").items()}
    found["join_equal"] = read_results(out / "join") == expected
    return found


def read_results(folder: Path) -> dict[str, Any]:
    """Return what every search of a comparison found, without its times: metrics of all epochs and the result."""
    found = {}
    for run in sorted((folder / "runs").iterdir()):
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        result = json.loads((run / "architecture.json").read_text())
        found[run.name] = (
            [(line["metrics"], line["derived_score"], line["text"], line["probabilities"]) for line in lines],
            {name: result.get(name) for name in RESULT_FIELDS},
        )
    return found


def list_seconds(folder: Path) -> list[float]:
    """Return how long the searches of a comparison took."""
    paths = folder.glob("runs/*/architecture.json")
    return [json.loads(path.read_text())["run"]["seconds_since_start"] for path in paths]


def _run_on_ray(spec: Any, out: Path) -> dict[str, Any]:
    """Run on a head and one more node, which is killed after a third of the searches."""
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # else Ray replaces 127.0.0.1 by the machine's address
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    from archloom.comparisons.run import run_comparison
    from archloom.core.events import JobEnded
    from archloom.execution.ray_executor import RayExecutor

    node = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    ended: list[str] = []
    retried: list[str] = []

    def listen(event: object) -> None:
        if isinstance(event, JobEnded):
            (retried if event.retrying else ended).append(event.job)

    def kill_node(lost: Any) -> None:
        while len(ended) < 8:
            time.sleep(0.2)
        cluster.remove_node(lost, allow_graceful=False)

    try:
        lost = cluster.add_node(**node)
        cluster.wait_for_nodes()
        killer = threading.Thread(target=kill_node, args=(lost,), daemon=True)
        killer.start()
        start = time.perf_counter()
        result = run_comparison(spec, out, executor=RayExecutor(cluster.address, out), emit=listen)
        seconds = time.perf_counter() - start
        killer.join()
    finally:
        cluster.shutdown()
    return {"seconds": seconds, "ended": len(ended), "run_again": retried, "failures": len(result.failures)}


def _run_joined(spec: Any, out: Path) -> dict[str, Any]:
    """Run in three processes that share a folder, one of which is killed after a third of the searches."""
    from archloom.execution.run_folder import RunFolder

    with RunFolder(out).lock():
        spec.write(out)
    start = time.perf_counter()
    processes = [subprocess.Popen([sys.executable, "-c", JOIN, str(out)]) for _ in range(3)]
    try:
        while len(list(out.glob("runs/*/architecture.json"))) < 8:
            time.sleep(0.2)
        processes[0].send_signal(signal.SIGKILL)
        codes = [process.wait() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return {"seconds": time.perf_counter() - start, "exit_codes": codes}


# --- a driver without work


@dataclass(frozen=True)
class Nothing:
    """A job that does nothing."""

    name: str
    folder: None = None
    resources: object = None  # nobody asks for them

    def run(self, emit: object, stop: object) -> None:
        """Do nothing."""


def measure_driver(jobs: int) -> dict[str, Any]:
    """Return jobs per second of the driver's own loop, and times of the operations in a shared folder."""
    from archloom.core.leases import find_holder, hold_lease
    from archloom.execution.cluster import ClusterExecutor, Ended
    from archloom.execution.exchange import Exchange, read_end

    class Simulated(ClusterExecutor[Any]):
        """Runs every call at once in this process, as if 64 machines had done it meanwhile."""

        workers = 64

        def _connect(self) -> None: ...

        def _disconnect(self) -> None: ...

        def _share(self, data: bytes) -> object:
            return data

        def _submit(self, call: Any, shared: Any, resources: Any) -> Any:
            return (call.number, call(shared))

        def _wait(self, handles: Sequence[Any]) -> Iterator[Ended[Any]]:
            yield from (Ended(handle, read_end(handle[1])) for handle in handles)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = time.perf_counter()
        failures = Simulated(folder).run([Nothing(f"job {number}") for number in range(jobs)])
        seconds = time.perf_counter() - start
        exchange = Exchange.create(folder)
        held = folder / "held"
        held.mkdir()

        def take() -> None:
            with hold_lease(held):
                pass

        times = {
            "read_share": time_call(lambda: exchange.read_share(0)),
            "write_share": time_call(lambda: exchange.write_share(0, 0.5)),
            "look_for_stop": time_call(lambda: exchange.is_stopping),
            "find_holder": time_call(lambda: find_holder(held)),
            "take_and_release_lease": time_call(take),
        }
    return {
        "jobs": jobs,
        "failures": len(failures),
        "seconds": seconds,
        "jobs_per_second": jobs / seconds,
        "microseconds": {name: 1e6 * value for name, value in times.items()},
    }


def time_call(call: Callable[[], object], *, times: int = 500) -> float:
    """Return the seconds of one call, by the median."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


# --- ranks

RANK = """
import json, sys, time
import torch
from torch import distributed
from archloom.execution.launch import start_or_join
from archloom.searches.build import build_search
from archloom.searches.spec import SearchSpec
ranks = start_or_join(1, "cpu")
torch.set_num_threads(1)
if sys.argv[4]:
    sys.path.insert(0, sys.argv[4])
    from rank_worker import use_doubles_without_normalisation
    use_doubles_without_normalisation()
spec = SearchSpec.resolve(json.loads(sys.argv[1]))
loop = build_search(spec, ranks=ranks)
sent, calls = 0, 0
if ranks.count > 1:
    reduce = distributed.all_reduce
    def counted(values, *rest):
        global sent, calls
        sent += values.numel() * values.element_size()
        calls += 1
        return reduce(values, *rest)
    distributed.all_reduce = counted
times = []
for step in range(int(sys.argv[2])):
    before, start = (sent, calls), time.perf_counter()
    loop.advance()
    times.append((time.perf_counter() - start, sent - before[0], calls - before[1]))
times = times[3:]
middle = sorted(times)[len(times) // 2]
found = {"seconds": middle[0], "bytes": sorted(t[1] for t in times)[len(times) // 2], "calls": middle[2],
         "parameters": loop.weights.parameter_count,
         "logits": [p.detach().double().flatten().tolist() for p in loop.strategy.policy.parameters()],
         "text": loop.describe(loop.strategy.best(lambda a: 0.0, final=False))["text"]}
if ranks.is_first:
    open(sys.argv[3], "w").write(json.dumps(found))
"""


def measure_ranks(out: Path, steps: int, *, exact: bool = False) -> dict[str, Any]:
    """Return the time and the traffic of a step, for one process and two ranks, and whether they derive the same."""
    tests = str(Path(__file__).parent.parent / "tests" / "ranks")
    sys.path.insert(0, tests)
    from rank_groups import run_ranks

    out.mkdir(parents=True, exist_ok=True)
    common = {
        "data": {"name": "strokes"},
        "strategy": {"name": "darts"},
        "search": {"epochs": 1, "batch_size": 32},
        "race": {"contestants": 0},
        "machine": {"torch_threads": 1, "device": "cpu"},
        "monitor": {"action": "off"},
    }
    spaces = {
        "nb201": {"space": {"name": "nb201", "cells_per_stage": 1}, "network": {"channels": 16}},
        "darts": {"space": {"name": "darts", "cells": 3}, "network": {"channels": 8}},
    }
    found: dict[str, Any] = {}
    for name, own in spaces.items():
        for count in (1, 2):
            path = out / f"{name}-{count}.json"
            settings = json.dumps({**common, **own, "seed": 0})
            run_ranks(["-c", RANK, settings, str(steps), str(path), tests if exact else ""], count)
            found[f"{name} {count}"] = json.loads(path.read_text())
        alone, together = (found[f"{name} {count}"] for count in (1, 2))
        own_logits, other_logits = (list(chain(*one.pop("logits"))) for one in (alone, together))
        pairs = list(zip(own_logits, other_logits, strict=True))
        found[name] = {
            "same_architecture": alone["text"] == together["text"],
            "largest_logit": max(abs(one) for one, _ in pairs),
            "largest_difference_of_logits": max(abs(one - other) for one, other in pairs),
        }
    return found


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("jobs", "driver", "ranks", "exact"))
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("runs/scale"))
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=23)
    arguments = parser.parse_args()
    measure: dict[str, Callable[[], dict[str, Any]]] = {
        "jobs": lambda: measure_jobs(arguments.data_dir.absolute(), arguments.out.absolute()),
        "driver": lambda: measure_driver(arguments.jobs),
        "ranks": lambda: measure_ranks(arguments.out.absolute(), arguments.steps),
        "exact": lambda: measure_ranks(arguments.out.absolute(), arguments.steps, exact=True),
    }
    print(json.dumps(measure[arguments.what](), indent=1))


if __name__ == "__main__":
    main()
