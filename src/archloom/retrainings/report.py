"""The page of a retrained model: how good it is, what it confuses, how it learned, what it costs, where it is kept."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from archloom.core.errors import ArchloomError
from archloom.execution.run_facts import RunFacts
from archloom.execution.run_folder import RunFolder
from archloom.reports.cells import draw_cells
from archloom.reports.curves import drop_unknown, learning_curves
from archloom.reports.history import History, find, number
from archloom.reports.pages import page
from archloom.reports.tables import (
    UNKNOWN,
    Column,
    Table,
    cost_facts,
    decimal,
    metric_columns,
    record_table,
    settings_tables,
    timing_facts,
    version_table,
    whole,
)
from archloom.retrainings.folder import RetrainFolder
from archloom.retrainings.model_file import BEST, LAST
from archloom.retrainings.report_confusion import (
    MOST_BARS,
    MOST_NUMBERS,
    class_bars,
    confused_pairs,
    confusion_map,
    counts_of,
    names_of,
)
from archloom.retrainings.thumbnails import keep_thumbnails, read_thumbnails
from archloom.spaces import SPACES
from archloom.spaces.base import CellGraph

if TYPE_CHECKING:
    from torch import Tensor

    from archloom.objectives.cost import Cost

PICTURES = "mistakes.png"
FEWEST_OF_A_CLASS = 20  # test images; with fewer, the accuracy of a class is rough
NO_METRICS = ("epoch", "seconds", "valid_seconds", "images_per_second", "memory_mb")  # told elsewhere than in curves
KINDS = {
    BEST: "the model itself, with all that is needed to load it",
    LAST: "the model after the last epoch",
    ".onnx": "for ONNX Runtime and whatever reads ONNX",
    ".pt2": "for torch.export.load",
    ".py": "the network in plain PyTorch, without archloom",
    ".safetensors": "its weights",
}

Images = Callable[[Sequence[int]], "Tensor"]
"""The test images at some indices [n, C, H, W], before any normalisation."""


@dataclass(frozen=True)
class Link:
    """A file beside the page."""

    name: str
    address: str
    size: str
    what: str


def write_retrain_report(directory: Path, *, images: Images | None = None) -> Path:
    """Write report.html of a retraining run, finished or not; `images` gives the test images for its worst mistakes.

    Thumbnails are kept in the run, so that the page can be written again without the data.
    """
    run = RetrainFolder.open(Path(directory))
    result = run.read_result()
    worst = [] if result is None else _worst(result)
    if images is not None and worst:
        keep_thumbnails(run.path / PICTURES, images([int(mistake["index"]) for mistake in worst]))
    run.write_text(run.report_path.name, render_retrained(run, result))
    return run.report_path


def render_retrained(run: RunFolder, result: Mapping[str, Any] | None) -> str:
    """The whole page of a run."""
    config, history = run.config, run.read_metrics()
    run_facts = RunFacts.from_json(result["run"]) if find(result, "run") else None
    known = result if result is not None else config
    tested, part = _judged(result)
    counts = counts_of(tested)
    names = names_of(find(result, "classes"), len(counts))
    per_class = [number(value) for value in find(tested, "per_class") or []]
    graphs = _graphs(known)
    return page(
        "retrained.html",
        {
            "title": _title(known),
            "subtitle": _subtitle(known, config),
            "finished": result is not None,
            "records": len(history),
            "verdict": verdict(tested, part) if tested else "",
            "cautions": list(_cautions(tested, part, names)) if tested else [],
            "facts": Table("", tuple(_facts(result, tested, part))),
            "links": _links(run.path),
            "curves": learning_curves(_epochs(history), _metrics(history, scale=0.01)),  # it draws fractions
            "map": confusion_map(counts, names),
            "numbers": len(names) <= MOST_NUMBERS,
            "pairs": confused_pairs(counts, names),
            "bars": class_bars(per_class, names),
            "bars_caption": _bars_caption(per_class, part),
            "mistakes": _mistakes(run.path, result, names) if result is not None else [],
            "drawing": draw_cells(graphs) if graphs else "",
            "cell_count": len(graphs),
            "architecture": str(find(known, "text") or ""),
            "changed": [str(line) for line in find(result, "changed") or []],
            "cost": Table("", (*cost_facts(_cost(result)), *_timing(history, run_facts))),
            "table": record_table("Every epoch", _columns(history)),
            "settings": settings_tables(config),
            "versions": version_table(run_facts),
        },
    )


# --- what it is


def _title(known: Mapping[str, Any]) -> str:
    space, data = find(known, "space", "name"), _name(known, "data")
    return f"{space or 'A network'} trained on {data}" if data else f"{space or 'A network'}, trained"


def _subtitle(known: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    recipe, seed = _name(known, "recipe"), find(known, "seed")
    found = find(config, "source")
    parts = [f"recipe {recipe}" if recipe else "", f"seed {seed}" if seed is not None else ""]
    return ", ".join([part for part in parts if part] + ([f"from {found}"] if isinstance(found, str) else []))


def _name(known: Mapping[str, Any], key: str) -> str:
    """What a thing is called, whether it stands by its name or as a table of settings."""
    value = find(known, key)
    return str(find(value, "name") or "") if isinstance(value, Mapping) else str(value or "")


def _graphs(known: Mapping[str, Any]) -> tuple[CellGraph, ...]:
    """The cells; none where a plug-in that defined them is gone, as the rest can still be told."""
    settings, choices = find(known, "space"), find(known, "architecture")
    if not isinstance(settings, Mapping) or not isinstance(choices, Mapping):
        return ()
    try:
        own = {key: value for key, value in settings.items() if key != "name"}
        space = SPACES.find(str(settings.get("name"))).load()(**own)
        return tuple(space.graphs(space.check(choices)))
    except (ArchloomError, TypeError):
        return ()


# --- how good it is


def _judged(result: Mapping[str, Any] | None) -> tuple[Mapping[str, Any] | None, str]:
    """The part that tells how good the model is: test images, or validation images where there are no others."""
    for part, name in (("test", "test"), ("valid", "validation")):
        found = find(result, part)
        if isinstance(found, Mapping):
            return found, name
    return None, ""


def verdict(tested: Mapping[str, Any], part: str) -> str:
    """`It recognises 91.20 % of 10,000 test images (95 % CI 90.63 to 91.74); always saying ... would get 10.00 %.`"""
    top1, images = number(find(tested, "top1")), number(find(tested, "images"))
    sentence = f"It recognises {decimal(top1)} % of {whole(images)} {part} images"
    low, high = interval(top1, images)
    if not math.isnan(low):
        sentence += f" (95 % CI {decimal(low)} to {decimal(high)})"
    counts = counts_of(tested)
    total = sum(map(sum, counts))
    if total:
        sentence += (
            f"; always naming the most frequent class would get {decimal(100 * max(map(sum, counts)) / total)} %"
        )
    return sentence + "."


def interval(percent: float, images: float) -> tuple[float, float]:
    """Wilson's 95 % interval of an accuracy, in percent: what other images of the same kind might have given."""
    if math.isnan(percent + images) or images < 1 or not 0 <= percent <= 100:
        return math.nan, math.nan
    from scipy.stats import binomtest

    right = round(percent / 100 * images)
    found = binomtest(right, round(images)).proportion_ci(0.95, method="wilson")
    return 100 * float(found.low), 100 * float(found.high)


