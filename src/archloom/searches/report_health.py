"""The health of a search over its epochs: what a collapse would show in, and what the monitor said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from archloom.reports.history import History, find
from archloom.searches.report_draws import Panel, panel_curves

_PANELS = (
    Panel("operations without weights", {"skip": "skip", "pool": "pool", "none": "none"}, part="health"),
    Panel("largest eigenvalue of the logits' Hessian", {"eigenvalue": "validation loss"}, part="health"),
    Panel("accuracy lost by deriving", {"gap": "mixture minus derived"}, part="health"),
    Panel("entropy of a decision", {"entropy": "mean", "entropy_least": "least"}, part="health"),
)


def health_curves(history: History) -> str:
    """Shares of operations without weights in what was derived, sharpness, what deriving costs, how decided it is."""
    return panel_curves(history, _PANELS, label="Health of the search over epochs")


def health_sentence(history: History, result: Mapping[str, Any] | None) -> str:
    """What the monitor had to say."""
    stopped = find(result, "stopped")
    if isinstance(stopped, Mapping):
        return f"{stop_sentence(stopped)} "
    alarms = [(record.get("epoch", 0) + 1, alarm) for record in history if (alarm := find(record, "health", "alarm"))]
    if not alarms:
        return "The monitor saw nothing to warn of. "
    epoch, reason = alarms[0]
    more = "" if len(alarms) == 1 else f" It warned after {len(alarms)} epochs in all."
    return f"After epoch {epoch} the monitor warned: {reason}.{more} "


def stop_sentence(stopped: Mapping[str, Any]) -> str:
    """Why and where a search was stopped, and what it stands for."""
    after, of = stopped["after_epoch"], stopped["as_of_epoch"]
    back = "" if of == after else f" The result is that of epoch {of}."
    return f"The monitor stopped the search after epoch {after}: {stopped['reason']}.{back}"
