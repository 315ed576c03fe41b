"""What tests of compiled networks share: results of a network and its modules, and how they are compared."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archloom.data.loader import Batch
from archloom.fast import KernelChoice, use_kernels
from archloom.fast.native import NativeKernels, available_levels
from archloom.supernet import Prediction

LEVELS = available_levels()
NONE_BUILT = "no compiled kernels here: they are built when the package is installed where there is a C++ compiler"
TOLERANCE = 2e-5  # of the largest entry; a sign that rounding flips before ReLU would be seen at 1e-3

levels = pytest.mark.parametrize(
    "level", LEVELS or [pytest.param("none", marks=pytest.mark.skip(reason=NONE_BUILT))], ids=str
)
needs_library = pytest.mark.skipif(not LEVELS, reason=NONE_BUILT)


@dataclass
class Result:
    loss: Tensor
    gradients: dict[str, Tensor | None]
    buffers: dict[str, Tensor]


def loss_of(found: Tensor | Prediction, labels: Tensor) -> Tensor:
    """The loss, with that of an auxiliary head."""
    if isinstance(found, Tensor):
        return F.cross_entropy(found, labels)
    assert found.auxiliary is not None
    return F.cross_entropy(found.logits, labels) + 0.4 * F.cross_entropy(found.auxiliary, labels)


def evaluate(network: nn.Module, batch: Batch, choice: KernelChoice) -> Result:
    """Loss, gradients of all parameters, and the buffers afterwards."""
    with use_kernels(choice):
        loss = loss_of(network(batch.inputs), batch.labels)
    named = dict(network.named_parameters())
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return Result(loss.detach(), dict(zip(named, found, strict=True)), dict(network.named_buffers()))


def exact_of(network: nn.Module, batch: Batch) -> Result:
    double = Batch(batch.inputs.double(), batch.labels)
    return evaluate(copy.deepcopy(network).double(), double, "plain")


def agree(found: Tensor, exact: Tensor, *, size: float = 1e-2) -> None:
    largest = max(float(exact.abs().max()), size)
    torch.testing.assert_close(
        found.double(), exact.double(), rtol=0.0, atol=TOLERANCE * largest, check_stride=False, equal_nan=True
    )


def results_agree(found: Result, exact: Result, *, modules: Result | None = None) -> None:
    """Results are exact up to rounding; where gradients cancel, up to that of `modules` in float32 for each tensor."""
    agree(found.loss, exact.loss)
    for name, gradient in found.gradients.items():
        expected = exact.gradients[name]
        assert (gradient is None) == (expected is None), name
        if gradient is not None and expected is not None:
            other = None if modules is None else modules.gradients[name]
            off = 0.0 if other is None else float((other.double() - expected).abs().max())
            agree(gradient, expected, size=max(1e-2, off / TOLERANCE))
    assert found.buffers.keys() == exact.buffers.keys()
    for name, buffer in found.buffers.items():
        agree(buffer, exact.buffers[name])


class Counter:
    """Counts the runs of the executor."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs = 0
        original = NativeKernels.run_network

        def run(*arguments: object) -> None:
            self.runs += 1
            original(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(NativeKernels, "run_network", run)
