"""REINFORCE against the enumerated expected reward, in double precision; and who sees which images."""

import random

import pytest
import torch
from smooth import SPACE, batch, smooth_weights

from archloom.core.metrics import ACCURACY
from archloom.policies.lstm import SampledPaths
from archloom.strategies.base import Plan, SearchBatch, Validation
from archloom.strategies.enas import Enas, SpreadValidation

PATHS = list(SPACE.enumerate())  # 64
ACCURACIES = torch.rand(len(PATHS), dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def make(*, spread: float = 20.0, **settings) -> Enas:
    strategy = Enas(SPACE, torch.Generator().manual_seed(0), **settings)
    strategy.policy.double()
    with torch.no_grad():
        for parameter in strategy.policy.parameters():
            parameter.mul_(spread)
    return strategy


def every_path(strategy: Enas) -> SampledPaths:
    """All paths as if drawn, each once."""
    logs = strategy.policy.log_probabilities(PATHS)
    return SampledPaths(tuple(PATHS), logs, torch.zeros_like(logs), ())


def gradient(value: torch.Tensor, strategy: Enas) -> torch.Tensor:
    parts = torch.autograd.grad(value, list(strategy.policy.parameters()), retain_graph=True)
    return torch.cat([part.flatten() for part in parts])


def mean_gradient(strategy: Enas) -> torch.Tensor:
    """Of the loss that one drawn path gives, on average over what is drawn: exactly, by enumeration."""
    drawn = every_path(strategy)
    rewards = strategy.rewards(drawn, ACCURACIES)
    probabilities = drawn.log_probabilities.detach().exp()
    losses = [
        strategy.loss(
            SampledPaths((path,), drawn.log_probabilities[[number]], drawn.entropies[[number]], ()), rewards[[number]]
        )
        for number, path in enumerate(PATHS)
    ]
    return gradient((probabilities * torch.stack(losses)).sum(), strategy)


@pytest.mark.parametrize("entropy_weight", [0.0, 0.3])
@pytest.mark.parametrize("baseline", [0.0, 0.4, -3.0])
def test_the_mean_gradient_is_that_of_the_expected_reward_whatever_the_baseline(baseline, entropy_weight):
    strategy = make(entropy_weight=entropy_weight)
    strategy.baseline = baseline
    logs = strategy.policy.log_probabilities(PATHS)
    expected = (logs.exp() * ACCURACIES).sum() - entropy_weight * (logs.exp() * logs).sum()
    wanted = -gradient(expected, strategy)
    assert wanted.norm() > 1e-3
    assert (mean_gradient(strategy) - wanted).norm() < 1e-10 * wanted.norm() + 1e-12


def test_a_good_baseline_takes_out_noise():
    strategy = make()

    def noise(baseline: float) -> float:
        strategy.baseline = baseline
        drawn = every_path(strategy)
        probabilities = drawn.log_probabilities.detach().exp()
        squares = [
            gradient(
                strategy.loss(
                    SampledPaths((path,), drawn.log_probabilities[[number]], drawn.entropies[[number]], ()),
                    ACCURACIES[[number]],
                ),
                strategy,
            ).square()
            for number, path in enumerate(PATHS)
        ]
        return float((probabilities.unsqueeze(1) * torch.stack(squares)).sum())

    usual = float((every_path(strategy).log_probabilities.detach().exp() * ACCURACIES).sum())
    assert noise(usual) < 0.6 * noise(0.0)


def test_the_loss_of_several_paths_is_the_mean_of_theirs():
    strategy = make()
    strategy.baseline = 0.3
    drawn = strategy.policy.sample(torch.Generator().manual_seed(1), 5)
    rewards = torch.rand(5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    wanted = -((rewards - 0.3) * drawn.log_probabilities).sum() / 5
    assert abs(strategy.loss(drawn, rewards) - wanted) < 1e-14


def test_the_first_rewards_are_compared_with_their_own_mean():
    strategy = make()
    drawn = strategy.policy.sample(torch.Generator().manual_seed(1), 4)
    rewards = torch.tensor([0.1, 0.2, 0.3, 0.6], dtype=torch.float64)
    assert abs(strategy.loss(drawn, rewards) + ((rewards - 0.3) * drawn.log_probabilities).mean()) < 1e-14
    strategy.update_baseline(rewards)
    wanted = 0.3
    for reward in (0.1, 0.2, 0.3, 0.6):
        wanted = 0.99 * wanted + 0.01 * reward
    assert strategy.baseline == pytest.approx(wanted, abs=1e-15)


def test_the_baseline_is_an_exponential_moving_average_of_single_rewards():
    strategy = make(baseline_decay=0.9)
    strategy.baseline = 0.5
    strategy.update_baseline(torch.tensor([1.0, 0.0]))
    assert strategy.baseline == pytest.approx(0.9 * (0.9 * 0.5 + 0.1 * 1.0))


class Weights:
    """Shared weights that note who saw what; an accuracy is known for every path."""

    metric = ACCURACY

    def __init__(self) -> None:
        self.weights, self.trained, self.scored = smooth_weights(), [], []

    def fit(self, given, gates):
        self.trained.append((given, gates))
        return self.weights.fit(given, gates)

    def score(self, given, gates):
        path = tuple(gate.index for gate in gates.values())
        self.scored.append((given, path))
        return ACCURACIES[path[0] * 16 + path[1] * 4 + path[2]]


def search_batch(valids: int, *, epoch: int = 0) -> SearchBatch:
    return SearchBatch(batch(0), tuple(batch(number + 1) for number in range(valids)), epoch, 4)


def test_weights_see_training_images_and_the_controller_validation_images():
    strategy, weights, given = make(samples=30), Weights(), search_batch(2)
    metrics = strategy.step(weights, given)
    assert [seen for seen, _ in weights.trained] == [given.train]
    assert {id(seen) for seen, _ in weights.scored} == {id(valid) for valid in given.valids}
    assert {"valid_accuracy", "baseline", "entropy"} <= set(metrics)
    assert all(gate.weights is None for gate in weights.trained[0][1].values())


def test_a_path_sampled_twice_is_scored_once_per_batch():
    strategy, weights = make(samples=300), Weights()
    strategy.step(weights, search_batch(2))
    for valid in {id(seen): seen for seen, _ in weights.scored}.values():
        paths = [path for seen, path in weights.scored if seen is valid]
        assert len(paths) == len(set(paths)) <= len(PATHS)


def test_the_weight_step_leaves_the_controller_alone_and_the_other_way_round():
    strategy, weights = make(), Weights()
    before = {name: value.clone() for name, value in strategy.policy.state_dict().items()}
    strategy.step(weights, search_batch(0))
    assert all(torch.equal(before[name], value) for name, value in strategy.policy.state_dict().items())
    assert strategy.baseline is None
    shared = {name: value.clone() for name, value in weights.weights._network.state_dict().items()}
    strategy._learn(weights, batch(1))
    assert all(torch.equal(shared[name], value) for name, value in weights.weights._network.state_dict().items())
    assert not all(torch.equal(before[name], value) for name, value in strategy.policy.state_dict().items())


def test_every_step_of_the_controller_starts_from_its_own_gradient():
    strategy, twin = make(), make()
    strategy._learn(Weights(), batch(1))
    twin.load_state_dict(strategy.state_dict())  # holds no gradient
    for each in (strategy, twin):
        each._learn(Weights(), batch(1))
    for parameter, wanted in zip(strategy.policy.parameters(), twin.policy.parameters(), strict=True):
        assert torch.equal(parameter.grad, wanted.grad)


def test_while_warming_up_only_the_weights_move():
    strategy, weights = make(warmup=0.5), Weights()
    assert "entropy" not in strategy.step(weights, search_batch(1, epoch=1))
    assert weights.scored == []
    assert "entropy" in strategy.step(weights, search_batch(1, epoch=2))


def test_the_controller_comes_to_favour_what_is_rewarded():
    strategy, weights = make(spread=1.0, learning_rate=0.02), Weights()
    expected = lambda: float((strategy.policy.log_probabilities(PATHS).detach().exp() * ACCURACIES).sum())  # noqa: E731
    start = expected()
    for _ in range(80):
        strategy._learn(weights, batch(1))
    assert expected() > start + 0.6 * (float(ACCURACIES.max()) - start)


def test_candidates_are_sampled_by_the_controller_and_the_best_is_chosen():
    strategy = make(candidates=2000, candidates_each_epoch=4)
    seen = []

    def evaluate(architecture):
        seen.append(architecture)
        return float(ACCURACIES[PATHS.index(architecture)])

    best = strategy.best(evaluate)
    assert len(seen) == len(set(seen))
    assert evaluate(best) == max(map(evaluate, list(seen)))
    likely = PATHS[int(strategy.policy.log_probabilities(PATHS).argmax())]
    assert likely in seen
    seen.clear()
    strategy.best(evaluate, final=False)
    assert 1 <= len(seen) <= 4
    assert all("none" not in make(keep_none=False).best(evaluate).values() for _ in range(3))


@pytest.mark.parametrize(("steps", "count"), [(7, 3), (3, 7), (10, 10), (390, 50), (1, 50)])
def test_controller_steps_are_spread_evenly_over_every_epoch(steps, count):
    strategy = make(controller_steps=count)
    strategy.begin(None, Plan(train_images=steps * 4 + 3, valid_images=9, batch_size=4, valid_batch_size=4, steps=0))
    at = [strategy.validation.at(position) for position in range(3 * steps)]
    assert [sum(at[start : start + steps]) for start in (0, steps, 2 * steps)] == [count] * 3
    assert max(at) - min(at) <= 1
    assert [strategy.validation.before(position) for position in range(3 * steps)] == [
        sum(at[:position]) for position in range(3 * steps)
    ]


def test_a_spread_is_asked_like_any_validation():
    assert isinstance(SpreadValidation(every=4, batches=2), Validation)
    assert [SpreadValidation(every=4, batches=2).at(position) for position in range(4)] == [0, 1, 0, 1]


def test_the_paper_settings_reach_the_optimizer():
    group = make(**Enas.presets["paper"]["strategy"]).optimizer.param_groups[0]
    assert (group["lr"], group["betas"], group["eps"]) == (1e-3, (0.0, 0.999), 1e-3)


# --- step sizes and samples


def begin(*, steps: int, train_images: int = 400, **settings) -> Enas:
    strategy = make(**settings)
    strategy.begin(smooth_weights(), Plan(train_images, 400, 8, 8, steps=steps))
    return strategy


@pytest.mark.parametrize(
    ("steps", "controller_steps"), [(100_000, 13), (400, 25), (200, 50), (50, 50)]
)  # of 50 weight steps an epoch
def test_the_controller_has_a_quarter_of_the_steps_and_more_in_a_short_search(steps, controller_steps):
    assert begin(steps=steps).validation.batches == controller_steps


@pytest.mark.parametrize(("steps", "rate"), [(100_000, 1e-3), (200, 3e-3), (50, 1e-2), (10, 1e-2)])
def test_the_controllers_learning_rate_follows_from_the_number_of_its_steps(steps, rate):
    assert begin(steps=steps).optimizer.param_groups[0]["lr"] == pytest.approx(rate)
    assert begin(steps=steps, learning_rate=0.5).optimizer.param_groups[0]["lr"] == 0.5


def test_samples_come_from_the_controller_and_depend_on_the_generator_given():
    strategy = make(spread=40.0)
    before = strategy.generator.get_state()
    found = [strategy.sample(random.Random(seed)) for seed in range(400)]
    assert torch.equal(strategy.generator.get_state(), before)
    assert strategy.sample(random.Random(3)) == found[3]
    likely = strategy.policy.log_probabilities(PATHS).exp().detach()
    best = PATHS[int(likely.argmax())]
    assert found.count(best) / len(found) == pytest.approx(float(likely.max()), abs=0.08)
