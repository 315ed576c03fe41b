import math

import pytest
import torch
from sampler_states import changed_places, elements, through_a_checkpoint
from sampler_toys import Given, SoftmaxRegression, seeded, zeros
from torch import Tensor, nn

from archloom.core.errors import SettingError
from archloom.samplers import Classification, CompactInverse, DiagonalLbfgsPosterior

# --- T4: the compact inverse


def pairs(count: int, size: int = 30) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """A diagonal to start from, and steps with what they did to the gradient of a loss that is almost quadratic."""
    generator = seeded(count)
    start = torch.rand(size, dtype=torch.float64, generator=generator) + 0.2
    root = torch.randn(size, size, dtype=torch.float64, generator=generator)
    hessian = root @ root.T / size + 0.3 * torch.eye(size)
    steps = list(torch.randn(count, size, dtype=torch.float64, generator=generator))
    noise = 0.05 * torch.randn(count, size, dtype=torch.float64, generator=generator)
    changes = [hessian @ step + extra for step, extra in zip(steps, noise, strict=True)]
    assert all(step @ change > 0 for step, change in zip(steps, changes, strict=True))
    return start, steps, changes


def dense_bfgs(start: Tensor, steps: list[Tensor], changes: list[Tensor]) -> Tensor:
    matrix = start.diag()
    for step, change in zip(steps, changes, strict=True):
        keep = torch.eye(len(step), dtype=step.dtype) - torch.outer(step, change) / (step @ change)
        matrix = keep @ matrix @ keep.T + torch.outer(step, step) / (step @ change)
    return matrix


@pytest.mark.parametrize("count", [0, 1, 2, 6, 10])
def test_compact_inverse_is_dense_bfgs(count):
    start, steps, changes = pairs(count)
    dense, compact = dense_bfgs(start, steps, changes), CompactInverse(start, steps, changes)
    assert (compact.diagonal() - dense.diagonal()).abs().max() < 1e-10
    assert compact.diagonal().min() > 0
    for vector in torch.randn(3, 30, dtype=torch.float64, generator=seeded(1)):
        assert (compact.product(vector) - dense @ vector).abs().max() < 1e-10


def test_the_order_of_pairs_matters():
    start, steps, changes = pairs(6)
    turned = CompactInverse(start, steps[::-1], changes[::-1])
    assert (turned.diagonal() - dense_bfgs(start, steps, changes).diagonal()).abs().max() > 1e-3


def test_compact_inverse_in_single_precision_is_close():
    start, steps, changes = pairs(6)
    dense = dense_bfgs(start, steps, changes)
    single = CompactInverse(start.float(), [s.float() for s in steps], [c.float() for c in changes])
    assert single.diagonal().dtype == torch.float32
    assert (single.diagonal() - dense.diagonal()).abs().max() < 1e-4


# --- the sampler


FREE = {"damping": 0.0, "decay": 0.0, "step_clip": 0.0, "noise_clip": 0.0, "noise_limit": 0.0}


def make(parameters: list[nn.Parameter], **settings) -> DiagonalLbfgsPosterior:
    return DiagonalLbfgsPosterior(parameters, **{"generator": seeded(0), "observations": 100, **settings})


def small_network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    layers = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).to(dtype)
    with torch.no_grad():
        for parameter in layers.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=seeded(parameter.numel())))
    return layers


def batches(count: int, size: int = 16) -> list[tuple[Tensor, Tensor]]:
    generator = seeded(8)
    return [
        (torch.randn(size, 5, generator=generator), torch.randint(3, (size,), generator=generator))
        for _ in range(count)
    ]


def closure_of(network: nn.Module, batch: tuple[Tensor, Tensor]) -> Classification:
    return Classification(network, lambda: network(batch[0]), batch[1])


def test_memory_keeps_the_newest_pairs():
    weights = zeros(4)
    sampler = make([weights], memory=3, start="scalar", lr=0.5, **FREE)
    curvature = torch.tensor([0.5, 1.0, 2.0, 3.0]).double()
    moves = []
    for _ in range(7):
        before = weights.detach().clone()
        sampler.step(Given([weights], lambda x: curvature * x - 1))
        moves.append(weights.detach() - before)
    assert len(sampler.steps) == len(sampler.changes) == 3
    for kept, change, move in zip(sampler.steps, sampler.changes, moves[-3:], strict=True):
        assert torch.equal(kept, move)
        assert (change - curvature * move).abs().max() < 1e-12


