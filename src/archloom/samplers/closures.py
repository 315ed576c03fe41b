"""What a sampler asks of a loss: the gradient, once more on the same batch, and the gradient on labels of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@runtime_checkable
class SelfLabelling(Protocol):
    """A closure that can also judge the model by labels drawn from its own prediction."""

    def on_own_labels(self, generator: torch.Generator) -> int:
        """Sets the gradients of the mean loss on such labels, and returns the number of observations."""


class Classification:
    """The mean cross-entropy of a module on one batch, as a closure for any torch optimizer.

    A module may give more than logits: a tuple that begins with them, and a `loss` that knows what to make of it.

    The first call may draw random numbers and move running statistics; every later one sees the same numbers and leaves
    the statistics alone, so that two gradients differ by the parameters and by nothing else. Parameters that the loss
    does not depend on get no gradient.
    """

    def __init__(
        self,
        module: nn.Module,
        forward: Callable[[], Tensor | tuple[Tensor, ...]],
        labels: Tensor,
        *,
        loss: Callable[[Any, Tensor], Tensor] = F.cross_entropy,
        parameters: Iterable[Tensor] | None = None,  # the module's, if at hand: finding them takes a while
    ) -> None:
        self._module, self._forward, self._labels, self._loss = module, forward, labels, loss
        known = module.parameters() if parameters is None else parameters
        self._parameters = [parameter for parameter in known if parameter.requires_grad]
        self._random: Tensor | None = None
        self.loss: Tensor | None = None  # of the first call, with the logits it came from
        self.logits: Tensor | None = None

    def __call__(self) -> Tensor:
        if self._random is None:
            self._random = torch.get_rng_state()
            output = self._forward()
            self.loss = self._descend(output, self._labels)
            self.logits = _logits(output).detach()
            return self.loss
        with self._again():
            return self._descend(self._forward(), self._labels)

    def on_own_labels(self, generator: torch.Generator) -> int:
        with self._again():
            output = self._forward()
            logits = _logits(output).detach()
            chances = logits.softmax(dim=1).to(generator.device)
            labels = torch.multinomial(chances, 1, generator=generator).squeeze(1)
            self._descend(output, labels.to(logits.device))
        return len(labels)

    def _descend(self, output: Tensor | tuple[Tensor, ...], labels: Tensor) -> Tensor:
        loss = self._loss(output, labels)
        gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        return loss.detach()

    @contextmanager
    def _again(self) -> Iterator[None]:
        """The random numbers of the first call; afterwards no trace of the pass in generator and buffers."""
        assert self._random is not None, "the loss itself comes first"
        kept = [buffer.clone() for buffer in self._module.buffers()]
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._random)
            yield
        with torch.no_grad():  # only now: the backward pass refuses running statistics that were written to before it
            for buffer, value in zip(self._module.buffers(), kept, strict=True):
                buffer.copy_(value)


def _logits(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]
