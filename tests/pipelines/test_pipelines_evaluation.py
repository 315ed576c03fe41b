"""What a pipeline says of its searches."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from archloom.pipelines import evaluation
from archloom.spaces.nb201 import Nb201


@pytest.mark.parametrize(("race", "wanted"), [(5.0, 15.0), (None, 10.0)])
def test_the_time_of_a_search_contains_its_race(
    monkeypatch: pytest.MonkeyPatch, race: float | None, wanted: float
) -> None:
    found = SimpleNamespace(
        run=SimpleNamespace(seconds=10.0), finalists_seconds=race, cost=SimpleNamespace(parameters=7), text="cell"
    )
    monkeypatch.setattr(evaluation, "_read_search", lambda job: found)
    monkeypatch.setattr(evaluation, "_find_score", lambda result: (50.0, "shared"))
    job = SimpleNamespace(seed=3, folder="run", spec=SimpleNamespace(build_space=Nb201))
    (summary,) = evaluation.summarize_searches([job])  # type: ignore[list-item]
    assert (summary.seed, summary.seconds, summary.parameters) == (3, wanted, 7)