@pytest.mark.parametrize("mean", ["diagonal", "direction"])
@pytest.mark.parametrize("start", ["gnb", "scalar"])
def test_the_mean_step_uses_the_diagonal_or_the_whole_inverse(mean, start):
    weights = zeros(30)
    decay, damping = 0.03, 0.2
    settings = {**FREE, "decay": decay, "damping": damping, "smallest": 1e-9, "largest": 1e9}
    sampler = make([weights], mean=mean, start=start, sample=False, lr=0.7, **settings)
    _, sampler.steps, sampler.changes = pairs(6)
    gradient = torch.linspace(-1, 2, 30, dtype=torch.float64)
    sampler.step(Given([weights], lambda x: gradient, own=3.0))
    _, steps, changes = pairs(6)
    scalar = steps[-1] @ changes[-1] / changes[-1].square().sum()
    first = torch.full((30,), 1 / (9 + decay + damping) if start == "gnb" else float(scalar), dtype=torch.float64)
    dense = dense_bfgs(first, steps, changes)
    wanted = dense @ gradient if mean == "direction" else dense.diagonal() * gradient
    assert (weights.detach() + 0.7 * wanted).abs().max() < 1e-10


def test_a_scalar_start_is_one_before_the_first_pair():
    weights = zeros(3)
    sampler = make([weights], start="scalar", sample=False, lr=0.5, **FREE)
    sampler.step(Given([weights], torch.ones_like))
    assert torch.equal(weights.detach(), torch.full((3,), -0.5).double())


def test_the_prior_of_a_group_is_part_of_its_curvature():
    one, two = zeros(2), zeros(2)
    groups = [{"params": [one], "decay": 1.0}, {"params": [two], "decay": 3.0}]
    settings = {**FREE, "memory": 0, "sample": False, "lr": 1.0}
    make(groups, **settings).step(Given([one, two], torch.ones_like, own=1.0))
    assert torch.allclose(one.detach(), torch.full((2,), -1 / 2).double())
    assert torch.allclose(two.detach(), torch.full((2,), -1 / 4).double())


def test_the_diagonal_stays_within_its_bounds():
    weights = zeros(3)
    sampler = make([weights], memory=0, sample=False, lr=1.0, smallest=0.1, largest=5.0, **FREE)
    sampler.step(Given([weights], torch.ones_like, own=torch.tensor([1e-3, 0.7, 1e3])))
    assert torch.allclose(weights.detach(), -torch.tensor([5.0, 1 / 0.49, 0.1]).double())
    assert sampler.draw["smallest"] == pytest.approx(0.1) and sampler.draw["largest"] == pytest.approx(5.0)


def test_unreliable_pairs_are_skipped_and_counted():
    weights = zeros(3)
    sampler = make([weights], start="scalar")
    sampler.step(Given([weights], lambda x: -x))
    assert sampler.steps == [] and sampler.counts["skipped"] == 1 and sampler.draw["skipped"] == 1
    sampler.step(Given([weights], lambda x: x))
    assert len(sampler.steps) == 1 and sampler.counts["skipped"] == 1 and sampler.draw["skipped"] == 0


@pytest.mark.parametrize(("cosine", "skipped"), [(0.9e-4, 1), (1.1e-4, 0)])
def test_a_change_across_the_step_is_skipped(cosine, skipped):
    weights = zeros(2)
    turned = torch.tensor([[cosine, 1.0], [-1.0, cosine]]).double()
    sampler = make([weights], start="scalar", decay=0.0)
    sampler.step(Given([weights], lambda x: turned @ x))
    assert sampler.counts["skipped"] == skipped and len(sampler.steps) == 1 - skipped


def test_calls_of_the_closure():
    weights = zeros(3)
    closure = Given([weights], lambda x: x - 1)
    sampler = make([weights], start_every=3)
    for _ in range(7):
        sampler.step(closure)
    assert closure.calls == 14 and closure.looks == 3  # before and after each of 7 moves; a look at 1, 4 and 7
    closure = Given([weights], lambda x: x - 1)
    make([weights], memory=0, start="scalar").step(closure)
    assert closure.calls == 1 and closure.looks == 0


