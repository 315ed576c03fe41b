"""GibbsNAS: how it moves logits and weights, when it draws, and how draws are summarized."""

from __future__ import annotations

import copy
import math
import random
from dataclasses import replace

import pytest
import torch
from smooth import SPACE, batch, smooth_weights

from archloom.core.errors import DivergedError, SettingError
from archloom.core.settings import check
from archloom.policies import Chain
from archloom.samplers import BfgsPosterior, DiagonalLbfgsPosterior
from archloom.spaces import NONE
from archloom.strategies import gibbs
from archloom.strategies.base import Plan, SearchBatch, Validation
from archloom.strategies.gibbs import Gibbs
from archloom.strategies.gibbs_settings import LogitDrawSettings
from archloom.supernet import path_gates

PLAN = Plan(train_images=120, valid_images=96, batch_size=12, valid_batch_size=12, steps=40)


def make(*, plan: Plan = PLAN, shared=None, seed: int = 0, **settings) -> tuple[Gibbs, object]:
    """Return the strategy with settings as a file has them, and its shared weights."""
    values, problems = check("strategy", Gibbs, {"order": "second"} | settings)
    assert problems == []
    strategy = Gibbs(SPACE, torch.Generator().manual_seed(seed), **values)
    strategy.policy.double()
    shared = shared or smooth_weights()
    strategy.begin(shared, plan)
    return strategy, shared


def step_batch(number: int, *, valids: int = 1, epoch: int = 0, epochs: int = 4) -> SearchBatch:
    valid_batches = tuple(batch(1000 + 10 * number + part) for part in range(valids))
    return SearchBatch(batch(number), valid_batches, epoch, epochs, progress=number / 40)


# --- the limit in which it is DARTS


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_curvature_and_noise_it_is_darts_with_sgd_to_the_bit(momentum, dtype):
    of_weights = {"learning_rate": 0.1, "learning_rate_end": 0.1, "momentum": momentum, "weight_decay": 1e-3, "clip": 0}
    logits = {"update": "sgd", "schedule": "constant", "images": 12, "learning_rate": 0.5, "weight_decay": 1e-2}
    strategy, weights = make(shared=smooth_weights(**of_weights), weights={"update": "sgd"}, logits=logits)
    weights._network.to(dtype)
    strategy.policy.to(dtype)
    other = copy.deepcopy(weights._network)
    logits = copy.deepcopy(strategy.policy)
    on_weights = torch.optim.SGD(other.parameters(), lr=0.1, momentum=momentum, weight_decay=1e-3)
    on_logits = torch.optim.SGD(logits.parameters(), lr=0.5, weight_decay=1e-2)
    for number in range(15):
        given = step_batch(number)
        given = SearchBatch(_as(given.train, dtype), (_as(given.valid, dtype),), 0, 4)
        strategy.step(weights, given)
        for optimizer, part in ((on_weights, given.train), (on_logits, given.valid)):
            on_weights.zero_grad()
            on_logits.zero_grad()
            torch.nn.functional.cross_entropy(other(part.images, logits.mixture()), part.labels).backward()
            optimizer.step()
    assert torch.equal(strategy.policy.values, logits.values)
    assert all(torch.equal(a, b) for a, b in zip(weights._network.parameters(), other.parameters(), strict=True))
    assert strategy.policy.values.abs().max() > 0.02  # it went somewhere


def _as(given, dtype):
    return type(given)(given.images.to(dtype), given.labels)


def test_sampling_leaves_that_limit():
    quiet, noisy = (
        make(order="first", logits={"update": update, "images": 12}, posterior={"observations": 100})[0]
        for update in ("mean", "sample")
    )
    for strategy in (quiet, noisy):
        weights = smooth_weights()
        for number in range(15):
            strategy.step(weights, step_batch(number))
    assert (quiet.policy.values - noisy.policy.values).abs().max() > 1e-2


# --- a draw


