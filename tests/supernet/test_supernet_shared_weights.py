"""Steps and derivatives of the shared weights against the same sums written by hand."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archloom.core.errors import SettingError
from archloom.data.loader import Batch
from archloom.families import build_network
from archloom.spaces import Nb201
from archloom.supernet import (
    Curvature,
    EveryOption,
    Gate,
    Gates,
    Prediction,
    SharedWeights,
    WeightSettings,
    gradients_of,
    path_gates,
)

SPACE = Nb201(nodes=3, cells_per_stage=1)
OPTIONS = 2


class Smooth(nn.Module):
    """Two options mixed by a gate, without a kink anywhere, so that differences converge to derivatives."""

    def __init__(self) -> None:
        super().__init__()
        self.options = nn.ModuleList(nn.Linear(3, 4) for _ in range(OPTIONS))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor, gates: Gates) -> Tensor:
        gate = gates["edge"]
        if gate.weights is None:
            hidden = F.softplus(self.options[gate.index](x))
        else:
            terms = [weight * F.softplus(option(x)) for weight, option in zip(gate.weights, self.options, strict=True)]
            hidden = torch.stack(terms).sum(dim=0)
        logits: Tensor = self.head(hidden)
        return logits


def smooth_network() -> Smooth:
    network = Smooth().double()
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return network


def batch(seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return Batch(
        torch.randn(8, 3, generator=generator, dtype=torch.float64), torch.randint(3, (8,), generator=generator)
    )


def image_batch(seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return Batch(torch.randn(4, 3, 8, 8, generator=generator), torch.randint(3, (4,), generator=generator))


def mixture(logits: Tensor) -> Gates:
    return {"edge": Gate(weights=logits.softmax(dim=0))}


LOGITS = torch.tensor([0.3, -0.5], dtype=torch.float64)
BOTH = mixture(LOGITS)
FIRST: Gates = {"edge": Gate(index=0)}


def snapshot(weights: SharedWeights) -> dict[str, Any]:
    return copy.deepcopy(weights.state_dict())


def assert_same(first: object, second: object) -> None:
    """Bitwise equality of nested states."""
    if isinstance(first, Tensor):
        assert isinstance(second, Tensor)
        assert torch.equal(first, second)
    elif isinstance(first, Mapping):
        assert isinstance(second, Mapping)
        assert first.keys() == second.keys()
        for key in first:
            assert_same(first[key], second[key])
    elif isinstance(first, list):
        assert isinstance(second, list)
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_same(one, other)
    else:
        assert first == second


# --- settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rate": 0.0}, "weights.learning_rate must be above 0, got 0.0"),
        ({"learning_rate": math.nan}, "weights.learning_rate must be above 0, got nan"),
        ({"learning_rate_end": -0.1}, "weights.learning_rate_end must be 0 or more, got -0.1"),
        ({"momentum": 1.0}, "weights.momentum must be in [0, 1), got 1.0"),
        ({"momentum": -0.1}, "weights.momentum must be in [0, 1), got -0.1"),
        ({"weight_decay": -1e-4}, "weights.weight_decay must be 0 or more, got -0.0001"),
        ({"clip": -1.0}, "weights.clip must be 0 (off) or more, got -1.0"),
        ({"auxiliary_weight": -1.0}, "weights.auxiliary_weight must be 0 or more, got -1.0"),
        ({"label_smoothing": 1.0}, "weights.label_smoothing must lie in [0, 1), got 1.0"),
        ({"nesterov": True, "momentum": 0.0}, "weights.nesterov must be false where momentum is 0, got True"),
    ],
)
def test_a_setting_outside_its_rule_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError) as caught:
        SharedWeights(Smooth(), WeightSettings(**settings))
    assert caught.value.problems == (message,)


def test_all_broken_rules_are_reported_at_once() -> None:
    with pytest.raises(SettingError) as caught:
        SharedWeights(Smooth(), WeightSettings(learning_rate=-1, clip=-1))
    assert len(caught.value.problems) == 2


def test_settings_at_their_limits_are_accepted() -> None:
    SharedWeights(Smooth(), WeightSettings(learning_rate_end=0, momentum=0, weight_decay=0, clip=0))


# --- learning rate


def test_the_learning_rate_follows_a_cosine() -> None:
    weights = SharedWeights(Smooth(), WeightSettings(learning_rate=0.1, learning_rate_end=0.02))
    assert weights.learning_rate == 0.1
    for progress, rate in [(0, 0.1), (1 / 3, 0.08), (0.5, 0.06), (2 / 3, 0.04), (1, 0.02)]:
        weights.set_progress(progress)
        assert weights.learning_rate == pytest.approx(rate, abs=1e-12)


def test_a_step_is_taken_with_the_present_learning_rate() -> None:
    moves = []
    for progress in (0.0, 1.0):
        weights = SharedWeights(smooth_network(), WeightSettings(learning_rate=0.1, learning_rate_end=0.02, clip=0))
        before = weights.parameters["head.weight"].detach().clone()
        weights.set_progress(progress)
        weights.fit(batch(), BOTH)
        moves.append(weights.parameters["head.weight"].detach() - before)
    torch.testing.assert_close(moves[0], 5 * moves[1])


# --- values


def test_loss_and_score_are_those_of_the_logits() -> None:
    network = smooth_network()
    weights = SharedWeights(network)
    data = batch()
    logits = network(data.images, BOTH)
    probability = logits.softmax(dim=1)[torch.arange(8), data.labels]
    right = sum(int(row.argmax()) == int(label) for row, label in zip(logits, data.labels, strict=True))
    assert 0 < right < 8
    outcome = weights.step_result(data, BOTH)
    torch.testing.assert_close(outcome.loss, -probability.log().mean())
    torch.testing.assert_close(weights.loss(data, BOTH), outcome.loss)
    assert outcome.score.item() == weights.score(data, BOTH).item() == right / 8


def test_gates_change_what_is_evaluated() -> None:
    weights = SharedWeights(smooth_network())
    second: Gates = {"edge": Gate(index=1)}
    assert weights.loss(batch(), FIRST).item() != weights.loss(batch(), second).item()


def test_evaluation_has_a_graph_to_weights_and_gates_but_accuracy_has_none() -> None:
    weights = SharedWeights(smooth_network())
    logits = LOGITS.clone().requires_grad_()
    outcome = weights.step_result(batch(), mixture(logits))
    by_gate, by_weight = torch.autograd.grad(outcome.loss, [logits, weights.parameters["head.weight"]])
    assert by_gate.abs().max() > 0
    assert by_weight.abs().max() > 0
    assert not outcome.score.requires_grad
    assert not weights.score(batch(), mixture(logits)).requires_grad


def test_evaluation_at_other_parameters_uses_those_and_leaves_the_own_alone() -> None:
    weights = SharedWeights(smooth_network())
    other = Smooth().double()
    own = snapshot(weights)
    parameters = {name: value.detach().clone().requires_grad_() for name, value in other.named_parameters()}
    outcome = weights.step_result(batch(), BOTH, parameters=parameters)
    torch.testing.assert_close(outcome.loss, F.cross_entropy(other(batch().images, BOTH), batch().labels))
    assert outcome.loss.item() != weights.loss(batch(), BOTH).item()
    torch.testing.assert_close(weights.loss(batch(), BOTH, parameters=parameters), outcome.loss)
    assert torch.autograd.grad(outcome.loss, parameters["head.bias"])[0].abs().max() > 0
    assert_same(weights.state_dict(), own)


def test_weights_are_where_their_network_is() -> None:
    with torch.device("meta"):
        network = Smooth()
    assert SharedWeights(network).device == torch.device("meta")
    assert SharedWeights(Smooth()).device == torch.device("cpu")


# --- fitting


@pytest.mark.parametrize(
    ("momentum", "decay", "nesterov", "clip"),
    [
        (0.0, 0.0, False, 0.0),
        (0.9, 0.0, False, 0.0),
        (0.9, 0.1, False, 0.0),
        (0.9, 0.1, True, 0.0),
        (0.9, 0.1, False, 0.05),
        (0.8, 0.05, True, 0.05),
        (0.9, 0.1, False, 1e6),
    ],
)
def test_five_fitting_steps_are_five_steps_of_sgd(momentum: float, decay: float, nesterov: bool, clip: float) -> None:
    rate = 0.2
    network = smooth_network()
    by_hand = copy.deepcopy(network)
    weights = SharedWeights(
        network, WeightSettings(learning_rate=rate, momentum=momentum, weight_decay=decay, nesterov=nesterov, clip=clip)
    )
    velocity = [torch.zeros_like(parameter) for parameter in by_hand.parameters()]
    for step in range(5):
        data = batch(step)
        loss = F.cross_entropy(by_hand(data.images, BOTH), data.labels)
        gradients = torch.autograd.grad(loss, list(by_hand.parameters()))
        norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients))
        assert not 0 < clip < 1 or norm > 2 * clip  # where it should clip, it does
        shrink = min(1.0, clip / (norm + 1e-6)) if clip else 1.0
        with torch.no_grad():
            for position, (parameter, gradient) in enumerate(zip(by_hand.parameters(), gradients, strict=True)):
                slope = shrink * gradient + decay * parameter
                velocity[position] = momentum * velocity[position] + slope
                parameter -= rate * (slope + momentum * velocity[position] if nesterov else velocity[position])
        outcome = weights.fit(data, BOTH)
        torch.testing.assert_close(outcome.loss, loss.detach(), rtol=0, atol=1e-12)
        assert not outcome.loss.requires_grad
    for parameter, expected in zip(network.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected, rtol=0, atol=1e-12)


def test_fitting_tells_the_accuracy_before_the_step() -> None:
    weights = SharedWeights(smooth_network(), WeightSettings(learning_rate=5.0))
    before = weights.score(batch(), BOTH)
    assert weights.fit(batch(), BOTH).score == before


def test_what_is_not_on_the_path_rests_bitwise() -> None:
    network = build_network(SPACE, EveryOption(), classes=3, colours=3, channels=4)
    weights = SharedWeights(network, WeightSettings(weight_decay=0.1, momentum=0.9))
    everything = {d.name: Gate(weights=torch.full((len(d.options),), 0.2)) for d in SPACE.decisions}
    weights.fit(image_batch(), everything)  # from here on every weight has momentum
    before = snapshot(weights)
    weights.fit(image_batch(1), path_gates(SPACE, SPACE.parse("|nor_conv_3x3~0|+|nor_conv_1x1~0|skip_connect~1|")))
    after = weights.state_dict()
    used = {"0->1.candidates.nor_conv_3x3", "0->2.candidates.nor_conv_1x1"}
    frozen = 0
    for position, name in enumerate(weights.parameters):
        on_path = ".candidates." not in name or any(part in name for part in used)
        frozen += not on_path
        assert torch.equal(after["network"][name], before["network"][name]) != on_path
        momenta = [state["optimizer"]["state"][position]["momentum_buffer"] for state in (before, after)]
        assert torch.equal(*momenta) != on_path
    assert frozen == 4 * 3  # of each cell: the other convolution of two edges, and both of the third


def test_fitting_gives_gates_no_gradient_and_leaves_none_behind() -> None:
    network = smooth_network()
    logits = LOGITS.clone().requires_grad_()
    weights = SharedWeights(network)
    weights.fit(batch(), mixture(logits))
    assert logits.grad is None
    assert all(parameter.grad is None for parameter in network.parameters())


# --- the virtual step


@pytest.mark.parametrize("momentum", [0.9, 0.0])
@pytest.mark.parametrize("earlier_steps", [0, 2])
def test_a_virtual_step_goes_where_a_real_unclipped_one_would(earlier_steps: int, momentum: float) -> None:
    weights = SharedWeights(
        smooth_network(), WeightSettings(learning_rate=0.3, momentum=momentum, weight_decay=0.1, clip=0.01)
    )
    for step in range(earlier_steps):
        weights.fit(batch(step), BOTH)
    before = snapshot(weights)
    moved = weights.virtual_step(batch(7), BOTH)
    assert_same(weights.state_dict(), before)

    real = SharedWeights(
        smooth_network(), WeightSettings(learning_rate=0.3, momentum=momentum, weight_decay=0.1, clip=0)
    )
    real.load_state_dict(before)
    real.fit(batch(7), BOTH)
    assert list(moved) == list(real.parameters)
    for name, value in real.parameters.items():
        torch.testing.assert_close(moved[name], value, rtol=0, atol=1e-12)
        assert (moved[name] - weights.parameters[name]).abs().max() > 1e-4
        assert moved[name].requires_grad
        assert moved[name].is_leaf


def test_a_virtual_step_lets_rest_what_is_not_on_the_path() -> None:
    weights = SharedWeights(smooth_network(), WeightSettings(learning_rate=0.3, momentum=0.9, weight_decay=0.1, clip=0))
    weights.fit(batch(), BOTH)
    moved = weights.virtual_step(batch(1), FIRST)
    own = {name: value.detach().clone() for name, value in weights.parameters.items()}
    weights.fit(batch(1), FIRST)
    for name, value in weights.parameters.items():
        torch.testing.assert_close(moved[name], value, rtol=0, atol=1e-12)
        assert torch.equal(moved[name], own[name]) == name.startswith("options.1.")


def test_a_virtual_step_leaves_out_the_look_ahead_of_nesterov() -> None:
    plain, nesterov = (
        SharedWeights(smooth_network(), WeightSettings(momentum=0.9, nesterov=nesterov, clip=0))
        for nesterov in (False, True)
    )
    plain.fit(batch(), BOTH)
    nesterov.load_state_dict(plain.state_dict())
    nesterov._optimizer.param_groups[0]["nesterov"] = True  # it came with the state of the other
    assert_same(dict(plain.virtual_step(batch(1), BOTH)), dict(nesterov.virtual_step(batch(1), BOTH)))


# --- derivatives


def test_the_gradient_is_that_of_each_weight_and_zero_off_the_path() -> None:
    weights = SharedWeights(smooth_network())
    gradient = weights.gradient(weights.loss(batch(), FIRST), of=weights.parameters)
    assert list(gradient) == list(weights.parameters)
    for name, value in gradient.items():
        assert value.shape == weights.parameters[name].shape
        assert bool((value == 0).all()) == name.startswith("options.1.")
    step = 1e-6
    name = "options.0.weight"
    shifted = {key: value.detach().clone() for key, value in weights.parameters.items()}
    shifted[name][1, 2] += step
    slope = (weights.loss(batch(), FIRST, parameters=shifted) - weights.loss(batch(), FIRST)) / step
    assert slope.item() == pytest.approx(gradient[name][1, 2].item(), rel=1e-4)


def test_the_gradient_can_be_taken_at_other_parameters() -> None:
    weights = SharedWeights(smooth_network())
    moved = weights.virtual_step(batch(), BOTH)
    gradient = weights.gradient(weights.loss(batch(1), BOTH, parameters=moved), of=moved)
    at_moved = SharedWeights(smooth_network())
    at_moved._network.load_state_dict({name: value.detach() for name, value in moved.items()})
    expected = at_moved.gradient(at_moved.loss(batch(1), BOTH), of=at_moved.parameters)
    for name, value in expected.items():
        torch.testing.assert_close(gradient[name], value)


def test_a_gradient_has_a_graph_only_if_asked() -> None:
    weights = SharedWeights(smooth_network())
    loss = weights.loss(batch(), BOTH)
    assert not weights.gradient(loss, of=weights.parameters, retain_graph=True)["head.weight"].requires_grad
    assert weights.gradient(loss, of=weights.parameters, create_graph=True)["head.weight"].requires_grad


def test_a_gradient_is_zero_where_nothing_depends() -> None:
    by = torch.ones(3, requires_grad=True)
    assert torch.equal(gradients_of(torch.tensor(2.0), [by])[0], torch.zeros(3))
    assert torch.equal(gradients_of(torch.tensor(2.0, requires_grad=True) * 3, [by])[0], torch.zeros(3))
    assert torch.equal(gradients_of((by * torch.tensor([1.0, 2.0, 3.0])).sum(), [by])[0], torch.tensor([1.0, 2.0, 3.0]))


# --- state


def test_a_restored_state_goes_on_bit_by_bit() -> None:
    settings: dict[str, Any] = {"learning_rate": 0.2, "momentum": 0.9, "weight_decay": 0.01}
    weights = SharedWeights(smooth_network(), WeightSettings(**settings))
    for step in range(3):
        weights.fit(batch(step), BOTH)
    weights.set_progress(0.4)
    saved = snapshot(weights)
    restored = SharedWeights(Smooth().double(), WeightSettings(**settings))
    restored.load_state_dict(saved)
    assert restored.learning_rate == weights.learning_rate
    for step in range(3, 6):
        for each in (weights, restored):
            each.fit(batch(step), BOTH)
    assert_same(restored.state_dict(), weights.state_dict())
    with pytest.raises(AssertionError):
        assert_same(saved, weights.state_dict())


def test_one_image_of_one_pixel_is_one_clear_line() -> None:
    class Normalized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(1, 2))

        def forward(self, images: Tensor, gates: object) -> Tensor:
            result: Tensor = self.layers(images)
            return result

    with pytest.raises(SettingError, match="batch normalisation needs more than one value per channel"):
        SharedWeights(Normalized()).step_result(Batch(torch.zeros(1, 1, 1, 1), torch.zeros(1, dtype=torch.int64)), {})


# --- another optimizer


def test_another_optimizer_takes_over_with_its_own_rate_and_without_clipping():
    plain, other = (
        SharedWeights(smooth_network(), WeightSettings(clip=0)),
        SharedWeights(smooth_network(), WeightSettings(clip=1e-9)),
    )
    for weights in (plain, other):
        make = torch.optim.SGD([{"params": list(weights._network.parameters()), "lr_end": 0.1}], lr=0.3)
        weights.optimize_with(make)
        weights.set_progress(0.5)
        assert weights.learning_rate == pytest.approx(0.2)
    given = batch()
    for weights in (plain, other):
        weights.fit(given, BOTH)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters.values(), other.parameters.values(), strict=True))


def test_an_optimizer_that_looks_twice_gets_the_first_outcome_reported():
    class Twice(torch.optim.SGD):
        def step(self, closure):
            first = closure()
            super().step()
            self.losses = [float(first), float(closure())]
            return first

    weights = SharedWeights(smooth_network())
    weights.optimize_with(Twice(weights._network.parameters(), lr=0.3))
    given = batch()
    before = float(weights.loss(given, BOTH).detach())
    outcome = weights.fit(given, BOTH)
    assert float(outcome.loss) == pytest.approx(before)
    assert weights._optimizer.losses[0] == pytest.approx(before)
    assert weights._optimizer.losses[1] == pytest.approx(float(weights.loss(given, BOTH).detach()))


# --- an auxiliary head, and dropout


class Regularized(Smooth):
    """As before, with dropout and a second head in training."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.auxiliary = nn.Linear(3, 3)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, gates: Gates) -> Tensor | Prediction:  # type: ignore[override]
        logits = super().forward(self.dropout(x), gates)
        return Prediction(logits, self.auxiliary(x)) if self.training else logits