def test_gauss_newton_needs_a_closure_that_samples_labels():
    weights = zeros(3)

    def plain() -> Tensor:
        weights.grad = torch.ones_like(weights)
        return torch.tensor(1.0)

    with pytest.raises(SettingError, match="start 'gnb' must have a closure with backward_on_sampled_labels"):
        make([weights]).step(plain)
    make([weights], start="scalar").step(plain)


# --- the Gauss-Newton diagonal


def test_the_gauss_newton_diagonal_is_unbiased():
    model = SoftmaxRegression(4, 3, 20, seed=1)
    layer = nn.Linear(4, 3, bias=False).double()
    with torch.no_grad():
        layer.weight.copy_(torch.randn(3, 4, dtype=torch.float64, generator=seeded(2)))
    exact = model.hessian(layer.weight.detach().T).diagonal().view(4, 3).T.flatten()  # for this loss, GGN and Hessian
    sampler = make([layer.weight], start_average=0.0, start_every=1, memory=0, sample=False, lr=1e-12)
    looks = []
    for _ in range(1000):
        sampler.step(Classification(layer, lambda: layer(model.inputs), model.labels))
        assert sampler.curvature is not None
        looks.append(sampler.curvature.clone())
    seen = torch.stack(looks)
    errors = seen.std(dim=0) / math.sqrt(len(looks))
    assert ((seen.mean(dim=0) - exact).abs() / errors).max() < 4
    assert (seen.mean(dim=0) / exact - 1).abs().max() < 0.2
    assert ((seen.mean(dim=0) / 20 - exact).abs() / errors).min() > 10  # without the number of observations


def test_the_running_diagonal():
    weights = zeros(2)
    sampler = make([weights], start_average=0.75, start_every=1)
    for own in (2.0, 4.0):
        sampler.step(Given([weights], torch.ones_like, own=own))
    assert sampler.curvature is not None
    assert torch.equal(sampler.curvature, torch.full((2,), 0.75 * 4 + 0.25 * 16).double())


# --- clips, tensor by tensor


def root_mean_square(tensor: Tensor) -> float:
    return float(tensor.detach().square().mean().sqrt())


def test_the_mean_step_is_clipped_tensor_by_tensor():
    large, small, calm = (nn.Parameter(torch.full((n,), size)) for n, size in ((8, 10.0), (3, 0.1), (4, 1.0)))
    before = [p.detach().clone() for p in (large, small, calm)]
    settings = {**FREE, "step_clip": 0.1, "memory": 0, "start": "scalar", "sample": False, "lr": 1.0}
    sampler = make([large, small, calm], **settings)
    closure = Given([large, small], lambda x: torch.linspace(1, 9, len(x)))

    def with_a_calm_one() -> Tensor:
        calm.grad = torch.full_like(calm, 0.05)
        return closure()

    sampler.step(with_a_calm_one)
    moves = [p.detach() - old for p, old in zip((large, small, calm), before, strict=True)]
    assert [root_mean_square(move) for move in moves] == pytest.approx([1.0, 0.01, 0.05], rel=1e-4)
    direction = torch.linspace(1, 9, 8)
    assert torch.allclose(moves[0], -direction / root_mean_square(direction), atol=1e-5)  # shorter, and nowhere else
    assert sampler.draw["clipped"] == 2 and sampler.counts["clipped"] == 2
    assert sampler.draw["noise_clipped"] == 0 and sampler.draw["noise_norm"] == 0


def test_noise_is_clipped_tensor_by_tensor():
    large, small = nn.Parameter(torch.full((50,), 10.0)), nn.Parameter(torch.full((50,), 0.1))
    before = [large.detach().clone(), small.detach().clone()]
    settings = {**FREE, "noise_clip": 0.02, "memory": 0, "start": "scalar", "lr": 1.0, "observations": 100}
    sampler = make([large, small], **settings)  # noise of 0.1: below 0.2, above 0.002
    sampler.step(Given([large, small], torch.zeros_like))
    sizes = [root_mean_square(p.detach() - old) for p, old in zip((large, small), before, strict=True)]
    assert 0.07 < sizes[0] < 0.13
    assert sizes[1] == pytest.approx(0.002, rel=1e-3)
    assert sampler.draw["noise_clipped"] == 1 and sampler.counts["noise_clipped"] == 1
    assert sampler.draw["clipped"] == 0 and sampler.draw["step_norm"] == 0


