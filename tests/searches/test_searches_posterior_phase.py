"""Parallel chains under frozen weights: calibrated where the truth is known, and converged before they are believed."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from scipy import stats

import archloom
from archloom.core.errors import SettingError
from archloom.policies import Chain, Logits
from archloom.policies.posterior import Mixing, Posterior
from archloom.samplers import BfgsPosterior
from archloom.searches.posterior import FILE, sample_posterior
from archloom.searches.posterior_phase import PosteriorPhase, PosteriorPhaseSettings
from archloom.searches.spec import SearchSpec
from archloom.spaces.nb201 import Nb201
from archloom.strategies.logit_chain import LogitChain
from archloom.supernet import StepResult

SPACE = Nb201(nodes=3)
LOGITS, IMAGES, BATCH, DECAY = 15, 96, 16, 0.05
FREE = torch.block_diag(*[torch.eye(5) - 0.2] * 3).double()  # what a softmax can see of the logits


class Regression:
    """Stands for frozen weights: an image is a row x with a target x a + noise, and a the centred logits."""

    def __init__(self, truth: torch.Tensor, generator: torch.Generator) -> None:
        self.inputs = torch.randn(IMAGES, LOGITS, dtype=torch.float64, generator=generator) @ FREE
        noise = torch.randn(IMAGES, dtype=torch.float64, generator=generator)
        self.targets = self.inputs @ truth + noise
        self.values: torch.Tensor  # of the policy that is being drawn

    def batches(self) -> list[SimpleNamespace]:
        return [_Rows(self, slice(start, start + BATCH)) for start in range(0, IMAGES, BATCH)]


class _Rows(SimpleNamespace):
    def __init__(self, data: Regression, rows: slice) -> None:
        super().__init__(inputs=data.inputs[rows], targets=data.targets[rows])

    def __len__(self) -> int:
        return len(self.targets)


class Weights:
    """The part of `SharedWeights` that a chain uses."""

    def __init__(self) -> None:
        self.policy: Logits | None = None

    def step_result(self, batch: _Rows, gates: object) -> StepResult:
        assert self.policy is not None
        error = batch.inputs @ self.policy.values - batch.targets
        return StepResult(error.square().mean() / 2, torch.zeros(()))

    def gradient(self, value: torch.Tensor, *, of: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(value, of)[0]


def make_chain(data: Regression, seed: int, *, temperature: float = 1.0) -> LogitChain:
    policy = Logits(SPACE, torch.Generator().manual_seed(seed)).double()
    hessian = data.inputs.T @ data.inputs / IMAGES + DECAY * torch.eye(LOGITS, dtype=torch.float64)

    def make_sampler(own: Logits, generator: torch.Generator) -> BfgsPosterior:
        return BfgsPosterior(
            [own.values],
            generator=generator,
            observations=IMAGES,
            lr=0.5,
            decay=DECAY,
            temperature=temperature,
            noise_limit=0.0,
            step_clip=0.0,
            smallest=1e-6,
            largest=1e6,
            subtract_batch_noise=True,
            project=own.center,
        )

    return LogitChain(
        policy,
        torch.Generator().manual_seed(seed),
        make_sampler,
        centre=torch.zeros(LOGITS),
        curvature=torch.linalg.inv(hessian),
        images=IMAGES,
        complete=lambda own, gradient: gradient,
    )


def rank_of_truth(seed: int, *, temperature: float, draws: int, thin: int) -> list[int]:
    """Draw logits from their prior, data given them, and posterior samples; return the truth's ranks among these."""
    generator = torch.Generator().manual_seed(seed)
    truth = FREE @ torch.randn(LOGITS, dtype=torch.float64, generator=generator) / (IMAGES * DECAY) ** 0.5
    data, weights = Regression(truth, generator), Weights()
    chain = make_chain(data, seed, temperature=temperature)
    chain.freeze_curvature()
    weights.policy = chain._policy
    for _ in range(thin * (draws + 2)):
        chain.draw(weights, data.batches())  # type: ignore[arg-type]
    kept = chain.chain.draws[2 * thin :: thin].double()
    return [int((kept[:, place] < truth[place]).sum()) for place in (0, 7, 14)]


