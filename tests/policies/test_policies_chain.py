"""Summaries of draws: how often an option is best, credible sets, architectures, and how well chains mixed."""

from __future__ import annotations

import builtins

import numpy as np
import pytest
import torch

from archloom.execution.checkpoint import decode, encode
from archloom.policies import Chain, Logits, credible_set, mean_probabilities, measure_mixing, summarize_draws
from archloom.policies.chain import MOST_DRAWS
from archloom.policies.posterior import Posterior
from archloom.spaces import Darts, Nb201

SPACE = Nb201(nodes=3, operations=("none", "left", "right"))


def policy(space=SPACE, **options) -> Logits:
    return Logits(space, torch.Generator().manual_seed(0), **options)


def make_draws(*winners: tuple[int, int, int]) -> torch.Tensor:
    """Return draws in which these options of the three decisions are far ahead."""
    return torch.stack([torch.cat([5 * torch.eye(3)[option] for option in draw]) for draw in winners])


def summarize(logits: Logits, draws: torch.Tensor, *, space=SPACE, **options) -> Posterior:
    return summarize_draws(space, logits, [draws], burn_in=0, sampled=True, **options)


def test_probabilities_are_the_shares_of_draws_in_which_an_option_is_best():
    found = summarize(policy(), make_draws((1, 2, 2), (1, 2, 1), (1, 1, 2), (1, 2, 0)))
    decisions = found.decisions
    assert found.draws == 4
    assert decisions["0->1"].best == {"none": 0.0, "left": 1.0, "right": 0.0}
    assert decisions["0->2"].best == {"none": 0.0, "left": 0.25, "right": 0.75}
    assert decisions["1->2"].best == {"none": 0.25, "left": 0.25, "right": 0.5}
    assert decisions["0->1"].credible_set == ("left",)
    sharp = torch.tensor([5.0, 0.0, 0.0]).softmax(dim=0)
    assert decisions["0->1"].entropy == pytest.approx(float(-(sharp * sharp.log()).sum()), rel=1e-5)
    assert decisions["0->2"].credible_set == ("right", "left")


def test_architectures_are_sorted_by_frequency():
    found = summarize(policy(), make_draws((1, 2, 2), (1, 1, 1), (1, 2, 2), (2, 2, 2)))
    assert found.different_architectures == 3
    first = found.architectures[0]
    assert first.frequency == 0.5
    assert SPACE.parse(first.text) == SPACE.check(first.architecture)
    assert list(first.architecture.values()) == ["left", "right", "right"]
    assert sum(one.frequency for one in found.architectures) == 1


def test_none_wins_a_draw_only_if_allowed():
    draws = make_draws((0, 1, 2))
    assert "none" in summarize(policy(), draws).architectures[0].architecture.values()
    kept_out = summarize(policy(), draws, keep_none=False)
    assert "none" not in kept_out.architectures[0].architecture.values()
    assert kept_out.decisions["0->1"].best["none"] == 0
    assert (summarize(policy(), draws).excluded, kept_out.excluded) == ((), ("none",))
    absent = summarize(policy(without=("none",)), draws)
    assert absent.decisions["0->1"].best["none"] == 0


def test_draws_are_decoded_by_the_rule_of_the_space():
    space = Darts(nodes=2, cells=3)
    logits = policy(space)
    draws = torch.randn(3, logits.values.numel(), generator=torch.Generator().manual_seed(1))
    found = summarize(logits, draws, space=space)
    for one in found.architectures:
        space.check(one.architecture)
    assert all(row.best["none"] == 0 for row in found.decisions.values())  # it may not win there


@pytest.mark.parametrize(
    ("probabilities", "wanted"),
    [
        ({"a": 0.2, "b": 0.8}, ("b", "a")),
        ({"a": 0.04, "b": 0.96}, ("b",)),
        ({"a": 0.05, "b": 0.95}, ("b",)),
        ({"a": 0.3, "b": 0.3, "c": 0.4}, ("c", "a", "b")),
    ],
)
def test_a_credible_set_is_the_smallest_that_holds_95_percent(probabilities, wanted):
    assert credible_set(probabilities) == wanted


def test_mean_probabilities_average_probabilities_not_logits():
    draws = torch.stack([torch.tensor([0.0, 0, 0] * 3), torch.tensor([0.0, 2, 4] * 3)])
    wanted = (torch.tensor([1 / 3] * 3) + torch.tensor([0.0, 2, 4]).softmax(0)) / 2
    assert mean_probabilities(policy(), draws)["0->1"] == pytest.approx(wanted.tolist())


# --- the chain


def test_a_chain_keeps_order_and_gives_its_latest_share():
    chain = Chain(2)
    for number in range(10):
        chain.append(torch.full((2,), float(number)))
    assert chain.draws[:, 0].tolist() == list(range(10))
    assert chain.last(0.3)[:, 0].tolist() == [7, 8, 9]
    assert chain.last(0.0)[:, 0].tolist() == [9]
    assert len(Chain(2).last(0.5)) == 0


