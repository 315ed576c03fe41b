"""From an architecture to a trained model: begun, interrupted, resumed, refused; and what lies in the folder then."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import archloom
from archloom.core.errors import DataError, SettingError, StorageError
from archloom.data.arrays import from_tensors
from archloom.data.loader import Loader
from archloom.execution.loop import Interrupted
from archloom.retrainings import auto
from archloom.retrainings import run as retraining
from archloom.retrainings.model_file import BEST, LAST, load_model

CELL = "|nor_conv_1x1~0|+|none~0|skip_connect~1|"
TINY: dict[str, Any] = {
    "space": {"name": "nb201_mini", "cells_per_stage": 1},
    "network": {"channels": 4},
    "data": {"train_images": 64, "valid_images": 32},
    "training": {"epochs": 2, "batch_size": 32},
    "machine": {"torch_threads": 1, "loader_threads": 0},
}
TIMED = ("seconds", "images_per_second", "valid_seconds", "run")


def tiny(**sections: Any) -> dict[str, Any]:
    return {**TINY, **{name: {**TINY.get(name, {}), **values} for name, values in sections.items()}}


def train(out: Path, what: Any = CELL, *, settings: dict[str, Any] | None = None, **options: Any) -> Any:
    return archloom.retrain(what, recipe="nb201_12", data="digits", out=out, settings=settings or SPLIT, **options)


SPLIT = tiny(data={"split": "random"})  # digits have no split of the benchmark


@pytest.fixture(autouse=True)
def _without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing a report takes longer than a tiny training; where it matters, a test asks for it."""
    monkeypatch.setattr(retraining, "write_retrain_report", lambda directory, **_: Path(directory) / "report.html")


