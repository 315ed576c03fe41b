"""Runs on text: comparisons, pages and files show perplexities, and lower ones are better."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import archloom
from archloom.comparisons.results import ComparisonResult
from archloom.dashboard.index import Index

pytest.importorskip("starlette.testclient", reason="needs the extra web and httpx")

WORDS = ("the", "cat", "dog", "sat", "on", "a", "mat")
TRAINED = {"search": {"trials": 2, "score": "training", "score_epochs": 1}}


def write_corpus(folder: Path) -> None:
    rng = random.Random(0)
    folder.mkdir()
    for name, lines in {"train": 60, "valid": 40, "test": 20}.items():
        text = "\n".join(" ".join(rng.choices(WORDS, k=8)) for _ in range(lines))
        (folder / f"{name}.txt").write_text(text + "\n")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of searches on text, and a training of what one of them found."""
    place = tmp_path_factory.mktemp("text")
    write_corpus(place / "corpus")
    text = {"name": "text", "path": str(place / "corpus"), "segment": 8}
    everywhere = {
        "space": {"name": "recurrent"},
        "network": {"hidden": 4},
        "data": text,
        "search": {"batch_size": 4, "random_baseline_samples": 2},
        "race": {"steps": 0},
    }
    one_epoch = {"search": {"epochs": 1}}
    entries = {
        "rsps": {"strategy": {"name": "rsps"}, **one_epoch},
        "gdas": {"strategy": {"name": "gdas"}, **one_epoch},
        "random_search": {"strategy": {"name": "random_search"}, **TRAINED},
    }
    recipe = {"title": "Cells for text", "seeds": "0-1", "against": "rsps", "all": everywhere, "entry": entries}
    archloom.compare(recipe, out=place / "runs/comparison", on="serial")
    archloom.retrain(
        str(place / "runs/comparison/runs/gdas-0"),
        recipe="text_small",
        out=place / "runs/model",
        settings={"network": {"hidden": 4}, "data": {"segment": 8}, "training": {"batch_size": 4, "epochs": 1}},
    )
    return place / "runs"


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "runs")
    return tmp_path / "runs"


def shared_perplexity(runs: Path, name: str) -> float:
    value = json.loads((runs / f"comparison/runs/{name}/architecture.json").read_text())
    assert value["metric"] == "perplexity"
    return 1 / float(value["shared_score"])


def test_a_comparison_holds_perplexities(runs: Path) -> None:
    result = ComparisonResult.read(runs / "comparison")
    by_name = {entry.name: entry for entry in result.entries}
    assert {entry.figure for entry in result.entries} == {"perplexity"}
    assert by_name["gdas"].values == pytest.approx([shared_perplexity(runs, f"gdas-{seed}") for seed in (0, 1)])
    lines = (runs / "comparison/runs/random_search-0/metrics.jsonl").read_text().splitlines()
    scores = [json.loads(line)["score"] for line in lines]
    assert by_name["random_search"].values[0] == pytest.approx(100 / max(scores))
    entry = by_name["random_search"]
    assert entry.best(entry.values) == min(entry.values)
    assert by_name["random_search"].metric == "best perplexity, by training"
    own, other = (sum(by_name[name].values) / 2 for name in ("gdas", "rsps"))
    assert result.verdicts["gdas"].difference == pytest.approx(own - other)


def test_the_overview_names_perplexities(ask: Callable[..., Any], runs: Path) -> None:
    found = Index([runs]).refresh()
    search, model = found["runs/comparison/runs/gdas-0"], found["runs/model"]
    assert (search.metric, model.metric) == ("perplexity", "perplexity")
    assert search.score == pytest.approx(shared_perplexity(runs, "gdas-0"))
    assert search.merit == -search.score
    assert model.score is not None and model.verdict.startswith(f"perplexity {model.score:,.2f} on ")
    trials = found["runs/comparison/runs/random_search-0"]
    lines = (runs / "comparison/runs/random_search-0/metrics.jsonl").read_text().splitlines()
    assert (trials.state, trials.score) == ("finished", pytest.approx(100 / json.loads(lines[-1])["best"]))
    page = ask("/").text
    assert f">perplexity {search.score:,.2f}</td>" in page and "score, %" not in page


