import json
import shutil
import subprocess
import sys

import pytest

from archloom.core.progress_file import progress_path
from archloom.dashboard.folders import FolderTree
from archloom.dashboard.index import Index
from archloom.execution.run_folder import RunFolder


def look(*roots):
    return Index(roots).refresh()


def test_every_kind_of_run_is_found_with_its_state(runs):
    found = look(runs)
    states = {key: (one.kind, one.state, one.done, one.total) for key, one in found.items() if one.parent is None}
    assert states == {
        "runs/comparison": ("comparison", "finished", 4, 4),
        "runs/pipeline": ("pipeline", "finished", 3, 3),
        "runs/retrain": ("retraining", "finished", 2, 2),
        "runs/retrain_interrupted": ("retraining", "interrupted", 1, 2),
        "runs/search_epochs_interrupted": ("search", "interrupted", 1, 2),
        "runs/search_gdas": ("search", "finished", 2, 2),
        "runs/search_gibbs": ("search", "finished", 2, 2),
        "runs/search_random": ("search", "finished", 6, 6),
        "runs/search_trials_interrupted": ("search", "interrupted", 5, 8),
    }
    parts = [key for key, one in found.items() if one.parent == "runs/comparison"]
    assert parts == [f"runs/comparison/runs/{name}-{seed}" for name in ("gdas", "random_search") for seed in (0, 1)]
    assert found["runs/search_gdas"].title == "gdas on nb201_mini, digits, seed 1"
    assert found["runs/search_gdas"].verdict.startswith("The digits table knows it: 88.00 %")
    assert found["runs/search_gdas"].score == 88.0


def test_a_locked_folder_is_running_and_the_time_left_follows_from_its_records(runs):
    folder = runs / "search_trials_interrupted"
    seconds = [json.loads(line)["seconds"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    with RunFolder(folder).lock():
        summary = look(runs)["runs/search_trials_interrupted"]
    assert (summary.state, summary.done, summary.total) == ("running", 5, 8)
    assert summary.seconds_left == pytest.approx(3 * sum(seconds) / 5)
    assert look(runs)["runs/search_trials_interrupted"].state == "interrupted"


def write_progress(folder, **figures):
    path = progress_path(folder)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(figures))


def test_a_running_search_shows_its_step_and_the_time_left_between_records(runs):
    folder, key = runs / "search_epochs_interrupted", "runs/search_epochs_interrupted"
    index = Index([runs], clock=iter(range(100)).__next__)
    write_progress(folder, position=50, total=80, units_per_record=40, seconds_per_unit=0.5, doing="")
    assert index.refresh()[key].step is None, "of a run that was interrupted it says nothing"
    with RunFolder(folder).lock():
        first = index.refresh()[key]
        write_progress(folder, position=60, total=80, units_per_record=40, seconds_per_unit=0.4, doing="")
        second = index.refresh()[key]
        write_progress(folder, position=80, total=80, units_per_record=40, seconds_per_unit=0.4, doing="racing 4")
        last = index.refresh()[key]
    assert (first.done, first.total, first.step, first.steps) == (1, 2, 10, 40)
    assert first.seconds_left == pytest.approx(0.5 * 30) and first.share == pytest.approx(50 / 80)
    assert (second.step, second.seconds_left, second.share) == (20, pytest.approx(8.0), pytest.approx(60 / 80))
    assert (last.step, last.doing) == (None, "racing 4")
    assert first.updated == second.updated, "a page that sorts by the last change does not move at every step"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", *(f'{{"position": {one}, "total": 1, "units_per_record": 1}}' for one in ('"x"', "1e999"))],
)
def test_a_damaged_progress_file_is_ignored(runs, text):
    folder = runs / "search_trials_interrupted"
    with RunFolder(folder).lock():
        without = look(runs)["runs/search_trials_interrupted"]
        write_progress(folder)
        progress_path(folder).write_text(text)
        assert look(runs)["runs/search_trials_interrupted"] == without


def test_the_time_left_of_a_comparison_follows_from_the_searches_that_ended(runs):
    folder = runs / "comparison"
    took = {
        path.parent.name: json.loads(path.read_text())["run"]["seconds"]
        for path in folder.glob("runs/*/architecture.json")
    }
    (folder / "runs/gdas-1/architecture.json").unlink()
    del took["gdas-1"]
    assert look(runs)["runs/comparison"].seconds_left is None
    with RunFolder(folder).lock(), RunFolder(folder / "runs/gdas-1").lock():
        summary = look(runs)["runs/comparison"]
    assert (summary.state, summary.done, summary.total) == ("running", 3, 4)
    assert summary.seconds_left == pytest.approx(sum(took.values()) / 3)


def test_looking_does_not_take_the_lock(runs):
    folder = runs / "search_gdas"
    index = Index([runs])
    with RunFolder(folder).lock():
        index.refresh()
    code = f"""from pathlib import Path
from archloom.execution.run_folder import RunFolder
with RunFolder(Path({str(folder)!r})).lock():
    print("ok")"""
    before = sorted(path.stat().st_mtime_ns for path in folder.rglob("*"))
    index.refresh()
    assert before == sorted(path.stat().st_mtime_ns for path in folder.rglob("*"))
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "ok\n"


def test_a_comparison_runs_while_a_process_works_in_one_of_its_searches(runs):
    (runs / "comparison/runs/gdas-1/architecture.json").unlink()
    with RunFolder(runs / "comparison/runs/gdas-1").lock():
        assert look(runs)["runs/comparison"].state == "running"
    assert look(runs)["runs/comparison"].state == "interrupted"