def test_the_first_mean_step_goes_down_the_gradient_over_all_validation_batches():
    strategy, weights = make(
        order="first", logits={"update": "mean", "images": 36, "learning_rate": 0.3, "weight_decay": 0.5}
    )
    start = strategy.policy.values.detach().clone()
    given = step_batch(0, valids=3)
    weights.fit(given.train, strategy.policy.mixture())  # a twin of the weights step, to know where the draw is taken
    loss = sum(weights.loss(valid, strategy.policy.mixture()) for valid in given.valids) / 3
    gradient = weights.gradient(loss, of=strategy.policy.values) + 0.5 * start
    fresh, twin = make(
        order="first", logits={"update": "mean", "images": 36, "learning_rate": 0.3, "weight_decay": 0.5}
    )
    fresh.step(twin, given)
    moved = fresh.policy.values.detach() - start
    torch.testing.assert_close(moved, -0.3 * fresh.policy.center(gradient), rtol=1e-6, atol=1e-9)


def test_the_learning_rate_of_the_logits_stays_or_falls_on_a_cosine():
    strategy, weights = make(order="first", logits={"images": 12, "learning_rate": 0.4, "schedule": "cosine"})
    strategy.step(weights, step_batch(30))
    assert strategy.optimizer.param_groups[0]["lr"] == pytest.approx(0.2 * (1 + math.cos(math.pi * 30 / 40)))
    strategy, weights = make(order="first", logits={"images": 12, "learning_rate": 0.4})
    strategy.step(weights, step_batch(30))
    assert strategy.optimizer.param_groups[0]["lr"] == 0.4


def test_draws_stay_in_directions_that_a_softmax_sees():
    for none in ("free", "absent"):
        strategy, weights = make(order="first", logits={"images": 12}, posterior={"observations": 10}, none=none)
        start = strategy.policy.values.detach().clone()
        for number in range(5):
            strategy.step(weights, step_batch(number))
        moved = strategy.policy.values.detach() - start
        assert moved.abs().max() > 0.01
        torch.testing.assert_close(strategy.policy.center(moved), moved)
    free, weights = make(order="first", logits={"images": 12, "center": False}, posterior={"observations": 10})
    free.step(weights, step_batch(0))
    assert float(free.policy.values.detach().sum().abs()) > 1e-3


def test_absent_none_has_no_probability_and_never_wins():
    strategy, weights = make(
        order="first", logits={"images": 12}, posterior={"observations": 1}, none="absent", keep_none=None
    )
    start = strategy.policy.values.detach().clone()
    strategy.step(weights, step_batch(0))
    place = SPACE.decisions[0].options.index(NONE)
    for row in strategy.probabilities().values():
        assert row[place] == 0
        assert sum(row) == pytest.approx(1)
    dead = ~strategy.policy.live
    assert torch.equal(strategy.policy.values.detach()[dead], start[dead])
    assert NONE not in strategy.best(lambda _: 0.0).values()


@pytest.mark.parametrize(("settings", "wins"), [({}, False), ({"keep_none": True}, True), ({"keep_none": None}, True)])
def test_none_in_the_mixture_wins_only_if_asked(settings, wins):
    strategy, _ = make(order="first", **settings)
    first = SPACE.decisions[0]
    with torch.no_grad():
        strategy.policy.values[first.options.index(NONE)] = 9.0
    assert (strategy.best(lambda _: 0.0)[first.name] == NONE) is wins


def test_weights_warm_up_alone():
    strategy, weights = make(logits={"images": 12}, warmup=0.5)
    start = strategy.policy.values.detach().clone()
    assert "valid_loss" not in strategy.step(weights, step_batch(0, epoch=1))
    assert torch.equal(strategy.policy.values, start)
    assert "valid_loss" in strategy.step(weights, step_batch(1, epoch=2))
    assert not torch.equal(strategy.policy.values, start)


# --- sizes


