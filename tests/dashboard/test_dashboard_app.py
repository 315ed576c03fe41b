import csv
import io
import json
import re
import shutil
import xml.etree.ElementTree as ElementTree

import pytest

pytest.importorskip("starlette.testclient", reason="needs the extra web and httpx")

PAGES = ["search_gdas", "search_gibbs", "search_random", "retrain", "retrain_interrupted", "search_epochs_interrupted",
         "search_trials_interrupted", "comparison", "pipeline", "comparison/runs/gdas-0"]  # fmt: skip


def rows_of(answer):
    return list(csv.reader(io.StringIO(answer.text)))


@pytest.mark.parametrize("name", PAGES)
def test_every_kind_of_run_has_a_page_whose_figures_are_svg_and_csv(ask, name):
    page = ask(f"/page/runs/{name}")
    assert page.status_code == 200
    assert "style=" not in page.text and "<style" not in page.text and " on" + "click" not in page.text
    pictures = re.findall(r'data-picture="([^"]+)"', page.text)
    assert pictures
    for address in pictures:
        svg = ask(address)
        assert (svg.status_code, svg.headers["content-type"]) == (200, "image/svg+xml"), address
        assert ElementTree.fromstring(svg.text).tag == "{http://www.w3.org/2000/svg}svg"
        assert "style=" not in svg.text
        table = rows_of(ask(address.replace("/svg/", "/csv/", 1)))
        assert len(table) > 1 and len({len(row) for row in table}) == 1, address


def test_the_page_and_the_report_have_the_same_sections(ask, runs):
    from archloom.api import write_report

    report = write_report(runs / "search_gdas").read_text()
    page = ask("/page/runs/search_gdas").text
    sections = re.findall(r'<section[^>]* id="(\w+)"', report)
    shown = re.findall(r'<section[^>]* id="(\w+)"', page)
    assert len(sections) > 5
    assert [name for name in shown if name in sections] == sections
    assert set(shown) - set(sections) == {"state", "cell", "alarms"} & set(shown)


def test_cells_of_every_moment_with_their_probabilities(ask):
    first, last = (ask(f"/cell/runs/search_gdas?place={place}").json() for place in (0, 1))
    assert first["text"].startswith("After epoch 1: ")
    assert re.search(r"rank \d+ of 125, regret \d", first["text"])
    assert last["text"].startswith("After epoch 2: ")
    widths = [float(width) for width in re.findall(r'fill="none" stroke="#\w+" stroke-width="([\d.]+)"', first["svg"])]
    table = rows_of(ask("/csv/cell/runs/search_gdas?place=0"))
    assert table[0] == ["epoch", "decision", "option", "probability"]
    assert len(table) == 1 + 3 * 5  # three edges of five operations
    shares = [int(share) / 100 for share in re.findall(r">[\w ]+ (\d+) %</text>", first["svg"])]
    assert len(widths) == len(shares) == 3
    assert widths == pytest.approx([0.6 + 6.4 * share for share in shares], abs=0.05)
    assert ask("/cell/runs/search_gdas?place=99").status_code == 404
    assert ask("/cell/runs/search_random?place=3").json()["text"].startswith("Trial 3: score ")


def test_rank_and_regret_come_with_the_stability_curve(ask):
    table = rows_of(ask("/csv/rank/runs/search_gdas"))
    assert table[0][3:5] == ["rank", "regret"]
    assert [int(row[0]) for row in table[1:]] == [1, 2]


def test_the_state_of_a_run_comes_alone_between_records(ask, runs):
    from archloom.core.progress_file import progress_path
    from archloom.execution.run_folder import RunFolder

    folder, key = runs / "search_epochs_interrupted", "runs/search_epochs_interrupted"
    figures = {"position": 50, "total": 80, "units_per_record": 40, "seconds_per_unit": 0.5}
    with RunFolder(folder).lock():
        progress_path(folder).parent.mkdir(exist_ok=True)
        progress_path(folder).write_text(json.dumps(figures))
        state, page = ask(f"/state/{key}").text, ask(f"/page/{key}").text
        progress_path(folder).write_text(json.dumps({**figures, "doing": "racing <b>4</b> finalists"}))
        last = ask(f"/state/{key}").text
    for text in (state, page):
        assert "1 of 2 epochs" in text and "step 10 of 40" in text and "15.0 s left" in text
        assert 'value="0.6250"' in text
    assert "<section" not in state
    assert "racing &lt;b&gt;4&lt;/b&gt; finalists" in last and "step" not in last
    assert ask("/state/runs/none").status_code == 404