def test_a_folder_that_was_only_just_taken_is_starting(tmp_path):
    with RunFolder(tmp_path / "new").lock():
        assert look(tmp_path)[f"{tmp_path.name}/new"].state == "starting"


def test_a_record_that_comes_shows_at_the_next_look(runs):
    index = Index([runs], clock=iter(range(100)).__next__)
    path = runs / "search_trials_interrupted/metrics.jsonl"
    line = path.read_text().splitlines()[-1]
    assert index.refresh()["runs/search_trials_interrupted"].done == 5
    with path.open("a") as file:
        file.write(line + "\n")
    assert index.refresh()["runs/search_trials_interrupted"].done == 6
    assert index.find("runs/search_trials_interrupted")[1].done == 6


def test_what_is_finished_is_not_read_again(runs, monkeypatch):
    index = Index([runs], clock=iter(range(100)).__next__)
    first = index.refresh()
    opened = []
    monkeypatch.setattr("pathlib.Path.read_bytes", lambda path: opened.append(path))
    monkeypatch.setattr("archloom.dashboard.summaries.read_toml", lambda path: opened.append(path))
    assert index.refresh() == first
    assert opened == []


def test_damaged_folders_say_what_is_wrong_and_leave_the_others_alone(runs):
    (runs / "search_gdas/config.toml").unlink()
    (runs / "search_gibbs/architecture.json").write_text('{"architecture": ')
    (runs / "search_random/architecture.json").write_text('{"space": {}}')
    (runs / "search_epochs_interrupted/config.toml").write_text("seed = ")
    (runs / "comparison/comparison.toml").write_text("title = 'x'")
    found = look(runs)
    damaged = {key: one.problem for key, one in found.items() if one.state == "damaged"}
    assert damaged["runs/search_gdas"] == "config.toml is missing"
    assert damaged["runs/search_gibbs"] == "architecture.json is damaged: it holds no JSON object"
    assert "runs/search_epochs_interrupted" in damaged and "config.toml" in damaged["runs/search_epochs_interrupted"]
    assert "entry" in damaged["runs/comparison"]
    assert len(damaged) == 5 and "runs/search_random" in damaged
    assert found["runs/retrain"].state == "finished"


@pytest.mark.parametrize("name", ["search_gdas", "search_random", "retrain"])
def test_a_finished_run_with_damaged_settings_is_damaged_in_the_list(runs, name):
    index = Index([runs], clock=iter(range(100)).__next__)
    assert index.refresh()[f"runs/{name}"].state == "finished"
    config = runs / name / "config.toml"
    text = config.read_text()
    config.write_text("seed = \n")
    found = index.refresh()[f"runs/{name}"]
    assert found.state == "damaged" and "config.toml is not a TOML file" in found.problem
    config.write_text(text)
    assert index.refresh()[f"runs/{name}"].state == "finished", "a file that was mended is read again"


def test_settings_of_finished_runs_are_read_once(runs, monkeypatch):
    from archloom.dashboard import summaries

    read, real = [], summaries.read_toml
    monkeypatch.setattr(summaries, "read_toml", lambda path: read.append(path) or real(path))
    index = Index([runs], clock=iter(range(100)).__next__)
    for _ in range(3):
        index.refresh()
    assert read.count(runs / "search_gdas/config.toml") == 1


def test_a_folder_that_only_has_its_lock_is_starting(tmp_path):
    folder = tmp_path / "runs/new"
    with RunFolder(folder).lock():
        assert look(tmp_path / "runs")["runs/new"].state == "starting"


def test_links_out_of_the_folders_are_not_followed(runs, tmp_path):
    secret = tmp_path / "secret"
    shutil.copytree(runs / "search_gdas", secret)
    (runs / "linked").symlink_to(secret)
    (runs / "search_random/metrics.jsonl").unlink()
    (runs / "search_random/metrics.jsonl").symlink_to(secret / "metrics.jsonl")
    found = look(runs)
    assert "runs/linked" not in found
    assert found["runs/search_random"].problem == (
        "metrics.jsonl is a link that leads out of the served folders; it is not read"
    )
    assert not FolderTree([runs]).holds(runs / "../secret/config.toml")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("search_gdas", "search"),
        ("retrain", "retraining"),
        ("comparison", "comparison"),
        ("pipeline", "pipeline"),
        ("comparison/runs/gdas-0", "search"),
    ],
)
def test_the_folder_of_any_run_can_be_served(runs, name, kind):
    found = look(runs / name)
    key = name.rpartition("/")[2]
    assert (found[key].kind, found[key].state) == (kind, "finished")


def test_folders_of_equal_names_have_different_keys(runs, tmp_path):
    other = tmp_path / "other/runs"
    shutil.copytree(runs / "search_gdas", other / "search_gdas")
    assert {"runs/search_gdas", "runs~2/search_gdas"} <= look(runs, other).keys()


def test_neither_torch_nor_a_plugin_is_imported_for_the_overview(runs):
    code = f"""import sys
from pathlib import Path
from archloom.dashboard.index import Index
from archloom.dashboard.thumbnails import draw_small
found = Index([Path({str(runs)!r})]).refresh()
assert draw_small(Path({str(runs / "search_gdas")!r}), (0,)).startswith("<svg")
print(len(found), "torch" in sys.modules)"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout == "16 False\n", run.stderr
