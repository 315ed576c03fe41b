"""All 125 three-node cells trained on scikit-learn's digits. Few differ by more than their spread over seeds."""

from __future__ import annotations

from typing import ClassVar

from archloom.benchmarks.embedded import EmbeddedTable


class DigitsTable(EmbeddedTable):
    """Every cell of `nb201_mini` on digits: embedded, five seeds."""

    name: ClassVar[str] = "digits"
    datasets: ClassVar[tuple[str, ...]] = ("digits",)
    file_name: ClassVar[str] = "digits_nb201_mini.json"
