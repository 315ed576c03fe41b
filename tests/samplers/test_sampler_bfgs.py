import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sampler_states import changed_places, through_a_checkpoint
from sampler_toys import Given, SoftmaxRegression, seeded, zeros
from torch import Tensor, nn

from archloom.core.errors import SettingError
from archloom.samplers import BfgsPosterior, InverseHessian

SMALLEST, LARGEST = 0.05, 20.0


def inverse_hessian(size: int = 4, **bounds: float) -> InverseHessian:
    return InverseHessian(size, **{"smallest": SMALLEST, "largest": LARGEST, **bounds})


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def random_vectors(seed: int, count: int, size: int) -> Tensor:
    return torch.randn(count, size, dtype=torch.float64, generator=seeded(seed))


# --- T5: symmetric positive definite for any pairs


def assert_sound(inverse: InverseHessian) -> None:
    values = torch.linalg.eigvalsh(inverse.matrix)
    assert (inverse.matrix - inverse.matrix.T).abs().max() < 1e-12 * LARGEST
    assert values[0] >= SMALLEST - 1e-9 and values[-1] <= LARGEST + 1e-9


NUMBERS = st.one_of(
    st.floats(-3, 3),
    st.sampled_from([0.0, 1e-300, -1e-160, 1e-30, 1e30, -1e160, 1e300]),
    st.floats(allow_nan=True, allow_infinity=True),
)
VECTORS = st.one_of(st.lists(NUMBERS, min_size=3, max_size=3), st.just([0.0] * 3))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(VECTORS, VECTORS), min_size=1, max_size=8))
def test_stays_positive_definite_under_any_pairs(pairs):
    inverse = inverse_hessian(3)
    for step, change in pairs:
        before = inverse.matrix
        outcome = inverse.learn(vector(*step), vector(*change))
        assert_sound(inverse)
        if outcome == "skipped":
            assert torch.equal(inverse.matrix, before)


@pytest.mark.parametrize("size", [6, 30])
def test_stays_positive_definite_under_500_random_pairs(size):
    inverse = inverse_hessian(size)
    outcomes = set()
    for number, (step, change) in enumerate(random_vectors(0, 1000, size).view(500, 2, size)):
        opposed = -step if number % 7 == 0 else change  # against its curvature; otherwise half are random
        outcomes.add(inverse.learn(step, opposed * (number % 5 > 0)))  # every fifth change of gradient is zero
        assert_sound(inverse)
    assert outcomes == {"plain", "damped"}


# --- one update


def test_plain_update_is_bfgs():
    inverse = inverse_hessian()
    step, change = vector(1.0, 2.0, 0.5, -1.0), vector(1.5, 2.5, 0.2, -0.5)
    scale = step @ change / (change @ change)
    assert inverse.learn(step, change) == "plain"
    unit = torch.eye(4, dtype=torch.float64)
    keep = unit - torch.outer(step, change) / (step @ change)
    wanted = keep @ (scale * unit) @ keep.T + torch.outer(step, step) / (step @ change)
    assert (inverse.matrix - wanted).abs().max() < 1e-12
    assert (inverse.matrix @ change - step).abs().max() < 1e-12  # the secant equation


def test_only_the_first_pair_sets_the_scale():
    inverse = inverse_hessian(3)
    assert inverse.learn(vector(1.0, 0.0, 0.0), vector(0.5, 0.0, 0.0)) == "plain"
    assert torch.allclose(inverse.matrix, 2 * torch.eye(3, dtype=torch.float64))
    assert inverse.learn(vector(0.0, 1.0, 0.0), vector(0.0, 0.25, 0.0)) == "plain"
    assert torch.allclose(inverse.matrix, vector(2.0, 4.0, 2.0).diag())


