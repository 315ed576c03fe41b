import random

import pytest
import torch

from archloom.core.errors import SettingError
from archloom.spaces import Darts, Nb201
from archloom.strategies import tpe
from archloom.strategies.base import Trial
from archloom.strategies.tpe import Tpe, complete_architecture

optuna = pytest.importorskip("optuna")

SPACE = Nb201(nodes=4)


def make(space=SPACE, seed=0, **settings) -> Tpe:
    return Tpe(space, torch.Generator().manual_seed(seed), **settings)


def convolutions(architecture) -> float:
    return sum(option == "nor_conv_3x3" for option in architecture.values())


def run(strategy: Tpe, trials: int, *, sign: float = 1.0) -> list[float]:
    scores = []
    for number in range(trials):
        trial = strategy.ask(number)
        scores.append(convolutions(trial.architecture))
        strategy.tell(trial, sign * scores[-1])
    return scores


@pytest.mark.parametrize("multivariate", [True, False])
def test_it_finds_what_scores_higher(multivariate):
    """Six edges have 1.2 good operations on average; with the opposite scores, the strategy does the opposite."""
    good = run(make(multivariate=multivariate), 50)
    bad = run(make(multivariate=multivariate), 50, sign=-1.0)
    assert sum(good[-15:]) / 15 > 2.0
    assert sum(bad[-15:]) / 15 < 0.9


def test_proposals_are_those_of_optuna_itself():
    strategy, rng = make(startup_trials=1), random.Random(3)
    names = [decision.name for decision in SPACE.decisions]
    options = {name: optuna.distributions.CategoricalDistribution(SPACE.operations) for name in names}
    study = optuna.create_study(direction="maximize")
    for number in range(12):
        architecture = SPACE.sample(rng)
        strategy.tell(Trial(number, architecture), convolutions(architecture))
        study.add_trial(
            optuna.trial.create_trial(
                params=dict(architecture), distributions=options, value=convolutions(architecture)
            )
        )
    for seed in range(5):
        study.sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=False)
        wanted = study.ask(options)
        study.tell(wanted, state=optuna.trial.TrialState.FAIL)
        assert strategy.trials.propose(seed=seed, multivariate=True, candidates=24) == wanted.params


def test_the_state_is_plain_and_resumes_exactly():
    first = make(startup_trials=3)
    run(first, 8)
    second = make(startup_trials=3, seed=5)
    second.load_state_dict(first.state_dict())
    assert second.trials.state_dict() == first.trials.state_dict()
    assert [run(first, 4), first.state_dict()["trials"]] == [run(second, 4), second.state_dict()["trials"]]


def test_a_joined_space_gets_whole_architectures():
    space = Darts(nodes=3, cells=3)
    strategy = make(space, startup_trials=2)
    for number in range(8):
        trial = strategy.ask(number)
        assert space.check(trial.architecture) == trial.architecture
        strategy.tell(trial, float(number))


def test_too_many_inputs_are_thinned_by_chance_and_keep_their_operations():
    space = Darts(nodes=3, cells=3)
    choices = {decision.name: "sep_conv_5x5" for decision in space.decisions}
    drawn = {complete_architecture(space, choices, random.Random(seed)) for seed in range(30)}
    assert len(drawn) > 10
    assert {option for one in drawn for option in one.values()} == {"sep_conv_5x5", "none"}


def test_a_decision_without_a_choice_is_no_parameter():
    space = SPACE.restrict({"0->1": ["skip_connect"]})
    strategy = make(space, startup_trials=1)
    assert {one["0->1"] for one in (run_one(strategy, number) for number in range(4))} == {"skip_connect"}


def run_one(strategy, number):
    trial = strategy.ask(number)
    strategy.tell(trial, 0.5 * number)
    return trial.architecture


def test_without_the_extra_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(tpe, "optuna", None)
    with pytest.raises(SettingError, match=r"needs an extra: pip install 'archloom\[optuna\]'"):
        make()
