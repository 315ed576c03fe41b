"""A plan follows from the images, the space and the time, and never overrides what the user wrote."""

from __future__ import annotations

import pytest
import torch

from archloom.core.durations import format_duration, parse_duration
from archloom.core.settings import flatten, merge
from archloom.data.arrays import from_tensors
from archloom.searches import plan
from archloom.searches.budget import CLOCKS, Budget
from archloom.searches.plan import (
    FEWEST_CONTESTANTS,
    FEWEST_STEPS,
    MOST_CONTESTANTS,
    MOST_STEPS,
    WANTED_STEPS,
    complete_search,
)
from archloom.searches.race_settings import RaceSettings
from archloom.searches.run import search
from archloom.searches.spec import SearchSpec


def make_images(count: int = 120, side: int = 8):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (count, 1, side, side), dtype=torch.uint8, generator=generator)
    return from_tensors(images, torch.arange(count) % 3)


def spec_of(**sections) -> SearchSpec:
    base = {"data": {"name": "given"}, "space": {"name": "nb201_mini"}, "machine": {"device": "cpu"}}
    return SearchSpec.resolve(merge(base, sections))


@pytest.fixture
def steady(monkeypatch):
    """A machine whose steps all take a hundredth of a second of its own clock."""
    now = [0.0]

    def tick() -> float:
        now[0] += 0.01
        return now[0]

    monkeypatch.setitem(CLOCKS, "wall", tick)
    return now


def test_epochs_without_a_budget_are_taken_as_they_are() -> None:
    planned = complete_search(spec_of(search={"epochs": 3}), make_images())
    assert planned.budget is None
    assert planned.spec.search.epochs == 3
    assert not planned.spec.race.is_on


def test_few_pixels_get_the_smallest_network_whatever_the_data_are_called() -> None:
    small = complete_search(spec_of(search={"epochs": 3}), make_images()).spec
    assert (small.network.settings["channels"], small.space.settings["cells_per_stage"]) == (8, 1)
    large = complete_search(spec_of(search={"epochs": 3}), make_images(300, 64)).spec
    assert large.network.settings["channels"] == 16
    given = complete_search(spec_of(search={"epochs": 3}, network={"channels": 5}), make_images()).spec
    assert given.network.settings["channels"] == 5


def test_a_preset_is_as_published_unless_a_budget_is_given() -> None:
    published = complete_search(spec_of(strategy={"name": "gdas", "preset": "paper"}), make_images()).spec
    assert (published.search.epochs, published.network.settings["channels"]) == (240, 16)


def test_a_budget_plans_every_phase_and_says_so(steady) -> None:
    lines: list[str] = []
    planned = complete_search(spec_of(search={"budget": "60s"}), make_images(), lines.append)
    assert planned.budget is not None and planned.budget.seconds == 60.0
    assert planned.spec.race.is_on
    assert [line.partition(":")[0].partition(",")[0] for line in lines] == [
        "measuring how fast this machine is", "supernet", "finalist race",
    ]  # fmt: skip
    assert planned.spec.search.budget == "60s"


def test_what_the_user_wrote_is_not_planned(steady) -> None:
    given = {"search": {"budget": "60s", "epochs": 2}, "race": {"steps": 7}, "network": {"channels": 3}}
    spec = complete_search(spec_of(**given), make_images()).spec
    assert (spec.search.epochs, spec.race.steps, spec.network.settings["channels"]) == (2, 7, 3)


def test_contestants_have_full_depth_or_the_stated_one(steady) -> None:
    deep = complete_search(spec_of(space={"name": "nb201"}, search={"budget": "60m"}), make_images()).spec
    assert deep.race.space == {"cells_per_stage": 5}
    stated = complete_search(spec_of(search={"budget": "60m"}), make_images()).spec  # nb201_mini states one cell
    assert stated.race.space == {"cells_per_stage": 1}


def test_a_race_can_be_bounded_by_the_search(steady) -> None:
    """On few images a supernet is trained soon, and a race takes what the budget leaves: many times as long."""

    def costs(**race: float) -> tuple[int, int]:
        given = spec_of(space={"name": "nb201"}, search={"budget": "20m"}, race=race)
        spec = complete_search(given, make_images()).spec
        return spec.race.units(spec.race.contestants or 0) * spec.race.steps, spec.race.contestants or 0

    (free, most), (bounded, few), (twice, _) = (
        costs(),
        costs(most_time=400.0),
        costs(most_time=800.0),
    )  # a supernet of a dozen steps
    assert bounded < 0.5 * free and few < most
    assert 1.5 * bounded < twice < 2.5 * bounded


def test_a_plan_is_not_planned_again(steady) -> None:
    first = complete_search(spec_of(search={"budget": "60s"}), make_images())
    written = flatten(first.spec.to_settings())
    again = complete_search(SearchSpec.resolve(first.spec.to_settings()), make_images())
    assert flatten(again.spec.to_settings()) == written
    assert again.budget is not None  # its time still counts


def test_no_epochs_race_without_a_supernet(steady) -> None:
    spec = complete_search(spec_of(search={"budget": "60s", "epochs": 0}), make_images()).spec
    assert spec.search.epochs == 0
    assert spec.race.is_on


@pytest.mark.parametrize(
    "sections",
    [
        {"search": {"trials": 3}},
        {"search": {"score_epochs": 2}},
        {"search": {"score": "training", "budget": "60s"}},
        {"data": {"name": "strokes"}, "search": {"budget": "60s"}},  # a table has its scores
    ],
)
def test_a_black_box_whose_length_is_given_or_needs_no_training_has_no_plan(sections, monkeypatch) -> None:
    monkeypatch.setattr(SearchSpec, "load_data", lambda spec: pytest.fail("nothing needs the images"))
    spec = spec_of(strategy={"name": "random_search"}, **sections)
    planned = complete_search(spec, None)
    assert planned.spec is spec
    assert (planned.budget is None) == ("budget" not in sections["search"])  # its time still counts


