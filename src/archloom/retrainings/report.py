"""The page of a retrained model: accuracy, confusion, learning curves, cost, and its files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import scipy  # loads its parts when they are used

from archloom.core.settings import Settings
from archloom.execution.run_folder import RunFolder
from archloom.reports.pages import render_template
from archloom.reports.pictures import Picture
from archloom.reports.tables import (
    Column,
    Table,
    cost_facts,
    decimal,
    metric_columns,
    record_table,
    series_table,
    settings_tables,
    timing_facts,
    version_table,
    whole,
)
from archloom.retrainings.evaluation import TOP, Evaluation, Mistake
from archloom.retrainings.folder import RetrainFolder
from archloom.retrainings.model_file import BEST, LAST
from archloom.retrainings.records import RetrainRecord
from archloom.retrainings.report_confusion import (
    MOST_BARS,
    MOST_NUMBERS,
    class_bars,
    confusion_map,
    pair_table,
    tabulate_classes,
    tabulate_confusion,
)
from archloom.retrainings.report_curves import draw_curves, list_metrics
from archloom.retrainings.result import RetrainResult, list_graphs, read_records, read_retrain_result
from archloom.retrainings.text_evaluation import TextEvaluation
from archloom.retrainings.thumbnails import keep_thumbnails, read_thumbnails
from archloom.searches.report import picture_cells
from archloom.spaces import CellGraph

if TYPE_CHECKING:
    from torch import Tensor

PICTURES = "mistakes.png"
FEWEST_OF_A_CLASS = 20  # test images; with fewer, the accuracy of a class is rough
KINDS = {
    BEST: "the model, with all that is needed to load it",
    LAST: "the model after the last epoch",
    ".onnx": "for ONNX Runtime and other readers of ONNX",
    ".pt2": "for torch.export.load",
    ".py": "the network in plain PyTorch, without archloom",
    ".safetensors": "its weights",
}

Images = Callable[[Sequence[int]], "Tensor"]
"""Returns the test images at some indices [n, C, H, W], before any normalisation."""


@dataclass(frozen=True)
class Link:
    """A file beside the page."""

    name: str
    address: str
    size: str
    what: str


def write_retrain_report(
    directory: Path, *, images: Images | None = None, out: Path | None = None, with_pictures: bool = True
) -> Path:
    """Write report.html of a retraining, finished or not; `images` returns test images for its worst mistakes.

    The page is written into the run folder, or into `out`.

    Thumbnails are kept in the run folder, so that the page can be written again without the data.
    """
    run = RetrainFolder.open(Path(directory))
    result = read_retrain_result(run)
    worst = _list_worst(result)
    if images is not None and worst:
        keep_thumbnails(run.path / PICTURES, images([mistake.index for mistake in worst]))
    place = run if out is None else RunFolder(out)
    place.write_text(run.report_path.name, _render(run, result, with_pictures=with_pictures))
    return place.report_path


def _render(run: RunFolder, result: RetrainResult | None, *, with_pictures: bool) -> str:
    config = run.config
    graphs = list_graphs(config.get("space", {}), config.get("architecture", {}))
    context = make_context(run.path, config, read_records(run), result, graphs)
    return render_template("retrained.html", context, with_pictures=with_pictures)


def make_context(
    directory: Path,
    config: Settings,
    history: Sequence[RetrainRecord],
    result: RetrainResult | None,
    graphs: Sequence[CellGraph],
) -> dict[str, object]:
    """Return what the template of the page needs; pictures are drawn when the page shows them."""
    epochs, metrics = [record.epoch + 1 for record in history], list_metrics(history)
    return {
        "title": _write_title(config, result),
        "subtitle": f"recipe {config.get('recipe')}, seed {config.get('seed')}",
        "finished": result is not None,
        "records": len(history),
        "drawing": picture_cells(graphs, config.get("architecture", {})),
        "cell_count": len(graphs),
        "architecture": "" if result is None else result.text,
        "changed": [] if result is None else list(result.changed),
        "links": list_links(directory),
        "curves": Picture(
            "learning",
            "Learning curves",
            lambda: draw_curves(history),
            lambda: series_table("epoch", epochs, metrics) if metrics else Table("", ()),
        ),
        "cost": Table("", (*cost_facts(None if result is None else result.cost), *_list_timing(history, result))),
        "table": record_table("Every epoch", _list_columns(history)),
        "settings": settings_tables(config),
        "versions": version_table(None if result is None else result.run),
        **_describe_evaluation(directory, result),
    }


def _describe_evaluation(directory: Path, result: RetrainResult | None) -> dict[str, object]:
    """Return the part of the page that says how good the model is."""
    if result is not None and isinstance(result.evaluation, TextEvaluation):
        return {**_describe_evaluation(directory, None), **_describe_text(result, result.evaluation)}
    if result is None or result.evaluation is None:
        return {
            "warnings": [], "verdict": "", "cautions": [],
            "facts": Table("", ()), "map": "", "numbers": False, "pairs": Table("", ()),
            "bars": "", "bars_caption": "", "mistakes": [],
        }  # fmt: skip
    found, part, names = result.evaluation, _name_part(result), result.classes
    assert isinstance(found, Evaluation)
    return {
        "warnings": [result.caution] if result.caution else [],
        "verdict": write_verdict(found, part),
        "cautions": _list_cautions(found, part, names),
        "facts": Table("", tuple(_list_facts(result, found, part))),
        "map": Picture(
            "confusion",
            "Confusion matrix",
            lambda: confusion_map(found.confusion, names),
            lambda: tabulate_confusion(found.confusion, names),
        ),
        "numbers": len(names) <= MOST_NUMBERS,
        "pairs": pair_table(found, names),
        "bars": Picture(
            "classes",
            "Accuracy by class",
            lambda: class_bars(found.per_class, names),
            lambda: tabulate_classes(found.per_class, names),
        ),
        "bars_caption": _write_bars_caption(len(names), part),
        "mistakes": _list_mistakes(directory, result),
    }


def _describe_text(result: RetrainResult, found: TextEvaluation) -> dict[str, object]:
    """Return the part of the page that says how good a language model is."""
    part = _name_part(result)
    cautions = (
        [] if part == "test" else ["There was no test text: validation chose the epoch, so this is a little low."]
    )
    facts = [
        (f"Perplexity, {part}", decimal(found.perplexity)),
        (f"Loss, {part}", decimal(found.loss, digits=3)),
        (f"Words, {part}", whole(found.words)),
        ("Perplexity of guessing by frequencies", decimal(found.guessing)),
    ]
    if part == "test" and isinstance(result.valid, TextEvaluation):
        facts.append(("Perplexity, validation", decimal(result.valid.perplexity)))
    facts.append(("Epoch of this model", f"{whole(result.best_epoch + 1)} of {whole(result.run.records)}"))
    verdict = (
        f"Its perplexity is {decimal(found.perplexity)} on {whole(found.words)} {part} words; guessing words by how "
        f"often they occur has {decimal(found.guessing)}."
    )
    return {
        "verdict": " ".join(filter(None, (found.caution, verdict))),
        "cautions": cautions,
        "facts": Table("", tuple(facts)),
    }


def _write_title(config: Settings, result: RetrainResult | None) -> str:
    data = config.get("data", {}).get("name") if result is None else result.data
    return f"{config.get('space', {}).get('name', 'A network')} trained on {data}"


# --- accuracy


def _name_part(result: RetrainResult) -> str:
    return "test" if result.test is not None else "validation"


def write_verdict(evaluation: Evaluation, part: str) -> str:
    """Return `It recognises 91.20 % of 10,000 test images (95 % CI 90.63 to 91.74); always naming ... 10.00 %.`"""
    totals = [sum(row) for row in evaluation.confusion]
    low, high = wilson_interval(evaluation.top1, evaluation.images)
    return (
        f"It recognises {decimal(evaluation.top1)} % of {whole(evaluation.images)} {part} images "
        f"(95 % CI {decimal(low)} to {decimal(high)}); always naming the most frequent class would get "
        f"{decimal(100 * max(totals) / sum(totals))} %."
    )


def wilson_interval(percent: float, images: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of an accuracy, in percent: the range for other images of the same kind."""
    found = scipy.stats.binomtest(round(percent / 100 * images), images).proportion_ci(0.95, method="wilson")
    return 100 * float(found.low), 100 * float(found.high)