@pytest.mark.parametrize(("temperature", "calibrated"), [(1.0, True), (0.25, False), (4.0, False)])
def test_posterior_draws_are_calibrated(temperature, calibrated):
    """Simulation-based calibration: the rank of the truth among posterior draws is uniform (Talts et al., 2018).

    Chains of another temperature are the controls that must fail: theirs are over- or underconfident.
    """
    draws = 7  # so that a rank is one of eight
    ranks = [rank_of_truth(seed, temperature=temperature, draws=draws, thin=4) for seed in range(60)]
    counts = torch.bincount(torch.tensor(list(itertools.chain(*ranks))), minlength=draws + 1)
    assert bool(stats.chisquare(counts.numpy()).pvalue > 0.01) is calibrated


class Fake:
    """A strategy whose chains have converged after so many draws."""

    def __init__(self, converged_after: int) -> None:
        self._after, self.frozen_at = converged_after, 0
        self.chain = Chain(2)

    def start_chains(self, count: int) -> list[Fake]:
        return [self] * count

    def draw(self, weights: object, batches: object) -> None:
        self.chain.append(torch.zeros(2))

    def freeze_curvature(self) -> None:
        self.frozen_at = len(self.chain)

    def summarize_chains(self, chains, *, runs=(), burn_in=None):
        draws = len(chains[0]) // 2
        r_hat = 1.01 if draws >= self._after else 1.5
        mixing = Mixing(2, draws, effective_draws=100.0, effective_draws_median=100.0, r_hat=r_hat, r_hat_median=1.0)
        return Posterior(draws=draws, different_architectures=1, decisions={}, architectures=(), mixing=mixing)


def run_fake(strategy: Fake, **options):
    weights = SimpleNamespace(frozen=lambda: None)
    settings = PosteriorPhaseSettings(chains=2, draws=80)
    return PosteriorPhase(strategy, settings).run(weights, itertools.repeat(()), **options)


def test_chains_stop_once_they_agree_and_learn_no_curvature_then():
    strategy, seen = Fake(40), []
    found = run_fake(strategy, progress=lambda draws, r_hat: seen.append((draws, r_hat)))
    assert found.given_weights and found.mixing.r_hat == 1.01
    assert strategy.frozen_at == 40  # both of two chains had 20 draws
    assert len(strategy.chain) // 2 == 40 == seen[-1][0]
    assert [r_hat for _, r_hat in seen[:-1]] == [1.5] * (len(seen) - 1)


def test_chains_that_never_agree_end_after_the_most_draws_or_when_stopped():
    strategy = Fake(10**6)
    found = run_fake(strategy)
    assert found.mixing.r_hat == 1.5 and len(strategy.chain) // 2 == 80
    strategy = Fake(10**6)
    assert run_fake(strategy, stop=lambda: len(strategy.chain) // 2 >= 31).mixing.r_hat == 1.5
    assert len(strategy.chain) // 2 == 31


def test_a_stop_also_ends_the_adaptation():
    strategy = Fake(10**6)
    run_fake(strategy, stop=lambda: len(strategy.chain) // 2 >= 3)
    assert len(strategy.chain) // 2 == 3 and strategy.frozen_at == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"most_time": 0.0}, "posterior.most_time must be above 0, got 0.0"),
        ({"chains": 1}, "chains must be at least 2, got 1"),
        ({"draws": 3}, "draws must be at least 20, got 3"),
        ({"r_hat": 1.0}, "r_hat must be above 1, got 1.0"),
        ({"effective_draws": 0.0}, "effective_draws must be above 0, got 0.0"),
    ],
)
def test_settings_out_of_range(settings, message):
    with pytest.raises(SettingError, match=message):
        PosteriorPhaseSettings(**settings)


