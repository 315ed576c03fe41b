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