def test_finalists_show_as_they_race(ask, runs):
    folder = runs / "search_gibbs"
    notes = [json.loads(line) for line in (folder / "finalists.jsonl").read_text().splitlines()]
    (folder / "architecture.json").unlink()
    page = ask("/page/runs/search_gibbs").text
    race = re.search(r'<section id="race">.*?</section>', page, re.DOTALL)[0]
    assert f"{len(notes)} short trainings are done" in race
    losses = [float(value) for value in re.findall(r"<td>(\d\.\d{3})</td>", race)]
    steps = [int(value) for value in re.findall(r"<tr><td>\d+</td><td>[^<]*</td><td>(\d+)</td>", race)]
    assert len(losses) == len(steps) == len(notes)
    assert steps == sorted(steps, reverse=True)
    assert 'id="race"' not in ask("/page/runs/search_gdas").text


def test_figures_of_findings_are_drawn_and_saved(ask, runs):
    file = runs / "search_gdas" / "architecture.json"
    findings = {"edge_weights": {"0->1": 1.0, "0->2": 0.25}, "evidence": {"0->1": {"none": 0.5, "skip_connect": 2.0}}}
    file.write_text(json.dumps(json.loads(file.read_text()) | findings))
    page = ask("/page/runs/search_gdas").text
    for name in ("edge-weights", "priors"):
        assert f'data-picture="/svg/{name}/runs/search_gdas"' in page
        assert ElementTree.fromstring(ask(f"/svg/{name}/runs/search_gdas").text).tag.endswith("svg")
    assert rows_of(ask("/csv/edge-weights/runs/search_gdas")) == [["edge", "weight"], ["0->1", "1.0"], ["0->2", "0.25"]]
    assert rows_of(ask("/csv/priors/runs/search_gdas"))[1:] == [
        ["0->1", "none", "0.5"],
        ["0->1", "skip_connect", "2.0"],
    ]


def test_the_posterior_shows_probabilities_of_being_best_and_credible_sets(ask, runs):
    page = ask("/page/runs/search_gibbs").text
    assert "Posterior: not converged" in page and "leading option" in page
    assert 'data-picture="/svg/posterior/runs/search_gibbs"' not in page, "no probabilities without convergence"
    path = runs / "search_gibbs" / "architecture.json"
    result = json.loads(path.read_text())
    sizes = {"effective_draws": 90.0, "effective_draws_median": 120.0}
    result["posterior"]["mixing"] = {"chains": 4, "draws": 50, **sizes, "r_hat": 1.01, "r_hat_median": 1.0}
    path.write_text(json.dumps(result))
    assert 'data-picture="/svg/posterior/runs/search_gibbs"' in ask("/page/runs/search_gibbs").text
    table = rows_of(ask("/csv/posterior/runs/search_gibbs"))
    assert table[0] == ["decision", "option", "probability of being best", "in the credible set"]
    assert {row[3] for row in table[1:]} <= {"yes", "no"}


def test_a_target_is_drawn_against_the_cost(ask, runs):
    folder = runs / "search_trials_interrupted"
    config = (folder / "config.toml").read_text()
    settings = '[target]\nmetric = "parameters"\nvalue = 500.0\n'
    (folder / "config.toml").write_text(re.sub(r"\[target\].*?(?=\n\[|$)", "", config, flags=re.DOTALL) + settings)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    text = "".join(json.dumps({**line, "cost": 400.0 + 50 * n, "met": True}) + "\n" for n, line in enumerate(lines))
    (folder / "metrics.jsonl").write_text(text)
    table = rows_of(ask("/csv/target/runs/search_trials_interrupted"))
    assert table[0] == ["trial", "cost", "target"]
    assert [(float(row[1]), float(row[2])) for row in table[1:]] == [(400.0 + 50 * n, 500.0) for n in range(5)]
    assert "target: 500" in ask("/svg/target/runs/search_trials_interrupted").text


