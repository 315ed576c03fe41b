"""`archloom measure`: figures of architectures and of models; nothing here depends on how long anything takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from archloom.retrainings.model_file import ModelCard, save_model

Archloom = Callable[..., Any]
TEXT = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|nor_conv_1x1~2|"
QUICK = ("--no-onnx", "--threads", "1", "--repeats", "30")


def test_a_text_form_is_measured(archloom: Archloom) -> None:
    finished = archloom("measure", TEXT, "--channels", "2", "--cells", "1", "--size", "8", *QUICK)
    assert finished.code == 0
    assert TEXT in " ".join(finished.out.split())
    for said in ("parameters", "multiply-adds of one image", "size on disk", "3x8x8, 10 classes", "not trained"):
        assert said in finished.out
    assert "(one call with 1 image, 1 thread, 30 calls after a warm-up" in finished.out


def test_figures_are_told_as_json(archloom: Archloom) -> None:
    finished = archloom("measure", TEXT, "--channels", "16", "--cells", "1", "--json", "--batch", "2", *QUICK)
    found = json.loads(finished.out)
    # 16, 32 and 64 channels: a 3x3 and a 1x1 convolution with their normalisations, besides stem, reductions and head
    cells = sum(9 * width**2 + width**2 + 4 * width for width in (16, 32, 64))
    rest = (27 * 16 + 32) + sum(27 * w * w // 2 + w * w // 2 + 4 * w for w in (32, 64)) + 128 + 650
    assert found["parameters"] == cells + rest
    assert (found["batch"], found["threads"], found["image_shape"]) == (2, 1, [3, 32, 32])
    assert 0 < found["latency"]["torch"]["tenth"] <= found["latency"]["torch"]["median"]


def test_the_run_of_a_search_is_measured_on_its_own_data(archloom: Archloom, finished_run: Path) -> None:
    finished = archloom("measure", finished_run, "--channels", "4", "--json", *QUICK)
    found = json.loads(finished.out)
    assert found["image_shape"] == [1, 8, 8] and found["classes"] == 10
    assert found["text"] == json.loads((finished_run / "architecture.json").read_text())["text"]


def test_a_model_has_its_own_size(archloom: Archloom, tmp_path: Path) -> None:
    card = ModelCard(
        space={"name": "nb201", "nodes": 2, "cells_per_stage": 1},
        architecture={"0->1": "none"},
        network={"channels": 2},
        classes=("cat", "dog"),
        image_shape=(1, 8, 8),
        mean=(0.5,),
        std=(0.25,),
    )
    network = card.build()
    save_model(tmp_path / "best.safetensors", card, network.state_dict())
    found = json.loads(archloom("measure", tmp_path, "--json", *QUICK).out)
    assert found["trained"] and found["parameters"] == sum(value.numel() for value in network.parameters())
    finished = archloom("measure", tmp_path, "--channels", "4", *QUICK)
    assert finished.code == 2 and "a trained model has its own size" in finished.lines[0]


def test_bad_figures_get_one_line(archloom: Archloom) -> None:
    for arguments, told in (
        ((TEXT, "--channels", "0"), "--channels must be at least 1, got 0"),
        ((TEXT, "--batch", "0", "--cells", "1"), "--batch must be at least 1, got 0"),
        (("no architecture",), "no architecture"),
        ((TEXT, "--space", "nb202"), "unknown space 'nb202'"),
    ):
        finished = archloom("measure", *arguments, "--no-onnx")
        assert finished.code == 2
        assert len(finished.lines) == 1 and told in finished.err