def test_a_frozen_chain_has_the_variance_of_its_posterior_in_every_direction():
    """Its curvature is learned from batches; then the stationary covariance follows exactly from it."""
    data, weights = Regression(torch.zeros(LOGITS, dtype=torch.float64), torch.Generator().manual_seed(5)), Weights()
    chain = make_chain(data, 3)
    weights.policy = chain._policy
    for _ in range(60):
        chain.draw(weights, data.batches())  # type: ignore[arg-type]
    chain.freeze_curvature()
    frozen = chain._sampler.inverse.matrix.clone()
    hessian = data.inputs.T @ data.inputs / IMAGES + DECAY * torch.eye(LOGITS, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(FREE)
    basis = vectors[:, values > 0.5]
    along = torch.linalg.eigvals((basis.T @ frozen @ basis) @ (basis.T @ hessian @ basis)).real
    rate = 0.5
    assert ((2 - rate) / (2 - rate * along)).sub(1).abs().max() < 0.1
    chain.draw(weights, data.batches())  # type: ignore[arg-type]
    assert torch.equal(chain._sampler.inverse.matrix, frozen)


def test_a_search_ends_with_the_phase_where_it_is_asked_for(tmp_path: Path):
    pytest.importorskip("arviz_stats")
    options = {
        "network": {"channels": 2},
        "race": {"contestants": 0},
        "search": {"random_baseline_samples": 0},
        "monitor": {"action": "off"},
    }
    images = torch.randint(256, (64, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    data = archloom.from_tensors(images, torch.arange(64) % 3)

    def search(name: str, **posterior: object) -> archloom.SearchResult:
        settings = {**options, "posterior": posterior}
        return archloom.search("nb201_mini", "gibbs", data, epochs=2, seed=0, out=tmp_path / name, settings=settings)

    plain, phased = search("plain"), search("phased", phase=True, chains=2, draws=20, most_time=1e6)
    assert plain.text == phased.text and not plain.posterior.given_weights
    assert phased.posterior.given_weights and phased.posterior.draws + phased.posterior.burn_in == 40
    short = search("short", phase=True, chains=2, draws=20, most_time=1e-9)
    assert short.posterior.draws + short.posterior.burn_in == 2  # one draw of each chain, and the time is over
    assert short.posterior.mixing is None


@pytest.mark.parametrize(
    "strategy", [{"name": "darts"}, {"name": "gibbs", "logits": {"update": "mean"}}], ids=["darts", "no noise"]
)
def test_only_draws_can_end_in_the_phase(strategy):
    with pytest.raises(SettingError, match=r"posterior\.phase needs a strategy that draws from a posterior"):
        SearchSpec.resolve({"strategy": strategy, "posterior": {"phase": True}})


def test_a_run_is_sampled_from_its_checkpoint_and_stays_as_it_is(tmp_path: Path):
    pytest.importorskip("arviz_stats")
    options = {"network": {"channels": 4}, "race": {"contestants": 0}, "search": {"random_baseline_samples": 0}}
    images = torch.randint(256, (96, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    data = archloom.from_tensors(images, torch.arange(96) % 3)
    result = archloom.search("nb201_mini", "gibbs", data, epochs=2, seed=0, out=tmp_path / "run", settings=options)
    before = [path.read_bytes() for path in sorted((result.folder / "checkpoints").iterdir())]
    phase = PosteriorPhaseSettings(chains=2, draws=20)
    found = sample_posterior(result.folder, phase=phase, data=data)
    assert found.given_weights and set(found.decisions) == {"0->1", "0->2", "1->2"}
    assert sample_posterior(result.folder, phase=phase, data=data) == found
    assert sample_posterior(result.folder, phase=replace(phase, chains=3), data=data) != found
    assert [path.read_bytes() for path in sorted((result.folder / "checkpoints").iterdir())] == before
    assert (result.folder / FILE).is_file()
