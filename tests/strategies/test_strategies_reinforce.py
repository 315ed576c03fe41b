import pytest
import torch

from archloom.spaces import Darts, Nb201
from archloom.strategies.base import Trial
from archloom.strategies.reinforce import Reinforce

SPACE = Nb201(nodes=3, operations=("none", "skip_connect", "nor_conv_3x3"))


def make(space=SPACE, **settings) -> Reinforce:
    strategy = Reinforce(space, torch.Generator().manual_seed(0), **settings)
    strategy.policy.double()
    with torch.no_grad():
        strategy.policy.values.normal_(generator=torch.Generator().manual_seed(1))
    return strategy


def score(architecture) -> float:
    return sum(
        (place + 1.5) * SPACE.operations.index(option) ** 2 for place, option in enumerate(architecture.values())
    )


def log_probability(strategy: Reinforce, architecture) -> torch.Tensor:
    rows = strategy.policy.rows()
    return sum(rows[d.name].log_softmax(dim=0)[d.index(architecture[d.name])] for d in SPACE.decisions)


def test_the_gradient_of_a_log_probability_is_exact():
    strategy = make()
    for architecture in SPACE.enumerate():
        (wanted,) = torch.autograd.grad(log_probability(strategy, architecture), strategy.policy.values)
        assert torch.allclose(strategy.log_probability_gradient(architecture), wanted, atol=1e-14)


class Ascent:
    """Stands in the place of an optimizer: keeps the gradient it is asked to descend along."""

    def __init__(self, strategy: Reinforce) -> None:
        self._strategy, self.gradients = strategy, []

    def step(self) -> None:
        self.gradients.append(self._strategy.policy.values.grad.clone())


def test_steps_follow_the_expected_score_whatever_the_baseline_is():
    """The mean of all steps, each as often as its architecture is drawn, is the gradient of the enumerated mean score.

    A baseline that does not depend on the draw adds nothing to it; the own share of a score in the baseline takes a
    part away that is the same for all.
    """
    strategy = make(baseline_momentum=0.9)
    chances = {one: log_probability(strategy, one).exp() for one in SPACE.enumerate()}
    (wanted,) = torch.autograd.grad(sum(p * score(one) for one, p in chances.items()), strategy.policy.values)
    assert float(sum(chances.values()).detach()) == pytest.approx(1.0)
    for average in (0.0, 7.0):
        mean = torch.zeros_like(wanted)
        for architecture, chance in chances.items():
            strategy.average, strategy.weight = 0.5 * average, 0.5
            strategy.optimizer = Ascent(strategy)
            strategy.tell(Trial(0, architecture), score(architecture))
            mean -= chance.detach() * strategy.optimizer.gradients[0]  # an optimizer goes down, a score up
        kept = 1 - 0.1 / (0.9 * 0.5 + 0.1)  # the share of a score that its own weight in the average leaves
        assert torch.allclose(mean, kept * wanted, atol=1e-12)


def test_what_is_as_good_as_the_average_moves_nothing_and_the_average_begins_without_bias():
    strategy = make(baseline_momentum=0.9)
    strategy.optimizer = Ascent(strategy)
    architecture = next(iter(SPACE.enumerate()))
    strategy.tell(Trial(0, architecture), 80.0)
    assert torch.count_nonzero(strategy.optimizer.gradients[0]) == 0
    strategy.tell(Trial(1, architecture), 90.0)
    baseline = (0.9 * 80 + 90) / 1.9
    wanted = -(90 - baseline) * strategy.log_probability_gradient(architecture)
    assert torch.allclose(strategy.optimizer.gradients[1], wanted)


def test_options_are_drawn_with_their_softmax_probability():
    strategy = make()
    name = SPACE.decisions[1].name
    drawn = [strategy.ask(number).architecture[name] for number in range(3000)]
    for option, wanted in zip(SPACE.decisions[1].options, strategy.policy.probabilities()[name], strict=True):
        assert drawn.count(option) / 3000 == pytest.approx(wanted, abs=0.03)


def test_it_learns_and_a_flipped_sign_would_not():
    strategy = Reinforce(SPACE, torch.Generator().manual_seed(0), learning_rate=0.1)
    for number in range(150):
        trial = strategy.ask(number)
        strategy.tell(trial, score(trial.architecture))
    best = strategy.space.decode(strategy.policy.probabilities())
    assert score(best) > 0.9 * max(score(one) for one in SPACE.enumerate())


def test_where_a_space_joins_decisions_what_was_left_out_has_no_gradient():
    space = Darts(nodes=2, cells=3)
    strategy = make(space)
    architecture = strategy.ask(0).architecture
    assert space.check(architecture) == architecture
    parts = strategy.policy.split(strategy.log_probability_gradient(architecture))
    for name, option in architecture.items():
        assert bool((parts[name].nan_to_num(neginf=0.0) == 0).all()) == (option == "none")
