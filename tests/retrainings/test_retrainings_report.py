"""The page of a retrained model, from runs that look like real ones."""

from __future__ import annotations

import json
import math
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from archloom.core.errors import CheckpointError, SettingError
from archloom.core.trust import trusting
from archloom.execution.run_folder import RunFolder
from archloom.retrainings.evaluation import Evaluation
from archloom.retrainings.records import RetrainRecord
from archloom.retrainings.report import wilson_interval, write_retrain_report, write_verdict
from archloom.retrainings.report_curves import list_metrics
from archloom.spaces import SPACES


def confusion(classes: int, images: int, rng: random.Random) -> list[list[int]]:
    """Mostly right, a few mistakes, more of them between neighbours."""
    counts = [[0] * classes for _ in range(classes)]
    for truth in range(classes):
        skill = 0.55 + 0.44 * rng.random()
        for _ in range(images):
            wrong = (truth + rng.choice((1, 1, 1, -1, 2, 5))) % classes
            counts[truth][truth if rng.random() < skill else wrong] += 1
    return counts


def part_of(counts: list[list[int]]) -> dict[str, Any]:
    images = sum(map(sum, counts))
    right = sum(row[place] for place, row in enumerate(counts))
    return {
        "images": images,
        "top1": 100 * right / images,
        "top5": min(100.0, 100 * right / images + 9),
        "loss": 0.71,
        "confusion": counts,
        "per_class": [100 * row[place] / sum(row) for place, row in enumerate(counts)],
    }


def epoch_record(epoch: int, rng: random.Random) -> dict[str, float]:
    gain = 1 - math.exp(-epoch / 12)
    return {
        "epoch": epoch,
        "seconds": 3.0 + rng.random(),
        "images_per_second": 900.0,
        "learning_rate": 0.025 * (1 + math.cos(math.pi * epoch / 40)) / 2,
        "train_loss": 2.3 - 1.7 * gain + 0.04 * rng.random(),
        "train_score": 10 + 78 * gain + rng.random(),
        "valid_loss": 2.3 - 1.5 * gain + 0.08 * rng.random(),
        "valid_score": 10 + 72 * gain + rng.random(),
        "valid_top5": 45 + 52 * gain,
        "ema_valid_score": 10 + 74 * gain,
    }


def make_run(folder: Path, *, classes: int = 10, images: int = 50, epochs: int = 40, finished: bool = True) -> Path:
    """A retraining run with made-up figures."""
    rng = random.Random(classes)
    space = SPACES.find("nb201").load()()
    architecture = space.sample(rng)
    names = [f"class {number}" for number in range(classes)]
    common = {
        "space": {"name": "nb201", "cells_per_stage": 5},
        "architecture": dict(architecture),
        "text": space.format(architecture),
        "recipe": "auto",
        "seed": 3,
    }
    config = {
        "kind": "retrain",
        **common,
        "data": {"name": "cifar10"},
        "training": {"epochs": epochs, "batch_size": 96},
    }
    run = RunFolder.create(folder, settings=config)
    run.write_metrics([epoch_record(epoch, rng) for epoch in range(epochs)])
    if finished:
        tested = part_of(confusion(classes, images, rng))
        worst = [
            {"index": 7 * n, "truth": n % classes, "predicted": (n + 1) % classes, "probability": 0.999 - 0.004 * n}
            for n in range(24)
        ]
        result = {
            "kind": "retrain",
            **common,
            "data": "cifar10",
            "classes": names,
            "changed": ["classes: 10 -> 7", "images: 1x8x8 -> 3x32x32"],
            "network": {"channels": 16},
            "image_shape": [3, 32, 32],
            "test": {**tested, "worst": worst},
            "valid": part_of(confusion(classes, images, rng)),
            "best_epoch": 37,
            "cost": {"parameters": 802426, "multiply_adds": 113951370},
            "run": {
                "seconds": 161.0,
                "records": epochs,
                "peak_memory_mb": 712.0,
                "device": "cpu",
                "threads": 2,
                "versions": {"archloom": "0.1.0"},
                "finished": "2026-01-02T03:04:05+00:00",
            },
        }
        (folder / "result.json").write_text(json.dumps(result))
    return folder


def pictures(index: Any) -> torch.Tensor:
    """An image per index that no other index has."""
    generator = torch.Generator().manual_seed(int(sum(index)))
    return torch.randint(0, 256, (len(index), 3, 32, 32), generator=generator, dtype=torch.uint8)