def test_no_file_of_a_text_speaks_of_accuracy(made: Path) -> None:
    files = [path for path in made.rglob("*") if path.is_file()]
    assert len(files) > 40
    assert [path for path in files if b"accurac" in path.read_bytes().lower()] == []


def test_runs_whose_scores_are_called_accuracies_are_shown_alike(runs: Path) -> None:
    unfinished = runs / "comparison/runs/gdas-1/architecture.json"
    unfinished.unlink()
    now = Index([runs]).refresh()
    for path in (path for name in ("*.json", "*.jsonl") for path in runs.rglob(name)):
        text = path.read_text()
        path.write_text(text.replace('_score"', '_accuracy"').replace('"version": 3', '"version": 2'))
    assert "shared_accuracy" in (runs / "comparison/runs/gdas-0/architecture.json").read_text()
    earlier = Index([runs]).refresh()
    assert {key: (one.score, one.metric, one.verdict) for key, one in earlier.items()} == {
        key: (one.score, one.metric, one.verdict) for key, one in now.items()
    }
    assert archloom.resume(runs / "comparison/runs/gdas-0").shared_score == pytest.approx(
        1 / (now["runs/comparison/runs/gdas-0"].score or 0)
    )


def test_unfinished_runs_are_measured_in_perplexity(runs: Path) -> None:
    for name in ("gdas-0", "random_search-0"):
        (runs / f"comparison/runs/{name}/architecture.json").unlink()
    (runs / "model/result.json").unlink()
    found = Index([runs]).refresh()
    for key, name in (("comparison/runs/gdas-0", "derived_score"), ("comparison/runs/random_search-0", "best")):
        last = json.loads((runs / key / "metrics.jsonl").read_text().splitlines()[-1])
        expected = 1 / last[name] if name == "derived_score" else 100 / last[name]
        assert (found[f"runs/{key}"].metric, found[f"runs/{key}"].score) == ("perplexity", pytest.approx(expected))
    assert found["runs/model"].metric == "perplexity"


def test_a_comparison_that_fills_up_shows_the_same_values_as_the_finished_one(
    ask: Callable[..., Any], runs: Path
) -> None:
    def values() -> dict[tuple[str, str], float]:
        table = list(csv.DictReader(io.StringIO(ask("/csv/seeds/runs/comparison").text)))
        return {(row["entry"], row["seed"]): float(row["value"]) for row in table}

    finished = values()
    (runs / "comparison/comparison.json").unlink()
    assert values() == pytest.approx(finished)
    assert "Lower is better" in ask("/page/runs/comparison").text


def test_pages_of_trials_and_overlays_show_perplexities(ask: Callable[..., Any], runs: Path) -> None:
    key = "runs/comparison/runs/random_search-0"
    table = list(csv.DictReader(io.StringIO(ask(f"/csv/trials/{key}").text)))
    scores = [json.loads(line)["score"] for line in (runs.parent / key / "metrics.jsonl").read_text().splitlines()]
    assert [float(row["perplexity"]) for row in table] == pytest.approx([100 / score for score in scores])
    assert float(table[-1]["best_perplexity"]) == pytest.approx(100 / max(scores))
    assert re.search(r"perplexity \d", ask(f"/cell/{key}?place=0").json()["text"])
    page = ask(f"/overlay?run={key}&run=runs/comparison/runs/gdas-0&run=runs/model").text
    assert re.search(r"<td>perplexity [\d.,]+ on \d+ test words</td>", page)
    assert f"<td>perplexity {shared_perplexity(runs, 'gdas-0'):,.1f}</td>" in page
