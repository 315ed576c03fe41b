from __future__ import annotations

from pathlib import Path

import pytest

import archloom
from archloom.searches import random_baseline
from archloom.searches.finalist_race import FinalistRace, TimeIsUpError


@pytest.mark.parametrize(
    ("least_steps", "references"),
    [(1, True), (200, True), (200, False)],  # steps that shared weights need, and whether references may take part
)
def test_a_budget_that_is_over_before_the_first_training_leaves_a_search_or_a_reference(
    least_steps: int, references: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_baseline, "LEAST_STEPS", least_steps)

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
        "race": {"contestants": 3, "steps": 2, "references": references},
    }
    result = archloom.search(
        "nb201_mini", "gdas", "digits", epochs=1, out=tmp_path / "run", settings=settings, listeners=[listen]
    )
    assert result.race is None and result.finalists == () and result.derived is not None
    if least_steps > 1 and references:
        assert result.architecture == result.space.prune(next(iter(result.space.references().values())))
        assert "the result is a reference (ResNet block), not a choice" in result.verdict
    else:
        assert result.architecture == result.derived
        assert "reference" not in result.verdict
    assert "the budget is over before a short training ended: there is no finalist race" in said