def regularized(*, dropout: float = 0.0, noise_seed: int = 0, **settings: Any) -> SharedWeights:
    network = Regularized(dropout).double()
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return SharedWeights(network, WeightSettings(clip=0.0, **settings), noise_seed=noise_seed)


def parts(weights: SharedWeights) -> tuple[Tensor, Tensor]:
    """The losses of both heads."""
    given = batch()
    prediction = weights._network(given.images, BOTH)
    return F.cross_entropy(prediction.logits, given.labels), F.cross_entropy(prediction.auxiliary, given.labels)


def test_the_auxiliary_loss_is_added_with_its_weight() -> None:
    weights = regularized(auxiliary_weight=0.7)
    main, auxiliary = parts(weights)
    torch.testing.assert_close(weights.loss(batch(), BOTH), main + 0.7 * auxiliary)
    torch.testing.assert_close(weights.loss(batch(), BOTH, parameters=weights.parameters), main + 0.7 * auxiliary)
    assert float(auxiliary.detach()) > 0.1


def test_labels_are_smoothed_in_both_heads() -> None:
    weights, given = regularized(auxiliary_weight=0.7, label_smoothing=0.2), batch()
    prediction = weights._network(given.images, BOTH)

    def smoothed(logits: Tensor) -> Tensor:
        certain = -logits.log_softmax(dim=1)
        return (0.8 * certain.gather(1, given.labels[:, None])[:, 0] + 0.2 * certain.mean(dim=1)).mean()

    wanted = smoothed(prediction.logits) + 0.7 * smoothed(prediction.auxiliary)
    torch.testing.assert_close(weights.loss(given, BOTH), wanted)
    torch.testing.assert_close(weights.fit(given, BOTH).loss, wanted.detach())


