"""The page of a pipeline."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

from archloom.api import write_report
from archloom.pipelines.report import explain_picking, render_pipeline
from archloom.pipelines.results import ModelSummary, PipelineResult, SearchSummary

FOLDER = Path("runs/some pipeline")
NAMED = ("architecture", "curves")
FOUND = tuple(
    SearchSummary(seed, FOLDER / "searches" / f"seed-{seed}", f"|cell {seed}|", 60.0 + seed, "shared", 12.0, 1000)
    for seed in range(2)
)
MODELS = tuple(
    ModelSummary(search, seed, FOLDER / "retrainings" / f"s{search}-{seed}", test, test - 1 + 3 * seed, 60.0, 2000)
    for search, seed, test in ((0, 0, 90.0), (0, 1, 91.0), (1, 0, 94.0), (1, 1, 95.0))
)
BEST_OF = PipelineResult("Two", "best_of_searches", 2, 2, FOUND, 1, MODELS[2:])
REPEATS = PipelineResult("Two", "repeats", 2, 4, FOUND, None, MODELS)


def test_sentences_of_the_best_of_searches() -> None:
    lines = BEST_OF.sentences
    assert lines[0] == "Test accuracy 94.50 ± 0.71 % over 2 retrainings of the best of 2 searches."
    assert lines[-1] == (
        "Use the model of search 1, retraining 1 (best by validation, 97.00 %); its test accuracy is 95.00 %."
    )
    assert explain_picking(BEST_OF).startswith("Search 1 was picked by validation accuracy under the shared weights")


def test_sentences_of_repeats() -> None:
    lines = REPEATS.sentences
    assert lines[0] == "Test accuracy 92.50 ± 2.38 % over 4 retrainings of 2 searches."
    assert lines[1].startswith("Searches differ by ±2.78, retrainings of one architecture by ±0.71 points")
    assert explain_picking(REPEATS) == "Every search is retrained: none is picked."


def test_first_model_is_used_without_validation_images() -> None:
    result = replace(BEST_OF, models=tuple(replace(run, valid=None) for run in BEST_OF.models))
    assert result.best == result.models[0] and "there are no validation images" in result.sentences[-1]


def test_tables() -> None:
    assert BEST_OF.tabulate_searches().rows[1] == ("search 1 (picked)", "61.00", "1,000", "12.0 s", "|cell 1|")
    assert BEST_OF.tabulate_models().rows[1][:3] == ("search 1, retraining 1 (best)", "95.00", "97.00")


def test_page_links_to_its_runs() -> None:
    exported = (FOLDER / "retrainings" / "s1-1" / "export" / "model.onnx",)
    page = render_pipeline(replace(BEST_OF, exported=exported), FOLDER)
    assert 'href="searches/seed-1/report.html"' in page and 'href="retrainings/s1-1/report.html"' in page
    assert 'href="retrainings/s1-1/export/model.onnx"' in page
    assert "has not finished" not in page and "<svg" in page


def test_one_model_has_no_chart_of_one_dot() -> None:
    one = replace(BEST_OF, model_count=1, models=MODELS[3:])
    assert "a dot per retraining" in render_pipeline(BEST_OF, FOLDER)
    assert "a dot per retraining" not in render_pipeline(one, FOLDER)


def test_the_page_shows_the_cell_and_the_curves_of_the_best_model(tmp_path: Path) -> None:
    stored = Path(__file__).parents[1] / "data_files" / "first_edition" / "pipeline"
    shutil.copytree(stored, tmp_path / "pipeline")
    page = write_report(tmp_path / "pipeline").read_text()
    cell, curves = (re.search(rf'<section id="{name}">.*?</section>', page, re.DOTALL) for name in NAMED)
    assert cell is not None and 'class="cells"' in cell[0]
    assert curves is not None and "train loss" in curves[0]
    assert page.index("<h2>Warnings</h2>") < page.index('id="verdict"')


def test_page_of_an_unfinished_pipeline() -> None:
    begun = PipelineResult("<b>Two", "best_of_searches", 2, 2, (), None, (), {"seed-0": "no memory"})
    page = render_pipeline(begun, FOLDER)
    assert "has not finished" in page and "no memory" in page and "None has finished." in page
    assert "&lt;b&gt;Two" in page and "<svg" not in page
    assert (
        explain_picking(replace(begun, searches=FOUND[:1]))
        == "The best search is picked by validation when all have finished."
    )
