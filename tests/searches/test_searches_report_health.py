"""What a report says of the health of a search."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from archloom.searches.records import EarlyStop, EpochRecord, Health
from archloom.searches.report_health import health_curves, health_sentence
from search_runs import make_epoch


def record(epoch: int, **health: Any) -> EpochRecord:
    return make_epoch(epoch, health=Health(skip=0.1 * epoch, none=0.0, pool=0.0, **health))


def test_curves_show_what_was_measured() -> None:
    history = [record(epoch, eigenvalue=0.1 + epoch, gap=0.02, entropy=1.0, entropy_least=0.5) for epoch in range(4)]
    drawn = health_curves(history)
    assert drawn.startswith("<svg")
    for words in ("operations without weights", "largest eigenvalue", "accuracy lost by discretizing", "entropy"):
        assert words in drawn
    assert "score lost by discretizing" in health_curves([replace(one, metric="perplexity") for one in history])
    assert "eigenvalue" not in health_curves([record(epoch) for epoch in range(4)])
    assert health_curves([make_epoch(0), make_epoch(1)]) == ""


def test_sentence_repeats_the_first_warning_of_the_monitor() -> None:
    assert health_sentence([record(0)], None) == "The monitor found nothing to warn about. "
    warned = [record(0), record(1, alarm="too many skips"), record(2, alarm="more of them")]
    assert health_sentence(warned[:2], None) == "After epoch 2 the monitor warned: too many skips. "
    assert health_sentence(warned, None).endswith("It warned after 2 epochs in all. ")
    stop = EarlyStop("too many skips", after_epoch=3, as_of_epoch=2)
    sentence = "The monitor stopped the search after epoch 3: too many skips. The result is that of epoch 2."
    assert stop.sentence == sentence
    assert health_sentence(warned, stop) == sentence + " "
    assert "The result" not in replace(stop, as_of_epoch=3).sentence
