"""Published architectures: each parses, and has the size and the multiply-adds that its paper prints."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
import torch

from archloom.families import build_network
from archloom.objectives import Cost, cost_of
from archloom.spaces import SPACES, Architecture, Darts, Nb201
from archloom.spaces.published import PUBLISHED
from archloom.supernet import Only

MILLION = 1e6


@pytest.mark.parametrize("name", PUBLISHED)
def test_each_is_an_architecture_of_its_space_and_comes_back_as_it_was(name: str) -> None:
    space_name, text = PUBLISHED[name]
    space = SPACES[space_name].load()(**SPACES[space_name].settings)
    architecture = space.parse(text)
    assert isinstance(architecture, Architecture)
    assert space.parse(space.format(architecture)) == architecture


def test_no_two_are_alike() -> None:
    assert len(set(PUBLISHED.values())) == len(PUBLISHED)


@functools.cache
def built(name: str, *, cells: int, classes: int, size: int, **network: object) -> Cost:
    """What the network costs that its paper trains: without the auxiliary head, pools not normalised."""
    space = Darts(cells=cells)
    resolve = Only(space.parse(PUBLISHED[name][1]))
    with torch.device("meta"):
        made = build_network(space, resolve, classes=classes, colours=3, normalized_pools=False, **network)
        return cost_of(made.eval(), (3, size, size))


@pytest.mark.parametrize(
    ("name", "parameters", "multiply_adds"),
    [
        ("darts_v2", 3.3, None),  # 3.35: the paper rounds down, others to 3.4
        ("gdas", 3.4, None),
        ("p_darts", 3.4, 532),
        ("pc_darts", 3.6, 557),
        ("drnas", 4.1, None),
        ("snas", 2.66, 422),  # as repositories note beside the cell; the paper prints 2.8
    ],
)
def test_on_cifar_it_has_the_size_that_papers_print(name: str, parameters: float, multiply_adds: int | None) -> None:
    cost = built(name, cells=20, classes=10, size=32, channels=36)
    assert cost.parameters / MILLION == pytest.approx(parameters, abs=0.06)
    if multiply_adds is not None:
        assert cost.multiply_adds / MILLION == pytest.approx(multiply_adds, abs=0.5)


@pytest.mark.parametrize(
    ("name", "cifar", "imagenet"),
    [
        ("pc_darts", 3_634_678, 5_270_560),
        ("pc_darts_imagenet", 3_721_510, 5_342_464),
        ("p_darts", 3_433_798, 4_944_352),
        ("darts_v2", 3_349_342, 4_718_752),
    ],
)
def test_it_has_the_weights_of_the_published_networks_to_the_last(name: str, cifar: int, imagenet: int) -> None:
    assert built(name, cells=20, classes=10, size=32, channels=36).parameters == cifar
    large = built(name, cells=14, classes=1000, size=224, channels=48, stem="imagenet")
    assert large.parameters == imagenet


@pytest.mark.parametrize(
    ("name", "channels", "parameters"),
    [
        ("darts_v2", 48, 4.7),
        ("gdas", 50, 5.3),
        ("p_darts", 48, 4.9),
        ("pc_darts", 48, 5.3),
        ("pc_darts_imagenet", 48, 5.3),
        ("drnas_imagenet", 48, 5.7),
    ],
)
def test_on_imagenet_it_has_the_size_that_its_paper_prints(name: str, channels: int, parameters: float) -> None:
    cost = built(name, cells=14, classes=1000, size=224, channels=channels, stem="imagenet")
    assert cost.parameters / MILLION == pytest.approx(parameters, abs=0.05)


def test_gdas_on_imagenet_has_the_multiply_adds_that_its_paper_prints() -> None:
    cost = built("gdas", cells=14, classes=1000, size=224, channels=50, stem="imagenet")
    assert cost.multiply_adds / MILLION == pytest.approx(581, abs=0.5)


@pytest.mark.parametrize(("name", "printed"), [("p_darts", 557), ("pc_darts", 586), ("pc_darts_imagenet", 597)])
def test_on_imagenet_convolutions_are_all_but_a_fortieth_of_what_papers_print(name: str, printed: int) -> None:
    """Normalisations and rectifiers counted as well, two and one for each number, would make up for nearly all of it.

    DARTS itself prints 574 where convolutions come to 530; no way to count is known that explains it.
    """
    cost = built(name, cells=14, classes=1000, size=224, channels=48, stem="imagenet")
    assert cost.multiply_adds / MILLION == pytest.approx(printed * 39 / 40, rel=0.001)


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name.startswith("nb201")])
def test_cells_of_nb201_have_the_costs_of_the_table(nb201_dir: Path, name: str) -> None:
    with np.load(nb201_dir / "nasbench201_compact.npz") as table:
        row = table["arch"].tolist().index(PUBLISHED[name][1])
        parameters, multiply_adds = int(table["cifar10_params"][row]), float(table["cifar10_flops_M"][row])
        best = row == int(table["cifar10_test"].argmax())
    assert best == (name == "nb201_best")
    space = Nb201()
    network = build_network(space, Only(space.parse(PUBLISHED[name][1])), classes=10, colours=3, channels=16)
    assert cost_of(network.eval(), (3, 32, 32)) == Cost(parameters, round(multiply_adds * MILLION))
