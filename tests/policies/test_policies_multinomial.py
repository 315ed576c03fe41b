"""Independent draws: their frequencies, their log-probability, and what takes no part in it."""

from __future__ import annotations

import math

import pytest
import torch

from archloom.policies import Logits
from archloom.policies.multinomial import log_likelihood, mean_entropy, sample_architectures
from archloom.spaces import Darts, Nb201

SPACE = Nb201(nodes=3, operations=("none", "wide", "narrow", "skip"))


def policy(space=SPACE, *, spread: float = 1.0, **settings) -> Logits:
    return Logits(space, torch.Generator().manual_seed(1), spread=spread, **settings).double()


def test_options_are_sampled_with_their_softmax_probability():
    logits, generator = policy(), torch.Generator().manual_seed(0)
    name = SPACE.decisions[2].name
    draws = [one[name] for one in sample_architectures(SPACE, logits, generator, 3000)]
    for option, wanted in zip(SPACE.decisions[2].options, logits.probabilities()[name], strict=True):
        assert draws.count(option) / 3000 == pytest.approx(wanted, abs=0.03)


def test_probabilities_of_all_architectures_add_up_to_one():
    logits = policy()
    total = sum(log_likelihood(SPACE, logits, [one], [1.0]).exp() for one in SPACE.enumerate())
    assert total.item() == pytest.approx(1.0, abs=1e-12)


class Single(Nb201):
    """Only the second decision makes a difference."""

    def active(self, architecture):
        return frozenset([self.decisions[1].name])


def test_only_active_choices_count():
    logits, space = policy(), Single(nodes=3, operations=SPACE.operations)
    one = next(iter(SPACE.enumerate()))
    alone = log_likelihood(space, logits, [one], [1.0])
    assert alone.item() == pytest.approx(math.log(logits.probabilities()[SPACE.decisions[1].name][0]))
    (gradient,) = torch.autograd.grad(alone, [logits.values])
    assert torch.count_nonzero(gradient) == 4


def test_several_architectures_are_summed_with_their_weights():
    logits, some = policy(), list(SPACE.enumerate())[5:60:11]
    weights = [0.5, -2.0, 1.0, 0.25, -0.125]
    wanted = sum(w * log_likelihood(SPACE, logits, [one], [1.0]) for one, w in zip(some, weights, strict=True))
    assert log_likelihood(SPACE, logits, some, weights).item() == pytest.approx(wanted.item(), abs=1e-12)
    assert log_likelihood(SPACE, logits, [], []).item() == 0


def test_edges_that_a_space_leaves_out_have_no_part_in_it():
    space = Darts(nodes=2, cells=3)
    logits = policy(space, without=("none",))
    (one,) = sample_architectures(space, logits, torch.Generator().manual_seed(0))
    assert space.check(one) == one and "none" in one.values()
    (gradient,) = torch.autograd.grad(log_likelihood(space, logits, [one], [1.0]), [logits.values])
    for name, row in logits.split(gradient).items():
        assert bool((row.nan_to_num(neginf=0.0) == 0).all()) == (one[name] == "none")


def test_entropy_is_that_of_a_decision_on_average():
    assert mean_entropy(policy(spread=0.0)) == pytest.approx(math.log(4))
    assert mean_entropy(policy(spread=500.0)) < 1e-6
