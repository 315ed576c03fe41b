"""Who takes part in a race, and what is proposed next."""

from __future__ import annotations

import random

from archloom.searches.race_proposals import (
    DERIVED,
    PROPOSAL,
    RANDOM,
    SAMPLE,
    Knowledge,
    Proposer,
    random_proposals,
)
from archloom.searches.records import FinalistRecord
from archloom.spaces import Nb201

SPACE = Nb201(nodes=3)
DERIVED_CELL = SPACE.parse("|nor_conv_1x1~0|+|none~0|nor_conv_1x1~1|")
REFERENCE = SPACE.references()["ResNet block"]


def knowledge(**changes) -> Knowledge:
    known = {
        "space": SPACE,
        "derived": DERIVED_CELL,
        "references": {"ResNet block": REFERENCE},
        "sample": lambda rng: SPACE.sample(rng),
        "log_probability": lambda one: 0.0,
    }
    return Knowledge(**{**known, **changes})


def entrants(know: Knowledge, *, samples: int = 2, uniform: int = 3, most: int = 20):
    return know.entrants(random.Random(0), samples=samples, uniform=uniform, most=most)


def record(architecture, loss: float) -> FinalistRecord:
    return FinalistRecord("", architecture, 10, loss, 0.5, 100, origin=RANDOM)


def convolutions(architecture) -> int:
    return sum("3x3" in option and "conv" in option for option in architecture.values())


def test_derived_references_random_and_samples_start_in_this_order() -> None:
    found = entrants(knowledge())
    assert [one.origin for one in found] == [DERIVED, "ResNet block", RANDOM, RANDOM, RANDOM, SAMPLE, SAMPLE]
    assert len({one.architecture for one in found}) == len(found)
    assert found[0].architecture == DERIVED_CELL


def test_samples_give_way_before_random_ones() -> None:
    assert [one.origin for one in entrants(knowledge(), most=5)] == [DERIVED, "ResNet block", RANDOM, RANDOM, RANDOM]


def test_a_derived_reference_takes_part_once_and_is_called_derived() -> None:
    found = entrants(knowledge(derived=REFERENCE))
    assert [one.origin for one in found if one.architecture == REFERENCE] == [DERIVED]


def test_without_a_search_there_is_nothing_derived() -> None:
    assert DERIVED not in [one.origin for one in entrants(knowledge(derived=None))]


def test_what_is_not_allowed_never_takes_part_and_dead_edges_are_gone() -> None:
    def allowed(one) -> bool:
        return convolutions(one) == 0

    know = knowledge(derived=None, references={}, allowed=allowed)
    assert all(allowed(one.architecture) for one in entrants(know))
    proposals = Proposer(know, size=0.0, seed=0)([record(one.architecture, 1.0) for one in entrants(know)])
    assert proposals
    assert all(allowed(one.architecture) for one in proposals)
    assert all(SPACE.prune(one.architecture) == one.architecture for one in entrants(knowledge(), uniform=15))


def test_proposals_are_new_near_the_best_and_repeatable() -> None:
    records = [record(one, 5.0 - convolutions(one)) for one in list(SPACE.enumerate())[::4]]
    propose = Proposer(knowledge(), size=0.0, seed=3)
    first, again = propose(records), propose(records)
    assert first == again
    assert all(one.origin == PROPOSAL for one in first)
    assert {one.architecture for one in first}.isdisjoint({one.architecture for one in records})
    mean = sum(map(convolutions, SPACE.enumerate())) / 125  # 0.6
    proposed = [one for seed in range(6) for one in Proposer(knowledge(), size=0.0, seed=seed)(records)]
    assert sum(convolutions(one.architecture) for one in proposed) / len(proposed) > 2 * mean


def test_the_search_guides_proposals_where_trainings_agree_with_it() -> None:
    """One edge was never trained with anything but none; the search says that a convolution is good there."""
    seen = [one for one in SPACE.enumerate() if one["0->2"] == "none" and one["0->1"] != "none"]
    records = [record(one, 5.0 - convolutions(one)) for one in seen]
    guided = knowledge(log_probability=lambda one: float(convolutions(one)))
    chosen = [one.architecture for seed in range(8) for one in Proposer(guided, size=0.0, seed=seed)(records)]
    assert sum(one["0->2"] == "nor_conv_3x3" for one in chosen) >= len(chosen) / 2


def test_isomorphic_cells_take_part_once() -> None:
    first, other = (SPACE.parse(text) for text in (
        "|skip_connect~0|+|nor_conv_3x3~0|nor_conv_3x3~1|", "|nor_conv_3x3~0|+|nor_conv_3x3~0|skip_connect~1|",
    ))  # fmt: skip
    assert SPACE.canonical(first) == SPACE.canonical(other)
    chosen = entrants(knowledge(derived=first, references={}), samples=40, uniform=40, most=60)
    forms = [SPACE.canonical(one.architecture) for one in chosen]
    assert len(set(forms)) == len(forms)
    records = [record(first, 1.0), record(DERIVED_CELL, 2.0)]
    proposed = [one for seed in range(30) for one in Proposer(knowledge(), size=0.0, seed=seed)(records)]
    assert other not in [one.architecture for one in proposed]


def test_size_counts_in_proposals_and_a_diverged_training_does_no_harm() -> None:
    diverged = FinalistRecord("", DERIVED_CELL, 10, None, 0.1, 100, origin=RANDOM)
    others = [record(one, 1.0) for one in list(SPACE.enumerate())[:10]]
    assert Proposer(knowledge(), size=0.2, seed=0)([diverged, *others])


def test_random_proposals_are_uniform_new_and_allowed() -> None:
    propose = random_proposals(knowledge(allowed=lambda one: convolutions(one) == 1), seed=0)
    found = propose([record(DERIVED_CELL, 1.0)])
    assert [one.origin for one in found] == [RANDOM, RANDOM]
    assert all(convolutions(one.architecture) == 1 for one in found)
    assert propose([record(DERIVED_CELL, 1.0)]) == found
