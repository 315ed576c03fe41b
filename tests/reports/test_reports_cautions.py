from __future__ import annotations

from archloom.reports.cautions import split_warnings
from archloom.searches.random_baseline import training_sentence


def test_warnings_leave_the_verdict_and_the_rest_stays() -> None:
    verdict = (
        "The network has learned nothing: its accuracy, 33.3 % of 15 images, is no better than 40.0 %. "
        "Warning: no operation of the cell learns: it only pools. "
        "In the table it has 88.51 % test accuracy. It is fine."
    )
    warnings, rest = split_warnings(verdict)
    assert warnings == [
        "The network has learned nothing: its accuracy, 33.3 % of 15 images, is no better than 40.0 %.",
        "Warning: no operation of the cell learns: it only pools.",
    ]
    assert rest == "In the table it has 88.51 % test accuracy. It is fine."


def test_a_search_that_hardly_ran_warns_first() -> None:
    hardly = "The shared weights were hardly trained: 59 steps, and a search needs at least 200."
    random = "The search did not decide: the largest probability is 0.20 of a uniform 0.20: this is a random choice."
    assert training_sentence(59) == hardly
    verdict = "No short training ended in time: the result is a reference (ResNet block), not a choice."
    assert split_warnings(f"{verdict} {hardly} {random}") == ([hardly, random], verdict)


def test_a_sentence_that_begins_with_a_number_is_no_part_of_a_warning() -> None:
    warning = "The network has learned nothing: its accuracy, 39.2 % of 120 images, is no better than 40.8 %."
    limit = "5.595M multiply-adds in the final network, at most 5.595M allowed."
    assert split_warnings(f"{warning} {limit}") == ([warning], limit)


def test_a_verdict_without_warnings_stays_as_it_is() -> None:
    assert split_warnings("It is better than 6 of 6. Rank 4 of 125.") == (
        [],
        "It is better than 6 of 6. Rank 4 of 125.",
    )
    assert split_warnings("") == ([], "")
