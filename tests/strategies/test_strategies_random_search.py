import pytest
import torch

from archloom.core.errors import SettingError
from archloom.objectives.cost_source import ModelledCost
from archloom.objectives.linear_cost import LinearCost
from archloom.objectives.target import Target
from archloom.spaces import Nb201
from archloom.strategies.base import StrategyFindings, Trial
from archloom.strategies.random_search import RandomSearch


def test_trials_are_numbered_as_asked_and_drawn_from_the_generator():
    space = Nb201(nodes=3)
    first, second = (RandomSearch(space, torch.Generator().manual_seed(seed)) for seed in (0, 0))
    asked = [first.ask(number) for number in range(20)]
    assert asked == [second.ask(number) for number in range(20)]
    assert [trial.number for trial in asked] == list(range(20))
    assert len({trial.architecture for trial in asked}) > 10


def test_a_score_teaches_it_nothing():
    strategy = RandomSearch(Nb201(nodes=3), torch.Generator().manual_seed(0))
    before = strategy.state_dict()
    strategy.tell(Trial(0, Nb201(nodes=3).parse("|none~0|+|none~0|none~1|")), 1.0)
    assert torch.equal(before["generator"], strategy.state_dict()["generator"])


# --- at a target


SPACE = Nb201(nodes=3, operations=("none", "wide", "narrow", "skip"))
WEIGHTS = {((d.name, option),): 10.0 * place for d in SPACE.decisions for place, option in enumerate(d.options)}
SOURCE = ModelledCost(LinearCost(SPACE, 0.0, WEIGHTS), unit="ms", provenance="by hand")


def with_target(value: float, **settings) -> RandomSearch:
    strategy = RandomSearch(SPACE, torch.Generator().manual_seed(0), **settings)
    strategy.set_target(Target(source=SOURCE, value=value))
    return strategy


def test_architectures_that_meet_the_target_are_sampled_uniformly():
    strategy = with_target(40.0)
    asked = [strategy.ask(number).architecture for number in range(600)]
    assert {SOURCE.measure(one) for one in asked} == {40.0}
    there = [one for one in SPACE.enumerate() if SOURCE.measure(one) == 40.0]
    assert [asked.count(one) / 600 for one in there] == pytest.approx([1 / len(there)] * len(there), abs=0.04)
    acceptance = strategy.findings().others["acceptance"]
    assert acceptance["accepted"] == 600
    assert acceptance["rate"] == pytest.approx(len(there) / 64, abs=0.03)


def test_a_window_is_in_the_unit_of_the_cost():
    strategy = with_target(40.0, window=10.0)
    assert {SOURCE.measure(strategy.ask(number).architecture) for number in range(100)} == {30.0, 40.0, 50.0}


def test_a_target_that_no_architecture_meets_is_refused_with_a_fix():
    strategy = with_target(45.0, most_draws=50)
    with pytest.raises(SettingError, match=r"none of 50 sampled architectures costs near target.value 45 ms.*window"):
        strategy.ask(0)


def test_without_a_target_nothing_is_counted():
    strategy = RandomSearch(SPACE, torch.Generator().manual_seed(0))
    strategy.ask(0)
    assert strategy.findings() == StrategyFindings() and strategy.samples == 0


def test_counts_resume_from_a_checkpoint():
    first, second = with_target(40.0), with_target(40.0)
    for number in range(5):
        first.ask(number)
    second.load_state_dict(first.state_dict())
    assert first.ask(5) == second.ask(5)
    assert second.findings() == first.findings()