def _cautions(tested: Mapping[str, Any], part: str, names: Sequence[str]) -> list[str]:
    lines = []
    if part != "test":
        lines.append("There were no test images: this is the part that chose the epoch, which flatters a little.")
    totals = [sum(row) for row in counts_of(tested)]
    if totals and min(totals) < FEWEST_OF_A_CLASS:
        scarcest = names[totals.index(min(totals))]
        lines.append(
            f"Classes with few images are judged roughly: {scarcest} has {whole(min(totals))} in the {part} part."
        )
    return lines


def _facts(result: Mapping[str, Any] | None, tested: Mapping[str, Any] | None, part: str) -> list[tuple[str, str]]:
    classes = find(result, "classes") or []
    facts = [(f"Top-1 accuracy, {part}", decimal(find(tested, "top1"), unit=" %"))]
    if len(classes) > 5:
        facts.append((f"Top-5 accuracy, {part}", decimal(find(tested, "top5"), unit=" %")))
    facts.append((f"Loss, {part}", decimal(find(tested, "loss"), digits=3)))
    if part == "test" and find(result, "valid") is not None:
        facts.append(("Top-1 accuracy, validation", decimal(find(result, "valid", "top1"), unit=" %")))
    if find(result, "best_epoch") is not None:
        facts.append(("Epoch of this model", _epoch(result)))
    return [*facts, ("Classes", whole(len(classes)) if classes else UNKNOWN)]