def test_a_fit_counts_its_gradient_once() -> None:
    weights = regularized(auxiliary_weight=0.7, learning_rate=0.1, momentum=0.0, weight_decay=0.0)
    main, auxiliary = parts(weights)
    (wanted,) = torch.autograd.grad(main + 0.7 * auxiliary, [weights.parameters["auxiliary.weight"]])
    before = weights.parameters["auxiliary.weight"].detach().clone()
    outcome = weights.fit(batch(), BOTH)
    torch.testing.assert_close(weights.parameters["auxiliary.weight"].detach(), before - 0.1 * wanted)
    torch.testing.assert_close(outcome.loss, (main + 0.7 * auxiliary).detach())


def test_curvature_has_the_auxiliary_part_too() -> None:
    def product(auxiliary_weight: float) -> Tensor:
        weights = regularized(auxiliary_weight=auxiliary_weight)
        logits = LOGITS.clone().requires_grad_()
        size = sum(value.numel() for value in weights.parameters.values())
        return Curvature(weights, batch(), mixture, logits).multiply_weight_hessian(
            torch.linspace(-1, 1, size).double()
        )

    none, once, twice = (product(weight) for weight in (0.0, 1.0, 2.0))
    torch.testing.assert_close(twice - once, once - none)
    assert float((once - none).norm()) > 0.01


