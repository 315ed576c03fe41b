"""TuNAS against the enumerated expected reward, in double precision; its schedules, warm-ups and targets."""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import log

import pytest
import torch
from smooth import SPACE, batch, smooth_weights

from archloom.core.metrics import ACCURACY
from archloom.core.settings import check
from archloom.objectives.cost_source import ModelledCost
from archloom.objectives.linear_cost import LinearCost
from archloom.objectives.target import Target
from archloom.policies.multinomial import log_likelihood, sample_architectures
from archloom.spaces import Nb201
from archloom.strategies.base import Plan, SearchBatch
from archloom.strategies.tunas import DelayedValidation, PolicySettings, SupernetSettings, Tunas

PATHS = list(SPACE.enumerate())  # 64
ACCURACIES = torch.rand(len(PATHS), dtype=torch.float64, generator=torch.Generator().manual_seed(2)).tolist()


@dataclass(frozen=True, kw_only=True)
class Partly(Nb201):
    """The last decision makes no difference where the first is `none`."""

    nodes: int = 3
    operations: tuple[str, ...] = ("none", "wide", "narrow", "skip")

    def active(self, architecture):
        everything = frozenset(architecture)
        return everything - {"1->2"} if architecture["0->1"] == "none" else everything


class Still:
    """An optimizer that keeps gradients and moves nothing."""

    def __init__(self, strategy: Tunas) -> None:
        self.strategy, self.gradients, self.param_groups = strategy, [], [{"lr": 0.0}]

    def step(self) -> None:
        self.gradients.append(self.strategy.policy.values.grad.clone())


def _sections(settings: dict) -> dict:
    values, problems = check("strategy", Tunas, settings)
    assert problems == []
    return values


def make(space=SPACE, *, spread: float = 1.0, still: bool = False, **settings) -> Tunas:
    strategy = Tunas(space, torch.Generator().manual_seed(0), **_sections(settings))
    strategy.policy.double()
    with torch.no_grad():
        strategy.policy.values.copy_(spread * torch.randn(12, generator=torch.Generator().manual_seed(1)))
    if still:
        strategy.optimizer = Still(strategy)
    return strategy


def mean_gradient(strategy: Tunas, rewards) -> torch.Tensor:
    """Return the expected step of one sampled path, exactly, by enumeration."""
    mean = torch.zeros_like(strategy.policy.values)
    for path, reward in zip(PATHS, rewards, strict=True):
        strategy.average, strategy.weight = 0.3 * 0.5, 0.5  # a baseline of 0.3, half filled
        chance = log_likelihood(SPACE, strategy.policy, [path], [1.0]).exp().detach()
        strategy.reinforce(path, reward, rate=0.1)
        mean -= chance * strategy.optimizer.gradients[-1]  # an optimizer goes down, a reward up
    return mean


def test_the_mean_step_is_the_gradient_of_the_expected_reward():
    strategy = make(still=True)
    logs = torch.stack([log_likelihood(SPACE, strategy.policy, [path], [1.0]) for path in PATHS])
    expected = (logs.exp() * torch.tensor(ACCURACIES, dtype=torch.float64)).sum()
    (wanted,) = torch.autograd.grad(expected, [strategy.policy.values])
    assert wanted.norm() > 1e-2
    kept = 1 - 0.05 / (0.95 * 0.5 + 0.05)  # the share of a reward that its own weight in the baseline leaves
    assert (mean_gradient(strategy, ACCURACIES) - kept * wanted).norm() < 1e-12


def test_an_inactive_choice_learns_nothing():
    strategy = make(Partly(), still=True)
    idle = next(path for path in PATHS if path["0->1"] == "none")
    strategy.average, strategy.weight = 0.1, 0.5
    strategy.reinforce(idle, 1.0, rate=0.1)
    parts = strategy.policy.split(strategy.optimizer.gradients[0])
    assert torch.count_nonzero(parts["1->2"]) == 0
    assert torch.count_nonzero(parts["0->1"]) == torch.count_nonzero(parts["0->2"]) == 4


