import math

import pytest
import torch

from archloom.policies import Logits
from archloom.spaces import Nb201


@pytest.fixture
def policy() -> Logits:
    return Logits(Nb201(nodes=3), torch.Generator().manual_seed(0))


def test_logits_start_near_zero_with_the_given_spread():
    values = Logits(Nb201(nodes=9), torch.Generator().manual_seed(0), spread=0.5).values
    assert values.shape == (36 * 5,)
    assert values.std().item() == pytest.approx(0.5, rel=0.2)


def test_rows_are_views_of_the_one_vector(policy):
    rows = policy.rows()
    assert list(rows) == ["0->1", "0->2", "1->2"]
    rows["0->2"].sum().backward()
    assert policy.values.grad.tolist() == [0.0] * 5 + [1.0] * 5 + [0.0] * 5


def test_mixture_and_scores_are_the_softmax(policy):
    with torch.no_grad():
        policy.values[:5] = torch.tensor([0.0, math.log(2.0), math.log(3.0), math.log(4.0), 0.0])
    wanted = pytest.approx([1 / 11, 2 / 11, 3 / 11, 4 / 11, 1 / 11])
    assert policy.probabilities()["0->1"] == wanted
    assert policy.mixture()["0->1"].weights.tolist() == wanted
    assert policy.mixture()["0->1"].index is None


def test_adam_has_the_settings_of_the_differentiable_strategies(policy):
    (group,) = policy.adam(learning_rate=0.1, weight_decay=0.2).param_groups
    assert (group["lr"], group["weight_decay"], group["betas"]) == (0.1, 0.2, (0.5, 0.999))
    assert group["params"] == [policy.values]
