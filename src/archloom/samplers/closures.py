"""Closures for samplers: the gradient, the gradient again on the same batch, and that on sampled labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@runtime_checkable
class SelfLabelling(Protocol):
    """A closure that can also take the loss on labels sampled from the model's prediction."""

    def backward_on_sampled_labels(self, generator: torch.Generator) -> int:
        """Set the gradients of the mean loss on such labels, and return the number of observations."""


def keep_gradients(gradients: Sequence[Tensor | None], like: Sequence[Tensor]) -> Sequence[Tensor | None]:
    """Return the gradients as they are: those of one process."""
    return gradients


def sample_labels(logits: Tensor, generator: torch.Generator) -> Tensor:
    """Sample a label for every image from the model's prediction."""
    probabilities = logits.detach().softmax(dim=1).to(generator.device)
    return torch.multinomial(probabilities, 1, generator=generator).squeeze(1).to(logits.device)


class Classification:
    """The mean cross-entropy of a module on one batch, as a closure for any torch optimizer.

    A module may return a tuple that begins with the logits; `loss` then takes the tuple.

    The first call may draw random numbers and update running statistics. Every later call sees the same random numbers
    and leaves the statistics unchanged: two gradients differ by the parameters alone. Parameters that the loss does not
    depend on get no gradient.
    """

    def __init__(
        self,
        module: nn.Module,
        forward: Callable[[], Tensor | tuple[Tensor, ...]],
        labels: Tensor,
        *,
        loss: Callable[[Any, Tensor], Tensor] = F.cross_entropy,
        parameters: Iterable[Tensor] | None = None,  # the module's, if known: finding them takes a while
        average: Callable[[Sequence[Tensor | None], Sequence[Tensor]], Sequence[Tensor | None]] = keep_gradients,
        sample: Callable[[Tensor, torch.Generator], Tensor] = sample_labels,
        observations: int | None = None,  # of the whole batch, where this process has only a part of it
    ) -> None:
        self._module, self._forward, self._labels, self._loss = module, forward, labels, loss
        known = module.parameters() if parameters is None else parameters
        self._parameters = [parameter for parameter in known if parameter.requires_grad]
        self._average, self._sample = average, sample
        self._observations = len(labels) if observations is None else observations
        self._random: Tensor | None = None
        self.loss: Tensor | None = None  # of the first call, with the logits it came from
        self.logits: Tensor | None = None

    def __call__(self) -> Tensor:
        if self._random is None:
            self._random = torch.get_rng_state()
            output = self._forward()
            self.loss = self._set_gradients(output, self._labels)
            self.logits = _logits(output).detach()
            return self.loss
        with self._replay():
            return self._set_gradients(self._forward(), self._labels)

    def backward_on_sampled_labels(self, generator: torch.Generator) -> int:
        """Compute gradients for labels sampled from the model; return the number of labels."""
        with self._replay():
            output = self._forward()
            self._set_gradients(output, self._sample(_logits(output), generator))
        return self._observations

    def _set_gradients(self, output: Tensor | tuple[Tensor, ...], labels: Tensor) -> Tensor:
        loss = self._loss(output, labels)
        own = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        gradients = self._average(own, self._parameters)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        return loss.detach()

    @contextmanager
    def _replay(self) -> Iterator[None]:
        """Use the random numbers of the first call; restore generator and buffers afterwards."""
        assert self._random is not None, "call the closure before its replay"
        kept = [buffer.clone() for buffer in self._module.buffers()]
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._random)
            yield
        with torch.no_grad():  # only now: the backward pass rejects running statistics that changed before it
            for buffer, value in zip(self._module.buffers(), kept, strict=True):
                buffer.copy_(value)


def _logits(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]
