"""Warnings within a verdict: pages show them first, apart from what was found."""

from __future__ import annotations

import re

BEGINNINGS = (
    "Warning: ",
    "The network has learned nothing",
    "The shared weights were hardly trained",
    "The search did not decide",
)


def split_warnings(verdict: str) -> tuple[list[str], str]:
    """Return the sentences of a verdict that warn, and the others as one text."""
    sentences = re.split(r"(?<=\.) (?=[A-Z0-9])", verdict) if verdict else []
    warnings = [line for line in sentences if line.startswith(BEGINNINGS)]
    return warnings, " ".join(line for line in sentences if line not in warnings)