def test_accuracy_is_that_of_the_main_head_with_nothing_dropped() -> None:
    weights, batches = regularized(dropout=0.9), [batch(seed) for seed in range(8)]
    weights._network.eval()
    wanted = [(weights._network(b.images, BOTH).argmax(dim=1) == b.labels).float().mean() for b in batches]
    weights._network.train()
    assert [weights.score(b, BOTH) for b in batches] == wanted
    assert [weights.step_result(b, BOTH).score for b in batches] != wanted
    assert all(module.training for module in weights._network.modules())
    assert [regularized().fit(b, BOTH).score for b in batches] == wanted


def test_accuracy_leaves_normalisation_to_the_batch() -> None:
    network = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 3))
    weights = SharedWeights(Gateless(network).double())
    weights.score(batch(), {})
    assert int(network[1].num_batches_tracked) == 1
    assert network[1].training and network[2].training


class Gateless(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, gates: Gates) -> Tensor:
        result: Tensor = self.network(x)
        return result


def test_all_of_one_step_sees_the_same_mask_and_the_next_another() -> None:
    weights = regularized(dropout=0.5, learning_rate=1e-30)
    outside = torch.get_rng_state()
    first = weights.loss(batch(), BOTH)
    torch.rand(3)
    assert torch.equal(weights.loss(batch(), BOTH), first)
    assert torch.equal(weights.loss(batch(), BOTH, parameters=weights.parameters), first)
    torch.set_rng_state(outside)
    assert torch.equal(weights.fit(batch(), BOTH).loss, first)
    assert torch.equal(torch.get_rng_state(), outside)
    assert not torch.equal(weights.loss(batch(), BOTH), first)
    assert not torch.equal(regularized(dropout=0.5, noise_seed=1).loss(batch(), BOTH), first)