def test_a_comparison_has_no_verdict_before_all_planned_seeds_are_in(ask, runs):
    page = ask("/page/runs/comparison").text
    assert "All planned seeds are in" in page and 'id="verdict"' in page
    (runs / "comparison/runs/gdas-1/architecture.json").unlink()
    (runs / "comparison/comparison.json").unlink()
    page = ask("/page/runs/comparison").text
    assert "The verdict comes when all 4 planned seeds are in." in page
    assert 'id="verdict"' not in page and "p-value" in page
    assert "seed 1:" in page
    values = rows_of(ask("/csv/seeds/runs/comparison"))
    assert [(row[0], row[1]) for row in values[1:]] == [("gdas", "0"), ("random_search", "0"), ("random_search", "1")]
    assert float(values[1][2]) == 94.479  # the test accuracy in the table, as the finished comparison has it


def test_a_comparison_that_was_interrupted_hides_the_verdicts_in_its_file(ask, runs):
    path = runs / "comparison/comparison.json"
    value = json.loads(path.read_text())
    value["entries"][0]["seeds"] = 3
    path.write_text(json.dumps(value))
    page = ask("/page/runs/comparison").text
    assert 'id="verdict"' not in page and "1 is\n  missing" in page


def test_several_runs_are_overlaid(ask):
    query = "run=runs/search_gdas&run=runs/search_epochs_interrupted&run=runs/retrain"
    page = ask(f"/overlay?{query}").text
    assert "3 runs compared" in page
    assert "<td>seed</td>" in page or "<td>strategy.name</td>" in page
    table = rows_of(ask(f"/csv/curves/?{query}"))
    assert {row[0] for row in table[1:]} == {"runs/search_gdas", "runs/search_epochs_interrupted", "runs/retrain"}
    svg = ask(f"/svg/curves/?{query}")
    assert svg.status_code == 200 and "runs/search_gdas" in svg.text
    assert ask("/overlay?run=runs/search_gdas").status_code == 404
    assert ask("/overlay?run=runs/search_gdas&run=runs/none").status_code == 404


def test_settings_that_differ_have_a_column_per_run():
    from archloom.dashboard.overlay_page import tabulate_differences

    table = tabulate_differences({"a": {"seed": 1, "s": {"x": [1, 2], "y": 3}}, "b": {"seed": 2, "s": {"x": [1, 2]}}})
    assert table.columns == ("setting", "a", "b")
    assert table.rows == (("seed", "1", "2"), ("s.y", "3", ""))


EVIL = "<script>alert(1)</script>"


def test_names_from_files_are_text(ask, runs):
    path = runs / "retrain/result.json"
    value = json.loads(path.read_text())
    value["classes"][0] = EVIL
    path.write_text(json.dumps(value))
    (runs / EVIL.replace("/", "")).mkdir()
    shutil.copytree(runs / "search_gdas", runs / f"{EVIL.replace('/', '')}/run")
    verdict = runs / "search_gdas/architecture.json"
    verdict.write_text(verdict.read_text().replace("The digits table", EVIL))
    for address in (
        "/",
        "/page/runs/retrain",
        "/page/runs/search_gdas",
        "/svg/confusion/runs/retrain",
        "/svg/classes/runs/retrain",
    ):
        text = ask(address).text
        assert "<script>alert" not in text, address
    assert "&lt;script&gt;alert(1)" in ask("/page/runs/search_gdas").text
    assert ask("/csv/classes/runs/retrain").headers["content-type"].startswith("text/csv")


@pytest.mark.parametrize("key", ["../secret", "..%2fsecret", "/etc", "runs/../../secret", "runs/none", "runs", ""])
@pytest.mark.parametrize(
    "kind", ["page", "cell", "state", "events", "thumbnail", "svg/learning", "csv/learning", "file"]
)
def test_nothing_outside_the_folders_is_served(ask, key, kind, runs):
    shutil.copytree(runs / "search_gdas", runs.parent / "secret")
    assert ask(f"/{kind}/{key}").status_code == 404