def test_tensors_that_start_at_zero_can_move():
    weights = zeros(10, dtype=torch.float32)
    settings = {"memory": 0, "start": "scalar", "lr": 1.0, "observations": 1}
    sampler = make([weights], step_clip=0.1, noise_clip=0.02, **settings)
    sampler.step(Given([weights], torch.ones_like))
    mean, noise = sampler.draw["step_norm"] / math.sqrt(10), sampler.draw["noise_norm"] / math.sqrt(10)
    assert mean == pytest.approx(0.1 * 1e-3, rel=1e-4) and noise == pytest.approx(0.02 * 1e-3, rel=1e-4)
    assert root_mean_square(weights) > 0.5e-4


# --- when there is noise, and where


def test_noise_waits_and_then_rises():
    weights = zeros(4000)
    settings = {**FREE, "memory": 0, "start": "scalar", "lr": 1.0, "observations": 1}
    sampler = make([weights], quiet_steps=3, ramp_steps=4, **settings)
    sizes = []
    for _ in range(9):
        sampler.step(Given([weights], torch.zeros_like))
        sizes.append(sampler.draw["noise_norm"] / math.sqrt(4000))
    # the first step of the ramp is at none of it, the last before full size at three quarters
    assert sizes == pytest.approx([0, 0, 0, 0, 0.25, 0.5, 0.75, 1, 1], rel=0.05)
    at_once = make([weights], quiet_steps=1, **settings)
    for wanted in (0, 1):
        at_once.step(Given([weights], torch.zeros_like))
        assert at_once.draw["noise_norm"] / math.sqrt(4000) == pytest.approx(wanted, rel=0.05)


def test_curvature_is_learned_while_noise_waits():
    weights = zeros(3)
    sampler = make([weights], quiet_steps=10)
    sampler.step(Given([weights], lambda x: x - 1))
    assert sampler.draw["noise_norm"] == 0 and len(sampler.steps) == 1 and sampler.curvature is not None


@pytest.mark.parametrize("mean", ["diagonal", "direction"])
def test_parameters_without_gradient_are_not_updated(mean):
    moving, frozen = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(40))
    sampler = make([moving, frozen], decay=0.3, mean=mean, start_every=1)
    sampler.step(Given([moving, frozen], lambda x: x - 2, own=0.5))  # a pair that knows both
    kept, known = frozen.detach().clone(), sampler.curvature
    assert known is not None and not torch.equal(kept, torch.ones(40))
    known = known.clone()
    frozen.grad = None
    noise = sampler.noise_scale() * math.sqrt(50.0)  # by the largest P
    for _ in range(5):
        sampler.step(Given([moving], lambda x: x - 2, own=2.0))
        assert sampler.draw["noise_norm"] < 3 * math.sqrt(3) * noise  # that of three parameters
    assert torch.equal(frozen, kept)
    assert sampler.curvature is not None
    assert torch.equal(sampler.curvature[3:], known[3:]) and not torch.equal(sampler.curvature[:3], known[:3])


def test_clips_of_frozen_parameters_are_not_counted():
    moving, frozen = nn.Parameter(torch.full((3,), 100.0)), nn.Parameter(torch.ones(40))
    sampler = make([moving, frozen], observations=1, noise_clip=0.02, start="scalar", decay=0.0)
    sampler.step(Given([moving], torch.zeros_like))
    assert sampler.counts["noise_clipped"] == 0