def _list_cautions(evaluation: Evaluation, part: str, names: Sequence[str]) -> list[str]:
    lines = []
    if part != "test":
        lines.append("There were no test images: validation images chose the epoch, so this accuracy is a little high.")
    totals = [sum(row) for row in evaluation.confusion]
    if min(totals) < FEWEST_OF_A_CLASS:
        scarcest = names[totals.index(min(totals))]
        lines.append(
            f"The accuracy of classes with few images is rough: {scarcest} has {whole(min(totals))} {part} images."
        )
    return lines


def _list_facts(result: RetrainResult, evaluation: Evaluation, part: str) -> Iterator[tuple[str, str]]:
    yield f"Top-1 accuracy, {part}", decimal(evaluation.top1, unit=" %")
    if len(result.classes) > TOP:
        yield f"Top-5 accuracy, {part}", decimal(evaluation.top5, unit=" %")
    yield f"Loss, {part}", decimal(evaluation.loss, digits=3)
    if part == "test" and result.valid is not None:
        yield "Top-1 accuracy, validation", decimal(result.valid.top1, unit=" %")
    yield "Epoch of this model", f"{whole(result.best_epoch + 1)} of {whole(result.run.records)}"
    yield "Classes", whole(len(result.classes))


def _write_bars_caption(classes: int, part: str) -> str:
    shown = f"The {MOST_BARS} worst of {classes} classes" if classes > MOST_BARS else "Every class"
    return f"{shown}, the worst first: the share of its {part} images that is recognised."


