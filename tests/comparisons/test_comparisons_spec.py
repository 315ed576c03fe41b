"""A comparison's file: what it may say, what it becomes, and that a mistake is told before anything runs."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from archloom.comparisons.spec import (
    ComparisonSpec,
    LatencyLimit,
    ResultLimit,
    longest_first,
    parse_seeds,
    seeds_text,
)
from archloom.core.errors import SettingError
from archloom.core.settings import write_toml
from archloom.execution import machine
from archloom.execution.run_folder import RunFolder
from archloom.searches.jobs import refuse_changed

TWO = """
title = "Two"
seeds = "0-2"

[all.space]
name = "nb201_mini"

[all.search]
trials = 7

[entry.random]
seeds = [4, 9]
strategy.name = "random_search"

[entry.gdas]
strategy.name = "gdas"
strategy.temperature_start = 5.0
search.trials = 8
"""


def resolved(text: str, **overruling: Any) -> ComparisonSpec:
    return ComparisonSpec.resolve(tomllib.loads(text), **overruling)


@pytest.fixture(scope="module")
def two() -> ComparisonSpec:
    return resolved(TWO)


def test_entries_are_experiments_with_seeds(two: ComparisonSpec) -> None:
    random, gdas = two.contenders["random"], two.contenders["gdas"]
    assert (random.seeds, random.black_box) == ((4, 9), True)
    assert (gdas.seeds, gdas.black_box) == ((0, 1, 2), False)
    assert random.spec.search.trials == 7
    assert gdas.spec.search.trials == 8  # an entry wins over all
    assert gdas.spec.strategy.settings["temperature_start"] == 5.0
    assert {c.spec.space.name for c in two.contenders.values()} == {"nb201_mini"}
    assert {c.spec.machine.torch_threads for c in two.contenders.values()} == {1}
    assert two.against == "random"


def test_a_task_is_a_run_of_its_seed(two: ComparisonSpec, tmp_path: Path) -> None:
    jobs = two.jobs(tmp_path)
    assert [job.name for job in jobs] == ["random-4", "random-9", "gdas-0", "gdas-1", "gdas-2"]
    assert [job.spec.seed for job in jobs] == [4, 9, 0, 1, 2]
    assert jobs[0].folder == tmp_path / "runs" / "random-4"
    assert [job.name for job in two.jobs(tmp_path, only=["random"])] == ["random-4", "random-9"]
    with pytest.raises(SettingError, match="no entry 'randm'; did you mean 'random'"):
        two.jobs(tmp_path, only=["randm"])


def test_recipe_then_all_then_entry_then_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'seed = 3\n[space]\nname = "nb201_mini"\n[search]\nepochs = 2\ntrials = 2\nbatch_size = 8\nscore_epochs = 2\n'
    )
    text = """
    [all.search]
    trials = 3
    batch_size = 16
    score_epochs = 3
    [entry.a]
    recipe = "mine.toml"
    search.batch_size = 32
    search.score_epochs = 4
    """
    made = resolved(text, beside=tmp_path, overrides={"search": {"score_epochs": 5}}, seeds="6")
    search = made.contenders["a"].spec.search
    assert [getattr(search, name) for name in ("epochs", "trials", "batch_size", "score_epochs")] == [2, 3, 32, 5]
    assert made.contenders["a"].seeds == (6,)
    shipped = resolved('[entry.a]\nrecipe = "first"').contenders["a"].spec
    assert (shipped.space.name, shipped.strategy.name, shipped.data_set.name) == ("nb201_mini", "gibbs", "strokes")


def test_what_is_written_gives_the_same_comparison_and_needs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[space]\nname = "nb201_mini"\n')
    text = """
    seconds_per_trial = 2.5
    limit = {parameters = 1e5}
    [entry.a]
    recipe = "mine.toml"
    strategy.preset = "paper"
    [published.GDAS]
    cifar10 = 93.61
    source = "a paper"
    """
    made = resolved(text, beside=tmp_path)
    made.write(tmp_path / "out")
    (tmp_path / "mine.toml").unlink()
    again, folder = ComparisonSpec.open(tmp_path / "out", tmp_path)
    assert folder == tmp_path / "out"
    assert again.contenders == made.contenders
    assert (again.published, again.limit, again.against) == (made.published, made.limit, made.against)
    assert again.settings.seconds_per_trial == 2.5
    assert again.to_settings() == made.to_settings()


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    text = """
    [entry.a]
    strategy.name = "gdsa"
    [entry.b]
    seeds = 3
    search.epochs = 0
    [entry."x/y"]
    [entry.c]
    recipe = "nothing"
    [entry.d]
    recipe = "compare/first"
    [entry.e]
    seed = 1
    [entry.f]
    data.directory = "/no/such/folder"
    [published.x]
    cifar10 = "much"
    """
    with pytest.raises(SettingError) as caught:
        resolved(text)
    lines = caught.value.problems
    starts = [
        "entry a: unknown strategy 'gdsa'; did you mean 'gdas'?",
        "entry b: seeds must be numbers from 0 such as",
        "entry b: search.epochs must be at least 1 without a finalist race, got 0; give search.budget",
        "entry 'x/y': a name is made of letters, digits, _, - and .",
        "entry c: no recipe 'nothing'",
        "entry d: 'compare/first' is a comparison of several searches: archloom compare compare/first",
        "entry e: a comparison has seeds, not a seed",
        "entry f: no data folder /no/such/folder; check --data-dir",
        "published.x must be numbers by data set and a source",
    ]
    assert len(lines) == len(starts)
    assert [line for line, start in zip(lines, starts, strict=True) if not line.startswith(start)] == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("seedz = 1\n[entry.a]", "unknown setting 'seedz'; did you mean 'seeds'?"),
        ("", "a comparison needs entries: [entry.NAME] with a recipe or sections of its own"),
        ('match = "money"\n[entry.a]', "match must be one of trials, seconds, got 'money'"),
        ("seconds_per_trial = 0\n[entry.a]", "seconds_per_trial must be above 0, got 0.0"),
        ("limit = {parameters = -1}\n[entry.a]", "limit.parameters must be above 0, got -1.0"),
        ("limit = {weight = 1}\n[entry.a]", "unknown setting 'limit.weight'; known: flops, latency, parameters"),
        ('limit.latency.device = "x"\n[entry.a]', "limit.latency.ms must be given: a finite number"),
        ('against = "b"\n[entry.a]', "against must be one of the entries, got 'b'"),
        (
            '[all]\nstrategy.name = "random_search"\n[entry.a]\n[entry.b]',
            "against must say which of a, b the others are compared with",
        ),
        ("[entry]\na = 3", "entry a: must be a table of settings, got 3"),
    ],
)
def test_a_mistake_is_one_clear_line(text: str, line: str) -> None:
    with pytest.raises(SettingError) as caught:
        resolved(text)
    assert caught.value.problems[0].startswith(line)


def test_a_limit_is_something_only_where_it_says_something() -> None:
    assert not ResultLimit()
    assert ResultLimit(flops=1.0) and ResultLimit(latency=LatencyLimit(device="pixel3", ms=5))


@pytest.mark.parametrize(
    ("given", "seeds"),
    [("0-4", (0, 1, 2, 3, 4)), ("7", (7,)), (" 0-1, 9 ", (0, 1, 9)), ([3, 1], (3, 1))],
)
def test_seeds(given: Any, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(given) == seeds
    assert parse_seeds(seeds_text(seeds)) == seeds


@pytest.mark.parametrize(
    "given", ["", "a", "4-0", "-1", "0-", "0-999999999999", "1,1", [], [1.0], [-1], [True], [2, 2]]
)
def test_seeds_that_are_none(given: Any) -> None:
    with pytest.raises(SettingError, match="seeds must"):
        parse_seeds(given)


def test_seeds_are_written_short() -> None:
    assert seeds_text(range(200)) == "0-199"
    assert seeds_text([0, 1, 5, 4]) == "0-1,5,4"


# --- what is on disk


def test_a_changed_setting_is_named_and_nothing_is_overwritten(two: ComparisonSpec, tmp_path: Path) -> None:
    for job in two.jobs(tmp_path):
        RunFolder.create(job.folder, settings=job.spec.to_settings())
    refuse_changed(two.jobs(tmp_path))
    before = {path: path.read_text() for path in tmp_path.rglob("config.toml")}
    changed = resolved(TWO.replace("temperature_start = 5.0", "temperature_start = 6.0"), seeds="1,4")
    with pytest.raises(SettingError) as caught:
        refuse_changed(changed.jobs(tmp_path))
    assert caught.value.problems == (
        f"{tmp_path / 'runs' / 'gdas-1'} was begun with strategy.temperature_start = 5.0, now it is 6.0; "
        "change it back, or choose another --out",
    )
    assert {path: path.read_text() for path in tmp_path.rglob("config.toml")} == before


def test_where_a_run_goes_on_may_change_and_so_may_defaults_be_added(two: ComparisonSpec, tmp_path: Path) -> None:
    job = two.jobs(tmp_path)[0]
    settings = job.spec.to_settings()
    older = {**settings, "search": {n: v for n, v in settings["search"].items() if n != "random_baseline_samples"}}
    job.folder.mkdir(parents=True)
    job.run_folder.config_path.write_text(write_toml(older))
    moved = resolved(TWO, overrides={"machine": {"torch_threads": 2}, "data": {"directory": str(tmp_path)}})
    refuse_changed(moved.jobs(tmp_path))


def test_a_folder_of_something_else_is_left_alone(two: ComparisonSpec, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(SettingError, match="choose another --out"):
        two.write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_states_and_the_longest_first(two: ComparisonSpec, tmp_path: Path) -> None:
    random_4, random_9, gdas_0, gdas_1, gdas_2 = two.jobs(tmp_path)
    for job in (random_4, gdas_0, gdas_1):
        RunFolder.create(job.folder, settings=job.spec.to_settings())
    assert [t.name for t in longest_first(two, two.jobs(tmp_path))][:3] == ["gdas-0", "gdas-1", "gdas-2"]
    random_4.run_folder.write_result({"run": {"seconds": 90.0}})
    gdas_0.run_folder.write_result({"run": {"seconds": 10.0}})
    states = [job.state for job in two.jobs(tmp_path)]
    assert states == ["finished", "not begun", "finished", "interrupted", "not begun"]
    assert longest_first(two, two.jobs(tmp_path)) == [random_9, gdas_1, gdas_2]


def test_the_folder_is_the_same_every_time(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(TWO)
    assert ComparisonSpec.open(tmp_path / "mine.toml", Path("runs"))[1] == Path("runs/compare-mine")
    assert ComparisonSpec.open(tmp_path / "mine.toml", Path("runs"), out=tmp_path / "x")[1] == tmp_path / "x"
    assert ComparisonSpec.open(tomllib.loads(TWO), Path("runs"))[1] == Path("runs/compare-comparison")


@pytest.mark.parametrize(("threads", "jobs"), [(1, 8), (3, 2), (0, 1), (16, 1)])
def test_searches_in_parallel_share_the_cores(threads: int, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "usable_cores", lambda: 8)
    made = resolved(TWO, overrides={"machine": {"torch_threads": threads, "device": "cpu"}})
    assert made.jobs_at_once == jobs