@pytest.mark.parametrize("slope", [0.05, 0.0, -0.5])
def test_powell_damping(slope):
    """Where the loss curves less than a fifth of what was expected, or the other way, it is taken to be a fifth."""
    inverse = inverse_hessian(3)
    inverse.learn(vector(1.0, 0.0, 0.0), vector(1.0, 0.0, 0.0))
    inverse.learn(vector(0.0, 1.0, 0.0), vector(0.0, 0.5, 0.0))
    before = inverse.matrix.clone()
    step = vector(0.3, 0.8, -0.4)
    change = slope * step + vector(0.08, -0.03, 0.0)  # the rest is across the step
    along = torch.linalg.solve(before, step)
    expected, seen = step @ along, step @ change
    assert seen < 0.2 * expected
    theta = 0.8 * expected / (expected - seen)
    damped = theta * change + (1 - theta) * along
    assert step @ damped == pytest.approx(0.2 * float(expected))
    assert inverse.learn(step, change) == "damped"
    keep = torch.eye(3, dtype=torch.float64) - torch.outer(step, damped) / (step @ damped)
    wanted = keep @ before @ keep.T + torch.outer(step, step) / (step @ damped)
    assert (inverse.matrix - wanted).abs().max() < 1e-12


def test_a_fifth_of_the_expected_curvature_is_accepted():
    inverse = inverse_hessian(2)
    inverse.learn(vector(1.0, 0.0), vector(1.0, 0.0))
    assert inverse.learn(vector(0.0, 1.0), vector(0.0, 0.21)) == "plain"
    inverse.learn(vector(1.0, 0.0), vector(1.0, 0.0))
    assert inverse.matrix[1, 1] == pytest.approx(1 / 0.21)


@pytest.mark.parametrize(("step", "change"), [((0.0, 0.0), (1.0, 1.0)), ((1.0, 0.0), (float("inf"), 0.0))])
def test_pairs_that_say_nothing_are_skipped(step, change):
    inverse = inverse_hessian(2)
    assert inverse.learn(vector(*step), vector(*change)) == "skipped"
    assert torch.equal(inverse.matrix, torch.eye(2, dtype=torch.float64)) and not inverse.has_learned


def test_a_first_pair_that_is_skipped_leaves_no_scale_behind():
    inverse = inverse_hessian(2)
    huge = vector(1e200, 0.0), vector(2e-200, 1e-10)  # the product is 2, and what follows is not to be held in numbers
    assert inverse.learn(*huge) == "skipped"
    assert torch.equal(inverse.matrix, torch.eye(2, dtype=torch.float64))


def test_bounds_hold_in_single_directions():
    inverse = inverse_hessian(2)
    inverse.learn(vector(1.0, 0.0), vector(1.0, 0.0))
    inverse.learn(vector(0.0, 1.0), vector(0.0, 1e6))
    assert torch.allclose(inverse.matrix, vector(1.0, SMALLEST).diag())
    flat = inverse_hessian(2, largest=1.5)
    flat.learn(vector(1.0, 0.0), vector(1.0, 0.0))
    flat.learn(vector(0.0, 1.0), vector(0.0, 0.5))
    assert torch.allclose(flat.matrix, vector(1.0, 1.5).diag())


@pytest.mark.parametrize(("smallest", "largest", "start"), [(0.01, 0.5, 0.5), (3.0, 9.0, 3.0), (0.1, 10.0, 1.0)])
def test_starts_and_resets_within_its_bounds(smallest, largest, start):
    inverse = InverseHessian(2, smallest=smallest, largest=largest)
    wanted = start * torch.eye(2, dtype=torch.float64)
    assert torch.equal(inverse.matrix, wanted)
    inverse.learn(vector(1.0, 1.0), vector(1.0, 0.2))
    assert inverse.has_learned
    inverse.reset()
    assert torch.equal(inverse.matrix, wanted) and not inverse.has_learned


# --- the root


def test_root_is_one():
    inverse = inverse_hessian(5)
    for step, change in random_vectors(1, 20, 5).view(10, 2, 5):
        inverse.learn(step, change + step)
    root, failed = inverse.root()
    assert not failed
    assert (root @ root.T - inverse.matrix).abs().max() < 1e-12


