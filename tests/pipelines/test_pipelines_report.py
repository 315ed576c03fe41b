"""The page of a pipeline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from archloom.pipelines.report import picking, render_pipeline, search_table, sentences, trained_table
from archloom.pipelines.results import Found, PipelineOutcome, Trained

FOLDER = Path("runs/some pipeline")
FOUND = tuple(
    Found(seed, FOLDER / "searches" / f"seed-{seed}", f"|cell {seed}|", 60.0 + seed, "shared", 12.0, 1000)
    for seed in range(2)
)
TRAINED = tuple(
    Trained(search, seed, FOLDER / "retrainings" / f"s{search}-{seed}", test, test - 1 + 3 * seed, 60.0, 2000)
    for search, seed, test in ((0, 0, 90.0), (0, 1, 91.0), (1, 0, 94.0), (1, 1, 95.0))
)
BEST_OF = PipelineOutcome("Two", "best_of_searches", 2, 2, FOUND, 1, TRAINED[2:])
REPEATS = PipelineOutcome("Two", "repeats", 2, 4, FOUND, None, TRAINED)


def test_the_best_of_searches_in_words() -> None:
    lines = list(sentences(BEST_OF))
    assert lines[0] == "Test accuracy 94.50 ± 0.71 % over 2 retrainings of the best of 2 searches."
    assert lines[-1] == (
        "The model to use is that of search 1, retraining 1 (by validation, 97.00 %); its test accuracy is 95.00 %."
    )
    assert picking(BEST_OF).startswith("Search 1 is picked by validation accuracy under the shared weights")


def test_repeats_in_words() -> None:
    lines = list(sentences(REPEATS))
    assert lines[0] == "Test accuracy 92.50 ± 2.38 % over 4 retrainings of 2 searches."
    assert lines[1].startswith("Searches differ by ±2.78, retrainings of one architecture by ±0.71 points")
    assert picking(REPEATS) == "Every search is retrained: nothing is picked."


def test_where_nothing_was_held_back_the_first_model_counts_and_not_the_best_on_test() -> None:
    outcome = replace(BEST_OF, trained=tuple(replace(run, valid=None) for run in BEST_OF.trained))
    assert outcome.best == outcome.trained[0] and "nothing was held back" in list(sentences(outcome))[-1]


def test_rows() -> None:
    assert search_table(BEST_OF).rows[1] == ("search 1 (picked)", "61.00", "1,000", "12.0 s", "|cell 1|")
    assert trained_table(BEST_OF).rows[1][:3] == ("search 1, retraining 1 (best)", "95.00", "97.00")


def test_the_page_links_to_its_runs() -> None:
    exported = (FOLDER / "retrainings" / "s1-1" / "export" / "model.onnx",)
    page = render_pipeline(replace(BEST_OF, exported=exported), FOLDER)
    assert 'href="searches/seed-1/report.html"' in page and 'href="retrainings/s1-1/report.html"' in page
    assert 'href="retrainings/s1-1/export/model.onnx"' in page
    assert "has not finished" not in page and "<svg" in page


def test_an_unfinished_page_says_so() -> None:
    begun = PipelineOutcome("<b>Two", "best_of_searches", 2, 2, (), None, (), {"seed-0": "no memory"})
    page = render_pipeline(begun, FOLDER)
    assert "has not finished" in page and "no memory" in page and "None has finished." in page
    assert "&lt;b&gt;Two" in page and "<svg" not in page
    assert picking(replace(begun, found=FOUND[:1])) == "The best is picked by validation when all have finished."
