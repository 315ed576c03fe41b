"""When averaging begins, and what the mean is."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from archloom.retrainings.averaging import RunningMean, should_average


def first_trigger(losses: list[float], *, patience: int = 5) -> int | None:
    """Return the epoch at which averaging begins."""
    for epoch, loss in enumerate(losses):
        if should_average(losses[:epoch], loss, patience=patience):
            return epoch
    return None


@pytest.mark.parametrize(
    ("losses", "epoch"),
    [
        ([9, 8, 7, 6, 5, 4, *[4.1] * 12], 11),  # the minimum of the whole history would begin at 6
        ([9, 8, 7, 6, 5, 4, 4.1, 3.9, 3.8, 3.7, 3.6, 3.5, 3.4, 3.3, 3.2], None),  # one bump
        ([5.0] * 20, None),
        ([5.0, *[6.0] * 12], 6),
        ([5.0, 6.0, 7.0], None),
    ],
)
def test_a_loss_above_those_older_than_five_epochs_begins_it(losses: list[float], epoch: int | None) -> None:
    assert first_trigger(losses) == epoch


def test_patience_is_a_setting() -> None:
    assert first_trigger([5.0, *[6.0] * 12], patience=1) == 2


@pytest.mark.parametrize("skips_first", [False, True])
def test_the_mean_is_that_of_all_steps(skips_first: bool) -> None:
    network = nn.Linear(1, 1, bias=False).double()
    mean = RunningMean(network, skips_first=skips_first)
    for step in range(1, 9):
        with torch.no_grad():
            network.weight.fill_(float(step))
        mean.update(network)
        wanted = (step + 2) / 2 if skips_first and step > 1 else (step + 1) / 2
        assert float(mean.network.weight) == pytest.approx(wanted, rel=1e-12)  # type: ignore[arg-type]
    assert float(network.weight) == 8.0


def test_the_mean_of_torch_is_the_one_that_skips_the_first_iterate() -> None:
    weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = torch.optim.ASGD([weight], lr=1.0, lambd=0.0, t0=0.0)
    network = nn.Linear(1, 1, bias=False).double()
    mean = RunningMean(network, skips_first=True)
    for _ in range(6):
        weight.grad = torch.full_like(weight, -1.0)
        optimizer.step()
        with torch.no_grad():
            network.weight.copy_(weight.detach()[:, None])
        mean.update(network)
        assert float(mean.network.weight) == pytest.approx(float(optimizer.state[weight]["ax"]), rel=1e-7)  # type: ignore[arg-type]  # torch has shares in single precision


def test_a_mean_survives_a_checkpoint() -> None:
    network = nn.Linear(2, 2)
    mean = RunningMean(network)
    for _ in range(3):
        with torch.no_grad():
            network.weight += 1
        mean.update(network)
    other = RunningMean(nn.Linear(2, 2))
    other.load_state_dict(mean.state_dict())
    assert other.steps == 3 and torch.equal(other.network.weight, mean.network.weight)  # type: ignore[arg-type]
