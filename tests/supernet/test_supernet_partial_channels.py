"""Partial channels: what is mixed, what passes by, and the fused cell against the edges one by one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from archloom.core.errors import CheckpointError, SettingError
from archloom.families import build_network
from archloom.fast import use_kernels
from archloom.fast.partial import join_parts
from archloom.operations import Place
from archloom.policies.edges import EdgeLogits
from archloom.policies.logits import Logits
from archloom.spaces import Architecture, Darts, Decision, Nb201
from archloom.supernet import Dag, EveryOption, Gate, Only, PartialChannels, inherit, path_gates

EDGE = Decision("edge", ("none", "skip", "twice"))
DOUBLE = 2.0


class Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return DOUBLE * x


def make(option: str, place: Place) -> nn.Module:
    assert place.channels_in == place.channels_out
    return nn.Identity() if option == "skip" else Double()


def edge(parts: int, *, channels: int = 8, stride: int = 1) -> nn.Module:
    return PartialChannels(parts=parts).edge(EDGE, Place(channels, channels, stride, nn.BatchNorm2d), make)


def numbered(channels: int) -> Tensor:
    """An image whose value is the number of its channel."""
    return torch.arange(channels, dtype=torch.float32).view(1, channels, 1, 1).expand(2, channels, 4, 4).contiguous()


def order(image: Tensor) -> list[int]:
    return image[0, :, 0, 0].int().tolist()


@pytest.mark.parametrize(
    ("channels", "parts", "wanted"),
    [
        (8, 4, [0, 2, 4, 6, 1, 3, 5, 7]),
        (16, 4, [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15]),
        (12, 3, [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]),
    ],
)
def test_channels_are_shuffled_as_published(channels, parts, wanted):
    image, width = numbered(channels), channels // parts
    shuffled = join_parts(image[:, :width], image[:, width:], parts)
    assert order(shuffled) == wanted
    back = join_parts(shuffled[:, : channels // width], shuffled[:, channels // width :], width)
    assert order(back) == list(range(channels))  # the inverse has as many parts as a part had channels


def test_an_edge_all_on_skip_is_the_shuffle_of_its_input():
    image = torch.randn(2, 8, 4, 4)
    result = edge(4)(image, {"edge": Gate(weights=torch.tensor([0.0, 1.0, 0.0]))})
    assert torch.equal(result, image[:, [0, 2, 4, 6, 1, 3, 5, 7]])


def test_what_passes_by_has_the_weight_of_the_edge_and_none_takes_weight():
    gate = Gate(weights=0.5 * torch.tensor([0.2, 0.3, 0.5]))  # an edge of weight 0.5
    result = edge(4)(numbered(8), {"edge": gate})[0, :, 0, 0]
    mixed = 0.5 * (0.3 + 0.5 * DOUBLE)  # `none` gives nothing
    wanted = torch.tensor([mixed * 0, 0.5 * 2, 0.5 * 4, 0.5 * 6, mixed * 1, 0.5 * 3, 0.5 * 5, 0.5 * 7])
    assert torch.allclose(result, wanted)
    assert not torch.allclose(result[1:4], torch.tensor([2.0, 4.0, 6.0]))  # unscaled would differ by up to 3


def test_where_the_resolution_halves_the_rest_is_pooled():
    image = torch.randn(2, 8, 5, 6)

    class Halve(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, :, ::2, ::2]

    choice = PartialChannels(parts=2).edge(EDGE, Place(8, 8, 2, nn.BatchNorm2d), lambda option, place: Halve())
    result = choice(image, {"edge": Gate(index=1)})
    assert result.shape == (2, 8, 3, 3)
    assert torch.equal(result[:, 1::2, :2], nn.functional.max_pool2d(image[:, 4:, :4], 2))


def test_one_option_has_share_one_and_none_alone_closes_the_edge():
    image = numbered(8)
    assert order(edge(4)(image, {"edge": Gate(index=1)})) == [0, 2, 4, 6, 1, 3, 5, 7]
    assert edge(4)(image, {"edge": Gate(index=0)}) is None
    assert edge(4)(image, {"edge": Gate()}) is None
    assert edge(4)(None, {"edge": Gate(index=1)}) is None


def test_images_that_chose_none_pass_nothing_by():
    result = edge(4)(numbered(8), {"edge": Gate(index=torch.tensor([0, 1]))})
    assert float(result[0].abs().sum()) == 0
    assert result[1, :, 0, 0].int().tolist() == [0, 2, 4, 6, 1, 3, 5, 7]


@pytest.mark.parametrize("channels", [6, 9])
def test_a_width_that_the_parts_do_not_divide_is_refused(channels):
    with pytest.raises(SettingError, match=rf"must be a multiple of 4 \(strategy.parts\), got {channels}"):
        edge(4, channels=channels)


def test_a_network_that_does_not_place_its_operations_is_refused():
    with pytest.raises(SettingError, match=r"by resolve.edge for partial channels"):
        PartialChannels(parts=2).operation(EDGE, lambda option: nn.Identity())


# --- whole cells


def policy_of(space, seed: int = 0) -> EdgeLogits:
    policy = EdgeLogits(space, torch.Generator().manual_seed(seed), spread=1.0)
    return policy.double()


def supernet(space, parts: int, channels: int = 8) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build_network(space, PartialChannels(parts=parts), classes=3, colours=3, channels=channels).double()


def run(space, parts: int, kernels: str) -> list[Tensor]:
    network, policy = supernet(space, parts), policy_of(space)
    images = torch.randn(4, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with use_kernels(kernels):
        result = network(images, policy.mixture())
        loss = result.logsumexp(dim=1).sum() + (result[:, 0] ** 2).sum()
        found = torch.autograd.grad(loss, [policy.values, *network.parameters()], allow_unused=True)
    return [result, *(gradient for gradient in found if gradient is not None)]


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("space", [Darts(cells=3, nodes=3), Nb201(cells_per_stage=1)], ids=["darts", "nb201"])
@pytest.mark.parametrize("kernels", ["auto", "torch"])
def test_a_fused_cell_has_the_values_and_gradients_of_its_edges(space, parts, kernels):
    plain, fused = run(space, parts, "plain"), run(space, parts, kernels)
    assert len(plain) == len(fused) > 10
    for one, other in zip(plain, fused, strict=True):
        assert torch.allclose(one, other, rtol=1e-7, atol=1e-9)


def test_a_fused_path_has_the_values_of_its_edges():
    space = Darts(cells=3)
    network = supernet(space, 4)
    architecture = space.decode({d.name: torch.rand(len(d.options)).tolist() for d in space.decisions})
    images = torch.randn(4, 3, 8, 8, dtype=torch.float64)
    results = []
    for kernels in ("plain", "auto"):
        with use_kernels(kernels), torch.no_grad():
            results.append(network(images, path_gates(space, architecture)))
    assert torch.allclose(*results, rtol=1e-7, atol=1e-9)


def node(resolve, policy: Logits, inputs: list[Tensor]) -> Tensor:
    """One node of two inputs, from three candidates each."""
    decisions = {(0, 2): Decision("0->2", EDGE.options), (1, 2): Decision("1->2", EDGE.options)}
    place = Place(8, 8, 1, resolve.normalize)
    edges = {key: resolve.edge(decision, place, make) for key, decision in decisions.items()}
    return Dag(edges, dict.fromkeys(edges, 1), outputs=[2])(inputs, policy.mixture())[0]


class TwoEdges(Nb201):
    """Two decisions that enter one node."""

    def full_decisions(self):
        return (Decision("0->2", EDGE.options), Decision("1->2", EDGE.options))

    @property
    def cell_nodes(self):
        return (type(super().cell_nodes[0])("cell", ("0->2", "1->2")),)


def test_on_all_channels_with_equal_edges_a_node_is_that_of_darts_divided_by_its_inputs():
    space, inputs = TwoEdges(nodes=3), [torch.randn(2, 8, 4, 4, requires_grad=True) for _ in range(2)]
    edges, options = EdgeLogits(space, torch.Generator().manual_seed(0), spread=1.0), Logits(space, torch.Generator())
    with torch.no_grad():
        edges.values[6:] = 0.0
        options.values.copy_(edges.values[:6])
    results = [node(EveryOption(), policy, inputs) for policy in (edges, options)]
    assert torch.allclose(2 * results[0], results[1], atol=1e-6)
    by = [
        torch.autograd.grad(result.square().sum(), [policy.values, *inputs])
        for result, policy in zip(results, (edges, options), strict=True)
    ]
    assert torch.allclose(4 * by[0][0][:6], by[1][0], rtol=1e-4, atol=1e-5)  # a square: twice the half
    for one, other in zip(by[0][1:], by[1][1:], strict=True):
        assert torch.allclose(4 * one, other, rtol=1e-4, atol=1e-5)


def test_the_gradient_of_the_edges_is_that_of_a_softmax_over_whole_edges():
    """dL/dbeta_e = B_e (G_e - sum B G) with G_e the product of dL/dnode and the whole edge, what passes by included."""
    space, parts = TwoEdges(nodes=3), 4
    policy = policy_of(space)
    inputs = [torch.randn(2, 8, 4, 4, dtype=torch.float64) for _ in range(2)]
    resolve, target = PartialChannels(parts=parts), torch.randn(2, 8, 4, 4, dtype=torch.float64)
    state = node(resolve, policy, inputs)
    (found,) = torch.autograd.grad((state - target).square().sum(), [policy.values])
    with torch.no_grad():
        by_node = 2 * (state - target)
        weights = torch.stack(list(policy.edge_weights().values()))
        place, products = Place(8, 8, 1, resolve.normalize), []
        for name, x in zip(("0->2", "1->2"), inputs, strict=True):
            probabilities = policy.rows()[name].softmax(dim=0)
            whole = resolve.edge(Decision(name, EDGE.options), place, make)(x, {name: Gate(weights=probabilities)})
            products.append((by_node * whole).sum())
        by_edges = torch.stack(products)
        wanted = weights * (by_edges - (weights * by_edges).sum())
    assert torch.allclose(found[6:], wanted, rtol=1e-9)
    assert wanted.abs().max() > 1e-3


def test_what_passes_by_does_not_reach_the_options():
    space = TwoEdges(nodes=3)
    policy, inputs = policy_of(space), [torch.zeros(2, 8, 4, 4, dtype=torch.float64) for _ in range(2)]
    for image in inputs:
        image[:, 2:] = torch.randn(2, 6, 4, 4, dtype=torch.float64)  # the first quarter is zero: only the rest counts
    (found,) = torch.autograd.grad(node(PartialChannels(parts=4), policy, inputs).square().sum(), [policy.values])
    assert found[:6].abs().max() < 1e-12
    assert found[6:].abs().max() > 1e-3


# --- sizes, and standalone networks


def test_the_supernet_of_the_paper_has_the_weights_of_the_public_one():
    with torch.device("meta"):
        networks = [
            build_network(Darts(cells=8), resolve, classes=10, colours=3, channels=16)
            for resolve in (PartialChannels(parts=4), EveryOption())
        ]
    partial, full = (sum(weight.numel() for weight in network.parameters()) for network in networks)
    assert partial == 299_578 - 2 * 48  # the public stem has a scale and a shift
    assert full > 6 * partial


def test_operations_have_weights_for_their_part_of_the_channels_only():
    network = build_network(Darts(cells=3), PartialChannels(parts=4), classes=3, colours=3, channels=8)
    shapes = {weight.shape[:2] for name, weight in network.named_parameters() if name.startswith("cells.0.dag")}
    assert shapes == {(2, 1), (2, 2)}  # depthwise and pointwise, on 8 / 4 channels


def test_weights_are_not_copied_into_standalone_networks_even_if_the_path_has_none():
    space = Nb201(nodes=3, cells_per_stage=1)
    shared = build_network(space, PartialChannels(parts=2), classes=3, colours=3, channels=4)
    skips = Architecture(dict.fromkeys((d.name for d in space.decisions), "skip_connect"))
    alone = build_network(space, Only(skips, affine=False), classes=3, colours=3, channels=4)
    with pytest.raises(CheckpointError, match="a supernet of partial channels must not be copied from"):
        inherit(alone, shared)
