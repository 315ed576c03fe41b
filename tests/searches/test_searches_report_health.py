"""What a report says of the health of a search."""

from __future__ import annotations

from typing import Any

from archloom.searches.report_health import health_curves, health_sentence, stop_sentence


def record(epoch: int, **health: Any) -> dict[str, Any]:
    return {"epoch": epoch, "health": {"skip": 0.1 * epoch, "none": 0.0, "pool": 0.0, **health}}


def test_curves_show_what_was_looked_at() -> None:
    history = [record(epoch, eigenvalue=0.1 + epoch, gap=0.02, entropy=1.0, entropy_least=0.5) for epoch in range(4)]
    drawn = health_curves(history)
    assert drawn.startswith("<svg")
    for words in ("operations without weights", "largest eigenvalue", "accuracy lost by deriving", "entropy"):
        assert words in drawn
    assert "eigenvalue" not in health_curves([record(epoch) for epoch in range(4)])
    assert health_curves([{"epoch": 0}, {"epoch": 1}]) == ""


def test_the_monitor_is_quoted() -> None:
    assert health_sentence([record(0)], None) == "The monitor saw nothing to warn of. "
    warned = [record(0), record(1, alarm="too many skips"), record(2, alarm="more of them")]
    assert health_sentence(warned[:2], None) == "After epoch 2 the monitor warned: too many skips. "
    assert health_sentence(warned, {}).endswith("It warned after 2 epochs in all. ")
    stopped = {"reason": "too many skips", "after_epoch": 3, "as_of_epoch": 2}
    told = "The monitor stopped the search after epoch 3: too many skips. The result is that of epoch 2."
    assert stop_sentence(stopped) == told
    assert health_sentence(warned, {"stopped": stopped}) == told + " "
    assert "The result" not in stop_sentence({**stopped, "as_of_epoch": 3})
