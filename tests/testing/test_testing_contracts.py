"""The contract tests notice plug-ins that break a rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from archloom import (
    Architecture,
    BlackBox,
    Metrics,
    Nb201,
    OneShot,
    SearchBatch,
    SharedWeights,
    Trial,
    metrics,
    path_gates,
)
from archloom.searches.loaders import ImageLoaders, TextLoaders
from archloom.testing import FamilyContract, SpaceContract, StrategyContract, find_differences


class Forgetful(BlackBox):
    """Keeps a counter that no checkpoint holds, and repeats itself whatever the seed."""

    def __init__(self, space: Nb201, generator: torch.Generator, *, undocumented: int = 0) -> None:
        super().__init__(space, generator)
        self.asked = 0

    def ask(self, number: int) -> Trial:
        self.asked += 1
        architectures = list(self.space.enumerate())
        return Trial(number, architectures[self.asked % 25])


class Impure(OneShot):
    """Samples paths from the global generator."""

    def step(self, weights: SharedWeights, batch: SearchBatch) -> Metrics:
        index = int(torch.randint(125, ()))
        return metrics(weights.fit(batch.train, path_gates(self.space, list(self.space.enumerate())[index])))

    def best(self, evaluate: Any, *, final: bool = True) -> Architecture:
        return next(self.space.enumerate())


@dataclass(frozen=True, kw_only=True)
class Lossy(Nb201):
    """Writes every architecture in the same way."""

    nodes: int = 3
    network: ClassVar[str] = f"{__name__}:Unshared"

    def format(self, architecture: Architecture) -> str:
        return super().format(next(self.enumerate()))


class Unshared(nn.Module):
    """Ignores its gates, and adds noise."""

    def __init__(self, space: Any, resolve: Any, classes: int, colours: int, /, *, channels: int = 1) -> None:
        super().__init__()
        self.head = nn.Linear(colours, classes)

    def forward(self, images: Tensor, gates: Any = None) -> Tensor:
        logits: Tensor = self.head(images.mean((2, 3)) + torch.rand(len(images), 1))
        return logits


class ForgetfulContract(StrategyContract):
    strategy = f"{__name__}:Forgetful"


class ImpureContract(StrategyContract):
    strategy = f"{__name__}:Impure"


class LossyContract(SpaceContract):
    space = f"{__name__}:Lossy"


class UnsharedContract(FamilyContract):
    space = f"{__name__}:Lossy"


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (ForgetfulContract().test_the_state_holds_every_attribute_that_a_step_changes, "`stateful` must name"),
        (ForgetfulContract().test_a_resumed_search_ends_in_the_state_of_an_uninterrupted_one, "must end as without"),
        (ForgetfulContract().test_every_setting_has_help, "undocumented"),
        (ImpureContract().test_global_generators_stay_untouched, "use self.generator"),
        (ImpureContract().test_same_seed_gives_the_same_bits_and_another_seed_others, "must end alike"),
        (LossyContract().test_text_and_json_read_back_what_was_written, "must return what format"),
        (UnsharedContract().test_a_standalone_network_computes_what_its_path_computes, "must compute the same"),
    ],
)
def test_a_broken_rule_is_named(test: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        test()


class OneShotContract(StrategyContract):
    strategy = "rsps"
    settings: ClassVar[Any] = {"candidates": 12, "candidates_each_epoch": 4}


class MixtureContract(StrategyContract):
    strategy = "darts"


class MixtureOfTextContract(StrategyContract):
    strategy, space = "darts", "recurrent"
    sections: ClassVar[Any] = {"space": {"nodes": 3}, "network": {"hidden": 4}}


@pytest.mark.parametrize(
    ("contract", "loaders", "part", "whole", "message"),
    [
        (MixtureContract(), ImageLoaders, "_search_split", lambda self: self._split, "must not learn held-out"),
        (MixtureContract(), ImageLoaders, "valid", lambda self: self.score()[1], "labels of theirs change"),
        (OneShotContract(), ImageLoaders, "evaluation", lambda self: self.comparison(), "labels of theirs change"),
        (OneShotContract(), ImageLoaders, "comparison", lambda self: self.evaluation(), "held-out examples alone"),
        (MixtureOfTextContract(), TextLoaders, "valid", lambda self: self.score()[1], "labels of theirs change"),
        (MixtureOfTextContract(), TextLoaders, "comparison", lambda self: self.evaluation(), "held-out examples alone"),
    ],
)
def test_learning_from_held_out_examples_is_noticed(
    contract: StrategyContract, loaders: Any, part: str, whole: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaders, part, whole)
    with pytest.raises(AssertionError, match=message):
        contract.test_nothing_learns_from_examples_that_are_held_out()


def test_states_differ_by_value_type_and_length_but_not_by_time() -> None:
    first = {"a": torch.zeros(2), "b": [1, 2], "seconds": 1.0}
    assert find_differences(first, {**first, "seconds": 2.0}) == []
    assert find_differences(first, {**first, "a": torch.ones(2)}) == ["state/a"]
    assert find_differences(first, {**first, "a": torch.zeros(2, dtype=torch.float64)}) == ["state/a"]
    assert find_differences(first, {**first, "b": [1]}) == ["state/b: other length"]
    assert find_differences(first, {**first, "b": [1, 3]}) == ["state/b[1]: 2 is not 3"]
    assert find_differences(first, {"a": first["a"]}) == ["state: other keys"]
