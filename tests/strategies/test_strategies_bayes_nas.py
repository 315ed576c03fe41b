from __future__ import annotations

import pytest
import torch
from smooth import SPACE, batch, smooth_weights
from torch.nn import functional as F

from archloom.core.errors import SettingError
from archloom.spaces import Darts, Mobile, Nb201
from archloom.strategies.base import Plan, SearchBatch
from archloom.strategies.bayes_nas import BayesNas
from archloom.supernet import Gate
from archloom.testing import make_search

PLAN = Plan(24, 24, 12, 12, steps=8)  # four epochs of two steps


def make(**settings) -> BayesNas:
    strategy = BayesNas(SPACE, torch.Generator().manual_seed(0), **settings)
    strategy.policy.double()
    return strategy


def at(epoch: int, *, epochs: int = 4) -> SearchBatch:
    return SearchBatch(batch(0), (), epoch, epochs)


def started(**settings):
    strategy, weights = make(**settings), smooth_weights(learning_rate=0.1, momentum=0.0, weight_decay=0.0, clip=0.0)
    strategy.begin(weights, PLAN)
    return strategy, weights


def test_weights_and_gates_move_along_the_gradients_of_one_loss():
    strategy, weights = started(warmup=0.0, observations=1e12)  # a penalty of nothing
    values = strategy.policy.values.detach().clone().requires_grad_()
    gates = {d.name: Gate(weights=row) for d, row in zip(SPACE.decisions, values.split(4), strict=True)}
    loss = weights.loss(batch(0), gates)
    by_gates, *by_weights = torch.autograd.grad(loss, [values, *weights.parameters.values()])
    before = {name: value.detach().clone() for name, value in weights.parameters.items()}
    reported = strategy.step(weights, at(0))
    assert reported["train_loss"] == pytest.approx(float(loss), abs=1e-12)
    for (name, value), gradient in zip(weights.parameters.items(), by_weights, strict=True):
        assert (value - (before[name] - 0.1 * gradient)).abs().max() < 1e-12
    live = torch.tensor([option != "none" for d in SPACE.decisions for option in d.options])
    moved = strategy.policy.values.detach()
    assert (moved - (1 - 0.1 * by_gates))[live].abs().max() < 1e-9
    assert by_gates[live].abs().max() > 1e-4


def test_in_the_warm_up_gates_stay_at_one():
    strategy, weights = started(warmup=0.5)
    strategy.step(weights, at(1))
    assert torch.equal(strategy.policy.values, torch.ones(12, dtype=torch.float64))
    assert float(strategy.policy.draws) == 0
    strategy.step(weights, at(2))
    assert not torch.equal(strategy.policy.values, torch.ones(12, dtype=torch.float64))


def test_the_prior_is_updated_at_the_end_of_every_epoch():
    strategy, weights = started(warmup=0.0, draws=3)
    strategy.step(weights, at(0))
    assert float(strategy.policy.draws) == 3 and torch.equal(strategy.policy.variance, torch.ones(9).double())
    strategy.step(weights, at(0))
    assert float(strategy.policy.draws) == 0 and not torch.equal(strategy.policy.variance, torch.ones(9).double())


def test_squared_gradients_on_sampled_labels_average_to_the_gauss_newton_diagonal():
    """The exact diagonal: the mean over images, and over classes by their probability, of squared gradients."""
    strategy, weights = started()
    values, images = strategy.policy.values, batch(0)
    gates = strategy.policy.gates()
    logits = weights._predict(images, gates)
    exact = torch.zeros(12, dtype=torch.float64)
    for row in logits:
        for label, probability in enumerate(row.detach().softmax(dim=0)):
            loss = F.cross_entropy(row.unsqueeze(0), torch.tensor([label]))
            (gradient,) = torch.autograd.grad(loss, [values], retain_graph=True)
            exact += probability * gradient.square() / len(images)
    generator = torch.Generator().manual_seed(1)
    for _ in range(3000):
        gradient = weights.gradient_on_sampled_labels(images, strategy.policy.gates(), of=values, generator=generator)
        strategy.policy.observe(gradient, len(images))
    found = strategy.policy.squares / strategy.policy.draws
    live = exact > 1e-12
    assert ((found / exact)[live] - 1).abs().max() < 0.12
    strategy.policy.update(observations=50.0)
    assert torch.allclose(strategy.policy.curvature, 50 * found)


