"""What a comparison found, from histories made by hand: values by the table, costs, limits, and matched cost."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from archloom.benchmarks.digits import DigitsTable
from archloom.comparisons.results import Outcome, check_limit, outcome_of
from archloom.comparisons.spec import ComparisonSpec
from archloom.core.errors import SettingError
from archloom.execution.run_folder import RunFolder
from archloom.searches.jobs import SearchJob

TABLE = DigitsTable()
ENTRIES = """
seeds = "0-2"
[all.space]
name = "nb201_mini"
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


def finish(job: SearchJob, rows: Sequence[int], scores: Sequence[float], **more: Any) -> None:
    """Make the job a finished search by trials: which rows of the table it tried, and what it was told."""
    run = RunFolder.create(job.folder, settings=job.spec.to_settings())
    records = [
        {"trial": n, "score": score, "seconds": 2.0, "architecture": dict(TABLE.architecture(row))}
        for n, (row, score) in enumerate(zip(rows, scores, strict=True))
    ]
    for name, values in more.items():
        records = [{**record, name: value} for record, value in zip(records, values, strict=True)]
    run.write_metrics(records)
    winner = rows[max(range(len(rows)), key=scores.__getitem__)]
    write_result(run, winner, seconds=2.0 * len(rows))


def finish_epochs(job: SearchJob, row: int, *, seconds: float, finals: float | None = None) -> None:
    """Make the job a finished one-shot search."""
    run = RunFolder.create(job.folder, settings=job.spec.to_settings())
    run.write_metrics([{"epoch": n, "standing": {"test": test_of(row) - 1 + n}} for n in range(2)])
    write_result(run, row, seconds=seconds, shared_accuracy=0.5, finalists_seconds=finals)


def write_result(run: RunFolder, row: int, *, seconds: float, **more: Any) -> None:
    architecture = dict(TABLE.architecture(row))
    run.write_result({"architecture": architecture, "text": f"row {row}", "run": {"seconds": seconds}, **more})


def jobs_of(made: ComparisonSpec, folder: Path) -> tuple[list[SearchJob], list[SearchJob]]:
    jobs = made.jobs(folder)
    return [t for t in jobs if t.entry == "random"], [t for t in jobs if t.entry == "other"]


def found(made: ComparisonSpec, folder: Path, **failures: str) -> Outcome:
    return outcome_of(made, made.jobs(folder), failures)


def test_rows_hold_what_every_seed_found(tmp_path: Path) -> None:
    made = comparison()
    random, _ = jobs_of(made, tmp_path)
    finish(random[0], [3, 60], [1.0, 2.0])
    finish(random[1], [70, 60], [1.0, 2.0])
    outcome = found(made, tmp_path, **{"other-1": "it broke"})
    row, other = outcome.rows
    assert row.metric == "test accuracy in the digits table"
    assert row.values == [test_of(60), test_of(60)] == row.tests("digits")
    best = TABLE.best("digits")[1]
    assert [result.regret for result in row.results] == pytest.approx([best - test_of(60)] * 2)
    assert (row.cells, row.seeds, row.timing) == (1, 3, "looked up")
    assert [(result.trainings, result.seconds) for result in row.results] == [(2, 4.0), (2, 4.0)]
    assert (other.results, other.failures) == ((), {"other-1": "it broke"})
    assert outcome.missing == 4 and outcome.failures == {"other-1": "it broke"}
    assert outcome.datasets == ("digits",)
    assert outcome.verdicts["other"].sentence == "not compared with random: there is no result of its own"


def test_trials_given_up_early_cost_less_and_never_win(tmp_path: Path) -> None:
    made = comparison()
    random, other = jobs_of(made, tmp_path)
    finish(other[0], [1, 2, 3], [1.0, 9.0, 2.0], trainings=[1.0, 1.25, 2.25], pruned=[False, True, False])
    finish(random[0], [10, 20, 12], [8.0, 9.0, 3.0], trainings=[1.0, 1.5, 2.5], pruned=[False, True, False])
    outcome = found(made, tmp_path)
    assert outcome.rows[1].results[0].trainings == pytest.approx(2.25)
    assert [trial.trainings for trial in outcome.rows[1].results[0].trials] == pytest.approx([1, 0.25, 1])
    assert "the best of 2 trials in each seed of random" in outcome.verdicts["other"].sentence
    assert outcome.verdicts["other"].difference == pytest.approx(outcome.rows[1].values[0] - test_of(10))


def test_random_search_is_cut_to_as_many_trials(tmp_path: Path) -> None:
    """Three trials on one side: on the other the best of three by its own score, whatever came later."""
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
    assert verdict.sentence.endswith(f"; at matched cost, the best of 3 trials in each seed of random, {mean}")
    assert "all it has" not in verdict.sentence


def test_more_than_random_search_has_is_told(tmp_path: Path) -> None:
    made = comparison()
    random, other = jobs_of(made, tmp_path)
    finish(random[0], [10], [1.0])
    finish(other[0], [50, 60, 70], [1.0, 2.0, 3.0])
    said = found(made, tmp_path).verdicts["other"].sentence
    mean = f"{test_of(10):.2f}"
    assert f"the best of 1 trial in each seed of random, {mean}, which is all it has: 3 trials would be the" in said


