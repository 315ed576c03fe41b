"""Mobile networks: published counts, one path is one network, slices are masks, and what a warm-up keeps in memory."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from archloom.core.errors import SettingError
from archloom.data.loader import Batch
from archloom.families import build_network, family_of
from archloom.families.mobile import MobileNetwork
from archloom.objectives import CostTable, cost_of
from archloom.spaces import SPACES, Architecture, Mobile
from archloom.spaces.mobile import REFERENCES
from archloom.supernet import EveryOption, Gate, Gates, Only, SharedWeights, WeightSettings, inherit, path_gates
from archloom.tasks import ImageShape

V2 = Mobile(
    stem=16,
    stem_stride=1,
    blocks=(16, 24),
    layers=(2, 2),
    strides=(2, 1),
    head=(32,),
    width_multipliers=(0.5, 1, 1.5),
)
V3 = replace(
    V2,
    separable=0,
    stem_kernels=(3, 5),
    head=(32, 48),
    expansions=(1, 2, 4),
    squeeze=("off", "on"),
    activation="hard_swish",
    relu_blocks=1,
)
SPACES_TRIED = pytest.mark.parametrize("space", [V2, V3], ids=["v2", "v3"])


def images(size: int = 9) -> Tensor:
    return torch.randn(3, 2, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def supernet(space: Mobile, **settings: bool) -> nn.Module:
    torch.manual_seed(0)
    return build_network(space, EveryOption(), classes=4, colours=2, **settings).double()


def some(space: Mobile, count: int) -> list[Architecture]:
    rng = random.Random(1)
    return [space.sample(rng) for _ in range(count)]


def warm_up(space: Mobile) -> Gates:
    """All operations at once, the largest of every width."""
    return {
        d.name: Gate(index=len(d.options) - 1)
        if d.name in space.widths
        else Gate(weights=torch.full((len(d.options),), 1 / len(d.options), dtype=torch.float64))
        for d in space.decisions
    }


# --- what networks cost


@pytest.mark.parametrize(
    ("name", "parameters", "multiply_adds"),
    [
        ("mobilenet_v2", 3_504_872, 301e6),
        ("mnasnet_b1", 4_383_312, 315e6),
        ("proxylessnas_mobile", 4_080_512, 320e6),
        ("mobilenet_v3_large", 5_483_032, 217e6),
    ],
)
def test_published_networks_have_the_published_counts(name: str, parameters: int, multiply_adds: float) -> None:
    """Parameters to the last one; multiply-adds as papers print them, in millions."""
    entry = SPACES[REFERENCES[name][0]]
    space = entry.load()(**entry.settings)
    cost = CostTable(space, classes=1000, image_shape=(3, 224, 224)).cost(space.parse(name))
    assert cost.parameters == parameters
    assert cost.multiply_adds == pytest.approx(multiply_adds, rel=0.005)


@SPACES_TRIED
def test_the_table_of_costs_counts_the_network_that_is_built(space: Mobile) -> None:
    table = CostTable(space, classes=4, image_shape=(2, 9, 9), dropout=0.5)
    for architecture in some(space, 3):
        network = build_network(space, Only(architecture), classes=4, colours=2)
        cost = table.cost(architecture)
        assert cost == cost_of(network, (2, 9, 9))
        assert cost.parameters == sum(parameter.numel() for parameter in network.parameters())


# --- one path is one network


@SPACES_TRIED
def test_a_path_computes_what_the_network_of_its_architecture_does(space: Mobile) -> None:
    shared = supernet(space)
    for architecture in some(space, 6):
        resolve = Only(architecture, affine=False, running_statistics=False)
        alone = build_network(space, resolve, classes=4, colours=2).double()
        inherit(alone, shared)
        path = shared(images(), path_gates(space, architecture))
        torch.testing.assert_close(alone(images()), path, rtol=0, atol=1e-10)
        assert torch.equal(alone(images()), alone(images(), path_gates(space, architecture)))


def test_a_whole_reference_network_is_a_path() -> None:
    entry = SPACES["mobilenet_v3_widths"]
    space = entry.load()(**entry.settings)
    architecture = space.parse("mobilenet_v3_large")
    with torch.device("meta"):
        shared = build_network(space, EveryOption(), classes=10, colours=3)
        alone = build_network(space, Only(architecture), classes=10, colours=3)
    wide, own = shared.state_dict(), alone.state_dict()
    convolutions = {key: value for key, value in own.items() if value.dim() == 4}
    assert len(convolutions) == 1 + 2 + 14 * 3 + 8 * 2 + 2  # stem, separable, bottlenecks, squeeze-and-excite, head
    assert all(
        size <= most
        for key, value in convolutions.items()
        for size, most in zip(value.shape, wide[key].shape, strict=True)
    )


def test_a_layer_left_out_is_not_built() -> None:
    architecture = V2.parse("16:k3 | 8:k3 | 16:k3e3,zero | 24:k5e6,k7e3 | 32")
    network = build_network(V2, Only(architecture), classes=4, colours=2)
    assert isinstance(network, MobileNetwork)
    assert len(list(network.layers[2].parameters())) == 0
    assert len(list(network.layers[4].parameters())) > 0


# --- slices and masks


@SPACES_TRIED
@pytest.mark.parametrize("kind", ["path", "warm-up", "mixture"])
def test_slicing_gives_the_values_and_gradients_of_masking(space: Mobile, kind: str) -> None:
    sliced, masked = supernet(space), supernet(space, masked=True)
    masked.load_state_dict(sliced.state_dict())
    for architecture in some(space, 3 if kind == "path" else 1):
        logits = {d.name: torch.randn(len(d.options), dtype=torch.float64) for d in space.decisions}
        kinds: dict[str, Gates] = {
            "path": path_gates(space, architecture),
            "warm-up": warm_up(space),
            "mixture": {name: Gate(weights=value.softmax(0)) for name, value in logits.items()},
        }
        results = []
        for network in (sliced, masked):
            network.zero_grad()
            output = network(images(), kinds[kind])
            (output * torch.linspace(-1, 1, 4, dtype=torch.float64)).sum().backward()
            results.append((output, [parameter.grad for parameter in network.parameters()]))
        torch.testing.assert_close(results[0][0], results[1][0], rtol=0, atol=1e-10)
        for one, other in zip(results[0][1], results[1][1], strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def test_a_path_computes_only_the_channels_that_it_needs() -> None:
    network = supernet(V2)
    seen = []
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda module, inputs, output: seen.append(output.shape[1]))
    network(images(), path_gates(V2, V2.parse("8:k3 | 16:k3 | 8:k3e3,zero | 16:k5e6,zero | 16")))
    assert seen == [8, 8, 16, 48, 48, 8, 48, 48, 16, 16]


def test_residual_layers_add_to_their_input_and_others_do_not() -> None:
    network = supernet(V2)
    assert isinstance(network, MobileNetwork)
    architecture = V2.parse("16:k3 | 8:k3 | 16:k3e3,k3e3 | 24:k5e6,zero | 32")
    passed: list[tuple[Tensor, Tensor, Tensor]] = []
    for number in (1, 2):
        network.layers[number].register_forward_hook(lambda m, i, o: passed.append((i[0], o[0])))  # type: ignore[arg-type]
    results = []
    for number in (1, 2):
        network.layers[number].layer.register_forward_hook(lambda m, i, o: results.append(o))  # type: ignore[union-attr]
    network(images(), path_gates(V2, architecture))
    assert passed[0][1] is results[0]
    torch.testing.assert_close(passed[1][1], passed[1][0] + results[1])


@SPACES_TRIED
def test_every_weight_of_a_gate_has_its_gradient(space: Mobile) -> None:
    """By differences: widths are weighed where no normalisation takes it out again."""
    network = supernet(space)
    logits = {d.name: torch.randn(len(d.options), dtype=torch.float64).requires_grad_() for d in space.decisions}

    def loss(values: dict[str, Tensor]) -> Tensor:
        gates = {name: Gate(weights=value.softmax(0)) for name, value in values.items()}
        return (network(images(), gates) * torch.linspace(-1, 1, 4, dtype=torch.float64)).sum()

    gradients = dict(zip(logits, torch.autograd.grad(loss(logits), list(logits.values())), strict=True))
    assert all(gradient.abs().max() > 1e-9 for gradient in gradients.values())
    widths, others = space.widths, set(logits) - space.widths
    for names in (widths, others):
        step = {name: torch.randn_like(value) * (name in names) for name, value in logits.items()}
        expected = sum(float(gradients[name] @ step[name]) for name in names)
        with torch.no_grad():
            ahead, behind = (loss({name: logits[name] + h * step[name] for name in logits}) for h in (1e-7, -1e-7))
        assert float((ahead - behind) / 2e-7) == pytest.approx(expected, rel=1e-4)


# --- memory


def kept_bytes(network: nn.Module, gates: Gates) -> int:
    """What a graph keeps for the way back, each storage once; parameters aside."""
    own = {parameter.untyped_storage().data_ptr() for parameter in network.parameters()}
    sizes: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = network(images(16), gates)
    assert result.requires_grad
    return sum(sizes.values())


def test_a_warm_up_keeps_as_much_for_many_options_as_for_few() -> None:
    few, many = replace(V3, kernels=(3, 5)), replace(V3, kernels=(1, 3, 5, 7, 9, 11))
    numbers = 8 * 8 * 4  # a weight of eight bytes for each of four more options, in at most eight layers
    lean = [kept_bytes(supernet(space, rematerialize=True), warm_up(space)) for space in (few, many)]
    assert abs(lean[1] - lean[0]) <= numbers
    full = [kept_bytes(supernet(space), warm_up(space)) for space in (few, many)]
    assert lean[1] < full[1] / 2
    learned = [kept_bytes(supernet(space), with_gradient(warm_up(space))) for space in (few, many)]
    assert learned[1] > learned[0] + 100 * numbers  # the gradient of a weight needs what its option gave
    lean = [kept_bytes(supernet(space, rematerialize=True), with_gradient(warm_up(space))) for space in (few, many)]
    assert abs(lean[1] - lean[0]) <= numbers


def with_gradient(gates: Gates) -> Gates:
    return {
        name: gate if gate.weights is None else Gate(weights=gate.weights.clone().requires_grad_())
        for name, gate in gates.items()
    }


def test_a_path_keeps_as_much_for_many_options_as_for_few() -> None:
    few, many = replace(V3, kernels=(3, 5)), replace(V3, kernels=(3, 5, 7, 9, 11))
    architecture = few.sample(random.Random(0))
    kept = [kept_bytes(supernet(space), path_gates(space, architecture)) for space in (few, many)]
    assert kept[0] == kept[1]


@SPACES_TRIED
def test_running_layers_again_changes_no_value_and_no_gradient(space: Mobile) -> None:
    plain, again = supernet(space), supernet(space, rematerialize=True)
    again.load_state_dict(plain.state_dict())
    gates = warm_up(space)
    outputs = [network(images(), gates) for network in (plain, again)]
    assert torch.equal(*outputs)
    for output in outputs:
        output.square().sum().backward()
    for one, other in zip(plain.parameters(), again.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-10, atol=1e-12)


def test_a_layer_run_again_has_the_parameters_that_it_was_first_run_with() -> None:
    plain, again = supernet(V2), supernet(V2, rematerialize=True)
    other = {name: (p * 1.5 + 0.01).detach().requires_grad_() for name, p in plain.named_parameters()}
    gradients = []
    for network in (plain, again):
        loss = functional_call(network, other, (images(), warm_up(V2))).square().sum()
        gradients.append(torch.autograd.grad(loss, list(other.values())))
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


# --- together with the rest


def test_shared_weights_rest_outside_of_the_slice() -> None:
    network = supernet(V2)
    weights = SharedWeights(network, WeightSettings(learning_rate=0.1, weight_decay=0.1))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    architecture = V2.parse("8:k3 | 8:k3 | 8:k3e3,zero | 16:k5e3,zero | 16")
    batch = Batch(images(), torch.tensor([0, 1, 2]))
    for _ in range(2):
        weights.fit(batch, path_gates(V2, architecture))
    after = network.state_dict()
    name = "layers.1.layer.candidates.bottleneck.expand.weight"
    assert not torch.equal(before[name][:24, :8], after[name][:24, :8])
    assert torch.equal(before[name][24:], after[name][24:])
    assert torch.equal(before[name][:, 8:], after[name][:, 8:])
    unused = "layers.1.layer.candidates.bottleneck.kernel.candidates.7.weight"
    assert torch.equal(before[unused], after[unused])


def test_a_supernet_with_scales_and_running_statistics_can_be_narrow_too() -> None:
    network = build_network(V2, EveryOption(affine=True, running_statistics=True), classes=4, colours=2).double()
    architecture = some(V2, 1)[0]
    alone = build_network(V2, Only(architecture), classes=4, colours=2).double()
    inherit(alone, network)
    torch.testing.assert_close(network(images(), path_gates(V2, architecture)), alone(images()), rtol=0, atol=1e-10)
    alone.eval()
    network.eval()
    inherit(alone, network)
    torch.testing.assert_close(network(images(), path_gates(V2, architecture)), alone(images()), rtol=0, atol=1e-10)


def test_a_rate_beyond_reason_is_refused() -> None:
    with pytest.raises(SettingError, match=r"^network.dropout must lie in \[0, 1\), got 1.5$"):
        build_network(V2, EveryOption(), classes=4, colours=2, dropout=1.5)


def test_a_width_multiplier_scales_every_width_and_1_leaves_them() -> None:
    space = Mobile(stem=20, separable=12, blocks=(20, 36), layers=(2, 1), strides=(2, 1), head=(100,))
    choices = Only(space.sample(random.Random(0)))
    whole, half = (MobileNetwork(space, choices, 3, 1, width_multiplier=times) for times in (1.0, 0.5))
    assert (whole.head.in_channels, whole.head.out_channels) == (36, 100)
    assert (half.head.in_channels, half.head.out_channels) == (24, 48)  # the nearest multiples of 8, not below 90 %
    assert half(torch.zeros(2, 1, 16, 16)).shape == (2, 3)
    with pytest.raises(SettingError, match=r"network.width_multiplier must be above 0, got 0"):
        MobileNetwork(space, choices, 3, 1, width_multiplier=0)


def test_a_supernet_with_a_width_multiplier_runs_every_path() -> None:
    network = MobileNetwork(V2, EveryOption(), 3, 1, width_multiplier=0.5)
    for seed in range(3):
        path = V2.sample(random.Random(seed))
        assert network(torch.zeros(2, 1, 16, 16), path_gates(V2, path)).shape == (2, 3)


def test_mobile_sizes_grow_and_include_the_published_width() -> None:
    entry = SPACES["proxylessnas_32"]
    space = entry.load()(**entry.settings)
    family, path = family_of(space), Only(space.sample(random.Random(0)))
    sizes = [size.network for size in family.sizes_of(space)]
    networks = [family.build(space, path, ImageShape(3, 1), **size) for size in sizes]
    costs = [cost_of(network, (1, 16, 16)).multiply_adds for network in networks]
    assert costs == sorted(set(costs))
    assert {"width_multiplier": 1.0} in sizes
    assert family.describe_size(space, sizes[2]) == "widths times 0.5"