def test_the_mean_step_is_right_with_inactive_choices():
    space = Partly()
    strategy = make(space, still=True)
    same = {path: ACCURACIES[PATHS.index(path.with_option("1->2", "skip"))] for path in PATHS}
    rewards = [same[p] if p["0->1"] == "none" else r for p, r in zip(PATHS, ACCURACIES, strict=True)]
    logs = torch.stack([log_likelihood(SPACE, strategy.policy, [path], [1.0]) for path in PATHS])
    (wanted,) = torch.autograd.grad(
        (logs.exp() * torch.tensor(rewards, dtype=torch.float64)).sum(), [strategy.policy.values]
    )
    kept = 1 - 0.05 / (0.95 * 0.5 + 0.05)
    assert (mean_gradient(strategy, rewards) - kept * wanted).norm() < 1e-12


def test_the_baseline_starts_unbiased_and_includes_the_reward_itself():
    strategy = make(still=True)
    path = PATHS[7]
    strategy.reinforce(path, 0.8, rate=0.1)
    assert torch.count_nonzero(strategy.optimizer.gradients[0]) == 0  # as good as all there was
    strategy.reinforce(path, 0.9, rate=0.1)
    advantage = 0.9 - (0.95 * 0.8 + 0.9) / 1.95
    (likely,) = torch.autograd.grad(log_likelihood(SPACE, strategy.policy, [path], [1.0]), [strategy.policy.values])
    assert torch.allclose(strategy.optimizer.gradients[1], -advantage * likely, atol=1e-15)


def test_without_momentum_no_reward_would_be_better_than_its_baseline():
    strategy = make(still=True, policy={})  # settings of its own, not the shared default
    object.__setattr__(strategy._settings, "baseline_momentum", 0.0)  # which settings refuse
    for reward in (0.1, 0.9, 0.4):
        strategy.reinforce(PATHS[3], reward, rate=0.1)
    assert all(torch.count_nonzero(gradient) == 0 for gradient in strategy.optimizer.gradients)


def test_it_ascends_with_the_given_rate_and_no_momentum():
    strategy = make(spread=0.0)
    strategy.average, strategy.weight = 0.1, 0.5
    strategy.reinforce(PATHS[5], 1.0, rate=0.02)
    moved = strategy.policy.values.detach().clone()
    chosen = torch.tensor([float(option == PATHS[5][d.name]) for d in SPACE.decisions for option in d.options])
    assert torch.allclose(moved, 0.02 * (2 * chosen - 1).double(), atol=1e-6)  # Adam's first step is a sign
    group = strategy.optimizer.param_groups[0]
    assert group["betas"] == (0.0, 0.999) and group["lr"] == 0.02
    assert torch.equal(make(spread=0.0).policy.values, torch.zeros(12, dtype=torch.float64))


# --- the step


class Weights:
    """Shared weights that note who saw what; an accuracy is known for every path."""

    metric = ACCURACY

    def __init__(self) -> None:
        self.weights, self.seen = smooth_weights(), []

    def fit(self, given, gates):
        self.seen.append(("fit", given, gates))
        return self.weights.fit(given, gates)

    def score(self, given, gates):
        path = [gate.index for gate in gates.values()]
        self.seen.append(("score", given, gates))
        return torch.tensor(ACCURACIES[path[0] * 16 + path[1] * 4 + path[2]])


def at(progress: float, valids: int = 2) -> SearchBatch:
    return SearchBatch(batch(0), tuple(batch(number + 1) for number in range(valids)), 0, 4, progress)