@pytest.mark.parametrize(
    ("settings", "plan", "wanted"),
    [
        ({"logits": {"images": 256}}, Plan(25_000, 25_000, 64, 64, 1), Validation(every=4, batches=4)),
        ({"logits": {"images": 2048}}, Plan(25_000, 25_000, 64, 64, 1), Validation(every=32, batches=32)),
        (
            {"logits": {"images": 2048, "weight_steps": 1}},
            Plan(25_000, 25_000, 64, 64, 1),
            Validation(every=1, batches=32),
        ),
        ({"logits": {"images": 500}}, Plan(25_000, 25_000, 64, 250, 1), Validation(every=8, batches=2)),
        ({"logits": {"images": 2048}}, Plan(700, 700, 32, 64, 1), Validation(every=20, batches=10)),
        ({}, Plan(700, 30, 32, 30, 1), Validation(every=1, batches=1)),
        # 0.1 * 25,000 * (1/B - 1/25,000) <= 0.5 * 1.9 for B = 38 * 64, and not for 37 * 64
        ({}, Plan(25_000, 25_000, 64, 64, 5_000), Validation(every=38, batches=38)),
        ({}, Plan(2_000, 1_000, 64, 64, 310), Validation(every=14, batches=14)),  # few draws at a higher rate
        ({"posterior": {"observations": 100}}, Plan(2_000, 1_000, 64, 64, 5_000), Validation(every=2, batches=2)),
    ],
)
def test_a_draw_takes_its_images_and_waits_for_as_many_training_images(settings, plan, wanted):
    strategy, _ = make(plan=plan, order="first", **settings)
    assert strategy.validation == wanted


@pytest.mark.parametrize(
    ("settings", "images", "wanted"),
    [
        ({}, 500, 25_000),
        ({}, 40_000, 40_000),
        ({"posterior": {"observations": 7}}, 500, 7),
        ({"posterior": {"least_observations": 1}}, 500, 500),
    ],
)
def test_number_of_observations_of_the_posterior(settings, images, wanted):
    strategy, weights = make(plan=Plan(images, images, 10, 10, 1), **settings)
    for optimizer in (strategy.optimizer, weights._optimizer):
        assert optimizer.param_groups[0]["observations"] == wanted


def test_decays_of_a_summed_loss_are_divided_by_the_observations():
    strategy, weights = make(
        posterior={"observations": 50, "decay_units": "sum"},
        logits={"weight_decay": 2.0},
        weights={"weight_decay": 3.0},
    )
    assert strategy.optimizer.param_groups[0]["decay"] == pytest.approx(2 / 50)
    assert weights._optimizer.param_groups[0]["decay"] == pytest.approx(3 / 50)


def test_precisions_are_drawn_around_the_mean_of_their_conditional():
    """The mean of Gamma(shape + n/2, rate + squares/2) is the one over the other; the decay is that over the images."""
    strategy, weights = make(
        posterior={"gamma_shape": 200.0, "gamma_rate": 100.0, "observations": 50}, logits={"images": 12}
    )
    strategy.step(weights, step_batch(0))
    moved = list(weights.parameters.values())  # the mixture runs them all
    for optimizer, tensors, constraints in (
        (strategy.optimizer, [strategy.policy.center(strategy.policy.values)], len(SPACE.decisions)),
        (weights._optimizer, moved, 0),
    ):
        count, squares = sum(t.numel() for t in tensors), sum(float(t.detach().square().sum()) for t in tensors)
        shape = 200 + (count - constraints) / 2
        mean = shape / (100 + squares / 2) / 50
        assert optimizer.param_groups[0]["decay"] == pytest.approx(mean, rel=5 / math.sqrt(shape))
    first, weights = make(order="first", posterior={"gamma_shape": 1.0}, logits={"images": 12})
    first.step(weights, step_batch(0))
    assert weights._optimizer.param_groups[0]["weight_decay"] != 3e-4


