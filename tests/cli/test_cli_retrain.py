"""`archloom retrain`: a model and what it is worth, or one line on what to mend."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from archloom.data.places import KINDS
from archloom.retrainings.loop import RetrainLoop

Archloom = Callable[..., Any]
CELL = "|nor_conv_1x1~0|+|none~0|skip_connect~1|"
TINY = [
    *("--recipe", "nb201_12", "--space", "nb201_mini", "--data", "digits", "--threads", "1"),
    *("--set", "space.cells_per_stage=1", "--set", "network.channels=4", "--set", "data.split=random"),
    *("--set", "data.train_images=64", "--set", "data.valid_images=32", "--set", "training.batch_size=32"),
]


@pytest.fixture
def without_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing the page takes longer than a tiny training; here it does not matter."""
    monkeypatch.setattr(
        "archloom.retrainings.run.write_retrain_report", lambda directory, **_: directory / "report.html"
    )


def test_a_run_of_a_search_is_trained_and_the_end_is_told(
    archloom: Archloom, finished_run: Path, without_page: None
) -> None:
    options = [option for option in TINY if option not in ("--space", "nb201_mini", "--data", "digits")]
    finished = archloom("retrain", finished_run, *options, "--epochs", "2", "--out", "model")
    assert finished.code == 0, finished.err
    assert finished.lines[0] == "nb201_mini trained on digits (recipe nb201_12), seed 0; run folder model"
    assert finished.lines[1] == "width 8 -> 4"
    assert finished.lines[2].startswith("epoch 1/2  loss train ") and "valid " in finished.lines[2]
    result = json.loads(Path("model/result.json").read_text())
    assert result["text"] in finished.out.splitlines()
    words = " ".join(finished.out.split())
    assert (
        f"Test accuracy {result['test']['top1']:.2f} % of 355 images (top 5: {result['test']['top5']:.2f} %)" in words
    )
    for part in ("Best class", "Worst class", "Most confused", "taken for", "Changed width 8 -> 4", "1 thread"):
        assert part in words
    assert finished.out.splitlines()[-4:] == [
        "model: model/best.safetensors",
        "report: model/report.html",
        "use it elsewhere: archloom export model",
        "try it: archloom predict model IMAGES...",
    ]


def test_after_ctrl_c_it_goes_on(archloom: Archloom, without_page: None, monkeypatch: pytest.MonkeyPatch) -> None:
    options = [CELL, *TINY, "--epochs", "2"]
    advance = RetrainLoop.advance

    def interrupted(training: RetrainLoop) -> Any:
        if training.position == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return advance(training)

    with monkeypatch.context() as patch:
        patch.setattr(RetrainLoop, "advance", interrupted)
        stopped = archloom("retrain", *options, "--out", "stopped")
    assert stopped.code == 130
    assert stopped.lines[-1] == "stopped and saved; continue with: archloom resume stopped"
    assert not Path("stopped/result.json").exists()
    resumed = archloom("resume", "stopped", "--quiet")
    assert (resumed.code, resumed.err) == (0, "")
    assert archloom("retrain", *options, "--out", "whole", "--quiet").code == 0
    results = [json.loads(Path(run, "result.json").read_text()) for run in ("stopped", "whole")]
    assert results[0]["test"] == results[1]["test"] and results[0]["valid"] == results[1]["valid"]


MINI = [CELL, "--space", "nb201_mini"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["darts_v3"], "there is no run, file or published architecture 'darts_v3'; did you mean 'darts_v2'?"),
        (
            [*MINI, "--recipe", "cifr"],
            "no recipe of a retraining 'cifr'; did you mean 'cifar'? (or the path of a .toml file)",
        ),
        ([*MINI, "--budget", "soon"], "a budget is written like 30m, 2h or 1h30m, got 'soon'"),
        ([*MINI, "--set", "training.epoch=3"], "unknown setting 'training.epoch'; did you mean 'epochs'?"),
        ([*MINI, "--data-dir", "nowhere"], "no data folder nowhere; check --data-dir"),
        ([*MINI, "--path", "nowhere"], None),
    ],
)
def test_a_mistake_is_a_line(archloom: Archloom, arguments: list[str], line: str | None, tmp_path: Path) -> None:
    finished = archloom("retrain", *arguments, "--quiet")
    wanted = line or f"there are no data at '{tmp_path / 'nowhere'}'; data are {KINDS}"
    assert (finished.code, finished.lines) == (2, [f"error: {wanted}"])
    assert not Path("runs").exists()


def test_a_class_of_one_picture_is_a_line(archloom: Archloom, tmp_path: Path) -> None:
    for name, count in (("a", 3), ("b", 1)):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (8, 8)).save(tmp_path / "pictures" / name / f"{number}.png")
    finished = archloom("retrain", CELL, "--space", "nb201_mini", "--path", "pictures", "--quiet")
    assert finished.code == 2
    assert finished.lines[0].startswith("error: class 'b' of data set 'pictures' has only one image")


def test_recipes_are_listed_under_the_command_they_are_for(archloom: Archloom) -> None:
    lines = archloom("list", "recipes").out.splitlines()
    search, retrain = lines.index("For archloom search:"), lines.index("For archloom retrain --recipe:")
    assert any(line.startswith("retrain/cifar ") for line in lines[retrain:])
    assert any(line.startswith("first ") for line in lines[search:])
