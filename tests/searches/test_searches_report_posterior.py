"""Draws in words and rows."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

import pytest

from archloom.policies import chain
from archloom.policies.posterior import ArchitectureFrequency, DecisionPosterior, Mixing, Posterior
from archloom.searches import report_posterior as module
from archloom.searches.report_posterior import (
    architecture_table,
    decision_table,
    describe_posterior,
    has_mixed,
    not_converged,
    round_share,
    share_text,
)
from archloom.spaces import Architecture

MIXED = Mixing(chains=1, draws=100, effective_draws=80.0, effective_draws_median=120.0, r_hat=1.02, r_hat_median=1.0)


def posterior(**changes: Any) -> Posterior:
    found = Posterior(
        draws=100,
        burn_in=50,
        different_architectures=7,
        decisions={
            "0->1": DecisionPosterior({"none": 0.0, "skip": 0.97, "conv": 0.03}, ("skip",), 0.1),
            "0->2": DecisionPosterior({"none": 0.0, "skip": 0.4, "conv": 0.6}, ("conv", "skip"), 0.7),
        },
        architectures=(
            ArchitectureFrequency("a|b", Architecture({}), 0.5),
            ArchitectureFrequency("c|d", Architecture({}), 0.125),
        ),
        mixing=MIXED,
    )
    return replace(found, **changes)


def describe(**changes: Any) -> str:
    return " ".join(describe_posterior(posterior(**changes)))


def test_sentences_name_the_draws_and_the_settled_decisions() -> None:
    text = describe()
    assert "100 draws of the logits; the 50 before are left out as burn-in." in text
    assert "single option in their 95 % credible set: 1 of 2." in text
    assert "Different architectures among all draws: 7." in text


def test_options_that_cannot_win_are_named() -> None:
    assert "cannot win" not in describe()
    assert "Shares leave out none, which cannot win here (strategy.keep_none)." in describe(excluded=("none",))


def test_the_level_is_the_one_that_credible_sets_have() -> None:
    assert f"{100 * chain.CREDIBLE:.0f} %" == module.CREDIBLE


@pytest.mark.parametrize(
    ("changes", "trusted"),
    [({}, True), ({"r_hat": 1.06}, False), ({"effective_draws": 49.0}, False)],
)
def test_chain_that_has_not_mixed_has_a_warning(changes: dict[str, Any], trusted: bool) -> None:
    mixing = replace(MIXED, **changes)
    assert has_mixed(posterior(mixing=mixing)) is trusted
    assert has_mixed(posterior(mixing=None)) is None
    text = describe(mixing=mixing)
    assert ("The chain has not converged: their shares are no probabilities and are left out." in text) is not trusted
    rows = decision_table(posterior(mixing=mixing)).rows
    assert any("%" in cell for row in rows for cell in row) is trusted
    assert share_text(posterior(mixing=mixing), 0.5) == ("50 %" if trusted else "")
    assert ("count as 80 independent draws" in text and "is 1.02 at worst" in text) is (trusted is True)


def test_several_chains_are_compared_with_each_other() -> None:
    text = describe(runs=("a", "b"), mixing=replace(MIXED, chains=2, r_hat=3.0))
    assert "100 draws of the logits from 2 chains" in text
    assert "1 where the chains agree, is 3.00" in text
    assert "The chains have not converged" in text
    assert "1 where the two halves of the chain agree" in describe()


def test_unknown_mixing_names_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "Install archloom[chains] to measure effective sample size" in describe(mixing=None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert "was not measured" in describe(mixing=None)
    assert "archloom[chains]" not in describe(mixing=None)


def test_what_has_not_converged_says_by_how_much() -> None:
    mixing = replace(MIXED, r_hat=1.54, effective_draws=12.0)
    assert not_converged(posterior(mixing=mixing)) == "not converged (R-hat 1.54, 12 effective draws)"
    assert not_converged(posterior(mixing=None)).startswith("not converged, as far as is known")
    text = describe(given_weights=True)
    assert "100 draws of the logits given the shared weights, which are frozen;" in text


def test_a_path_without_noise_is_no_posterior() -> None:
    text = describe(sampled=False)
    assert "100 positions of the logits" in text
    assert "positions of a deterministic path, not probabilities" in text
    assert "R-hat" not in text


def test_row_has_the_best_option_and_its_alternatives() -> None:
    table = decision_table(posterior())
    assert table.columns == ("decision", "best option", "probability", "others in the 95 % set")
    assert table.rows == (("0->1", "skip", "97 %", ""), ("0->2", "conv", "60 %", "skip 40 %"))
    assert decision_table(posterior(sampled=False)).columns[2] == "share"


def test_architectures_have_frequencies_and_what_a_table_knows() -> None:
    assert architecture_table(posterior(), derived="c|d").rows == (("50.00 %", "a|b"), ("12.50 %", "c|d (the result)"))
    table = architecture_table(posterior(), tested={"a|b": 93.5})
    assert table.columns == ("frequency", "architecture", "test accuracy in the table")
    assert table.rows == (("50.00 %", "a|b", "93.50 %"), ("12.50 %", "c|d", "–"))


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0 %"), (0.001, "<1 %"), (0.62, "62 %"), (0.996, ">99 %"), (1.0, "100 %")],
)
def test_shares_are_not_rounded_to_never_or_always(share: float, text: str) -> None:
    assert round_share(share) == text