def test_precisions_count_what_moves_at_its_temperature_alone(monkeypatch):
    """Weights without gradient, and directions that a softmax ignores, say nothing of a precision."""
    seen = []

    def draw(parameters, generator, *, constraints=0, temperature=1.0, **prior):
        seen.append((sum(one.numel() for one in parameters) - constraints, temperature))
        return 50.0

    monkeypatch.setattr(gibbs, "draw_precision", draw)
    strategy, weights = make(
        posterior={"gamma_shape": 1.0, "observations": 50},
        weights={"temperature": 3.0},
        logits={"temperature": 0.5, "images": 12},
    )
    strategy.step(weights, step_batch(0))
    weights.fit(batch(1), path_gates(SPACE, dict.fromkeys(strategy.policy.rows(), "skip")))
    strategy._draw_weight_decay(weights)
    all_weights, logits, fewer = seen
    assert all_weights == (sum(one.numel() for one in weights.parameters.values()), 3.0)
    assert logits == (strategy.policy.values.numel() - len(SPACE.decisions), 0.5)
    head = sum(one.numel() for name, one in weights.parameters.items() if name.startswith("head"))
    assert fewer == (head, 3.0)  # skips have no weights


# --- settings


@pytest.mark.parametrize(
    ("settings", "of_weights", "of_logits"),
    [
        ({}, (DiagonalLbfgsPosterior, True), (BfgsPosterior, True)),
        ({"order": "first"}, (torch.optim.SGD, None), (BfgsPosterior, True)),
        ({"order": "first", "logits": {"update": "mean"}}, (torch.optim.SGD, None), (BfgsPosterior, False)),
        ({"logits": {"update": "mean"}}, (DiagonalLbfgsPosterior, True), (BfgsPosterior, False)),
        (
            {"weights": {"update": "mean"}, "logits": {"update": "mean"}},
            (DiagonalLbfgsPosterior, False),
            (BfgsPosterior, False),
        ),
        ({"logits": {"update": "adam"}}, (DiagonalLbfgsPosterior, True), (torch.optim.Adam, None)),
        ({"logits": {"update": "sgd"}}, (DiagonalLbfgsPosterior, True), (torch.optim.SGD, None)),
    ],
)
def test_updates_by_name(settings, of_weights, of_logits):
    strategy, weights = make(**settings)
    for optimizer, (kind, sample) in ((weights._optimizer, of_weights), (strategy.optimizer, of_logits)):
        assert type(optimizer) is kind
        assert optimizer.param_groups[0].get("sample") is sample


def test_all_problems_of_a_table_are_reported_with_their_dotted_names():
    with pytest.raises(SettingError) as caught:
        LogitDrawSettings(learning_rate=2.0, images=0, temperature=-1.0)
    assert list(caught.value.problems) == [
        "strategy.logits.learning_rate must lie in (0, 2), where a step converges, got 2.0",
        "strategy.logits.images must be above 0, got 0",
        "strategy.logits.temperature must be 0 or more, got -1.0",
    ]


# --- the summary of the draws


def test_probabilities_are_the_mean_of_the_latest_draws():
    strategy, _ = make(order="first", posterior={"burn_in": 0.5})
    size = strategy.policy.values.numel()
    draws = torch.randn(4, size, generator=torch.Generator().manual_seed(1))
    for values in draws:
        strategy.chain.append(values)
    wanted = {
        name: rows[-2:].softmax(dim=-1).mean(dim=0).tolist() for name, rows in strategy.policy.split(draws).items()
    }
    assert strategy.probabilities() == {name: pytest.approx(row) for name, row in wanted.items()}
    last, _ = make(order="first", posterior={"derive_from": "last"})
    last.chain = strategy.chain
    wanted = {name: rows[-1].softmax(dim=-1).tolist() for name, rows in strategy.policy.split(draws).items()}
    assert last.probabilities() == {name: pytest.approx(row) for name, row in wanted.items()}


def test_before_the_first_draw_probabilities_are_those_of_the_logits_and_there_is_no_posterior():
    strategy, _ = make()
    assert strategy.probabilities() == strategy.policy.probabilities()
    assert strategy.findings().posterior is None