def test_extremes_are_the_eigenvalues_of_the_matrix():
    inverse = inverse_hessian(5)
    assert inverse.extremes() == (1.0, 1.0)
    for step, change in random_vectors(1, 20, 5).view(10, 2, 5):
        inverse.learn(step, change + step)
        values = torch.linalg.eigvalsh(inverse.matrix)
        assert inverse.extremes() == pytest.approx((float(values[0]), float(values[-1])))
    inverse.matrix = 7 * torch.eye(5, dtype=torch.float64)
    assert inverse.extremes() == pytest.approx((7.0, 7.0))
    inverse.reset()
    assert inverse.extremes() == (1.0, 1.0)


def test_root_of_an_almost_positive_definite_matrix_takes_jitter():
    inverse = inverse_hessian(3)
    inverse.matrix = vector(3.0, 6.0, -2e-4).diag()
    kept = inverse.matrix.clone()
    root, failed = inverse.root()
    assert not failed and torch.equal(inverse.matrix, kept)
    jitter = (root @ root.T - kept).diagonal()  # the first that suffices: 1e-4 of the mean, which is 3
    assert torch.allclose(jitter, torch.full((3,), 1e-4, dtype=torch.float64).mul(kept.diagonal().mean()))


@pytest.mark.parametrize("broken", [-1.0, float("nan"), float("inf")])
def test_root_of_a_broken_matrix_resets_it(broken):
    inverse = inverse_hessian(3, largest=0.25)
    inverse.matrix, inverse.has_learned = vector(1.0, 2.0, broken).diag(), True
    root, failed = inverse.root()
    assert failed and not inverse.has_learned
    assert torch.equal(inverse.matrix, 0.25 * torch.eye(3, dtype=torch.float64))
    assert torch.equal(root, 0.5 * torch.eye(3, dtype=torch.float64))


# --- the sampler


def make(parameters: list[nn.Parameter], **settings) -> BfgsPosterior:
    return BfgsPosterior(parameters, **{"generator": seeded(0), "observations": 100, **settings})


@pytest.mark.parametrize("broken", [-1.0, float("nan")])
def test_a_broken_matrix_is_reset_before_it_moves_anything(broken):
    parameter = zeros(2)
    sampler = make([parameter], lr=0.5, temperature=1e-12, curvature="fixed", step_clip=0.0)
    sampler.inverse.matrix = vector(1.0, broken).diag()
    sampler.step(Given([parameter], torch.ones_like))
    assert sampler.counts["failed"] == 1 and sampler.draw["failed"] == 1
    assert (parameter + 0.5).abs().max() < 1e-4  # the step of P = 1
    sampler.step(Given([parameter], torch.ones_like))
    assert sampler.counts["failed"] == 1 and sampler.draw["failed"] == 0


def test_learns_the_curvature_of_a_quadratic():
    parameter = zeros(3)
    hessian = torch.tensor([[2.0, 0.3, 0.0], [0.3, 1.0, 0.1], [0.0, 0.1, 0.5]]).double()
    sampler = make([parameter], decay=0.5, lr=0.2, step_clip=0.0)
    closure = Given([parameter], lambda x: hessian @ x - 1)
    for _ in range(100):
        sampler.step(closure)
    assert closure.calls == 200
    wanted = torch.linalg.inv(hessian + 0.5 * torch.eye(3))  # the prior is part of the curvature
    assert (sampler.inverse.matrix - wanted).abs().max() < 1e-6
    values = torch.linalg.eigvalsh(wanted)
    assert sampler.draw["smallest"] == pytest.approx(float(values[0]))
    assert sampler.draw["largest"] == pytest.approx(float(values[-1]))
    assert sampler.counts == {"draws": 100, "clipped": 0, "damped": 0, "skipped": 0, "failed": 0}


def test_damped_and_skipped_pairs_are_counted():
    parameter = zeros(2)
    sampler = make([parameter], decay=0.0)
    sampler.step(Given([parameter], lambda x: -x))
    assert sampler.counts["damped"] == 1 and sampler.draw["damped"] == 1
    still = make([parameter], decay=0.0, sample=False)
    still.step(Given([parameter], torch.zeros_like))
    assert still.counts["skipped"] == 1 and still.draw["skipped"] == 1