def test_only_listed_files_are_sent(ask, runs):
    (runs / "retrain/private.txt").write_text("private")
    page = ask("/page/runs/retrain").text
    assert 'href="/file/runs/retrain?name=best.safetensors"' in page
    assert ask("/file/runs/retrain?name=best.safetensors").content == (runs / "retrain/best.safetensors").read_bytes()
    for name in ("private.txt", "config.toml", "../search_gdas/config.toml", "", "/etc/passwd"):
        assert ask("/file/runs/retrain", params={"name": name}).status_code == 404
    (runs / "retrain/best.safetensors").unlink()
    (runs / "retrain/best.safetensors").symlink_to("/etc/hostname")
    assert ask("/file/runs/retrain?name=best.safetensors").status_code == 404


def test_damaged_folders_have_pages_that_say_so(ask, runs):
    (runs / "search_gdas/architecture.json").write_text("{")
    (runs / "search_random/metrics.jsonl").write_text("{\n")
    (runs / "retrain/result.json").write_text('{"space": {"name": "x"}, "data": 1, "recipe": 1, "seed": 1}')
    (runs / "pipeline/pipeline.json").write_text("[]")
    assert "architecture.json is damaged" in ask("/page/runs/search_gdas").text
    for name in ("search_random", "retrain", "pipeline"):
        page = ask(f"/page/runs/{name}")
        assert page.status_code == 200 and "damaged" in page.text, name
    assert 'class="badge damaged"' in ask("/").text
    assert ask("/page/runs/search_gibbs").status_code == 200


def test_a_run_that_has_written_nothing_is_starting_and_not_damaged(ask, runs):
    from archloom.execution.run_folder import RunFolder

    with RunFolder(runs / "new").lock():
        page = ask("/page/runs/new").text
    assert "This run is starting" in page and "damaged" not in page
    assert 'data-live="yes"' in page


def test_damaged_lines_are_counted_on_the_page(ask, runs):
    path = runs / "search_epochs_interrupted/metrics.jsonl"
    path.write_text("no record\n" + path.read_text() + '{"epoch": 1, "metr')
    page = ask("/page/runs/search_epochs_interrupted").text
    assert "1 line of metrics.jsonl or finalists.jsonl is damaged" in page
    assert "of 2 epochs" in page


def test_a_plugin_that_a_folder_names_is_not_imported(ask, runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    for name in ("search_gdas", "retrain"):
        config = runs / name / "config.toml"
        config.write_text(config.read_text().replace('name = "nb201_mini"', 'name = "trap:Space"'))
    assert "Cells are not drawn" in ask("/page/runs/search_gdas").text
    assert "Cells are not drawn" in ask("/page/runs/retrain").text
    assert ask("/svg/learning/runs/search_gdas").status_code == 200


def test_the_list_of_runs_is_there_for_other_programs(ask):
    found = {one["key"]: one for one in ask("/api/runs").json()}
    assert found["runs/search_trials_interrupted"]["done"] == 5
    assert found["runs/search_trials_interrupted"]["share"] == 5 / 8
    assert ask("/rows?run=runs/search_gdas&run=runs/none").text.count("<tr ") == 1


def test_small_drawings_and_fixed_files(ask):
    assert ask("/thumbnail/runs/search_gdas").text.count("<path") >= 2
    assert ask("/static/report.css").headers["content-type"].startswith("text/css")
    assert ask("/static/../app.py").status_code == 404
    assert ask("/static/app.py").status_code == 404


def test_a_figure_is_drawn_once_for_one_state_of_a_run(ask, runs, monkeypatch):
    from archloom.searches import report

    drawn = []
    real = report.stability_curve
    monkeypatch.setattr(report, "stability_curve", lambda epochs: drawn.append(len(epochs)) or real(epochs))
    for _ in range(3):
        ask("/svg/stability/runs/search_gdas")
    assert drawn == [2]
