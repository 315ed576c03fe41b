"""Draws of parallel chains, pooled and compared."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import archloom
from archloom.core.errors import CheckpointError, SettingError
from archloom.execution.run_folder import RunFolder
from archloom.policies import Chain
from archloom.searches.spec import SearchSpec


def write_chain(path: Path, draws: torch.Tensor, *, seed: int = 0, **settings) -> Path:
    """A gibbs run on nb201_mini, of which nothing is there but its configuration and its draws."""
    chosen = {"name": "gibbs", "posterior": {"burn_in": 0.5}, "none": "absent", **settings}
    given = {"seed": seed, "space": {"name": "nb201_mini"}, "strategy": chosen}
    run = RunFolder.create(path, settings=SearchSpec.resolve(given).to_settings())
    chain = Chain(draws.shape[1])
    for values in draws:
        chain.append(values)
    run.checkpoints.save({"strategy": {"chain": chain.state_dict()}}, step=1)
    return path


def noise(seed: int, count: int = 400, *, skips: float = 0.0) -> torch.Tensor:
    draws = torch.randn(count, 15, generator=torch.Generator().manual_seed(seed))
    draws[:, 1::5] += skips
    return draws


def test_chains_are_pooled_after_their_own_burn_in(tmp_path):
    early = noise(0, 30, skips=50.0)  # would make skips the best, if it were not left out
    first = write_chain(tmp_path / "a", torch.cat([early, noise(1, 30, skips=-50.0)]))
    second = write_chain(tmp_path / "b", torch.cat([noise(2, 10), noise(3, 10, skips=50.0)]), seed=1)
    found = archloom.posterior([first, str(second)])
    assert (found.draws, found.burn_in, found.sampled) == (40, 40, True)
    for decision in found.decisions.values():
        assert decision.best["skip_connect"] == 0.25  # all of the second chain, nothing of the first
        assert decision.best["none"] == 0.0  # left out of the mixture, wherever its logits went
    assert found.architectures[0].frequency == 0.25
    assert found.runs == (str(first), str(second))


def test_chains_that_agree_have_mixed_and_others_have_not(tmp_path):
    pytest.importorskip("arviz_stats")
    same = [write_chain(tmp_path / f"same{seed}", noise(seed), seed=seed) for seed in range(2)]
    mixing = archloom.posterior(same).mixing
    assert (mixing.chains, mixing.draws) == (2, 200)
    assert mixing.r_hat < 1.05
    assert mixing.effective_draws > 150
    apart = write_chain(tmp_path / "apart", noise(5, skips=5.0), seed=5)
    assert archloom.posterior([same[0], apart]).mixing.r_hat > 1.5


def test_what_a_softmax_cannot_see_does_not_part_chains(tmp_path):
    pytest.importorskip("arviz_stats")
    shifted = noise(1) + torch.tensor([30.0, -7.0, 4.0]).repeat_interleave(5)
    shifted[:, 0::5] = 99.0  # `none`, which is left out, stays where it started
    runs = write_chain(tmp_path / "a", noise(0)), write_chain(tmp_path / "b", shifted, seed=1)
    assert archloom.posterior(runs).mixing.r_hat < 1.05


def test_runs_that_are_no_parallel_chains_are_refused(tmp_path):
    first = write_chain(tmp_path / "a", noise(0, 4))
    other = write_chain(tmp_path / "b", noise(1, 4), seed=1, logits={"temperature": 0.5})
    with pytest.raises(SettingError) as caught:
        archloom.posterior([first, other])
    assert (
        str(caught.value) == f"{other} is no parallel chain of {first}: strategy.logits.temperature is 0.5, there 1.0"
    )
    twin = write_chain(tmp_path / "c", noise(1, 4))
    with pytest.raises(SettingError, match=f"^{twin} has seed 0 like {first}: parallel chains have seeds of their own"):
        archloom.posterior([first, twin])
    with pytest.raises(SettingError, match="at least one run"):
        archloom.posterior([])


def test_the_machine_does_not_make_another_chain(tmp_path):
    runs = [write_chain(tmp_path / name, noise(0, 4), seed=seed) for seed, name in enumerate("ab")]
    config = runs[1] / "config.toml"
    config.write_text(config.read_text().replace("threads = 1", "threads = 2"))
    assert archloom.posterior(runs).draws == 4


def test_missing_draws_are_named(tmp_path):
    def refusal(path: Path) -> str:
        with pytest.raises((CheckpointError, SettingError)) as caught:
            archloom.posterior(path)
        return str(caught.value)

    assert "has no draws yet" in refusal(write_chain(tmp_path / "a", noise(0, 0)))
    assert "does not fit its config.toml" in refusal(write_chain(tmp_path / "b", torch.zeros(4, 7)))
    run = RunFolder(write_chain(tmp_path / "c", noise(0, 4)))
    run.checkpoints.save({"strategy": {}}, step=2)
    assert "holds no draws" in refusal(run.path)
    for path in run.checkpoints.paths():
        path.unlink()
    assert "has no checkpoint" in refusal(run.path)
