"""Dropout and dropped edges: what they do on average and to single images, and that nothing is left of them later."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn

from archloom.core.errors import SettingError
from archloom.families import build_network, select_deployed_settings, set_progress
from archloom.families.regularization import DropPath
from archloom.operations import FixedReduction
from archloom.searches.short_training import seeded
from archloom.spaces import Architecture, Darts, Nb201
from archloom.supernet import EveryOption, Fixed, Only

IMAGES = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
DARTS = Darts(cells=3, nodes=2)
NB201 = Nb201(operations=("skip_connect", "nor_conv_3x3", "avg_pool_3x3"), cells_per_stage=1)
SPACES = [DARTS, NB201, Darts(cells_per_block=1, nodes=2, reduction="fixed")]


def network(space=DARTS, **settings) -> nn.Module:
    architecture = space.sample(random.Random(2))
    with seeded(1):
        return build_network(space, Only(architecture), classes=5, colours=3, channels=4, **settings)


def drop_paths(module: nn.Module) -> list[DropPath]:
    return [part for part in module.modules() if isinstance(part, DropPath)]


def test_an_image_is_dropped_whole_or_scaled_and_the_mean_stays() -> None:
    layer, image = DropPath(0.25), torch.rand(4000, 2, 3, 3) + 1
    with seeded(0):
        result = layer(image)
    ratio = (result / image).flatten(1)
    kept = ratio[:, 0] > 0
    torch.testing.assert_close(ratio[kept], torch.full_like(ratio[kept], 1 / 0.75))
    assert torch.equal(ratio[~kept], torch.zeros_like(ratio[~kept]))
    assert kept.double().mean().item() == pytest.approx(0.75, abs=0.03)  # four standard deviations
    assert result.mean().item() == pytest.approx(image.mean().item(), rel=0.04)


def test_nothing_is_dropped_in_evaluation_or_at_the_start() -> None:
    layer, image = DropPath(0.5), torch.rand(50, 2, 3, 3)
    layer.eval()
    assert layer(image) is image
    layer.train()
    set_progress(layer, 0.0)
    assert layer(image) is image


def test_the_rate_rises_to_its_end_in_a_straight_line() -> None:
    made = network(drop_path=0.4)
    assert {part.p for part in drop_paths(made)} == {0.4}
    for progress in (0.0, 0.25, 1.0):
        set_progress(made, progress)
        assert {part.p for part in drop_paths(made)} == {0.4 * progress}


def test_other_parts_that_want_to_know_are_told_as_well() -> None:
    class Own(nn.Module):
        told = 0.0

        def set_progress(self, progress: float) -> None:
            self.told = progress

    own = Own()
    set_progress(nn.Sequential(own, nn.Linear(1, 1)), 0.5)
    assert own.told == 0.5


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_every_edge_but_identities_can_be_dropped(space) -> None:
    made = network(space, drop_path=0.3)
    edges = [part for part in made.modules() if isinstance(part, Fixed)]
    for edge in edges:
        alone = edge.option == "skip_connect" and isinstance(edge.candidates["skip_connect"], nn.Identity)
        assert (edge.drop_path is None) == alone
    assert any(edge.drop_path is None for edge in edges)
    fixed = [part for part in made.modules() if isinstance(part, FixedReduction)]
    assert all(part.drop_path is not None for part in fixed)
    assert bool(fixed) == (getattr(space, "reduction", "") == "fixed")


def test_each_image_is_dropped_by_itself_and_anew_each_time() -> None:
    """A cell of a single edge that takes positive images to positive ones: zeros are what was dropped."""
    space = Nb201(nodes=2, cells_per_stage=1)
    made = build_network(
        space, Only(Architecture({"0->1": "avg_pool_3x3"})), classes=2, colours=3, channels=4, drop_path=0.5
    )
    cell = made.blocks[0]
    x = torch.rand(400, 4, 3, 3) + 1
    with seeded(3):
        dropped = [(cell(x, None) == 0).flatten(1) for _ in range(2)]
    for masks in dropped:
        assert torch.equal(masks.all(dim=1), masks.any(dim=1))  # whole images
        assert 0.4 < masks[:, 0].double().mean() < 0.6
    assert not torch.equal(*dropped)  # drawn anew each time


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_names_and_first_weights_do_not_depend_on_it(space) -> None:
    plain = network(space).state_dict()
    full = network(space, drop_path=0.3, dropout=0.5, auxiliary=True).state_dict()
    rest = {name: value for name, value in full.items() if not name.startswith("auxiliary.")}
    assert list(rest) == list(plain)
    assert all(torch.equal(rest[name], plain[name]) for name in plain)
    assert len(full) > len(rest)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_in_evaluation_the_network_is_the_plain_one(space) -> None:
    full = network(space, drop_path=0.3, dropout=0.5, auxiliary=True).eval()
    plain = network(space, **select_deployed_settings({"drop_path": 0.3, "dropout": 0.5, "auxiliary": True})).eval()
    assert torch.equal(full(IMAGES), plain(IMAGES))


@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize("settings", [{"drop_path": 0.3}, {"dropout": 0.5}], ids=str)
def test_in_training_it_draws_from_the_seed_it_is_lent(space, settings) -> None:
    made = network(space, **settings)
    results = []
    for seed in (0, 0, 1):
        with seeded(seed):
            results.append(made(IMAGES))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_dropout_acts_on_the_features_before_the_last_layer() -> None:
    made = network(dropout=0.5)
    made.head[-1].register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    seen: list[torch.Tensor] = []
    with seeded(0):
        made(IMAGES)
    assert 0.3 < (seen[0] == 0).double().mean() < 0.7


def test_a_search_with_drop_path_is_refused() -> None:
    for space in SPACES:
        with pytest.raises(SettingError, match=r"^network.drop_path must be 0 in a search, got 0.2"):
            build_network(space, EveryOption(), classes=5, colours=3, channels=4, drop_path=0.2)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_rates_outside_their_range_are_all_named(space) -> None:
    with pytest.raises(SettingError) as caught:
        build_network(space, EveryOption(), classes=5, colours=3, drop_path=1.0, dropout=-0.1)
    assert caught.value.problems == (
        "network.drop_path must lie in [0, 1), got 1.0",
        "network.dropout must lie in [0, 1), got -0.1",
    )