def test_fixed_curvature_never_learns():
    parameter = zeros(2)
    sampler = make([parameter], curvature="fixed", lr=0.5, decay=0.0, sample=False, reset_every=1, step_clip=0.0)
    given_matrix = torch.tensor([[2.0, 0.5], [0.5, 1.0]]).double()
    sampler.inverse.matrix = given_matrix.clone()
    closure = Given([parameter], lambda x: x - 1)
    sampler.step(closure)
    assert torch.allclose(parameter.detach(), 0.5 * given_matrix.sum(dim=1))
    sampler.step(closure)
    assert torch.equal(sampler.inverse.matrix, given_matrix)
    assert closure.calls == 2


def test_step_clip_bounds_the_mean_step_and_not_the_noise():
    parameter = zeros(4)
    sampler = make([parameter], lr=0.5, step_clip=0.3, curvature="fixed", sample=False)
    sampler.step(Given([parameter], lambda x: 3 * torch.ones_like(x)))
    assert parameter.detach().norm() == pytest.approx(0.3)
    assert torch.allclose(parameter.detach(), torch.full((4,), -0.15).double())
    assert sampler.draw["clipped"] == 1 and sampler.draw["step_norm"] == pytest.approx(0.3)
    sampler.step(Given([parameter], lambda x: 0.1 * torch.ones_like(x)))
    assert sampler.draw["clipped"] == 0 and sampler.counts["clipped"] == 1
    noisy = make([zeros(4)], observations=0.01, step_clip=0.3)
    noisy.step(Given(noisy.parameters, torch.zeros_like))
    assert noisy.draw["noise_norm"] > 1 and noisy.counts["clipped"] == 0


def test_between_the_draws_that_learn_the_closure_is_called_once_and_p_stays():
    parameter = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    sampler = make([parameter], learn_every=3)
    calls, matrices = [], []

    def closure():
        calls.append(1)
        parameter.grad = torch.tensor([2.0, 5.0], dtype=torch.float64) * parameter.detach()
        return parameter.detach().square().sum()

    for _ in range(7):
        before = len(calls)
        sampler.step(closure)
        matrices.append((len(calls) - before, sampler.inverse.matrix))
    assert [count for count, _ in matrices] == [2, 1, 1, 2, 1, 1, 2]
    changed = [not torch.equal(a, b) for (_, a), (_, b) in itertools.pairwise(matrices)]
    assert changed == [False, False, True, False, False, True]


def test_reset_every_forgets_the_curvature():
    parameter = zeros(2)
    sampler = make([parameter], reset_every=3)
    learned = []
    for _ in range(7):
        sampler.step(Given([parameter], lambda x: 5 * x - 1))
        learned.append(sampler.inverse.has_learned)
    assert learned == [True, True, False, True, True, False, True]


def test_project_maps_mean_and_noise():
    parameter = zeros(5)
    sampler = make([parameter], observations=2, project=lambda movement: movement - movement.mean())
    for _ in range(10):
        sampler.step(Given([parameter], lambda x: x + torch.arange(5)))
    assert parameter.detach().sum().abs() < 1e-12
    assert parameter.detach().abs().max() > 0.1 and sampler.draw["noise_norm"] > 0.01


def test_parameters_without_gradient_are_not_updated():
    moving, frozen = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))
    sampler = make([moving, frozen], decay=0.3)
    for _ in range(6):
        sampler.step(Given([moving], lambda x: x - 2))
    assert torch.equal(frozen, torch.ones(3)) and not torch.equal(moving, torch.ones(2))
    assert torch.equal(sampler.inverse.matrix[2:, :2], torch.zeros(3, 2))  # and nothing is made up about them


