"""The calibration of credible sets against a table: counts on invented posteriors, and a tiny run from end to end."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

import archloom
from archloom.policies.posterior import DecisionPosterior, Mixing, Posterior

ROOT = Path(__file__).resolve().parents[2]
MIXED = Mixing(chains=2, draws=100, effective_draws=80.0, effective_draws_median=90.0, r_hat=1.01, r_hat_median=1.0)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("posterior_calibration")


def posterior(mixing: Mixing | None = MIXED, excluded: tuple[str, ...] = ()) -> Posterior:
    shares = {"a": {"x": 0.6, "y": 0.3, "z": 0.1}, "b": {"x": 0.97, "y": 0.03, "z": 0.0}}
    decisions = {name: DecisionPosterior(best, (), 0.0) for name, best in shares.items()}
    return Posterior(
        draws=200, different_architectures=3, decisions=decisions, architectures=(), mixing=mixing, excluded=excluded
    )


def test_coverage_grows_with_the_level_and_sets_with_it(script: ModuleType) -> None:
    cases = script.list_cases("run", posterior(), {"a": "y", "b": "y"})
    rows = script.measure(cases, (0.5, 0.8, 0.95, 0.99))
    assert [row.covered for row in rows] == [0, 1, 1, 2]  # x and y hold 0.9 of `a`; `b` has y above 0.97 only
    assert [row.mean_size for row in rows] == [1.0, 1.5, 2.0, 2.5]
    assert rows[1].coverage == 0.5


def test_a_truth_that_cannot_win_is_no_case(script: ModuleType) -> None:
    cases = script.list_cases("run", posterior(excluded=("z",)), {"a": "z", "b": "x"})
    assert [case.decision for case in cases] == ["b"]


def test_runs_that_did_not_converge_are_counted_apart(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth, hot = {"a": "x", "b": "x"}, Mixing(2, 100, 5.0, 9.0, r_hat=1.7, r_hat_median=1.2)
    script.report({"one": (posterior(), truth), "two": (posterior(hot), truth)}, tmp_path / "picture.svg")
    said = capsys.readouterr().out
    assert "one: converged, R-hat 1.010, 80 effective of 200 draws from 2 chains" in said
    assert "two: not converged, R-hat 1.700" in said
    assert said.count("| 95% | 2 of 2 (100%) |") == 2
    drawn = (tmp_path / "picture.svg").read_text()
    assert drawn.startswith("<svg") and "xmlns=" in drawn.split(">")[0]


def test_a_finished_run_is_sampled_once_and_compared_with_its_table(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("arviz_stats")
    settings = {
        "network": {"channels": 2},
        "race": {"contestants": 0},
        "search": {"random_baseline_samples": 0, "epochs": 1},
        "data": {"train_images": 64, "valid_images": 64},
        "monitor": {"action": "off"},
    }
    result = archloom.search("nb201_mini", "gibbs", "digits", seed=0, out=tmp_path / "run", settings=settings)
    script.main([str(result.folder), "--chains", "2", "--draws", "20"])
    first = capsys.readouterr().out
    assert first.startswith("run: not converged") and "of 3 (" in first
    stored = json.loads((result.folder / "posterior.json").read_text())
    assert stored["given_weights"] and stored["excluded"] == ["none"]
    script.main([str(result.folder)])  # read again, not sampled with 200 draws
    assert capsys.readouterr().out == first
