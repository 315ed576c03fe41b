"""Searches with dropout and an auxiliary head keep what every search promises: the same bits, resumed or not."""

from __future__ import annotations

import pytest
import torch
from states import differences
from test_contract_strategies import finish, interrupted

from archloom.execution.checkpoint import decode

NETWORK = {"channels": 2, "auxiliary": True, "dropout": 0.3}
ROWS = pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("darts", {"order": "second", "products": "differences"}),
        ("darts", {"order": "second", "products": "exact"}),
        ("amended_darts", {"inverse": "hessian", "limit": 0.0}),
        ("gibbs", {"order": "second", "logits": {"images": 8}, "finalists": 2}),
    ],
    ids=str,
)


@ROWS
def test_interrupted_and_resumed_ends_in_the_state_of_the_uninterrupted(make_search, name, settings) -> None:
    def search():
        return make_search(name, strategy=settings, network=NETWORK)

    whole, resumed = search(), search()
    before = torch.get_rng_state()
    wanted = finish(whole)
    assert torch.equal(before, torch.get_rng_state())
    resumed.load_state_dict(decode(interrupted(search(), 4), name="saved"))
    assert differences(wanted, finish(resumed)) == []


@ROWS
def test_another_seed_drops_others(make_search, name, settings) -> None:
    weights = [make_search(name, seed=seed, strategy=settings, network=NETWORK).weights for seed in (0, 1)]
    weights[1]._network.load_state_dict(weights[0]._network.state_dict())
    batch = make_search(name, strategy=settings).train.batch(0, 0)
    gates = make_search(name, strategy=settings).strategy.policy.mixture()
    first, second = (float(each.loss(batch, gates).detach()) for each in weights)
    assert first != second


@pytest.mark.parametrize("space", ["darts", "darts_gdas", "darts_frc", "s1", "s2"])
def test_runs_on_the_spaces_of_the_darts_family(make_search, space) -> None:
    search = make_search("darts", space, network=NETWORK, search={"epochs": 1, "batch_size": 24})
    outcome = search.run()
    assert search.space.check(outcome.architecture) == search.space.parse(outcome.text)