@pytest.mark.parametrize(
    ("order", "wanted"),
    [("weights_first", ["fit", "score", "score"]), ("policy_first", ["score", "score", "fit"])],
)
def test_a_path_is_trained_and_scored_in_the_chosen_order(order, wanted):
    weights, given = Weights(), at(0.5)
    strategy = make(order=order)
    figures = strategy.step(weights, given)
    assert [what for what, _, _ in weights.seen] == wanted
    assert [one for what, one, _ in weights.seen if what == "score"] == list(given.valids)
    gates = [one for _, _, one in weights.seen]
    assert gates[0] == gates[1] == gates[2]  # one path
    assert figures["valid_accuracy"] == figures["reward"]
    assert {"entropy", "train_loss"} <= figures.keys() and "cost" not in figures


def test_paths_are_not_scored_until_the_policy_learns():
    strategy, weights = make(), Weights()
    strategy.begin(smooth_weights(), Plan(100, 100, 12, 12, steps=40))
    assert strategy.validation == DelayedValidation(batches=4, first=10)
    assert [strategy.validation.at(position) for position in (0, 9, 10, 39)] == [0, 0, 4, 4]
    assert [strategy.validation.before(position) for position in (0, 10, 11, 40)] == [0, 0, 4, 120]
    before = strategy.policy.values.detach().clone()
    figures = strategy.step(weights, at(0.1, valids=0))
    assert torch.equal(strategy.policy.values, before) and "reward" not in figures


def test_the_learning_rate_waits_and_rises_tenfold():
    strategy = make(policy={"learning_rate": 0.02})
    assert strategy.learning_rate(0.25) == pytest.approx(0.02)
    assert strategy.learning_rate(0.625) == pytest.approx(0.02 * 10**0.5)
    assert strategy.learning_rate(1.0) == pytest.approx(0.2)


# --- warming up


@dataclass(frozen=True, kw_only=True)
class Wide(Nb201):
    """One of three decisions is a width."""

    nodes: int = 3
    operations: tuple[str, ...] = ("8", "24", "16")

    @property
    def widths(self):
        return frozenset({"0->2"})


@pytest.mark.parametrize(("progress", "share"), [(0.0, 1.0), (0.125, 0.5), (0.25, 0.0), (0.9, 0.0)])
def test_warm_ups_are_sampled_for_each_decision_and_fade(progress, share):
    space = Wide()
    strategy = Tunas(space, torch.Generator().manual_seed(0))
    path = space.sample(random.Random(0)).with_option("0->2", "8")
    gated = [strategy.sample_warmup_gates(path, progress) for _ in range(400)]
    even = [gates["0->1"].weights is not None for gates in gated]
    largest = [gates["0->2"].index == 1 for gates in gated]
    for replaced in (even, largest):
        assert sum(replaced) / 400 == pytest.approx(share, abs=0.08)
    if share == 0.5:
        both = sum(one and two for one, two in zip(even, largest, strict=True)) / 400
        assert both == pytest.approx(0.25, abs=0.08)  # each by itself
    for gates in gated:
        assert gates["0->2"].weights is None
        if gates["0->1"].weights is not None:
            assert gates["0->1"].index is None
            assert gates["0->1"].weights.tolist() == pytest.approx([1 / 3] * 3)


def test_one_warm_up_can_be_left_out():
    strategy = Tunas(Wide(), torch.Generator().manual_seed(0), weights=SupernetSettings(operation_warmup=0.0))
    gates = strategy.sample_warmup_gates(Wide().sample(random.Random(0)), 0.0)
    assert gates["0->1"].weights is None and gates["0->2"].index == 1


# --- targets


WEIGHTS = {((d.name, option),): 10.0 * place for d in SPACE.decisions for place, option in enumerate(d.options)}
SOURCE = ModelledCost(LinearCost(SPACE, 0.0, WEIGHTS), unit="ms", provenance="by hand")


