"""`archloom check gradients`: a table of cosines and sizes, and one line for what cannot be checked."""

from __future__ import annotations

import pytest


def test_one_strategy_gets_a_row_with_what_it_is(archloom) -> None:
    finished = archloom("check", "gradients", "--strategy", "darts", "--space", "nb201_mini")
    assert finished.code == 0
    assert "darts" in finished.out
    assert "the direct part alone" in " ".join(finished.out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--strategy", "rsps"], "strategy 'rsps' has no gradient by logits to check"),
        (["--strategy", "drats"], "unknown strategy 'drats'"),
        (["--space", "nb20"], "unknown space 'nb20'"),
        (["--strategy", "darts", "--set", "search.epochs=3"], "--set takes settings of the strategy only"),
        (["--strategy", "darts", "--set", "strategy.oder=second"], "did you mean 'order'"),
    ],
)
def test_what_cannot_be_checked_is_one_line(archloom, arguments, message) -> None:
    finished = archloom("check", "gradients", *arguments)
    assert finished.code == 2
    assert message in finished.err
    assert len(finished.lines) == 1


def test_a_plugin_gets_a_line_per_rule_and_its_count(archloom) -> None:
    finished = archloom("check", "plugin", "archloom.benchmarks.digits:DigitsTable")
    assert finished.code == 0, finished.err
    assert "rules for a table" in finished.out and "2 of 2 rules kept" in finished.out


def test_a_broken_rule_is_said_with_exit_code_1(archloom, monkeypatch, tmp_path) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "unsure.py").write_text(
        "import torch\nimport archloom\n\n\ndef unsure(directory) -> archloom.ImageData:\n"
        "    return archloom.from_tensors(torch.rand(8, 3, 4, 4), torch.arange(8) % 2)\n"
    )
    finished = archloom("check", "plugin", "unsure:unsure")
    assert finished.code == 1
    assert "broken: two calls must give the same images and labels; seed what is random" in finished.out.splitlines()
    assert "1 of 2 rules kept" in finished.out


def test_what_is_no_plugin_is_one_line(archloom) -> None:
    finished = archloom("check", "plugin", "no_such_module:Thing")
    assert finished.code == 2
    assert finished.lines == ["error: space 'no_such_module:Thing': no module named 'no_such_module' can be imported"]


def test_a_name_that_is_no_plugin_says_how_plugins_are_named(archloom) -> None:
    finished = archloom("check", "plugin", "chain")
    assert finished.code == 2
    assert finished.lines == [
        "error: a plug-in must be named module:Class (or module:function for a data set), got 'chain'"
    ]