def test_the_generator_decides():
    def run(seed: int) -> Tensor:
        network = small_network()
        sampler = make(list(network.parameters()), generator=seeded(seed))
        for batch in batches(3):
            sampler.step(closure_of(network, batch))
        return nn.utils.parameters_to_vector(network.parameters()).detach()

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"memory": -1}, "memory must be 0 or more, got -1"),
        ({"start_every": 0}, "start_every must be at least 1, got 0"),
        ({"start_average": 1.0}, "start_average must lie in [0, 1), got 1.0"),
        ({"damping": -1}, "damping must be 0 or more, got -1"),
        ({"noise_clip": -1}, "noise_clip must be 0 (off) or more, got -1"),
        ({"quiet_steps": -1}, "quiet_steps must be 0 or more, got -1"),
        ({"ramp_steps": -1}, "ramp_steps must be 0 or more, got -1"),
        ({"start": "identity"}, "start must be gnb or scalar, got 'identity'"),
        ({"mean": "newton"}, "mean must be diagonal or direction, got 'newton'"),
        ({"curvature": "bfgs"}, "curvature must be lbfgs or identity, got 'bfgs'"),
    ],
)
def test_bad_settings_are_one_clear_line(setting, said):
    with pytest.raises(SettingError) as raised:
        make([zeros(2)], **setting)
    assert raised.value.problems == (said,)


def test_all_bad_settings_are_reported_together():
    with pytest.raises(SettingError) as raised:
        make([zeros(2)], memory=-1, damping=-1, start="none")
    assert len(raised.value.problems) == 3


# --- training, state, memory


def test_a_network_is_trained():
    network = small_network()
    inputs, _ = batches(1, size=128)[0]
    labels = inputs[:, :3].argmax(dim=1)
    sampler = make(list(network.parameters()), observations=25_000)
    losses = [float(sampler.step(closure_of(network, (inputs, labels)))) for _ in range(80)]
    assert losses[-1] < 0.3 * losses[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "setting",
    [
        {},
        {"start": "scalar", "mean": "direction"},
        {"memory": 2, "start_every": 2},
        {"quiet_steps": 4, "ramp_steps": 4},
        {"curvature": "identity"},
    ],
)
def test_a_sampler_resumes_from_a_checkpoint_bit_by_bit(dtype, setting):
    def begin() -> tuple[nn.Module, DiagonalLbfgsPosterior]:
        network = small_network(dtype)
        return network, make(list(network.parameters()), **setting)

    data = [(inputs.to(dtype), labels) for inputs, labels in batches(9)]
    network, sampler = begin()
    for batch in data[:4]:
        sampler.step(closure_of(network, batch))
    sampler.param_groups[0]["lr"] = 0.07  # a schedule has been at work
    saved, weights = through_a_checkpoint([sampler.state_dict(), network.state_dict()])
    other, fresh = begin()
    other.load_state_dict(weights)
    fresh.load_state_dict(saved)
    for batch in data[4:]:
        sampler.step(closure_of(network, batch))
        fresh.step(closure_of(other, batch))
    assert changed_places(network.state_dict(), other.state_dict()) == []
    assert changed_places(sampler.state_dict(), fresh.state_dict()) == []
    assert changed_places(network.state_dict(), weights) != []
    assert sampler.counts["draws"] == 9 and fresh.draw == sampler.draw


def test_a_sampler_from_a_state_is_one_of_its_own():
    network = small_network()
    sampler, other = (make(list(network.parameters())) for _ in range(2))
    sampler.step(closure_of(network, batches(1)[0]))
    other.load_state_dict(sampler.state_dict())
    assert sampler.curvature is not None and other.curvature is not None
    sampler.curvature += 1
    assert (sampler.curvature - other.curvature).min() > 0.9


def test_a_state_that_has_seen_nothing_can_be_loaded():
    network = small_network()
    sampler = make(list(network.parameters()))
    sampler.load_state_dict(through_a_checkpoint(sampler.state_dict()))
    assert sampler.curvature is None and sampler.steps == [] and sampler.counts["draws"] == 0


@pytest.mark.parametrize("memory", [0, 3, 6])
@pytest.mark.parametrize("width", [20, 40])
def test_memory_is_linear_in_pairs_and_parameters(memory, width):
    weights = zeros(width, width)
    sampler = make([weights], memory=memory, quiet_steps=100)
    for number in range(10):
        sampler.step(Given([weights], lambda x, n=number: (1 + n) * x - 1))
    assert len(sampler.steps) == memory
    assert elements(sampler.state_dict()) == (2 * memory + 1) * width**2
    held = [value for value in vars(sampler).values() if isinstance(value, Tensor)]
    assert sum(tensor.numel() for tensor in held) <= width**2 + 1  # beside the pairs: the diagonal, and one length
