"""The chain of the logits at the default settings of a search, on a model whose posterior is known."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
ONE_EDGE = {"nodes": 2, "burn_in": 200, "draws": 2_000}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("gibbs_variance")


def test_the_default_chain_has_the_variance_of_its_posterior(script: ModuleType) -> None:
    """All is at its default: images of a draw, rate, learned curvature, clips."""
    ratios = script.variance_ratios(script.Setting(**ONE_EDGE))
    assert len(ratios) == 4
    assert float(ratios.mean()) == pytest.approx(1.0, abs=0.08)
    assert float((ratios - 1).abs().max()) < 0.2  # few draws: about three standard errors


def test_a_chain_that_takes_all_batch_noise_for_lasting_is_too_cold(script: ModuleType) -> None:
    """The control that must fail: batches that come in turn cancel most of their noise."""
    assert float(script.variance_ratios(script.Setting(in_turn=False, **ONE_EDGE)).mean()) < 0.85