def test_the_trials_of_a_black_box_are_planned_as_contestants_are(steady) -> None:
    lines: list[str] = []
    given = {"strategy": {"name": "regularized_evolution"}, "search": {"budget": "60s"}}
    planned = complete_search(spec_of(**given), make_images(), lines.append)
    spec = planned.spec
    assert spec.search.score == "short" and FEWEST_STEPS <= spec.race.steps <= WANTED_STEPS
    assert FEWEST_CONTESTANTS <= spec.search.trials <= 125
    assert [line.partition(":")[0].partition(",")[0] for line in lines] == [
        "measuring how fast this machine is", "trials",
    ]  # fmt: skip
    again = complete_search(SearchSpec.resolve(spec.to_settings()), make_images())
    assert flatten(again.spec.to_settings()) == flatten(spec.to_settings())
    assert planned.budget is not None and again.budget is not None
    few = complete_search(spec_of(**merge(given, {"search": {"trials": 2}})), make_images()).spec
    assert few.search.trials == 2 and few.search.score == "short"
    default = complete_search(spec_of(strategy={"name": "random_search"}), make_images()).spec
    assert default.search.budget == "1m" and default.search.score == "short"


def test_trials_that_may_be_stopped_early_run_one_at_a_time(steady) -> None:
    spec = complete_search(spec_of(strategy={"name": "bohb"}, search={"budget": "60m"}), make_images()).spec
    assert spec.search.trials_at_once == 1


@pytest.mark.parametrize("strategy", ["regularized_evolution", "bohb"])
def test_a_black_box_with_a_budget_runs_to_its_end(strategy, tmp_path) -> None:
    settings = {"machine": {"device": "cpu", "torch_threads": 1, "worker_processes": 1}, "race": {"steps": 3}}
    settings["search"] = {"trials": 4, "trials_at_once": 1}
    own = make_images()
    result = search("nb201_mini", strategy, own, budget="60s", settings=settings, out=tmp_path / "run", progress=False)
    assert len(result.history) == 4
    assert all(0 <= record.score <= 100 for record in result.history)


@pytest.mark.parametrize("steps_in_all", [10, 3_000, 10_000, 20_000, 30_000, 10**6])
def test_a_race_uses_its_steps_and_no_more(steps_in_all: int) -> None:
    race = RaceSettings()
    contestants, steps = plan._divide(race, steps_in_all)
    assert FEWEST_CONTESTANTS <= contestants <= MOST_CONTESTANTS
    used = race.units(contestants) * steps
    least = race.units(FEWEST_CONTESTANTS) * plan.FEWEST_STEPS
    most = race.units(MOST_CONTESTANTS) * MOST_STEPS
    assert used <= max(steps_in_all, least)
    assert used >= 0.8 * min(steps_in_all, most) or used <= least


def test_more_time_trains_more_contestants_for_longer() -> None:
    divided = [plan._divide(RaceSettings(), count) for count in (4_000, 8_000, 16_000, 32_000)]
    assert divided == sorted(divided)
    assert divided[0] < divided[-1]


def test_a_search_within_a_budget_ends_with_a_race_and_repeats_from_its_file(tmp_path) -> None:
    settings = {
        "machine": {"device": "cpu", "torch_threads": 1, "worker_processes": 1},
        "race": {"steps": 2, "batch_size": 8, "contestants": 5, "random": 2, "samples": 1},
        "search": {"epochs": 1, "random_baseline_samples": 2},
    }
    lines: list[object] = []
    first = search(
        "nb201_mini", "gibbs", make_images(), budget="10m", settings=settings, out=tmp_path / "a",
        listeners=[lines.append],
    )  # fmt: skip
    assert first.race is not None
    assert first.race.contestants == 5
    again = search("nb201_mini", "gibbs", make_images(), budget="10m", settings=settings, out=tmp_path / "b")
    assert (again.text, again.verdict, again.race) == (first.text, first.verdict, first.race)


@pytest.mark.parametrize(("text", "seconds"), [("45s", 45.0), ("1h30m", 5400.0), ("10m", 600.0)])
def test_durations_survive_writing(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert format_duration(seconds) == text


def test_a_race_is_planned_with_the_mean_of_random_contestants_and_a_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([1.0, 2.0, 3.0, 2.0, 1.0, 3.0])
    planner = plan._Planner(spec_of(search={"budget": "60s"}), make_images(), Budget(60.0), lambda line: None)
    monkeypatch.setattr(planner, "_time", lambda step, **options: next(seconds))
    assert planner._time_training(spec_of(search={"epochs": 1})) == pytest.approx(2.0 * plan.PROPOSAL_COST)


def test_fewer_contestants_are_timed_where_each_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    budget = Budget(60.0, lambda: now[0])
    planner = plan._Planner(spec_of(search={"budget": "60s"}), make_images(), budget, lambda line: None)

    def take_long(step, **options) -> float:
        now[0] += 3.0  # of 3.6 seconds that all timings of a race may take
        return 1.0 + now[0]

    monkeypatch.setattr(planner, "_time", take_long)
    assert planner._time_training(spec_of(search={"epochs": 1})) == pytest.approx(5.5 * plan.PROPOSAL_COST)
    assert now[0] == 6.0