def test_findings_leave_out_the_burn_in():
    strategy, _ = make(order="first", posterior={"burn_in": 0.75})
    for number in range(8):
        values = torch.zeros(strategy.policy.values.numel())
        values[1 if number < 6 else 2] = 5.0  # the first decision changes its mind
        strategy.chain.append(values)
    found = strategy.findings().posterior
    first = found.decisions[SPACE.decisions[0].name]
    assert (found.draws, found.burn_in, found.sampled) == (2, 6, True)
    assert first.best[SPACE.decisions[0].options[2]] == 1.0
    assert first.credible_set == (SPACE.decisions[0].options[2],)
    assert found.architectures[0].frequency == 1.0
    assert make(logits={"update": "mean"})[0].chain.draws.shape == Chain(strategy.policy.values.numel()).draws.shape


def test_a_step_reports_figures_of_both_draws():
    strategy, weights = make(logits={"images": 12, "learning_rate": 0.1}, posterior={"observations": 1200})
    figures = strategy.step(weights, step_batch(0))
    assert figures["a_batch_noise_ratio"] == pytest.approx(0.1 * 1200 / (1.9 * 12))
    assert figures["w_batch_noise_ratio"] == pytest.approx(0.1 * 1200 / (1.9 * 12))
    assert {"w_step_norm", "w_clipped", "a_step_norm", "a_noise_norm", "a_damped", "a_largest"} <= set(figures)
    assert figures["entropy"] == pytest.approx(math.log(4), abs=0.05)
    assert figures["skip_share"] == 0  # this space calls its skip otherwise


@pytest.mark.parametrize(("clip", "said"), [(1e-6, True), (0.0, False)])
def test_a_remark_says_where_clipping_and_not_the_posterior_set_the_noise_of_the_weights(clip, said):
    strategy, weights = make(weights={"noise_clip": clip, "noise_wait": 0.0, "noise_ramp": 0.0}, logits={"images": 12})
    for number in range(3):
        strategy.step(weights, step_batch(number))
    assert ("The noise of the weights was clipped in 100% of their tensors" in strategy.remark()) is said


def test_a_chain_that_diverges_stops_with_a_diagnosis():
    strategy, weights = make(order="first", logits={"images": 12})
    with torch.no_grad():
        next(iter(weights.parameters.values())).fill_(torch.nan)
    with pytest.raises(DivergedError, match="draw 1 of BfgsPosterior"):
        strategy._draw_logits(weights, step_batch(0))
    assert torch.isfinite(strategy.policy.values).all()


# --- step sizes and samples


@pytest.mark.parametrize(
    ("steps", "warmup", "wanted"),
    [(100_000, 0.0, 0.1), (40, 0.0, 3 / (0.67 * 40)), (40, 0.5, 3 / (0.67 * 20)), (2, 0.0, 0.5)],
)
def test_a_draw_moves_further_in_a_search_of_few_draws(steps, warmup, wanted):
    plan = replace(PLAN, steps=steps)
    strategy, _ = make(plan=plan, warmup=warmup, logits={"images": 12})
    assert strategy.validation.every == 1
    assert strategy.optimizer.param_groups[0]["lr"] == pytest.approx(wanted)


@pytest.mark.parametrize("update", ["sample", "sgd", "adam"])
def test_a_stated_learning_rate_of_the_logits_stays(update):
    strategy, _ = make(plan=replace(PLAN, steps=2), logits={"images": 12, "learning_rate": 0.3, "update": update})
    assert strategy.optimizer.param_groups[0]["lr"] == 0.3


def test_samples_are_the_architectures_of_draws_after_the_burn_in():
    strategy, _ = make(logits={"images": 12}, posterior={"burn_in": 0.5})
    before = strategy.sample(random.Random(0))
    assert SPACE.check(before) == before  # without draws, by the probabilities
    option = {0: 1, 1: 1, 2: 2, 3: 3}  # the option that each draw favours; the first two are burn-in
    for number in range(4):
        draw = torch.zeros(3, 4)
        draw[:, option[number]] = 5.0
        strategy.chain.append(draw.flatten())
    found = {strategy.sample(random.Random(seed)) for seed in range(20)}
    operations = SPACE.decisions[0].options
    assert {frozenset(one.values()) for one in found} == {frozenset({operations[2]}), frozenset({operations[3]})}
