"""The contract of strategies also holds for networks with dropout and an auxiliary head."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from small_searches import make_small_search

from archloom.testing import StrategyContract
from archloom.testing.strategies import check_result

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
class TestRegularized(StrategyContract):
    sections: ClassVar = {"network": NETWORK}
    test_every_setting_has_help = None
    test_presets_resolve = None
    test_a_resumed_search_with_a_target_ends_in_the_state_of_an_uninterrupted_one = None

    @pytest.fixture(autouse=True)
    def _choose(self, name: str, settings: dict[str, Any]) -> None:
        self.strategy, self.settings = name, settings


@ROWS
def test_another_seed_drops_others(name, settings) -> None:
    weights = [make_small_search(name, seed=seed, strategy=settings, network=NETWORK).weights for seed in (0, 1)]
    weights[1]._network.load_state_dict(weights[0]._network.state_dict())
    batch = make_small_search(name, strategy=settings).train.batch(0, 0)
    gates = make_small_search(name, strategy=settings).strategy.policy.mixture()
    first, second = (float(each.loss(batch, gates).detach()) for each in weights)
    assert first != second


@pytest.mark.parametrize("space", ["darts", "darts_gdas", "darts_frc", "s1", "s2"])
def test_runs_on_the_spaces_of_the_darts_family(space) -> None:
    check_result(make_small_search("darts", space, network=NETWORK, search={"epochs": 1, "batch_size": 24}))