def test_a_target_is_part_of_the_reward_and_costs_are_reported():
    strategy, weights = make(derive="most_probable"), Weights()
    strategy.set_target(Target(source=SOURCE, value=40.0, beta=-0.5))
    figures = strategy.step(weights, at(0.5))
    path = next(
        p
        for p in PATHS
        if {d.name: d.index(p[d.name]) for d in SPACE.decisions}
        == {name: gate.index for name, gate in weights.seen[0][2].items()}
    )
    assert figures["cost"] == SOURCE.measure(path)
    assert figures["best_cost"] == SOURCE.measure(strategy.best(lambda one: 0.0))
    wanted = figures["valid_accuracy"] - 0.5 * abs(figures["cost"] / 40 - 1)
    assert figures["reward"] == pytest.approx(wanted, abs=1e-12)


def gradients(strategy: Tunas) -> torch.Tensor:
    """Of the log-probability of every path, in rows."""
    logs = [log_likelihood(SPACE, strategy.policy, [path], [1.0]) for path in PATHS]
    return torch.stack([torch.autograd.grad(one, [strategy.policy.values])[0] for one in logs])


def test_cost_paths_follow_the_target_on_average():
    strategy = make()
    target = Target(source=SOURCE, value=40.0, beta=-0.5)
    strategy.set_target(target)
    with torch.no_grad():  # a first target leaves the policy as it is
        probabilities = torch.stack([log_likelihood(SPACE, strategy.policy, [path], [1.0]) for path in PATHS]).exp()
    rows = gradients(strategy)
    mean = torch.zeros_like(rows[0])
    for one, first in enumerate(PATHS):
        for other, second in enumerate(PATHS):
            left, right = strategy._cost_advantages([first, second])
            mean += probabilities[one] * probabilities[other] * (left * rows[one] + right * rows[other])
    terms = torch.tensor([-0.5 * abs(SOURCE.measure(path) / 40 - 1) for path in PATHS], dtype=torch.float64)
    wanted = (probabilities * terms) @ rows  # the gradient of the mean
    assert wanted.norm() > 1e-2
    assert (mean - wanted).norm() < 1e-12


def test_a_step_adds_the_reward_of_the_scored_path_and_the_costs_of_others():
    strategy = make(still=True)
    strategy.set_target(Target(source=SOURCE, value=40.0, beta=-0.5))
    strategy.average, strategy.weight = 0.3 * 0.5, 0.5
    others = PATHS[3:40:9]
    strategy.reinforce(PATHS[7], 0.9, rate=0.1, others=others)
    rows, terms = gradients(strategy), [strategy.target.cost_term(path) for path in others]
    advantage = 0.9 - (0.95 * 0.15 + 0.05 * 0.9) / (0.95 * 0.5 + 0.05)
    wanted = advantage * rows[7]
    kept = 1 - 0.05 / (0.95 * 0.5 + 0.05)  # both parts of the reward have one weight
    for path, term in zip(others, terms, strict=True):
        wanted = wanted + kept * (term - (sum(terms) - term) / 4) / 5 * rows[PATHS.index(path)]
    assert (strategy.optimizer.gradients[0] + wanted).norm() < 1e-12


@pytest.mark.parametrize(
    ("reward", "paths", "wanted"), [("absolute", 16, 16), ("absolute", 0, 0), ("soft", 16, 0), ("hard", 16, 0)]
)
def test_cost_paths_are_sampled_only_if_the_reward_has_a_cost_term(reward, paths, wanted):
    strategy = make(policy={"cost_paths": paths})
    assert strategy._sample_cost_paths() == []
    strategy.set_target(Target(source=SOURCE, value=40.0, reward=reward))
    assert len(strategy._sample_cost_paths()) == wanted


