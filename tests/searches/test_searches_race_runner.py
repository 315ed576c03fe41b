from __future__ import annotations

from pathlib import Path

import pytest

import archloom
from archloom.searches.finalist_race import FinalistRace, TimeIsUpError


def test_a_budget_that_is_over_before_the_first_training_leaves_the_result_of_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_late(*_: object, **__: object) -> None:
        raise TimeIsUpError

    monkeypatch.setattr(FinalistRace, "run", be_late)
    said: list[str] = []

    def listen(event: archloom.Event) -> None:
        if isinstance(event, archloom.Deriving):
            said.append(event.what)

    settings = {
        "data": {"train_images": 64, "valid_images": 64},
        "search": {"batch_size": 32, "evaluation_images": 32, "random_baseline_samples": 2},
        "race": {"contestants": 3, "steps": 2},
    }
    result = archloom.search(
        "nb201_mini", "gdas", "digits", epochs=1, out=tmp_path / "run", settings=settings, listeners=[listen]
    )
    assert result.race is None and result.finalists == () and result.text
    assert "the budget is over before a short training ended: there is no finalist race" in said
