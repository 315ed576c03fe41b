"""`archloom latency fit`: what is timed, refused and written; timing is replaced, so that nothing depends on it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archloom.latency import network_timing
from archloom.latency.timings import Timings

Archloom = Callable[..., Any]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A machine whose networks take as long as the names of their operations, or as long as it likes."""
    asked: dict[str, Any] = {"noise": 0.0}

    def timed(space, prepare, *, networks, seed, **others):
        import random

        asked.update(networks=networks, seed=seed, **others)
        prepare(space.sample(random.Random(0)))()  # can be built and called
        rng = random.Random(seed)
        drawn = [space.sample(rng) for _ in range(networks)]
        costs = [(3 + sum(map(len, one.values()))) * (1 + asked["noise"] * rng.uniform(-1, 1)) for one in drawn]
        return drawn, Timings([ms / 5 for ms in costs], [0.005] * len(costs))

    monkeypatch.setattr(network_timing, "time_networks", timed)
    return asked


def test_good_model_is_written_with_its_setup(archloom: Archloom, machine, tmp_path: Path) -> None:
    out = tmp_path / "here.json"
    options = ("--set", "network.channels=2", "--size", "8", "--out", str(out), "--seed", "3")
    finished = archloom("latency", "fit", "--space", "nb201_mini", *options)
    assert finished.code == 0, finished.err
    assert "R2 1.0000" in finished.out and str(out) in finished.out
    content = json.loads(out.read_text(encoding="utf-8"))
    assert machine["networks"] == content["networks"] == 50 and machine["seed"] == 3
    wanted = {
        "device": "cpu",
        "threads": 1,
        "batch": 1,
        "dtype": "float32",
        "repeats": 30,
        "image_shape": [3, 8, 8],
        "network": {"channels": 2},
        "space": "nb201_mini",
        "forced": False,
    }
    assert {name: content[name] for name in wanted} == wanted
    assert content["versions"].keys() >= {"archloom", "torch"}


def test_bad_model_is_refused_unless_forced(archloom: Archloom, machine, tmp_path: Path) -> None:
    machine["noise"] = 0.5
    out = tmp_path / "here.json"
    call = ("latency", "fit", "--space", "nb201_mini", "--set", "network.channels=2", "--size", "8", "--out", str(out))
    refused = archloom(*call)
    assert refused.code == 2 and not out.exists()
    assert refused.lines[-1].startswith(
        "error: the model was not written, the timings are kept: on held-out networks R2 must be at least 0.98"
    )
    assert "--networks" in refused.lines[-1]
    forced = archloom(*call, "--force")
    assert forced.code == 0
    assert json.loads(out.read_text(encoding="utf-8"))["forced"] is True


def test_timings_are_kept_and_resumed(archloom: Archloom, machine, monkeypatch, tmp_path: Path) -> None:
    out, all_at_once, seen = tmp_path / "here.json", network_timing.time_networks, []

    def stopped(space, prepare, *, earlier, after_group, **others):
        seen.append(len(earlier.ratios))
        earlier.ratios.extend([1.0] * 10)
        earlier.constants.extend([1.0] * 10)
        signal.raise_signal(signal.SIGINT)
        after_group(earlier)

    monkeypatch.setattr(network_timing, "time_networks", stopped)
    call = ("latency", "fit", "--space", "nb201_mini", "--out", str(out))
    for _ in range(2):
        finished = archloom(*call)
        assert finished.code == 130 and not out.exists()
    assert seen == [0, 10]
    assert "stopped; the same command resumes after 20 networks" in " ".join(finished.err.split())
    assert "10 of them earlier" in finished.err
    monkeypatch.setattr(network_timing, "time_networks", all_at_once)
    assert archloom(*call).code == 0
    other = archloom(*call, "--batch", "2")
    assert other.code == 2 and "was timed with another batch; remove it, or choose another --out" in other.err


def test_check_compares_a_model_with_the_machine(archloom: Archloom, machine, monkeypatch, tmp_path: Path) -> None:
    out, seen = tmp_path / "here.json", []
    call = ("latency", "fit", "--space", "nb201_mini", "--set", "network.channels=2", "--size", "8", "--out", str(out))
    assert archloom(*call).code == 0
    assert json.loads(out.read_text(encoding="utf-8"))["constant_ms"] == pytest.approx(5.0)

    def beside(constant, calls, *, repeats, clock):
        seen.extend([constant().shape, *(call().shape for call in calls), repeats])
        return Timings([2.0] * len(calls), [0.9] * len(calls))  # at whatever speed

    monkeypatch.setattr(network_timing, "time_against_reference", beside)
    cell = "|nor_conv_3x3~0|+|none~0|skip_connect~1|"
    finished = archloom("latency", "check", str(out), cell)
    assert finished.code == 0, finished.err
    assert seen == [(1, 10), (1, 10), 100]
    assert f"{cell} 31.000 ms 10.000 ms -67.7 %" in " ".join(finished.out.split())
    assert archloom("latency", "check", str(out), "|none~0|").code == 2
    other = json.loads(out.read_text(encoding="utf-8"))
    for change, message in (
        ({"constant_ms": None}, "is no model of archloom latency fit"),
        ({"image_shape": 3}, "is no model of archloom latency fit"),
        ({"space": "mine:Space"}, "space 'mine:Space' is a plug-in that only a file names"),
    ):
        out.write_text(json.dumps({**other, **change}), encoding="utf-8")
        bad = archloom("latency", "check", str(out), cell)
        assert bad.code == 2 and message in bad.err


def test_mistakes_are_reported_before_timing(archloom: Archloom, machine, tmp_path: Path) -> None:
    good = ("latency", "fit", "--space", "nb201_mini")
    for call, line in (
        ((*good, "--out", "model.txt"), "--out must end in .json"),
        ((*good, "--set", "search.epochs=3"), "--set takes settings of the space and the network, got 'search'"),
        ((*good, "--set", "network.chanels=3"), "did you mean 'channels'"),
        (("latency", "fit", "--space", "nb202"), "unknown space 'nb202'"),
        ((*good, "--repeats", "3"), "30"),
    ):
        finished = archloom(*call)
        assert finished.code == 2 and line in finished.err
        assert "networks" not in machine


def test_search_uses_the_model_for_its_target(archloom: Archloom, machine, tmp_path: Path) -> None:
    out, run = tmp_path / "here.json", tmp_path / "run"
    final = ("--set", "space.cells_per_stage=5", "--size", "8")
    archloom("latency", "fit", "--space", "nb201_mini", *final, "--out", str(out))
    options = ("--space", "nb201_mini", "--data", "digits", "--strategy", "random_search", "--trials", "3")
    finished = archloom("search", *options, "--out", str(run), "--target", "latency=39", "--latency-source", str(out))
    assert finished.code == 0, finished.err
    result = json.loads((run / "architecture.json").read_text(encoding="utf-8"))
    assert result["target"]["met"] and result["acceptance"]["accepted"] == 3
    assert "Target met: 39.0 ms for a target of 39.0 ms (+0.0 %). report:" in " ".join(finished.out.split())
    wrong = archloom("search", "--target", "latency", "--latency-source", "pixel3")
    assert wrong.code == 2 and "--target must be METRIC=NUMBER such as latency=20, got 'latency'" in wrong.err