# --- training


def _list_columns(history: Sequence[RetrainRecord]) -> list[Column]:
    return [
        Column("epoch", [record.epoch + 1 for record in history], whole),
        Column("seconds", [record.seconds for record in history], decimal),
        Column("images/s", [record.images_per_second for record in history], whole),
        *metric_columns(list_metrics(history)),
    ]


def _list_timing(history: Sequence[RetrainRecord], result: RetrainResult | None) -> list[tuple[str, str]]:
    seconds, speeds = [r.seconds for r in history], [r.images_per_second for r in history]
    run = None if result is None else result.run
    return timing_facts("epoch", len(history), seconds=seconds, speeds=speeds, memory_mb=[], run=run)


# --- mistakes


def _list_worst(result: RetrainResult | None) -> Sequence[Mistake]:
    return result.test.worst if result is not None and isinstance(result.test, Evaluation) else ()


def _list_mistakes(directory: Path, result: RetrainResult) -> list[dict[str, str]]:
    worst, names = _list_worst(result), result.classes
    pictures = read_thumbnails(directory / PICTURES, len(worst)) or [""] * len(worst)
    return [
        {
            "picture": picture,
            "index": whole(mistake.index),
            "truth": names[mistake.truth],
            "predicted": names[mistake.predicted],
            "probability": decimal(100 * mistake.probability, digits=1, unit=" %"),
        }
        for mistake, picture in zip(worst, pictures, strict=True)
    ]


# --- files


def list_links(directory: Path) -> list[Link]:
    """Return the models and the exports that are there."""
    exported = sorted(path for path in (directory / "export").glob("*") if path.suffix in KINDS and path.is_file())
    found = [path for path in (directory / BEST, directory / LAST) if path.is_file()] + exported
    return [_make_link(path, directory) for path in found]


def _make_link(path: Path, directory: Path) -> Link:
    name = path.relative_to(directory).as_posix()
    what = KINDS.get(path.name) if path.parent == directory else KINDS[path.suffix]
    return Link(name, quote(name), _write_size(path.stat().st_size), what or "")


def _write_size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"
