"""`archloom posterior`: one chain or several, as a table and as JSON; and its few lines at the end of a search."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from archloom.cli.posterior import summarize
from archloom.execution.run_folder import RunFolder
from archloom.policies import Chain
from archloom.policies.posterior import ArchitectureFrequency, DecisionPosterior, Mixing, Posterior
from archloom.searches.spec import SearchSpec
from archloom.spaces import Architecture

Archloom = Callable[..., Any]
MIXED = Mixing(1, 1200, effective_draws=100.0, effective_draws_median=100.0, r_hat=1.01, r_hat_median=1.0)
OPTIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")


def write_run(path: Path, *, seed: int = 0, best: tuple[int, ...] = (3, 3, 3, 1), strategy: str = "gibbs") -> Path:
    """A run whose draws all have the first two edges of nb201_mini at a 1x1 convolution, and the last at `best`."""
    burn_in = {"posterior": {"burn_in": 0.5}} if strategy == "gibbs" else {}
    settings = {"seed": seed, "space": {"name": "nb201_mini"}, "strategy": {"name": strategy, **burn_in}}
    run = RunFolder.create(path, settings=SearchSpec.resolve(settings).to_settings())
    chain = Chain(15)
    for option in (2,) * len(best) + best:  # the first half is left out as burn-in
        values = torch.zeros(15)
        values[[2, 7, 10 + option]] = 1.0
        chain.append(values)
    run.checkpoints.save({"strategy": {"chain": chain.state_dict()}}, step=1)
    return path


def made_up(decisions: int = 1, *, others: int = 0, **changes: Any) -> Posterior:
    options = ["the_best_one", *(f"another_option_{number}" for number in range(others))]
    row = DecisionPosterior({option: 1 / len(options) for option in options}, tuple(options), entropy=0.0)
    found = Posterior(
        draws=1200,
        different_architectures=3,
        decisions={f"normal/{number}->{number + 1}": row for number in range(decisions)},
        architectures=(ArchitectureFrequency("|a|+|b|", Architecture({}), 0.125),),
        mixing=MIXED,
    )
    return replace(found, **changes)


def test_one_run_is_printed_in_full(archloom: Archloom, tmp_path: Path) -> None:
    finished = archloom("posterior", write_run(tmp_path / "run"))
    assert (finished.code, finished.err) == (0, "")
    lines = finished.out.splitlines()
    assert [" ".join(line.split()) for line in lines[:4]] == [
        "decision leading option others that led in some draws",
        "0->1 nor_conv_1x1",
        "0->2 nor_conv_1x1",
        "1->2 nor_conv_3x3 skip_connect",
    ]  # four draws show no convergence, so no probabilities are printed
    assert "       |nor_conv_1x1~0|+|nor_conv_1x1~0|nor_conv_3x3~1|" in lines
    assert "75 %" not in finished.out
    assert "4 draws of the logits; the 4 before are left out as burn-in." in lines
    assert all(len(line) <= 80 for line in lines)


def test_draws_of_parallel_chains_are_taken_together(archloom: Archloom, tmp_path: Path) -> None:
    runs = write_run(tmp_path / "a"), write_run(tmp_path / "b", seed=1, best=(4, 4, 4, 4))
    finished = archloom("posterior", *runs)
    assert finished.code == 0
    assert "4 draws" not in finished.out
    assert "8 draws of the logits from 2 chains; the 8 before are left out" in finished.out
    assert "avg_pool_3x3" in finished.out


def test_json_holds_the_same(archloom: Archloom, tmp_path: Path) -> None:
    finished = archloom("posterior", write_run(tmp_path / "run"), "--json")
    found = json.loads(finished.out)
    assert found["runs"] == [str(tmp_path / "run")]
    assert found["decisions"]["1->2"]["best"] == dict(zip(OPTIONS, (0.0, 0.25, 0.0, 0.75, 0.0), strict=True))
    assert found["architectures"][0]["frequency"] == 0.75


def test_bad_input_is_a_line(archloom: Archloom, tmp_path: Path) -> None:
    def error(*runs: Path) -> str:
        finished = archloom("posterior", *runs)
        assert (finished.code, finished.out, len(finished.lines)) == (2, "", 1)
        return str(finished.lines[0])

    first = write_run(tmp_path / "a")
    other = write_run(tmp_path / "other", strategy="gdas")
    assert error(Path("nothing")).startswith("error: no run at nothing")
    assert error(other) == f"error: {other} has no posterior: its strategy, gdas, draws nothing"
    assert error(first, other).startswith(f"error: {other} is no parallel chain of {first}: strategy.name is 'gdas'")
    assert error(first, first).startswith(f"error: {first} has seed 0 like {first}")
    assert archloom("posterior").code == 2


def test_help_teaches(archloom: Archloom) -> None:
    text = archloom("posterior", "--help").out
    assert "credible set" in text
    assert "archloom posterior runs/a runs/b" in text


# --- the end of a search


def test_a_summary_is_short_and_fits_into_80_columns() -> None:
    lines = list(summarize(made_up(28, others=7), result=""))
    assert len(lines) <= 11
    assert all(len(line) <= 80 for line in lines)
    assert lines[0] == "Posterior (1,200 draws):"
    assert lines[1] == "  normal/0->1  the_best_one   12 %  or another_option_0 and 6 more"
    assert lines[9] == "  ... and 20 more in the report"
    assert lines[10] == "most probable architecture: |a|+|b| (12 % of 1,200 draws)"


def test_a_summary_names_options_that_cannot_win() -> None:
    lines = list(summarize(made_up(excluded=("none",)), result=""))
    assert "Shares leave out none, which cannot win here (strategy.keep_none)." in lines


def test_a_summary_of_what_has_not_converged_has_no_probabilities() -> None:
    found = made_up(28, others=7, mixing=replace(MIXED, effective_draws=2.0, r_hat=3.0))
    assert list(summarize(found, result="", run="runs/a")) == [
        "Posterior: not converged (R-hat 3.00, 2 effective draws).",
        "for probabilities of options: archloom posterior runs/a --sample",
    ]


def test_sampling_takes_one_run(archloom: Archloom, tmp_path: Path) -> None:
    runs = write_run(tmp_path / "a"), write_run(tmp_path / "b", seed=1)
    finished = archloom("posterior", *runs, "--sample")
    assert (finished.code, finished.out) == (2, "")
    assert finished.lines == ["error: --sample takes one run, got 2; name one of them"]


def test_a_summary_names_all_of_a_credible_set_that_fits() -> None:
    assert list(summarize(made_up(others=1), result=""))[1].endswith("50 %  or another_option_0")
    assert list(summarize(made_up(), result=""))[1].endswith("100 %")
    long = [("x" * 70, 0.5), ("y" * 70, 0.5)]
    row = DecisionPosterior(dict(long), tuple(name for name, _ in long), entropy=0.0)
    assert list(summarize(replace(made_up(), decisions={"e": row}), result=""))[1].endswith("or 1 more")


@pytest.mark.parametrize(
    ("text", "shown"),
    [("|a|+|b|", "the result"), ("long" * 50, "another one, in the report"), ("short", "short")],
)
def test_a_summary_names_the_most_probable_architecture(text: str, shown: str) -> None:
    found = made_up(architectures=(ArchitectureFrequency(text, Architecture({}), 0.001),))
    assert list(summarize(found, result="|a|+|b|"))[-1] == f"most probable architecture: {shown} (<1 % of 1,200 draws)"


@pytest.mark.parametrize(
    ("changes", "heading"),
    [
        ({}, "Posterior (1,200 draws):"),
        ({"mixing": None}, "Posterior: not converged, as far as is known (R-hat was not measured)."),
        ({"sampled": False}, "Posterior (1,200 positions of a path without noise: no probabilities):"),
    ],
)
def test_a_summary_says_how_far_to_trust_it(changes: dict[str, Any], heading: str) -> None:
    assert next(iter(summarize(made_up(**changes), result=""))) == heading
