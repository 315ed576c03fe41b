"""Counts with their nouns, for sentences that people read."""

from __future__ import annotations


def count_text(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun: `1 epoch`, `2,000 epochs`; `many` is the plural where an s does not make it."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
