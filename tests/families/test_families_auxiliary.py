"""The auxiliary head: where it reads, what it gives, which image sizes it takes, and the stem of large images."""

from __future__ import annotations

import random

import pytest
import torch

from archloom.core.errors import SettingError
from archloom.families import build_network
from archloom.families.auxiliary import AuxiliaryHead
from archloom.objectives import CostTable
from archloom.operations import FactorizedReduce, ReluConvNorm
from archloom.spaces import SPACES, Darts, Nb201
from archloom.supernet import EveryOption, Only, Prediction, path_gates


def head(**settings) -> AuxiliaryHead:
    return AuxiliaryHead(8, 5, Only(None).normalize, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(("stride", "size"), [(3, 8), (2, 7), (3, 16), (3, 5), (3, 2), (2, 6), (2, 28)])
def test_it_classifies_images_of_any_size_from_two_pixels_on(stride: int, size: int) -> None:
    assert head(stride=stride)(torch.randn(3, 8, size, size)).shape == (3, 5)


@pytest.mark.parametrize(("stride", "size"), [(3, 8), (2, 7)])
def test_at_its_own_size_it_is_the_published_head(stride: int, size: int) -> None:
    made = head(stride=stride)
    x = torch.rand(2, 8, size, size)
    pooled = torch.nn.functional.avg_pool2d(x, 5, stride)
    assert pooled.shape[-2:] == (2, 2)
    torch.testing.assert_close(made[1](x), pooled)
    assert made[2].weight.shape == (128, 8, 1, 1)
    assert made[5].weight.shape == (768, 128, 2, 2)
    assert sum(p.numel() for p in made.parameters()) == 128 * 8 + 256 + 768 * 128 * 4 + 2 * 768 + 769 * 5


def test_smaller_images_than_it_can_take_are_refused_in_one_line() -> None:
    with pytest.raises(SettingError, match=r"^network.auxiliary must be false for images so small: .* 1 pixel"):
        head()(torch.randn(2, 8, 1, 4))


@pytest.mark.parametrize(
    "name", [name for name, entry in SPACES.items() if entry.load() in (Darts, Nb201) and name != "s2"]
)
@pytest.mark.parametrize("kind", ["supernet", "standalone"])
def test_it_reads_what_leaves_the_second_reduction(name: str, kind: str) -> None:
    settings = {**SPACES[name].settings}
    space = Nb201(**{**settings, "cells_per_stage": 2}) if "nb201" in name else Darts(**{**settings, "cells": 6})
    architecture = space.sample(random.Random(0))
    resolve = EveryOption() if kind == "supernet" else Only(architecture)
    network = build_network(space, resolve, classes=5, colours=3, channels=4, auxiliary=True)
    parts = network.cells if isinstance(space, Darts) else network.blocks
    left: list[torch.Tensor] = []
    for part in parts:
        part.register_forward_hook(lambda module, inputs, output: left.append(output))
    read: list[torch.Tensor] = []
    network.auxiliary.register_forward_hook(lambda module, inputs, output: read.append(inputs[0]))
    result = network(torch.randn(2, 3, 16, 16), path_gates(space, architecture))
    assert isinstance(result, Prediction)
    assert result.logits.shape == result.auxiliary.shape == (2, 5)
    sizes = [image.shape[-1] for image in left]
    assert read[0] is left[sizes.index(4)]
    assert sizes[0] == 16
    network.eval()
    assert network(torch.randn(2, 3, 16, 16), path_gates(space, architecture)).shape == (2, 5)
    assert len(read) == 1  # it does not run where nobody asks


def test_the_head_and_all_that_training_needs_cost_nothing_later() -> None:
    space = Darts(cells=3, nodes=1)
    architecture = space.sample(random.Random(0))
    plain, full = (
        CostTable(space, classes=3, image_shape=(3, 16, 16), channels=4, **settings).cost(architecture)
        for settings in ({}, {"auxiliary": True, "drop_path": 0.2, "dropout": 0.1})
    )
    assert plain == full


# --- the stem of ImageNet


def test_the_stems_of_large_images_are_the_two_inputs_of_the_first_cell() -> None:
    space = Darts(cells=3, nodes=1)
    network = build_network(space, EveryOption(), classes=3, colours=3, channels=6, stem="imagenet")
    seen: list[tuple[torch.Size, torch.Size]] = []
    network.cells[0].register_forward_hook(
        lambda module, inputs, output: seen.append((inputs[0].shape[1:], inputs[1].shape[1:]))
    )
    logits = network(torch.randn(2, 3, 64, 64), path_gates(space, space.sample(random.Random(0))))
    assert seen == [((6, 16, 16), (6, 8, 8))]
    assert logits.shape == (2, 3)
    assert network.stem[0].weight.shape == (3, 3, 3, 3)
    assert type(network.cells[0].first) is FactorizedReduce
    assert type(network.cells[0].second) is ReluConvNorm


def test_the_second_stem_comes_after_the_first() -> None:
    space = Darts(cells=1, nodes=1)
    network = build_network(space, EveryOption(), classes=3, colours=3, channels=4, stem="imagenet")
    network.cells[0].register_forward_hook(lambda module, inputs, output: seen.extend(inputs[:2]))
    seen: list[torch.Tensor] = []
    images = torch.randn(2, 3, 32, 32)
    network(images, path_gates(space, space.sample(random.Random(0))))
    torch.testing.assert_close(seen[0], network.stem(images))
    torch.testing.assert_close(seen[1], network.second_stem(network.stem(images)))


def test_a_stem_that_there_is_not_is_refused() -> None:
    with pytest.raises(SettingError, match=r"network.stem must be cifar or imagenet, got 'mnist'"):
        build_network(Darts(), EveryOption(), classes=3, colours=3, stem="mnist")
    with pytest.raises(SettingError, match=r"network.channels must be at least 2 with the imagenet stem, got 1"):
        build_network(Darts(), EveryOption(), classes=3, colours=3, stem="imagenet", channels=1)


def test_pools_may_be_left_as_they_are() -> None:
    space = Darts(cells=1, nodes=1, operations=("avg_pool_3x3", "max_pool_3x3"), edges="fixed")
    architecture = space.sample(random.Random(0))
    plain, normalized = (
        build_network(space, Only(architecture), classes=3, colours=3, channels=4, normalized_pools=choice)
        for choice in (False, True)
    )
    assert [name for name in normalized.state_dict() if name not in plain.state_dict()] != []
    assert all(
        "running" in name or "num_batches" in name for name in set(normalized.state_dict()) - set(plain.state_dict())
    )
    assert len(list(plain.parameters())) == len(list(normalized.parameters()))
