from __future__ import annotations

import pytest
import torch
from smooth import SPACE, search_batch, smooth_weights

from archloom.core.errors import SettingError
from archloom.spaces import Darts, Mobile
from archloom.strategies.pc_darts import PATHS_DIFFER, PcDarts
from archloom.strategies.warm_darts import clip_norm
from archloom.supernet import EveryOption, PartialChannels
from archloom.testing import make_search

GENERATOR = torch.Generator().manual_seed(0)


def make(**settings) -> PcDarts:
    strategy = PcDarts(SPACE, torch.Generator().manual_seed(0), **settings)
    strategy.policy.double()
    return strategy


def test_logits_of_options_and_edges_descend_together_on_the_validation_loss():
    strategy, weights = make(warmup=0.0, learning_rate=0.01, weight_decay=0.0), smooth_weights()
    batch = search_batch(0)
    loss = weights.loss(batch.valid, strategy.policy.mixture())
    (gradient,) = torch.autograd.grad(loss, [strategy.policy.values])
    before = strategy.policy.values.detach().clone()
    assert before.numel() == 12 + 3  # three edges of four options
    strategy.step(weights, batch)
    moved = strategy.policy.values.detach() - before
    seen = gradient.abs() > 1e-9
    assert torch.equal(moved[seen].sign(), -gradient[seen].sign())  # Adam's first step has the size of its rate
    assert torch.allclose(moved[seen].abs(), torch.tensor(0.01, dtype=torch.float64), rtol=1e-3)
    assert seen[13:].all() and not seen[12]  # the only edge into its node has weight 1 and nothing to learn


def test_the_architecture_step_comes_first():
    strategy, weights = make(warmup=0.0), smooth_weights(learning_rate=0.1)
    batch = search_batch(0)
    wanted = weights.loss(batch.valid, strategy.policy.mixture())
    assert strategy.step(weights, batch)["valid_loss"] == pytest.approx(float(wanted), abs=1e-12)


def test_in_the_warm_up_nothing_but_the_weights_moves():
    strategy, weights = make(warmup=0.3, weight_decay=1e-3), smooth_weights()
    before, head = strategy.policy.values.detach().clone(), weights._network.head.weight.detach().clone()
    for epoch in range(15):
        reported = strategy.step(weights, search_batch(epoch, epoch=epoch, epochs=50))
        assert "valid_loss" not in reported
    assert torch.equal(strategy.policy.values, before)  # bit by bit: Adam's decay would move it
    assert not strategy.optimizer.state
    assert not torch.equal(weights._network.head.weight, head)
    strategy.step(weights, search_batch(15, epoch=15, epochs=50))
    assert not torch.equal(strategy.policy.values, before)


def test_edge_weights_decide_which_inputs_a_node_keeps_and_not_their_operations():
    space = Darts(nodes=2, cells=1, operations=("none", "skip_connect", "sep_conv_3x3"))
    strategy = PcDarts(space, torch.Generator().manual_seed(0))
    best, shares = (0.70, 0.55, 0.52), (0.2, 0.3, 0.5)
    with torch.no_grad():
        strategy.policy.values.zero_()
        rows = strategy.policy.values[:15].view(5, 3)
        for row, high in zip(rows[2:], best, strict=True):  # the three edges into the second node
            row.copy_(torch.tensor([0.3 * (1 - high), 0.7 * (1 - high), high]).log())
        strategy.policy.values[17:20] = torch.tensor(shares).log()
    derived = strategy.best(lambda architecture: 0.0)
    assert [derived[f"normal/{source}->3"] for source in range(3)] == ["none", "sep_conv_3x3", "sep_conv_3x3"]
    alone = space.decode(strategy.probabilities())
    assert [alone[f"normal/{source}->3"] for source in range(3)] == ["sep_conv_3x3", "sep_conv_3x3", "none"]
    assert strategy.findings().others["edge_weights"]["normal/2->3"] == pytest.approx(0.5)
    assert all(sum(row) == pytest.approx(1) for row in strategy.probabilities().values())


def test_it_names_its_resolve():
    assert make(parts=4).resolve() == PartialChannels(parts=4)
    assert make(parts=1).resolve() == EveryOption()
    assert make(parts=4).remark() == PATHS_DIFFER and not make(parts=1).remark()


def test_a_space_without_cells_is_refused():
    with pytest.raises(SettingError, match="the space must be made of cells, whose nodes sum edges, got Mobile"):
        PcDarts(Mobile(), GENERATOR)


def test_gradients_are_clipped_by_their_norm():
    gradient = torch.tensor([3.0, 4.0])
    assert torch.allclose(clip_norm(gradient, 2.5), torch.tensor([1.5, 2.0]))
    assert clip_norm(gradient, 5.0) is gradient and clip_norm(gradient, 0.0) is gradient


def test_the_verdict_says_that_paths_differ_from_standalone_networks():
    search = make_search("pc_darts", network={"channels": 4}, strategy={"parts": 2})
    assert PATHS_DIFFER in search.run().verdict
