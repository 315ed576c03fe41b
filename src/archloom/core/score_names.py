"""Names that scores had in stored records while all of them were accuracies: files of that time are read, too."""

from __future__ import annotations

from collections.abc import Mapping

from archloom.core.json_object import JsonObject

EARLIER: Mapping[str, str] = {  # earlier name: name now
    "derived_accuracy": "derived_score",
    "shared_accuracy": "shared_score",
    "train_accuracy": "train_score",
    "valid_accuracy": "valid_score",
    "ema_valid_accuracy": "ema_valid_score",
    "test_accuracy": "test_score",
    "best_by_accuracy": "best_by_score",
}


def rename_scores(value: JsonObject) -> JsonObject:
    """Return a record with the names of today; where it has both, that of today counts."""
    return {new: value[old] for old, new in EARLIER.items() if old in value} | dict(value)