def test_what_is_dropped_goes_on_after_a_state_is_loaded() -> None:
    weights = regularized(dropout=0.5)
    weights.fit(batch(), BOTH)
    resumed = regularized(dropout=0.5)
    resumed.load_state_dict(snapshot(weights))
    assert torch.equal(weights.fit(batch(1), BOTH).loss, resumed.fit(batch(1), BOTH).loss)
    assert_same(weights.state_dict(), resumed.state_dict())


def test_a_state_from_before_there_was_dropout_still_loads() -> None:
    weights = regularized()
    weights.fit(batch(), BOTH)
    old = {name: part for name, part in snapshot(weights).items() if name != "fits"}
    resumed = regularized()
    resumed.load_state_dict(old)
    assert torch.equal(weights.fit(batch(1), BOTH).loss, resumed.fit(batch(1), BOTH).loss)


def test_the_deployed_score_counts_images_in_evaluation_mode() -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, images: Tensor) -> Tensor:
            assert not self.training
            return torch.nn.functional.one_hot(images[:, 0].long(), 3).float()

    weights = SharedWeights(Network())
    batches = [
        Batch(torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([0, 1, 1])),
        Batch(torch.tensor([[2.0]]), torch.tensor([2])),
    ]
    assert weights.deployed_score(batches) == 0.75
    assert weights._network.training


