"""Evaluate comparisons of invented searches: values in the table, costs, limits, and matched cost."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from archloom.benchmarks.digits import DigitsTable
from archloom.comparisons.evaluation import check_limit, evaluate_comparison
from archloom.comparisons.report import explain_figures
from archloom.comparisons.results import ComparisonResult
from archloom.comparisons.spec import ComparisonSpec
from archloom.core.errors import SettingError
from archloom.execution.run_folder import RunFolder
from archloom.searches.jobs import SearchJob
from archloom.spaces import Architecture
from search_runs import RUN, make_entry, make_epoch, make_race, make_result, make_trial

TABLE = DigitsTable()
ENTRIES = """
seeds = "0-2"
[all.space]
name = "nb201_mini"
[all.data]
name = "digits"
[entry.random]
strategy.name = "random_search"
[entry.other]
strategy.name = "{other}"
"""


def comparison(top: str = "", *, other: str = "random_search", **overruling: Any) -> ComparisonSpec:
    against = "" if "against" in top else 'against = "random"\n'
    return ComparisonSpec.resolve(tomllib.loads(against + top + ENTRIES.format(other=other)), **overruling)


def test_of(row: int) -> float:
    return TABLE.query(TABLE.architecture(row), "digits")


test_of.__test__ = False  # type: ignore[attr-defined]


def pick(job: SearchJob, row: int) -> Architecture:
    """Return a row of the table or, in another space, some architecture."""
    space = job.spec.build_space()
    return TABLE.architecture(row) if space == TABLE.space else space.sample(Random(row))


def finish(job: SearchJob, rows: Sequence[int], scores: Sequence[float], **more: Sequence[Any]) -> None:
    """Make the job a finished black-box search that tried these rows of the table and got these scores."""
    history = tuple(
        make_trial(
            trial,
            score,
            seconds=2.0,
            architecture=pick(job, row),
            **{name: values[trial] for name, values in more.items()},
        )
        for trial, (row, score) in enumerate(zip(rows, scores, strict=True))
    )
    write(job, history, rows[max(range(len(rows)), key=scores.__getitem__)], seconds=2.0 * len(rows))


def finish_epochs(job: SearchJob, row: int, *, seconds: float, race: float | None = None) -> None:
    """Make the job a finished one-shot search."""
    architecture = pick(job, row)
    history = tuple(
        make_epoch(epoch, architecture=architecture, table_entry=make_entry(test_of(row) - 1 + epoch))
        for epoch in range(2)
    )
    write(job, history, row, seconds=seconds, shared_score=0.5, finalists_seconds=race)


def write(job: SearchJob, history: tuple[Any, ...], row: int, *, seconds: float, **more: Any) -> None:
    run = RunFolder.create(job.folder, settings=job.spec.to_settings())
    run.write_metrics([record.to_json() for record in history])
    facts = replace(RUN, seconds=seconds)
    space = job.spec.build_space()
    result = make_result(space, history, architecture=pick(job, row), text=f"row {row}", run=facts, **more)
    run.write_result(result.to_json())


def finish_race(job: SearchJob, row: int, *, alone: int) -> None:
    """Make the job a finished one-shot search whose race chose another row than the search alone."""
    history = (make_epoch(architecture=pick(job, alone)),)
    race = make_race(probability=0.5)
    write(job, history, row, seconds=1.0, derived=pick(job, alone), race=race, finalists_seconds=2.0)


def jobs_of(made: ComparisonSpec, folder: Path) -> tuple[list[SearchJob], list[SearchJob]]:
    jobs = made.jobs(folder)
    return [t for t in jobs if t.entry == "random"], [t for t in jobs if t.entry == "other"]


def found(made: ComparisonSpec, folder: Path, **failures: str) -> ComparisonResult:
    return evaluate_comparison(made, made.jobs(folder), failures)


def test_entries_hold_the_result_of_every_seed(tmp_path: Path) -> None:
    made = comparison()
    random, _ = jobs_of(made, tmp_path)
    finish(random[0], [3, 60], [1.0, 2.0])
    finish(random[1], [70, 60], [1.0, 2.0])
    result = found(made, tmp_path, **{"other-1": "it broke"})
    row, other = result.entries
    assert row.metric == "test accuracy in the digits table"
    assert row.values == [test_of(60), test_of(60)] == row.tests("digits")
    best = TABLE.best("digits")[1]
    assert [one.regret for one in row.results] == pytest.approx([best - test_of(60)] * 2)
    assert (row.cells, row.seeds, row.timing) == (1, 3, "looked up")
    assert [(one.trainings, one.seconds) for one in row.results] == [(2, 4.0), (2, 4.0)]
    assert (other.results, other.failures) == ((), {"other-1": "it broke"})
    assert result.missing == 4 and result.failures == {"other-1": "it broke"}
    assert result.datasets == ("digits",)
    assert result.verdicts["other"].sentence == "not compared with random: it has no result"


def test_pruned_trials_cost_less_and_never_win(tmp_path: Path) -> None:
    made = comparison()
    random, other = jobs_of(made, tmp_path)
    finish(other[0], [1, 2, 3], [1.0, 9.0, 2.0], trainings=[1.0, 1.25, 2.25], pruned=[False, True, False])
    finish(random[0], [10, 20, 12], [8.0, 9.0, 3.0], trainings=[1.0, 1.5, 2.5], pruned=[False, True, False])
    result = found(made, tmp_path)
    assert result.entries[1].results[0].trainings == pytest.approx(2.25)
    assert "the best of 2 trials in each seed of random" in result.verdicts["other"].sentence
    assert result.verdicts["other"].difference == pytest.approx(result.entries[1].values[0] - test_of(10))


def test_random_search_is_cut_to_the_same_number_of_trials(tmp_path: Path) -> None:
    """Three trials on one side: on the other side the best of its first three by score."""
    made = comparison()
    random, other = jobs_of(made, tmp_path)
    for job in random:
        finish(job, [10 + job.seed, 20, 30, 40], [5.0, 4.0, 3.0, 9.0])
    for job in other:
        finish(job, [50, 60, 70], [1.0, 2.0, float(job.seed)])  # seed 2: the first of equals
    verdict = found(made, tmp_path).verdicts["other"]
    theirs = [test_of(10), test_of(11), test_of(12)]
    assert verdict.difference == pytest.approx(test_of(60) - sum(theirs) / 3)
    mean = f"{sum(theirs) / 3:.2f}"
    assert verdict.sentence.endswith(f"; at matched cost: the best of 3 trials in each seed of random, mean {mean}")
    assert "ran no more trials" not in verdict.sentence


def test_note_says_when_random_search_has_too_few_trials(tmp_path: Path) -> None:
    made = comparison()
    random, other = jobs_of(made, tmp_path)
    finish(random[0], [10], [1.0])
    finish(other[0], [50, 60, 70], [1.0, 2.0, 3.0])
    said = found(made, tmp_path).verdicts["other"].sentence
    mean = f"{test_of(10):.2f}"
    assert (
        f"1 trial in each seed of random, mean {mean}; random ran no more trials, equal cost would be 3 trials" in said
    )


def one_shot(folder: Path, top: str, *, seconds: float = 23.0) -> ComparisonResult:
    made = comparison(top, other="gdas")
    random, other = jobs_of(made, folder)
    for job in random:
        finish(job, [10, 20, 30, 40], [1.0, 2.0, 3.0, 4.0])
    for job in other:
        finish_epochs(job, 60, seconds=seconds, race=2.0)
    return found(made, folder)


def test_a_one_shot_search_is_matched_by_seconds(tmp_path: Path) -> None:
    result = one_shot(tmp_path, "seconds_per_trial = 10\n")
    verdict = result.verdicts["other"]
    assert verdict.difference == pytest.approx(test_of(60) - test_of(20))  # 25 s buy two trials of 10
    assert "the best of 2 trials" in verdict.sentence
    random, other = result.entries
    assert [one.seconds for one in other.results] == [25.0] * 3  # the finalist race included
    assert [one.seconds for one in random.results] == [40.0] * 3
    assert (random.timing, other.timing) == ("by seconds_per_trial", "measured")
    assert other.results[0].curve == pytest.approx((test_of(60) - 1, test_of(60)))
    assert other.results[0].trainings == 0


def test_cheapest_search_is_matched_with_one_trial(tmp_path: Path) -> None:
    verdict = one_shot(tmp_path, "seconds_per_trial = 10\n", seconds=0.0).verdicts["other"]
    assert verdict.difference == pytest.approx(test_of(60) - test_of(10))
    assert "the best of 1 trial in" in verdict.sentence


@pytest.mark.parametrize(
    ("top", "reason"),
    [
        ("", "scores of random are looked up; set seconds_per_trial to the time of one training"),
        ('match = "seconds"\n', "scores of random are looked up; set seconds_per_trial to the time of one training"),
        ('match = "trials"\nseconds_per_trial = 10\n', "a one-shot search has no trials"),
    ],
)
def test_note_gives_the_reason_where_cost_cannot_be_matched(top: str, reason: str, tmp_path: Path) -> None:
    verdict = one_shot(tmp_path, top).verdicts["other"]
    assert f"cost is not matched: {reason}" in verdict.sentence
    assert verdict.difference == pytest.approx(test_of(60) - test_of(40))


def test_one_shot_search_cannot_be_cut_to_a_budget(tmp_path: Path) -> None:
    made = comparison('against = "other"\n', other="gdas")
    random, other = jobs_of(made, tmp_path)
    finish(random[0], [10], [1.0])
    finish_epochs(other[0], 60, seconds=1.0)
    said = found(made, tmp_path).verdicts["random"].sentence
    assert "cost is not matched: other is a one-shot search, which has no trials to cut" in said


def test_trained_trials_are_matched_by_their_measured_seconds(tmp_path: Path) -> None:
    made = comparison('match = "seconds"\n', overrides={"search": {"score": "training"}})
    random, other = jobs_of(made, tmp_path)
    finish(random[0], [10, 20, 30], [1.0, 2.0, 3.0])  # two seconds each
    finish(other[0], [50, 60], [1.0, 2.0])
    verdict = found(made, tmp_path).verdicts["other"]
    assert verdict.difference == pytest.approx(test_of(60) - test_of(20))


def test_different_metrics_are_not_compared(tmp_path: Path) -> None:
    """A space that no table knows: one entry is evaluated by its shared weights, the other by short trainings."""
    made = comparison(other="gdas", overrides={"space": {"nodes": 5}})
    random, other = jobs_of(made, tmp_path)
    finish(random[0], [10, 20], [71.0, 72.0])
    finish_epochs(other[0], 60, seconds=1.0)
    result = found(made, tmp_path)
    assert result.entries[0].metric == "best score, by training"
    assert result.entries[0].values == [72.0]
    assert result.entries[1].metric == "accuracy under the shared weights of its own search"
    assert result.entries[1].values == [50.0]
    assert result.verdicts["other"].sentence.startswith("not compared with random: accuracy under the shared weights")
    assert result.verdicts["other"].difference is None


def test_limit_excludes_results_and_trials_above_it(tmp_path: Path) -> None:
    """Row 0 is `none` everywhere, row 62 has convolutions and more parameters."""
    limit = parameters(0) + 1
    made = comparison(f"limit = {{parameters = {limit}}}\nseconds_per_trial = 1\n", other="gdas")
    assert parameters(62) > limit
    random, other = jobs_of(made, tmp_path)
    for job in random:
        finish(job, [62, 0, 62], [9.0, 1.0, 5.0])
    finish_epochs(other[0], 0, seconds=2.0)
    finish_epochs(other[1], 62, seconds=2.0)
    verdict = found(made, tmp_path).verdicts["other"]
    assert verdict.difference == pytest.approx(0.0)  # the first row against itself
    assert "1 seed against 3" in verdict.sentence
    assert "the best of 1 trial in each seed" in verdict.sentence
    assert "1 of other above the limit and excluded" in verdict.sentence


def parameters(row: int) -> int:
    from archloom.objectives import CostTable

    experiment = comparison().contenders["random"].spec
    facts = experiment.facts
    assert facts is not None
    costs = CostTable(
        experiment.build_space(), classes=facts.classes, image_shape=facts.image_shape, **experiment.network.settings
    )
    return costs.cost(TABLE.architecture(row)).parameters


def test_limit_on_an_unknown_cost_is_refused_before_anything_runs() -> None:
    with pytest.raises(SettingError, match=r"entry other: limit: .*latenc"):
        check_limit(comparison('limit = {latency = {device = "pixel3", ms = 5}}\n'))
    check_limit(comparison("limit = {flops = 1e6}\n"))


def test_damaged_result_does_not_count(tmp_path: Path) -> None:
    made = comparison()
    random, _ = jobs_of(made, tmp_path)
    finish(random[0], [3], [1.0])
    random[0].run_folder.architecture_path.write_text("{")
    assert found(made, tmp_path).entries[0].results == ()


def test_what_searches_derived_before_their_race_has_a_column_of_its_own(tmp_path: Path) -> None:
    made = comparison(other="gdas")
    random, other = jobs_of(made, tmp_path)
    finish(random[0], [3, 60], [1.0, 2.0])
    assert not found(made, tmp_path).has_races
    finish_race(other[0], 70, alone=9)
    finish_race(other[1], 71, alone=10)
    result = found(made, tmp_path)
    without, raced = result.entries
    assert raced.values == [test_of(70), test_of(71)]
    assert (without.alone, raced.alone) == ([], [test_of(9), test_of(10)])
    table = result.to_table()
    column = [row[table.columns.index("search alone")] for row in table.rows]
    mean = (test_of(9) + test_of(10)) / 2
    assert column[0] == "–" and column[1].startswith(f"{mean:.2f} ± ")
    assert result.summarize(raced)["alone_mean"] == pytest.approx(mean)
    assert any("search alone is what the search derived before its race" in line for line in explain_figures(result))
    again = ComparisonResult.from_json(result.to_json())
    assert again.entries[1].alone == raced.alone
