from __future__ import annotations

import pytest
import torch
from torch import nn

from archloom.data.augment import Augment
from archloom.data.loader import Loader
from archloom.data.source import InMemory
from archloom.families import build_network
from archloom.searches.shared_score import SharedScore
from archloom.spaces import Nb201
from archloom.supernet import EveryOption, SharedWeights, path_gates

SPACE = Nb201(nodes=2, cells_per_stage=1)
LABELS = torch.arange(22) % 2


def loader(count: int, *, batch_size: int) -> Loader:
    images = torch.randn(22, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return Loader(
        InMemory(images, LABELS),
        torch.arange(count),
        batch_size=batch_size,
        mean=(0.0,),
        std=(1.0,),
        augment=Augment(),
        seed=0,
        drop_last=False,
    )


@pytest.fixture
def weights() -> SharedWeights:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return SharedWeights(build_network(SPACE, EveryOption(), classes=2, colours=1, channels=2))


def test_shared_accuracy_is_that_of_the_path_over_all_images(weights):
    images = loader(22, batch_size=8)
    architecture = SPACE.parse("|nor_conv_1x1~0|")
    value = SharedScore(SPACE, weights, images)(architecture)
    right = 0
    for step in range(images.steps):
        batch = images.batch(0, step)
        logits = weights._network(batch.images, path_gates(SPACE, architecture))
        right += int((logits.argmax(dim=1) == batch.labels).sum())
    assert value == pytest.approx(right / 22)


def test_evaluating_leaves_the_network_as_it_was(weights):
    before = {name: value.clone() for name, value in weights._network.state_dict().items()}
    SharedScore(SPACE, weights, loader(10, batch_size=5))(SPACE.parse("|avg_pool_3x3~0|"))
    assert all(torch.equal(before[name], value) for name, value in weights._network.state_dict().items())
    assert not any(isinstance(module, nn.Dropout) for module in weights._network.modules())


def test_likelihood_is_minus_the_mean_loss_over_batches_of_unequal_size(weights):
    images = loader(22, batch_size=8)
    gates = path_gates(SPACE, SPACE.parse("|skip_connect~0|"))
    lost = sum(weights.loss(batch, gates).item() * len(batch) for batch in images.epoch(0))
    score = SharedScore(SPACE, weights, images)
    assert score.likelihood(SPACE.parse("|skip_connect~0|")) == pytest.approx(-lost / 22)


def test_class_counts_leave_out_classes_without_examples(weights):
    assert SharedScore(SPACE, weights, loader(22, batch_size=8)).class_counts == [11, 11]
    assert SharedScore(SPACE, weights, loader(1, batch_size=8)).class_counts == [1]