def test_parameters_of_many_shapes_are_one_vector():
    parameters = [zeros(2, 2), nn.Parameter(vector(0.0)[0]), zeros(3, dtype=torch.float32)]
    sampler = make(parameters, curvature="fixed", sample=False, lr=1.0, step_clip=0.0)
    sampler.inverse.matrix = torch.arange(1.0, 9.0).double().diag()
    sampler.step(Given(parameters, torch.ones_like))
    assert torch.equal(parameters[0].detach(), -torch.tensor([[1.0, 2.0], [3.0, 4.0]]).double())
    assert parameters[1].item() == -5 and torch.equal(parameters[2].detach(), -torch.tensor([6.0, 7.0, 8.0]))


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"learn_every": 0}, "learn_every must be at least 1, got 0"),
        ({"reset_every": -1}, "reset_every must be 0 (never) or more, got -1"),
        ({"pairs": "other"}, "pairs must be same or different, got 'other'"),
        ({"curvature": "newton"}, "curvature must be bfgs, fixed or identity, got 'newton'"),
    ],
)
def test_bad_settings_are_one_clear_line(setting, said):
    with pytest.raises(SettingError) as raised:
        make([zeros(2)], **setting)
    assert raised.value.problems == (said,)


# --- T6: pairs of the same batch, and why they must be


def curvature_error(pairs: str, *, steps: int, features: int = 14) -> tuple[float, float]:
    """Root mean square logarithm of the eigenvalues of A^1/2 P A^1/2: 0 where P is the inverse; and of the best scalar.

    The noise is what looks into all directions, so it outweighs the mean step: lr 0.03, 5,000 observations. With 28
    features, the 224 parameters of two cells, 400 steps come to 0.44; half of them take half the steps and a fifth of
    the time.
    """
    model, weights, decay = SoftmaxRegression(features, 8, 8192, seed=0), zeros(features, 8), 0.01
    bounds = {"smallest": 1e-6, "largest": 1e6}
    sampler = make([weights], observations=5000, lr=0.03, decay=decay, pairs=pairs, **bounds)
    batches = model.batches(2048, seed=2)
    for _ in range(steps):
        batch = next(batches)
        sampler.step(Given([weights], lambda x, batch=batch: model.gradient(x, batch)))
    exact = model.hessian(weights.detach()) + decay * torch.eye(8 * features, dtype=torch.float64)
    root = torch.linalg.cholesky(exact)
    error = torch.linalg.eigvalsh(root.T @ sampler.inverse.matrix @ root).log().square().mean().sqrt()
    return float(error), float(torch.linalg.eigvalsh(exact).log().std())


def test_pairs_of_the_same_batch_find_the_curvature():
    error, scalar = curvature_error("same", steps=200)
    assert error < 0.5 < scalar


def test_pairs_of_different_batches_find_noise():
    error, _ = curvature_error("different", steps=60)
    assert error > 3


def test_pairs_of_different_batches_cost_one_gradient_and_learn_from_the_step_before():
    parameter = zeros(2)
    sampler = make([parameter], pairs="different", decay=0.0)
    closure = Given([parameter], lambda x: x - 1)
    sampler.step(closure)
    assert closure.calls == 1 and not sampler.inverse.has_learned
    sampler.step(closure)
    assert closure.calls == 2 and sampler.inverse.has_learned


# --- state


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "setting", [{}, {"pairs": "different"}, {"learn_every": 2}, {"reset_every": 3}, {"curvature": "fixed"}]
)
def test_a_sampler_resumes_from_a_checkpoint_bit_by_bit(dtype, setting):
    def begin() -> tuple[nn.Parameter, BfgsPosterior, Given]:
        parameter = zeros(3, 2, dtype=dtype)
        sampler = make([parameter], step_clip=0.05, **setting)
        return parameter, sampler, Given([parameter], lambda x: torch.sin(3 * x) - 1)

    parameter, sampler, closure = begin()
    for _ in range(4):
        sampler.step(closure)
    sampler.param_groups[0]["lr"] = 0.07  # a schedule has been at work
    kept, saved = parameter.detach().clone(), through_a_checkpoint(sampler.state_dict())
    other, fresh, again = begin()
    with torch.no_grad():
        other.copy_(kept)
    fresh.load_state_dict(saved)
    for _ in range(5):
        sampler.step(closure)
        fresh.step(again)
    assert torch.equal(parameter, other) and not torch.equal(parameter, kept)
    assert changed_places(sampler.state_dict(), fresh.state_dict()) == []
    assert sampler.counts["draws"] == 9 and sampler.inverse.matrix.dtype == torch.float64
    assert fresh.draw == sampler.draw