def set_evidence(strategy: BayesNas, evidence: dict[tuple[str, str], float]) -> None:
    """Give groups a signal in units of the limit; the others get a tenth of it."""
    policy = strategy.policy
    policy.curvature.fill_(1.0)
    wanted = torch.tensor([evidence.get(group, 0.1) for group in policy.groups])
    policy.variance.copy_(wanted * policy.noise_limits())


def test_an_edge_whose_operations_are_all_pruned_is_left_out():
    space = Nb201(nodes=3)
    strategy = BayesNas(space, torch.Generator())
    set_evidence(
        strategy, {("0->1", "nor_conv_3x3"): 3.0, ("1->2", "nor_conv_1x1"): 1.1, ("0->2", "skip_connect"): 0.9}
    )
    derived = strategy.best(lambda architecture: 0.0)
    assert space.format(derived) == "|nor_conv_3x3~0|+|none~0|nor_conv_1x1~1|"
    assert strategy.findings().others["surviving_operations"] == 2
    assert strategy.remark() == ""
    ranked = BayesNas(space, torch.Generator(), prune="none")
    set_evidence(ranked, {("0->1", "nor_conv_3x3"): 3.0, ("0->2", "skip_connect"): 0.9, ("1->2", "skip_connect"): 0.2})
    assert space.format(ranked.best(lambda architecture: 0.0)) == "|nor_conv_3x3~0|+|skip_connect~0|skip_connect~1|"


def test_a_cell_of_nothing_is_filled_by_rank_and_the_verdict_says_so():
    space = Nb201(nodes=3)
    strategy = BayesNas(space, torch.Generator())
    set_evidence(strategy, {(d.name, "nor_conv_3x3"): 0.5 for d in space.decisions})
    assert set(strategy.best(lambda architecture: 0.0).values()) == {"nor_conv_3x3"}
    assert "no way through cell" in strategy.remark() and "\n" not in strategy.remark()


def test_a_cell_without_a_way_to_its_output_counts_as_nothing():
    space = Nb201(nodes=3)
    strategy = BayesNas(space, torch.Generator())
    set_evidence(
        strategy, {("0->1", "nor_conv_3x3"): 3.0, ("1->2", "skip_connect"): 0.9, ("0->2", "nor_conv_1x1"): 0.8}
    )
    derived = strategy.best(lambda architecture: 0.0)  # the first edge alone would lead nowhere
    assert space.format(derived) == "|nor_conv_3x3~0|+|nor_conv_1x1~0|skip_connect~1|"
    assert "no way through cell" in strategy.remark()


def test_cells_of_the_darts_space_have_gates_of_their_own_and_share_the_result():
    space = Darts(cells=4, nodes=2)
    strategy = BayesNas(space, torch.Generator())
    assert strategy.supernet_space.sharing == "none" and strategy.path_space is space
    set_evidence(strategy, {(d.name, "sep_conv_3x3"): 2.0 for d in space.decisions})
    derived = strategy.best(lambda architecture: 0.0)
    assert set(derived) == {decision.name for decision in space.decisions}
    gates = strategy.path_gates(derived)
    assert len(gates) == 4 * 5
    assert gates["cell0/0->2"] == gates["cell3/0->2"] == Gate(index=space.operations.index("sep_conv_3x3"))


def test_a_space_without_cells_is_refused():
    with pytest.raises(SettingError, match="the space must be made of cells, whose edges have gates, got Mobile"):
        BayesNas(Mobile(), torch.Generator())


def test_one_observation_prunes_every_operation_and_the_search_says_so():
    search = make_search("bayes_nas", network={"channels": 2}, strategy={"observations": 1e-3}, search={"epochs": 3})
    outcome = search.run()
    assert "no way through cell" in outcome.verdict
    assert outcome.findings["surviving_operations"] == 0
