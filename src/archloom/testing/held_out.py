"""The contract of held-out examples: what the race and the comparison evaluate on, nothing learned from.

Two searches differ in nothing but the labels of these examples. Wherever one of them was learned from, or chosen by,
the two searches end differently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from archloom.core.settings import Settings
from archloom.core.state import StateDict
from archloom.data import DataSet
from archloom.data.loader import Batches, Loader
from archloom.data.source import ImageData, InMemory
from archloom.data.text import TextData
from archloom.searches.finalist_race import ShortTraining
from archloom.searches.loop import SearchLoop
from archloom.searches.one_shot import OneShotLoop
from archloom.testing.searches import finish
from archloom.testing.states import find_differences

Make = Callable[..., SearchLoop[Any]]

HELD_OUT = 12  # images
HELD_OUT_WORDS = 48
CONTEST: Settings = {"contestants": 2, "steps": 1}


def check_held_out(make: Make, data: DataSet) -> None:
    """Assert that a one-shot search of these data learns nothing from the examples that it holds out."""
    race: Settings = {"held_out": HELD_OUT if isinstance(data, ImageData) else HELD_OUT_WORDS}
    first = make(data=data, race={**race, **CONTEST})
    if not isinstance(first, OneShotLoop):
        return  # a black box has no shared weights to compare architectures under
    other_data = relabel_held_out(data, _race_training(first)._evaluation)
    second = make(data=other_data, race={**race, **CONTEST})
    assert isinstance(second, OneShotLoop), "a search must not depend on labels before its first step"
    _check_batches(first, second)
    ends = [finish(make(data=one, race=race)) for one in (data, other_data)]
    one, two = ends
    changed = find_differences(_learned(one), _learned(two))
    changed += find_differences(one["outcome"]["architecture"], two["outcome"]["architecture"], "result")
    assert not changed, f"nothing may learn from held-out examples, but other labels of theirs change {changed}"


def relabel_held_out(data: DataSet, evaluation: Batches) -> DataSet:
    """Return the data with another label, or another word, for every example that the race evaluates on."""
    if isinstance(data, TextData):
        valid, words = data.valid.clone(), len(data.words)
        valid[-HELD_OUT_WORDS:] = (valid[-HELD_OUT_WORDS:] + 1) % words
        return replace(data, valid=valid)
    assert isinstance(data, ImageData) and isinstance(evaluation, Loader), "data must be images or a text"
    labels, count = data.train.labels.clone(), len(data.classes)
    labels[evaluation.indices] = (labels[evaluation.indices] + 1) % count
    return replace(data, train=InMemory(data.train.fetch(torch.arange(len(labels))), labels))


def _learned(end: StateDict) -> StateDict:
    """Return what a search learned, without where it stands in each text: the comparison reads one, too."""
    return {"strategy": end["strategy"], "weights": {**end["weights"], "carried": {}}}


def _check_batches(first: OneShotLoop, second: OneShotLoop) -> None:
    """Assert that comparisons are on relabelled examples only, and trainings of the race on none of them."""
    race, other = _race_training(first), _race_training(second)
    for name, one, two in (
        ("race", race._evaluation, other._evaluation),
        ("comparison with random architectures", first._comparison, second._comparison),
    ):
        assert bool((_labels(one) != _labels(two)).all()), f"the {name} must use held-out examples alone"
    for one, two in ((race._train, other._train), (race._plain, other._plain)):
        assert torch.equal(_labels(one), _labels(two)), "contestants of the race must not learn held-out examples"


def _race_training(search: OneShotLoop) -> ShortTraining:
    assert search._race is not None, "the search must have a race"
    return search._race.training


def _labels(batches: Batches) -> torch.Tensor:
    return torch.cat([batch.labels for batch in batches.epoch(0)])
