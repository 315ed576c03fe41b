"""The script that times predictions runs every form, and takes its ratios round by round. No time is looked at here."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch

from archloom.latency.measuring import Size

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")  # the script sets it if it is missing; put back afterwards
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("inference")


def test_every_form_of_a_network_is_timed_and_gives_the_same_logits(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(name)
    monkeypatch.setattr(script, "NETWORKS", {"tiny": ("nb201_skips", Size(channels=2, cells=1, side=8))})
    words = ["inference", "--network", "tiny", "--images", "1", "3", "--rounds", "1", "--json", str(tmp_path / "f")]
    monkeypatch.setattr("sys.argv", words)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    script.main()
    assert "tiny: 1 rounds; once: fold" in capsys.readouterr().out
    found = json.loads((tmp_path / "f").read_text())["networks"]["tiny"]
    assert list(found["images"]) == ["1", "3"] and list(found["prepare_seconds"]) == ["fold", "export", "open"]
    assert list(found["images"]["3"]["forms"]) == ["eager", "channels last", "torch", "onnx"]
    model = script.build("tiny")
    forms, _ = script.prepare(model, threads=1)
    images = model.example(2)
    for form in forms.values():
        assert torch.allclose(form(images), model(images), atol=1e-5)


def test_ratios_are_taken_round_by_round(script: ModuleType) -> None:
    found = script.figures({"eager": [2.0, 8.0, 3.0], "onnx": [1.0, 2.0, 3.0]})
    assert found["onnx"]["gain"] == {"median": 2.0, "low": 1.5, "high": 3.0}
    assert found["eager"]["gain"]["median"] == 1.0 and found["onnx"]["milliseconds"]["median"] == 2000.0


def test_every_network_has_an_architecture(script: ModuleType) -> None:
    sizes = {name: sum(value.numel() for value in script.build(name).parameters()) for name in script.NETWORKS}
    assert sizes["nb201"] < sizes["darts_v2"] < sizes["mobilenet_v3"]