@pytest.mark.parametrize(
    ("settings", "reward", "wanted"),
    [({}, "absolute", 40.0), ({"derive": "most_probable"}, "absolute", 30.0), ({}, "soft", 30.0), ({}, "hard", 30.0)],
)
def test_the_most_probable_change_that_meets_the_target_is_taken(settings, reward, wanted):
    strategy = make(spread=0.0, **settings)
    strategy.set_target(Target(source=SOURCE, value=40.0, reward=reward))
    rows = {d.name: torch.zeros(4) for d in SPACE.decisions}
    rows["0->1"][:3] = torch.tensor([3.0, 0.1, 0.0])  # options cost 0, 10, 20 and 30
    rows["0->2"][:3] = torch.tensor([0.0, 3.0, 1.0])
    rows["1->2"][:3] = torch.tensor([0.0, 0.2, 3.0])
    with torch.no_grad():
        strategy.policy.values.copy_(torch.cat([rows[d.name] for d in SPACE.decisions]))
    found = strategy.best(lambda one: 0.0)
    assert SOURCE.measure(found) == wanted
    changed = [d.name for d in SPACE.decisions if d.index(found[d.name]) != int(rows[d.name].argmax())]
    assert changed == (["0->2"] if wanted == 40.0 else [])  # not 0->1, which is surer


def searched(beta: float, *, reward="absolute", steps: int = 600) -> float:
    """The cost of what is found where accuracy rises by 0.2 for each unit of log cost, relative to the target."""
    strategy = Tunas(
        SPACE,
        torch.Generator().manual_seed(0),
        policy=PolicySettings(learning_rate=0.05, delay=0.0),
        weights=SupernetSettings(operation_warmup=0.0, width_warmup=0.0),
    )
    target = Target(source=SOURCE, value=40.0, beta=beta, reward=reward)

    for step in range(steps):
        (path,) = sample_architectures(SPACE, strategy.policy, strategy.generator)
        quality = 0.2 * log(max(target.cost(path), 5.0))
        strategy.reinforce(path, target.compute_reward(quality, path), rate=strategy.learning_rate(step / steps))
    return target.cost(strategy.best(lambda one: 0.0)) / 40.0


def test_a_strong_beta_meets_the_target_and_a_weak_one_exceeds_it():
    assert searched(-0.6) == 1.0
    assert searched(-0.05) > 1.3


# --- the weights


def test_the_paper_moves_weights_by_rmsprop_on_a_rising_rate():
    strategy, weights = make(weights={"optimizer": "rmsprop"}), smooth_weights()
    strategy.begin(weights, Plan(100, 100, 128, 128, steps=40))
    group = weights._optimizer.param_groups[0]
    assert isinstance(weights._optimizer, torch.optim.RMSprop)
    assert (group["alpha"], group["momentum"], group["eps"], group["weight_decay"]) == (0.9, 0.9, 1.0, 4e-5)
    assert weights.learning_rate == pytest.approx(0.165 * 128 / 256)
    weights.set_progress(0.0)
    strategy.step(weights, at(0.0125, valids=0))
    assert weights.learning_rate == pytest.approx(0.165 / 4)
    weights.set_progress(0.5)
    strategy.step(weights, at(0.5, valids=0))
    assert weights.learning_rate == pytest.approx(0.165 / 4)  # half of the cosine


def test_by_default_section_weights_optimizes_the_weights():
    weights = smooth_weights()
    make().begin(weights, Plan(100, 100, 128, 128, steps=40))
    assert isinstance(weights._optimizer, torch.optim.SGD)


@pytest.mark.parametrize(
    ("steps", "rate"), [(19_500, 0.02), (195_000, 0.002), (200, 0.05)]
)  # a quarter of the steps is delay
def test_the_learning_rate_of_the_policy_follows_from_the_number_of_steps(steps, rate):
    plan = Plan(80, 80, 8, 8, steps=steps)
    strategy = make()
    strategy.begin(smooth_weights(), plan)
    assert strategy.learning_rate(0.25) == pytest.approx(rate)
    assert strategy.learning_rate(1.0) == pytest.approx(10 * rate)
    stated = make(policy={"learning_rate": 0.3})
    stated.begin(smooth_weights(), plan)
    assert stated.learning_rate(0.25) == 0.3