def test_a_long_chain_is_thinned_evenly_and_resumes_exactly():
    whole, broken = Chain(1), Chain(1)
    for number in range(3 * MOST_DRAWS):
        whole.append(torch.tensor([float(number)]))
        broken.append(torch.tensor([float(number)]))
        if number == MOST_DRAWS + 7:
            state = decode(encode(broken.state_dict()), name="chain")
            broken = Chain(1)
            broken.load_state_dict(state)
    kept = whole.draws[:, 0]
    assert len(whole) <= MOST_DRAWS
    assert len(set((kept[1:] - kept[:-1]).tolist())) == 1, "one distance between all that are kept"
    assert torch.equal(kept, broken.draws[:, 0])
    assert whole.last(0.0).tolist() == broken.last(0.0).tolist() == [[3 * MOST_DRAWS - 1]]  # thinned out of `draws`
    assert float(kept[-1]) < 3 * MOST_DRAWS - 1


# --- mixing

PAIR = policy(Nb201(nodes=3, operations=("left", "right")))  # six logits


def normal(draws: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(draws, 6, generator=generator)


def test_independent_draws_mix_and_separate_chains_do_not():
    generator = torch.Generator().manual_seed(0)
    chains = [normal(200, generator) for _ in range(4)]
    found = measure_mixing(PAIR, chains)
    assert found is not None
    assert found.r_hat < 1.05
    assert 400 < found.effective_draws < 1600
    apart = measure_mixing(PAIR, [chain + torch.tensor([5.0 * number, 0] * 3) for number, chain in enumerate(chains)])
    assert apart is not None and apart.r_hat > 2


def test_chains_may_differ_in_directions_a_softmax_ignores():
    generator = torch.Generator().manual_seed(0)
    found = measure_mixing(PAIR, [normal(200, generator) + 5 * number for number in range(4)])
    assert found is not None and found.r_hat < 1.05
    absent = policy(without=("none",))
    chains = [torch.randn(100, 9, generator=generator) for _ in range(2)]
    for number, chain in enumerate(chains):
        chain[:, ~absent.live] = float(number)  # where an option that is left out happened to start
    found = measure_mixing(absent, chains)
    assert found is not None and found.r_hat < 1.2


def test_one_chain_is_compared_with_itself_and_a_drift_shows():
    steady = normal(200, torch.Generator().manual_seed(0))
    drift = torch.linspace(0, 10, 200).unsqueeze(1) * torch.tensor([1.0, 0] * 3)
    found, drifted = measure_mixing(PAIR, [steady]), measure_mixing(PAIR, [steady + drift])
    assert found is not None and drifted is not None
    assert found.r_hat < 1.1 < drifted.r_hat
    assert drifted.effective_draws < 20 < found.effective_draws


def test_constant_logits_are_ignored_and_short_chains_are_not_measured():
    draws = normal(100, torch.Generator().manual_seed(0))
    draws[:, 2:] = 3.0
    found = measure_mixing(PAIR, [draws])
    assert found is not None and np.isfinite(found.r_hat)
    draws[:, :2] = 1.0
    assert measure_mixing(PAIR, [draws]) is None
    assert measure_mixing(PAIR, [normal(7, torch.Generator().manual_seed(0))]) is None


def test_mixing_is_not_measured_without_arviz(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **options):
        if name.startswith("arviz_stats"):
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    assert measure_mixing(PAIR, [torch.randn(100, 6)]) is None


# --- logits with excluded options


def test_excluded_options_have_no_probability_and_get_no_gradient():
    logits = policy(without=("none",))
    for gate in logits.mixture().values():
        assert float(gate.weights[0].detach()) == 0
    (gradient,) = torch.autograd.grad(logits.mixture()["0->1"].weights[1], [logits.values])
    assert torch.isfinite(gradient).all()
    assert gradient[0] == 0
    assert sum(logits.probabilities()["0->1"]) == pytest.approx(1)


def test_a_centred_movement_is_orthogonal_to_what_a_softmax_cannot_see():
    movement = torch.randn(9, generator=torch.Generator().manual_seed(2))
    for options in ({}, {"without": ("none",)}):
        logits = policy(**options)
        centred = logits.center(movement)
        for row in centred.split(3):
            assert float(row.sum()) == pytest.approx(0, abs=1e-6)
        assert torch.equal(centred[~logits.live], torch.zeros(int((~logits.live).sum())))
        torch.testing.assert_close(logits.center(centred), centred)  # a projection
        assert float((movement - centred) @ centred) == pytest.approx(0, abs=1e-5)  # and an orthogonal one


def test_a_posterior_survives_its_json_form():
    found = summarize(policy(), make_draws((1, 2, 2), (1, 1, 1), (1, 2, 2)), runs=("a", "b"))
    assert Posterior.from_json(found.to_json()) == found
