"""Names of classes instead of numbers, from an .npz file to report, live page, prediction and export."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

NAMES = ("cat", "dog & wolf", "bird")


@pytest.fixture
def model(archloom: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Train a tiny model on an .npz file with the names of its classes."""
    monkeypatch.chdir(tmp_path)
    images = np.random.default_rng(0).integers(0, 255, (60, 8, 8, 3), dtype=np.uint8)
    np.savez("mine.npz", images=images, labels=np.arange(60) % 3, classes=np.array(NAMES))
    tiny = ("network.channels=4", "space.cells_per_stage=1", "training.batch_size=12", "data.split=random")
    settings = [part for text in tiny for part in ("--set", text)]
    text = "|nor_conv_3x3~0|+|nor_conv_1x1~0|skip_connect~1|"
    done = archloom("retrain", text, "--space", "nb201_mini", "--data", "mine.npz", "--recipe", "nb201_12",
                    "--epochs", "1", *settings, "--quiet", "--out", "runs/model")  # fmt: skip
    assert done.code == 0, done.err
    return Path("runs/model")


def test_names_of_classes_stand_everywhere(archloom: Callable[..., Any], model: Path) -> None:
    report = (model / "report.html").read_text()
    for section in ("confusion", "mistakes"):
        part = report.partition(f'id="{section}"')[2].partition("</section>")[0]
        assert "dog &amp; wolf" in part or "cat" in part or "bird" in part, section
    assert json.loads((model / "result.json").read_text())["classes"] == list(NAMES)

    Image.new("RGB", (8, 8), (9, 90, 200)).save("picture.png")
    labelled = json.loads(archloom("predict", model, "picture.png", "--json").out)
    assert {entry["label"] for entry in labelled[0]["predictions"]} == set(NAMES)

    assert archloom("export", model, "--format", "standalone").code == 0
    source = next(model.rglob("model.py")).read_text()
    assert all(name in source for name in NAMES)


def test_figures_of_the_live_page_have_the_names(model: Path) -> None:
    testclient = pytest.importorskip("starlette.testclient", reason="needs the extra web and httpx")
    from archloom.dashboard.app import make_app
    from archloom.dashboard.guard import list_hosts

    app = make_app([model.parent], hosts=list_hosts("127.0.0.1"))
    ask = testclient.TestClient(app, base_url="http://127.0.0.1:8421").get
    for figure in ("confusion", "classes"):
        assert "dog &amp; wolf" in ask(f"/svg/{figure}/runs/model").text, figure
        cells = {cell for row in csv.reader(io.StringIO(ask(f"/csv/{figure}/runs/model").text)) for cell in row}
        assert set(NAMES) <= cells, figure
    assert any(name in ask("/page/runs/model").text for name in ("cat", "bird"))