def test_a_frozen_view_evaluates_the_same_weights_and_updates_nothing() -> None:
    weights = SharedWeights(smooth_network())
    view, before = weights.frozen(), {name: value.clone() for name, value in weights.parameters.items()}
    assert view.fit(batch(), BOTH).loss == weights.loss(batch(), BOTH)
    assert all(torch.equal(value, before[name]) for name, value in weights.parameters.items())
    weights.fit(batch(), BOTH)
    assert view.loss(batch(), BOTH) == weights.loss(batch(), BOTH)  # a view, not a copy
    assert not all(torch.equal(value, before[name]) for name, value in view.parameters.items())


@pytest.mark.parametrize("is_frozen", [False, True])
def test_fit_gives_the_gradient_of_a_tensor_behind_the_gates_from_the_same_pass(is_frozen):
    space = Nb201(nodes=3, cells_per_stage=1)
    batch = Batch(torch.randn(8, 3, 8, 8), torch.arange(8) % 3)

    def start():
        with torch.random.fork_rng():
            torch.manual_seed(0)
            network = build_network(space, EveryOption(), classes=3, colours=3, channels=4)
        values = torch.rand(3, 5, generator=torch.Generator().manual_seed(1)).requires_grad_()
        gates = {d.name: Gate(weights=row) for d, row in zip(space.decisions, values, strict=True)}
        weights = SharedWeights(network)
        return (weights.frozen() if is_frozen else weights), values, gates

    weights, values, gates = start()
    wanted = weights.gradient(weights.loss(batch, gates), of=values)
    result = weights.fit(batch, gates, also=values)
    assert torch.allclose(values.grad, wanted, atol=1e-6) and wanted.abs().max() > 1e-4
    assert not result.loss.requires_grad
    plain, _, same = start()
    plain.fit(batch, same)
    for name, value in plain.parameters.items():  # the weights are updated as without it
        assert torch.allclose(value, weights.parameters[name], atol=1e-6)
