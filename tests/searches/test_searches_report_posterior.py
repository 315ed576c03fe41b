"""Draws in words and rows."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from archloom.policies import chain
from archloom.searches import report_posterior as module
from archloom.searches.report_posterior import (
    architecture_table,
    belief_table,
    beliefs,
    mixed,
    rounded,
    sentences,
)

SURE = {"effective_draws": 80.0, "effective_draws_median": 120.0, "r_hat": 1.02, "r_hat_median": 1.0, "chains": 1}


def posterior(**changes: Any) -> dict[str, Any]:
    return {
        "draws": 100,
        "burn_in": 50,
        "sampled": True,
        "different_architectures": 7,
        "decisions": {
            "0->1": {"best": {"none": 0.0, "skip": 0.97, "conv": 0.03}, "credible_set": ["skip"]},
            "0->2": {"best": {"none": 0.0, "skip": 0.4, "conv": 0.6}, "credible_set": ["conv", "skip"]},
        },
        "architectures": [
            {"text": "a|b", "architecture": {}, "frequency": 0.5},
            {"text": "c|d", "architecture": {}, "frequency": 0.125},
        ],
        "mixing": SURE,
        **changes,
    }


def told(**changes: Any) -> str:
    return " ".join(sentences(posterior(**changes)))


def test_the_amount_and_what_is_settled_are_told() -> None:
    text = told()
    assert "100 draws of the logits; the 50 before are left out as burn-in." in text
    assert "single option in their 95 % credible set: 1 of 2." in text
    assert "Different architectures among all draws: 7." in text


def test_the_level_is_the_one_that_credible_sets_have() -> None:
    assert f"{100 * chain.CREDIBLE:.0f} %" == module.CREDIBLE


@pytest.mark.parametrize(
    ("changes", "trusted"),
    [({}, True), ({"r_hat": 1.11}, False), ({"effective_draws": 49.0}, False), ({"r_hat": None}, None)],
)
def test_a_chain_that_has_not_mixed_is_called_so(changes: dict[str, Any], trusted: bool | None) -> None:
    mixing = {**SURE, **changes}
    assert mixed(posterior(mixing=mixing)) is trusted
    text = told(mixing=mixing)
    assert ("The chain has not mixed: read these probabilities as a rough indication." in text) is (trusted is False)
    assert ("worth 80 draws" in text and "is 1.02 at worst" in text) is (trusted is True)


def test_several_chains_are_compared_with_each_other() -> None:
    text = told(runs=["a", "b"], mixing={**SURE, "chains": 2, "r_hat": 3.0})
    assert "100 draws of the logits from 2 chains" in text
    assert "1 where the chains agree, is 3.00" in text
    assert "The chains have not mixed" in text
    assert "1 where the two halves of the chain agree" in told()


def test_what_is_missing_to_know_the_mixing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "Install archloom[chains] to see effective sample size" in told(mixing=None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert "was not measured" in told(mixing=None)
    assert "archloom[chains]" not in told(mixing=None)


def test_a_path_without_noise_is_no_posterior() -> None:
    text = told(sampled=False)
    assert "100 positions of the logits" in text
    assert "positions of a deterministic path and no probabilities" in text
    assert "R-hat" not in text


def test_a_row_tells_the_best_option_and_who_else_may_be_it() -> None:
    table = belief_table(posterior())
    assert table.columns == ("decision", "best option", "probability", "others in the 95 % set")
    assert table.rows == (("0->1", "skip", "97 %", ""), ("0->2", "conv", "60 %", "skip 40 %"))
    assert belief_table(posterior(sampled=False)).columns[2] == "share"


def test_architectures_have_frequencies_and_what_a_table_knows() -> None:
    assert architecture_table(posterior(), derived="c|d").rows == (("50.00 %", "a|b"), ("12.50 %", "c|d (the result)"))
    table = architecture_table(posterior(), tested={"a|b": 93.5})
    assert table.columns == ("frequency", "architecture", "test accuracy in the table")
    assert table.rows == (("50.00 %", "a|b", "93.50 %"), ("12.50 %", "c|d", "–"))


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0 %"), (0.001, "<1 %"), (0.62, "62 %"), (0.996, ">99 %"), (1.0, "100 %"), (None, "–")],
)
def test_what_is_neither_never_nor_always_is_not_rounded_to_it(share: float | None, text: str) -> None:
    assert rounded(share) == text


@pytest.mark.parametrize("holes", [{}, {"decisions": None}, {"decisions": {"x": None, "y": {"best": {"a": None}}}}])
def test_holes_do_no_harm(holes: dict[str, Any]) -> None:
    assert beliefs(holes) == []
    assert sentences(holes)
    assert architecture_table({"architectures": [None, {}]}).rows == (("–", "None"),)