def one_shot(folder: Path, top: str, *, seconds: float = 23.0) -> Outcome:
    made = comparison(top, other="gdas")
    random, other = jobs_of(made, folder)
    for job in random:
        finish(job, [10, 20, 30, 40], [1.0, 2.0, 3.0, 4.0])
    for job in other:
        finish_epochs(job, 60, seconds=seconds, finals=2.0)
    return found(made, folder)


def test_a_one_shot_search_is_matched_by_seconds(tmp_path: Path) -> None:
    outcome = one_shot(tmp_path, "seconds_per_trial = 10\n")
    verdict = outcome.verdicts["other"]
    assert verdict.difference == pytest.approx(test_of(60) - test_of(20))  # 25 s buy two trials of 10
    assert "the best of 2 trials" in verdict.sentence
    random, other = outcome.rows
    assert [result.seconds for result in other.results] == [25.0] * 3  # finals included
    assert [result.seconds for result in random.results] == [40.0] * 3
    assert (random.timing, other.timing) == ("by seconds_per_trial", "measured")
    assert other.results[0].curve == pytest.approx((test_of(60) - 1, test_of(60)))
    assert other.results[0].trainings == 0


def test_the_cheapest_search_is_matched_with_one_trial(tmp_path: Path) -> None:
    verdict = one_shot(tmp_path, "seconds_per_trial = 10\n", seconds=0.0).verdicts["other"]
    assert verdict.difference == pytest.approx(test_of(60) - test_of(10))
    assert "the best of 1 trial in" in verdict.sentence


@pytest.mark.parametrize(
    ("top", "reason"),
    [
        ("", "scores of random are looked up; say what one training takes: seconds_per_trial"),
        ('match = "seconds"\n', "scores of random are looked up; say what one training takes: seconds_per_trial"),
        ('match = "trials"\nseconds_per_trial = 10\n', "a one-shot search has no trials"),
    ],
)
def test_what_cannot_be_matched_says_so(top: str, reason: str, tmp_path: Path) -> None:
    verdict = one_shot(tmp_path, top).verdicts["other"]
    assert f"cost is not matched: {reason}" in verdict.sentence
    assert verdict.difference == pytest.approx(test_of(60) - test_of(40))


def test_what_has_no_trials_cannot_be_cut_short(tmp_path: Path) -> None:
    made = comparison('against = "other"\n', other="gdas")
    random, other = jobs_of(made, tmp_path)
    finish(random[0], [10], [1.0])
    finish_epochs(other[0], 60, seconds=1.0)
    said = found(made, tmp_path).verdicts["random"].sentence
    assert "cost is not matched: other is no search by trials that could be cut short" in said


def test_trials_that_are_trained_are_matched_by_their_own_seconds(tmp_path: Path) -> None:
    made = comparison('match = "seconds"\n', assigned={"search": {"score": "training"}})
    random, other = jobs_of(made, tmp_path)
    finish(random[0], [10, 20, 30], [1.0, 2.0, 3.0])  # two seconds each
    finish(other[0], [50, 60], [1.0, 2.0])
    verdict = found(made, tmp_path).verdicts["other"]
    assert verdict.difference == pytest.approx(test_of(60) - test_of(20))


def test_different_metrics_are_not_compared(tmp_path: Path) -> None:
    """A space that no table knows: one entry is judged by its shared weights, the other by short trainings."""
    made = comparison(other="gdas", assigned={"space": {"nodes": 5}})
    random, other = jobs_of(made, tmp_path)
    finish(random[0], [10, 20], [71.0, 72.0])
    finish_epochs(other[0], 60, seconds=1.0)
    outcome = found(made, tmp_path)
    assert outcome.rows[0].metric == "best score, by training"
    assert outcome.rows[0].values == [72.0]
    assert outcome.rows[1].metric == "accuracy under the shared weights of its own search"
    assert outcome.rows[1].values == [50.0]
    assert outcome.verdicts["other"].sentence.startswith("not compared with random: accuracy under the shared weights")
    assert outcome.verdicts["other"].difference is None


def test_a_limit_leaves_out_results_and_trials_above_it(tmp_path: Path) -> None:
    """Rows are told apart by their parameters: 0 is `none` everywhere, 62 has convolutions."""
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
    assert "1 of other above the limit and left out" in verdict.sentence


def parameters(row: int) -> int:
    from archloom.objectives import CostTable

    experiment = comparison().contenders["random"].experiment
    facts = experiment.facts
    assert facts is not None
    costs = CostTable(
        experiment.build_space(), classes=facts.classes, image_shape=facts.image_shape, **experiment.settings["network"]
    )
    return costs.cost(TABLE.architecture(row)).parameters


def test_a_limit_that_cannot_be_told_is_refused_before_anything_runs() -> None:
    with pytest.raises(SettingError, match=r"entry other: limit: .*latenc"):
        check_limit(comparison('limit = {latency = {device = "pixel3", ms = 5}}\n'))
    check_limit(comparison("limit = {flops = 1e6}\n"))


def test_a_damaged_result_is_not_there(tmp_path: Path) -> None:
    made = comparison()
    random, _ = jobs_of(made, tmp_path)
    finish(random[0], [3], [1.0])
    random[0].run_folder.architecture_path.write_text("{")
    assert found(made, tmp_path).rows[0].results == ()