def told(run: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The result and the metrics, without what depends on the clock."""
    result = json.loads((run / "result.json").read_text())
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return (
        {name: value for name, value in result.items() if name not in TIMED},
        [{name: value for name, value in record.items() if name not in TIMED} for record in metrics],
    )


def test_a_run_holds_the_model_and_all_that_is_known_of_it(tmp_path: Path) -> None:
    result = train(tmp_path / "run", settings=tiny(data={"split": "random"}, network={"dropout": 0.1}))
    details = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result.test is not None and 0 <= result.test.top1 <= result.test.top5 <= 100
    assert sum(map(sum, result.test.confusion)) == result.test.images == 355
    assert details["valid"]["images"] == 32 and "worst" not in details["valid"]
    assert (details["kind"], details["recipe"], details["data"], details["seed"]) == (
        "retrain",
        "nb201_12",
        "digits",
        0,
    )
    assert (details["image_shape"], len(details["classes"]), details["text"]) == ([1, 8, 8], 10, CELL)
    assert details["network"] == {"channels": 4}
    assert details["cost"]["parameters"] > 0 and details["best_epoch"] == 1
    card, network = load_model(result.model)
    assert card.details.test_score == result.test.top1
    assert sum(p.numel() for p in network.parameters()) == details["cost"]["parameters"]
    assert (tmp_path / "run" / LAST).is_file() and (tmp_path / "run" / "cell.svg").is_file()


def test_the_saved_model_is_the_one_that_was_judged(tmp_path: Path) -> None:
    result = train(tmp_path / "run")
    card, network = load_model(result.model)
    data = archloom.data.load("digits", directory=None)  # type: ignore[attr-defined]
    assert data.test is not None
    everything = torch.arange(len(data.test))
    loader = Loader(
        data.test,
        everything,
        batch_size=500,
        mean=card.mean,
        std=card.std,
        augment=None,
        seed=0,
        shuffle=False,
        drop_last=False,
    )
    with torch.no_grad():
        right = sum(int((network(b.images).argmax(1) == b.labels).sum()) for b in loader.epoch(0))
    assert 100 * right / len(everything) == pytest.approx(result.test.top1, abs=0.3)


def interrupted(out: Path, *, after: int, **options: Any) -> None:
    questions = iter(range(1, 1000))
    with pytest.raises(Interrupted):
        train(out, stop=lambda: next(questions) >= after, **options)


@pytest.mark.parametrize("again", ["resume", "the same command"])
def test_interrupted_and_gone_on_with_it_ends_as_if_it_was_not(tmp_path: Path, again: str) -> None:
    settings = tiny(data={"split": "random"}, network={"dropout": 0.2}, training={"ema": 0.9, "keep": "best"})
    train(tmp_path / "whole", settings=settings)
    interrupted(tmp_path / "parts", after=3, settings=settings)  # in the middle of the second epoch
    assert not (tmp_path / "parts" / "result.json").exists()
    assert (tmp_path / "parts" / BEST).is_file()  # there is a model to use already
    if again == "resume":
        archloom.resume(tmp_path / "parts")
    else:
        train(tmp_path / "parts", settings=settings)
    assert told(tmp_path / "parts") == told(tmp_path / "whole")
    for name in (BEST, LAST):
        (card, network), (wanted, reference) = (load_model(tmp_path / run / name) for run in ("parts", "whole"))
        assert card == wanted
        for key, value in reference.state_dict().items():
            assert torch.equal(network.state_dict()[key], value), key


def test_a_complete_run_is_given_back_and_another_one_refused(tmp_path: Path) -> None:
    train(tmp_path / "run")
    before = (tmp_path / "run" / "result.json").read_bytes()
    assert train(tmp_path / "run").test.to_json() == json.loads(before)["test"]
    assert (tmp_path / "run" / "result.json").read_bytes() == before
    with pytest.raises(
        SettingError, match=r"holds another retraining: seed is 0 there, 5 is asked for; choose another"
    ):
        train(tmp_path / "run", seed=5)
    with pytest.raises(SettingError, match=r"holds another retraining: architecture.0->1 is 'nor_conv_1x1' there"):
        train(tmp_path / "run", "|nor_conv_3x3~0|+|none~0|skip_connect~1|")
    search = tmp_path / "search"
    search.mkdir()
    (search / "config.toml").write_text("seed = 0\n")
    with pytest.raises(SettingError, match="already holds a run"):
        train(search)


def test_a_full_disk_is_a_line_and_the_run_goes_on_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(tmp_path / "whole")
    fsync, calls = os.fsync, iter(range(1000))

    def full(descriptor: int) -> None:
        if next(calls) > 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        StorageError, match=r"No space left on device; what was saved before is intact: free some space"
    ):
        train(tmp_path / "run")
    monkeypatch.setattr(os, "fsync", fsync)
    assert not (tmp_path / "run" / "result.json").exists()
    archloom.resume(tmp_path / "run")
    assert told(tmp_path / "run") == told(tmp_path / "whole")


def test_a_cell_found_on_one_data_set_is_taken_to_another(tmp_path: Path) -> None:
    first = train(tmp_path / "first")
    images = torch.randint(256, (60, 3, 12, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(60) % 3
    own = from_tensors(images[:48], labels[:48], test=(images[48:], labels[48:]), name="mine")
    lines: list[str] = []
    settings = tiny(data={"split": "random", "train_images": 30, "valid_images": 4}, network={"channels": 6})
    result = archloom.retrain(
        first, recipe="nb201_12", data=own, out=tmp_path / "second", settings=settings, note=lines.append
    )
    assert list(result.changed) == [
        "data: digits -> given",
        "classes: 10 -> 3",
        "images: 1x8x8 -> 3x12x12",
        "width 4 -> 6",
    ]
    assert lines == list(result.changed)
    assert (result.data, result.text) == ("mine", CELL)
    with pytest.raises(DataError, match="given its data in Python"):
        (tmp_path / "second" / "result.json").unlink()
        archloom.resume(tmp_path / "second")


def test_auto_chooses_writes_it_down_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "seconds_per_image", lambda retrain, data, most: 1e-4 * retrain.training.batch_size)
    lines: list[str] = []
    settings = {
        "space": {"name": "nb201_mini"},
        "training": {"epochs": 1},
        "data": TINY["data"],
        "machine": TINY["machine"],
    }
    result = archloom.retrain(CELL, budget="1m", out=tmp_path / "run", settings=settings, note=lines.append)
    assert lines[0] == "measuring how fast this machine trains"
    assert lines[1].startswith("auto: ") and "1 epoch of batches of 16" in lines[1]
    assert lines[2].startswith("why: ")
    assert result.run.records == 1
    config = (tmp_path / "run" / "config.toml").read_text()
    assert 'recipe = "auto"' in config and "batch_size = 16" in config


def test_auto_has_sizes_for_mobile_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "seconds_per_image", lambda retrain, data, most: 1e-4)
    lines: list[str] = []
    result = archloom.retrain(
        "16:k3 | 16:k3 | 16:k3e3,zero,zero | 32:k5e3,zero,zero | 64:k3e3,zero,zero | 128",
        budget="10s",
        out=tmp_path / "run",
        settings={**TINY, "space": {"name": "proxylessnas_32"}, "training": {"epochs": 1}, "network": {}},
        note=lines.append,
    )
    assert lines[1].startswith("auto: widths times ")
    assert result.network["width_multiplier"] > 0


def test_a_budget_needs_the_recipe_that_fits_itself_to_it() -> None:
    with pytest.raises(SettingError, match="a budget is for the recipe 'auto'"):
        archloom.retrain(CELL, recipe="cifar", budget="30m", settings=TINY)
    with pytest.raises(SettingError, match="a budget is written like 30m"):
        archloom.retrain(CELL, budget="soon", settings=TINY)


# --- folders


@pytest.fixture
def pictures(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "pictures"
    for label, count in (("dark", 8), ("light", 8)):
        (root / label).mkdir(parents=True)
        for number in range(count):
            shade = (30 if label == "dark" else 200) + number
            Image.new("RGB", (10, 10), (shade, shade, shade)).save(root / label / f"{number}.png")
    yield root


def of_folder(out: Path, pictures: Path, **options: Any) -> Any:
    settings = {**TINY, "data": {"path": str(pictures), "size": 8, "split": "random"}}
    return archloom.retrain(CELL, recipe="nb201_12", data="folder", out=out, settings=settings, **options)


def test_a_folder_of_pictures_becomes_a_model(tmp_path: Path, pictures: Path) -> None:
    Image.new("L", (10, 10), 40).save(pictures / "dark" / "grey.png")
    Image.new("RGBA", (10, 10), (250, 250, 250, 100)).save(pictures / "light" / "transparent.png")
    result = of_folder(tmp_path / "run", pictures)
    assert result.classes == ("dark", "light")
    assert load_model(result.model)[0].image_shape == (3, 8, 8)


def test_a_class_of_one_picture_is_a_line_and_nothing_is_begun(tmp_path: Path, pictures: Path) -> None:
    (pictures / "lonely").mkdir()
    Image.new("RGB", (10, 10)).save(pictures / "lonely" / "one.png")
    with pytest.raises(
        DataError, match=r"class 'lonely' of data set 'pictures' has only one image; a class needs at least 2"
    ):
        of_folder(tmp_path / "run", pictures)
    assert not (tmp_path / "run").exists()
    Image.new("RGB", (10, 10)).save(pictures / "lonely" / "two.png")
    assert of_folder(tmp_path / "run", pictures).test.per_class[2] is not None


def test_what_is_no_picture_is_a_line(tmp_path: Path, pictures: Path) -> None:
    (pictures / "dark" / "text.png").write_text("not a picture")
    with pytest.raises(DataError, match=r"cannot read the image '.*text.png'"):
        of_folder(tmp_path / "run", pictures)


def test_very_unequal_classes_are_warned_of(tmp_path: Path, pictures: Path) -> None:
    for number in range(160):
        os.link(pictures / "dark" / "0.png", pictures / "dark" / f"copy{number}.png")
    lines: list[str] = []
    of_folder(tmp_path / "run", pictures, note=lines.append)
    assert lines[0].startswith("warning: classes are unbalanced: 168 images of 'dark', 8 of 'light'")


def test_the_page_of_a_run_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        retraining, "write_retrain_report", lambda directory, *, images, **options: asked.append(images)
    )
    result = train(tmp_path / "run")
    assert asked[0]([0, 3]).shape == (2, 1, 8, 8)  # the test images, for thumbnails of the worst mistakes
    page = archloom.write_report(tmp_path / "run").read_text()
    assert f"{result.test.top1:.1f}" in page


def test_dead_edges_are_removed_with_one_line(tmp_path: Path) -> None:
    lines: list[str] = []
    dead = "|nor_conv_3x3~0|+|nor_conv_1x1~0|none~1|"
    settings = tiny(data={"split": "random"}, training={"epochs": 1})
    result = train(tmp_path / "run", dead, settings=settings, note=lines.append)
    assert result.text == "|none~0|+|nor_conv_1x1~0|none~1|"
    assert lines.count("dead edges removed: |none~0|+|nor_conv_1x1~0|none~1|") == 1
    assert train(tmp_path / "run", dead, settings=settings).text == result.text  # the same retraining