def headings(page: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", page)


def test_a_finished_run_has_every_section(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    page = write_retrain_report(folder, images=pictures).read_text()
    assert headings(page) == [
        "Verdict",
        "Learning curves",
        "Confusion matrix",
        "Accuracy by class",
        "Worst mistakes",
        "Architecture",
        "Cost",
        "Settings",
        "Versions",
    ]
    for text in (
        "nb201 trained on cifar10",
        "recipe auto, seed 3",
        "802,426",
        "2 min 41 s",
        "712 MB",
        "cells_per_stage",
    ):
        assert text in page
    assert "classes: 10 -&gt; 7" in page and "<td>38 of 40</td>" in page
    assert page.count("data:image/png;base64,") == 24 + page.count('xlink:href="data:image')
    assert "<script" not in page and "http://" not in page.replace("http://www.w3.org", "")


def test_curves_show_percent_as_recorded(tmp_path: Path) -> None:
    """The last training accuracy of the table is what was written, not a hundredth of it or a hundredfold."""
    folder = make_run(tmp_path / "run", epochs=3)
    record = {"epoch": 3, "seconds": 1.0, "train_score": 87.5, "valid_top5": 99.0, "learning_rate": 0.01}
    with RunFolder(folder).open_metrics() as append:
        append(record)
    page = write_retrain_report(folder).read_text()
    assert "accuracy, %" in page
    assert "<td>87.5</td>" in page and "<td>99</td>" in page and "<td>0.01</td>" in page


def test_the_top_five_of_few_classes_are_not_drawn() -> None:
    common = {"seconds": 1.0, "images_per_second": 9.0, "learning_rate": 0.1, "train_loss": 1.0, "train_score": 50.0}
    records = [RetrainRecord(epoch=number, valid_score=60.0, valid_top5=100.0, **common) for number in range(3)]
    assert list(list_metrics(records)) == ["learning_rate", "train_loss", "train_accuracy", "valid_accuracy"]
    assert "top5_valid_accuracy" in list_metrics([*records[:2], replace(records[2], valid_top5=99.0)])


def test_an_unfinished_run_has_curves_and_no_verdict(tmp_path: Path) -> None:
    page = write_retrain_report(make_run(tmp_path / "run", epochs=5, finished=False)).read_text()
    assert headings(page)[:2] == ["This run has not finished", "Learning curves"]
    assert "state after 5 epochs" in page and "Architecture" in headings(page)
    empty = write_retrain_report(make_run(tmp_path / "empty", epochs=0, finished=False)).read_text()
    assert "Nothing has been recorded yet" in empty


def test_written_again_without_the_images_it_still_has_its_pictures(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    first = write_retrain_report(folder, images=pictures).read_text()
    assert write_retrain_report(folder).read_text() == first
    (folder / "mistakes.png").write_bytes(b"no picture")
    without = write_retrain_report(folder).read_text()
    assert "Worst mistakes" in without and 'src="data:image/png' not in without


def test_files_that_are_there_are_linked(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    (folder / "export").mkdir()
    for name in ("model.onnx", "model.py", "notes.txt", "my model.pt2"):
        (folder / "export" / name).write_bytes(b"x" * 2048)
    (folder / "best.safetensors").write_bytes(b"x" * 300_000)
    page = write_retrain_report(folder).read_text()
    assert re.findall(r'<a href="(.*?)">', page) == [
        "best.safetensors",
        "export/model.onnx",
        "export/model.py",
        "export/my%20model.pt2",
    ]
    assert "0.3 MB" in page and "2.0 kB" in page


def test_the_verdict_has_the_interval_and_the_simplest_baseline() -> None:
    found = Evaluation(
        images=200, top1=90.0, top5=100.0, loss=0.3, confusion=((100, 20), (0, 80)), per_class=(83.3, 100.0)
    )
    assert write_verdict(found, "test") == (
        "It recognises 90.00 % of 200 test images (95 % CI 85.06 to 93.43); "
        "always naming the most frequent class would get 60.00 %."
    )


def test_wilsons_interval() -> None:
    """By hand: (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n)."""
    p, n, z = 0.9, 200, 1.959963984540054
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    expected = [100 * (middle - half) / (1 + z * z / n), 100 * (middle + half) / (1 + z * z / n)]
    assert wilson_interval(90.0, 200) == pytest.approx(expected)


def test_without_test_images_the_page_says_so(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", images=10)
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps({**result, "test": None}))
    page = write_retrain_report(folder).read_text()
    assert "There were no test images" in page and "validation images" in page
    assert "The accuracy of classes with few images is rough" in page
    assert "Worst mistakes" not in page


@pytest.mark.parametrize("missing", ["test", "cost", "classes", "architecture", "best_epoch"])
def test_a_result_that_lacks_something_is_damaged(missing: str, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", classes=3, epochs=0)
    result = json.loads((folder / "result.json").read_text())
    del result[missing]
    (folder / "result.json").write_text(json.dumps(result))
    with pytest.raises(CheckpointError, match=rf"result\.json is damaged \(KeyError: '{missing}'\)"):
        write_retrain_report(folder)


def test_a_run_of_a_plugin_that_is_gone_has_a_page_without_cells(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", classes=3, epochs=1)
    config = (folder / "config.toml").read_text().replace('name = "nb201"', 'name = "gone:Space"')
    (folder / "config.toml").write_text(config)
    with trusting(plugins=True):
        page = write_retrain_report(folder).read_text()
    assert "gone:Space trained on cifar10" in page and "It recognises" in page


def test_names_out_of_a_folder_can_do_no_harm(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", classes=3, epochs=2)
    result = json.loads((folder / "result.json").read_text())
    result["classes"] = ["<script>alert(1)</script>", "a & b", "$x^2$"]
    (folder / "result.json").write_text(json.dumps(result))
    page = write_retrain_report(folder).read_text()
    assert "<script>" not in page and "a &amp; b" in page and "$x^2$" in page


def test_a_damaged_result_is_one_line(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", classes=3, epochs=0)
    (folder / "result.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"result\.json is damaged"):
        write_retrain_report(folder)
    with pytest.raises(SettingError, match="no run at"):
        write_retrain_report(tmp_path)