def _epoch(result: Mapping[str, Any] | None) -> str:
    """`38 of 40`, counted from one as people do."""
    records = find(result, "run", "records")
    return whole(number(find(result, "best_epoch")) + 1) + ("" if records is None else f" of {whole(records)}")


def _bars_caption(per_class: Sequence[float], part: str) -> str:
    shown = f"The {MOST_BARS} worst of {len(per_class)} classes" if len(per_class) > MOST_BARS else "Every class"
    return f"{shown}, the worst first: the share of its {part} images that is recognised."


# --- how it learned


def _epochs(history: History) -> list[float]:
    return [number(find(record, "epoch")) for record in history]


def _metrics(history: History, *, scale: float = 1.0) -> dict[str, list[float]]:
    """Return every figure but those of NO_METRICS, one number per record; accuracies are scaled."""
    names = dict.fromkeys(name for record in history for name in record if name not in NO_METRICS)
    found = {_metric_name(name): [number(find(record, name)) for record in history] for name in names}
    return {
        name: [scale * value for value in values] if name.endswith("accuracy") else values
        for name, values in found.items()
        if drop_unknown(values)
    }


def _metric_name(name: str) -> str:
    return re.sub("(.*)_top5", r"top5_\1_accuracy", name)


def _columns(history: History) -> list[Column]:
    written = (
        ("seconds", "seconds", decimal),
        ("images_per_second", "images/s", whole),
        ("memory_mb", "memory, MB", whole),
    )
    columns = [Column(label, [find(record, key) for record in history], write) for key, label, write in written]
    return [Column("epoch", _epochs(history), whole), *columns, *metric_columns(_metrics(history))]


def _timing(history: History, run: RunFacts | None) -> list[tuple[str, str]]:
    series = {name: [number(find(record, name)) for record in history] for name in NO_METRICS}
    seconds, speeds, memory = series["seconds"], series["images_per_second"], series["memory_mb"]
    return timing_facts("epoch", len(history), seconds=seconds, speeds=speeds, memory_mb=memory, run=run)


def _cost(result: Mapping[str, Any] | None) -> Cost | None:
    from archloom.objectives.cost import Cost  # late: reports need no torch

    found = find(result, "cost")
    return Cost(**found) if found else None


# --- what it gets wrong


def _worst(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows = find(result, "test", "worst")
    listed = rows if isinstance(rows, list | tuple) else ()
    return [row for row in listed if not math.isnan(number(find(row, "index")))]


def _mistakes(directory: Path, result: Mapping[str, Any], names: Sequence[str]) -> list[dict[str, str]]:
    worst = _worst(result)
    pictures = read_thumbnails(directory / PICTURES, len(worst)) or [""] * len(worst)
    return [
        {
            "picture": picture,
            "index": whole(find(row, "index")),
            "truth": _class_name(find(row, "truth"), names),
            "predicted": _class_name(find(row, "predicted"), names),
            "probability": decimal(100 * number(find(row, "probability")), digits=1, unit=" %"),
        }
        for row, picture in zip(worst, pictures, strict=True)
    ]


def _class_name(which: object, names: Sequence[str]) -> str:
    """A class by its number or, as some write it, by its name already."""
    return names[which] if isinstance(which, int) and 0 <= which < len(names) else str(which)


# --- where its files are


def _links(directory: Path) -> list[Link]:
    """The models and whatever was exported, as far as it is there."""
    exported = sorted(path for path in (directory / "export").glob("*") if path.suffix in KINDS and path.is_file())
    found = [path for path in (directory / BEST, directory / LAST) if path.is_file()] + exported
    return [_link(path, directory) for path in found]


def _link(path: Path, directory: Path) -> Link:
    name = path.relative_to(directory).as_posix()
    what = KINDS.get(path.name) if path.parent == directory else KINDS[path.suffix]
    return Link(name, quote(name), _size(path.stat().st_size), what or "")


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"
