"""All 125 three-node cells trained on generated strokes. They differ by several times their spread over seeds."""

from __future__ import annotations

from typing import ClassVar

from archloom.benchmarks.embedded import EmbeddedTable


class StrokesTable(EmbeddedTable):
    """Every cell of `nb201_mini` on strokes: embedded, six seeds."""

    name: ClassVar[str] = "strokes"
    datasets: ClassVar[tuple[str, ...]] = ("strokes",)
    file_name: ClassVar[str] = "strokes_nb201_mini.json"
