"""The sparse prior: its update against differences, its fixed point against the closed form, and pruning."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from archloom.policies.sparse_gates import NO_INFORMATION, SparseGates, noise_limit
from archloom.spaces import Darts, Nb201

DOUBLE = torch.float64


OPTIONS = ("skip_connect", "max_pool_3x3", "avg_pool_3x3", "sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3")


class Toy:
    """Groups of gates with quadratic losses: mean loss = sum of h / (2 N) (a - a*)^2."""

    def __init__(self, curvature: Tensor, optimum: Tensor, *, observations: float) -> None:
        copies, groups = optimum.shape
        space = Nb201(nodes=2, operations=OPTIONS[:groups])
        self.observations = observations
        self.gates = SparseGates(space, {"0->1": "0->1"}).double()
        keys = torch.arange(groups).repeat(copies)
        self.gates.register_buffer("_group_of", keys, persistent=False)
        self.gates.values = torch.nn.Parameter(torch.ones(copies * groups, dtype=DOUBLE))
        for name in ("curvature", "squares"):
            self.gates.register_buffer(name, torch.zeros(copies * groups, dtype=DOUBLE))
        self.h, self.optimum = curvature.reshape(-1).to(DOUBLE), optimum.reshape(-1).to(DOUBLE)

    def settle(self, steps: int = 4000) -> None:
        """Let the gates reach the minimum of loss and penalty."""
        rate = 0.5 * self.observations / float(self.h.max())
        for _ in range(steps):
            before = self.gates.values.detach().clone()
            gradient = self.h / self.observations * (before - self.optimum)
            self.gates.descend(gradient, rate=rate, observations=self.observations)
            if torch.equal(before, self.gates.values):
                break

    def update(self) -> None:
        self.gates.observe((self.h / self.observations).sqrt(), 1)  # its square is the curvature of the mean loss
        self.gates.update(observations=self.observations)

    def run(self, rounds: int) -> Tensor:
        for _ in range(rounds):
            self.settle()
            self.update()
        return self.gates.variance


@pytest.mark.parametrize("variance", [0.0, 0.03, 2.0])
def test_alpha_is_the_slope_of_the_log_determinants(variance):
    """Of log gamma + log(h + 1 / gamma), which is log(1 + h gamma)."""
    toy = Toy(torch.tensor([[7.0]]), torch.tensor([[1.0]]), observations=10.0)
    toy.gates.variance.fill_(variance)
    toy.update()
    step = 1e-6
    at = variance if variance else step
    slope = (math.log1p(7.0 * (at + step)) - math.log1p(7.0 * (at - step))) / (2 * step)
    assert float(toy.gates.penalty) ** 2 == pytest.approx(slope, rel=1e-4 if variance == 0 else 1e-8)
    assert float(toy.gates.penalty) >= 0


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("curvature", [1.0, 10.0, 100.0])
@pytest.mark.parametrize("optimum", [0.05, 0.2, 0.5, 1.0])
def test_the_fixed_point_is_the_maximum_of_the_evidence(copies, curvature, optimum):
    """gamma = max(0, |a*|^2 / M - 1 / h); other signs, roots or scales end elsewhere."""
    size = torch.full((copies, 1), optimum)
    toy = Toy(torch.full((copies, 1), curvature), size, observations=50.0)
    found = float(toy.run(400))
    assert found == pytest.approx(
        max(0.0, optimum**2 - 1 / curvature), abs=2e-3 if optimum**2 * curvature == 1 else 1e-4
    )


@pytest.mark.parametrize("wrong", ["curvature of the mean loss", "alpha without its root", "square of the gates"])
def test_wrong_updates_end_elsewhere(wrong):
    """Controls: each of these errors moves the fixed point of h = 100, a* = 0.5 away from 0.24."""
    toy = Toy(torch.tensor([[100.0]]), torch.tensor([[0.5]]), observations=50.0)
    for _ in range(400):
        toy.settle()
        h = toy.h / (toy.observations if wrong == "curvature of the mean loss" else 1)
        alpha = h / (1 + h * toy.gates.variance)
        omega = alpha if wrong == "alpha without its root" else alpha.sqrt()
        norm = toy.gates.norms()
        toy.gates.penalty.copy_(omega)
        toy.gates.variance.copy_((norm**2 if wrong == "square of the gates" else norm) / omega)
    assert abs(float(toy.gates.variance) - 0.24) > 0.05


@pytest.mark.parametrize(("optimum", "returns"), [(0.5, True), (0.15, False)])
def test_a_group_at_zero_comes_back_if_it_is_worth_more_than_the_noise(optimum, returns):
    toy = Toy(torch.tensor([[25.0]]), torch.tensor([[optimum]]), observations=10.0)
    with torch.no_grad():
        toy.gates.values.zero_()
    toy.gates.variance.zero_()
    toy.update()
    assert torch.isfinite(toy.gates.penalty).all() and float(toy.gates.penalty) == pytest.approx(5.0)  # sqrt(h)
    variance = float(toy.run(300))
    assert math.isfinite(variance)
    assert (variance > 0) == returns == (optimum * 5 > 1)


def test_the_proximal_step_is_a_soft_threshold_of_whole_groups():
    toy = Toy(torch.ones(2, 2), torch.zeros(2, 2), observations=4.0)  # two groups of two
    with torch.no_grad():
        toy.gates.values.copy_(torch.tensor([0.3, 0.06, 0.4, 0.08], dtype=DOUBLE))  # groups (0.3, 0.4), (0.06, 0.08)
    toy.gates.penalty.copy_(torch.tensor([2.0, 2.0]))
    toy.gates.descend(torch.zeros(4, dtype=DOUBLE), rate=0.4, observations=4.0)  # threshold 0.4 * 2 / 4 = 0.2
    wanted = torch.tensor([0.3 * 0.6, 0.0, 0.4 * 0.6, 0.0], dtype=DOUBLE)
    assert torch.allclose(toy.gates.values, wanted)
    assert toy.gates.values[1] == 0 and toy.gates.values[3] == 0  # exactly


def test_without_a_penalty_gates_take_plain_gradient_steps():
    toy = Toy(torch.ones(2, 2), torch.zeros(2, 2), observations=math.inf)
    toy.gates.descend(torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=DOUBLE), rate=0.1, observations=math.inf)
    assert torch.allclose(toy.gates.values, 1 - torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=DOUBLE))


# --- sparse regression: six edges of four operations, three copies


TRUE = {(0, 0): 0.8, (1, 2): 0.5, (2, 1): 1.0, (4, 3): 0.3}
COUNT, COPIES = 400, 3


class Regression:
    def __init__(self, seed: int, *, scales: Tensor | None = None) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(COUNT, COPIES, 24, generator=generator, dtype=DOUBLE)
        truth = torch.zeros(24, dtype=DOUBLE)
        for (edge, option), size in TRUE.items():
            truth[4 * edge + option] = size
        signs = torch.tensor([1.0, -1.0, 1.0], dtype=DOUBLE).view(3, 1)
        self.y = (self.x * (signs * truth)).sum(dim=(1, 2)) + torch.randn(COUNT, generator=generator, dtype=DOUBLE)
        self.x = self.x * (1 if scales is None else scales)
        space = Nb201(nodes=4, operations=OPTIONS[:4])  # six edges
        names = [decision.name for decision in space.decisions]
        self.gates = SparseGates(space, {name: name for name in names}).double()
        keys = torch.arange(24).repeat(COPIES)
        self.gates.register_buffer("_group_of", keys, persistent=False)
        self.gates.values = torch.nn.Parameter(torch.ones(24 * COPIES, dtype=DOUBLE))
        for name in ("curvature", "squares"):
            self.gates.register_buffer(name, torch.zeros(24 * COPIES, dtype=DOUBLE))

    def fit(self, rounds: int, observations: float = COUNT) -> SparseGates:
        rows = self.x.reshape(COUNT, -1)
        curvature = rows.square().mean(dim=0)
        rate = 1 / float(torch.linalg.eigvalsh(rows.T @ rows / COUNT)[-1])
        for _ in range(rounds):
            for _ in range(300):
                residual = rows @ self.gates.values.detach() - self.y
                self.gates.descend(rows.T @ residual / COUNT, rate=rate, observations=observations)
            self.gates.observe(curvature.sqrt(), 1)
            self.gates.update(observations=observations)
        return self.gates


def surviving(gates: SparseGates) -> set[tuple[int, int]]:
    kept = gates.signal() > gates.noise_limits()
    return {divmod(place, 4) for place in kept.nonzero().flatten().tolist()}


@pytest.mark.parametrize("seed", range(5))
def test_the_noise_rule_keeps_exactly_what_is_true(seed):
    gates = Regression(seed).fit(30)
    assert noise_limit(3) == pytest.approx(4.42, abs=0.01)
    assert surviving(gates) == set(TRUE)
    signal = gates.signal()
    true = torch.tensor([divmod(place, 4) in TRUE for place in range(24)])
    assert signal[true].min() > 3 * signal[~true].max()


def test_the_noise_rule_does_not_depend_on_the_scale_of_an_operation_and_the_entropy_rule_does():
    scales = torch.ones(24, dtype=DOUBLE)
    scales[0] = 30.0  # the true operation on the first edge
    plain, scaled = Regression(0).fit(8), Regression(0, scales=scales).fit(40)
    assert surviving(scaled) == surviving(plain) == set(TRUE)
    assert float(scaled.signal()[0]) == pytest.approx(float(plain.signal()[0]), rel=0.05)
    assert float(plain.variance[0]) > NO_INFORMATION > float(scaled.variance[0])  # pruned by its entropy


def test_few_observations_prune_everything_and_many_prune_nothing_that_is_true():
    assert surviving(Regression(0).fit(8, observations=1.0)) == set()
    assert surviving(Regression(0).fit(8, observations=1e5)) >= set(TRUE)


# --- groups


def test_gates_of_one_edge_and_operation_form_a_group_over_the_cells_of_a_kind():
    space = Darts(cells=8)
    own, shared = space.unshare()
    gates = SparseGates(own, shared, without=("none",))
    assert len(gates.groups) == 2 * 14 * 7
    sizes = dict(zip(gates.groups, gates.sizes.int().tolist(), strict=True))
    assert sizes["normal/0->2", "sep_conv_3x3"] == 6 and sizes["reduce/0->2", "sep_conv_3x3"] == 2
    assert set(gates.gates()) == {decision.name for decision in own.decisions}
    gates.descend(torch.zeros_like(gates.values), rate=1.0, observations=1.0)
    for row in gates.gates().values():
        assert float(row.weights[0]) == 0  # `none` has no gate


def test_the_limits_of_noise_fall_with_the_gates_of_a_group():
    assert [round(noise_limit(count), 2) for count in (2, 6)] == [5.91, 2.74]
