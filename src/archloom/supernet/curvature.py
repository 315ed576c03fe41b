"""Products of vectors with second derivatives of the loss of one batch, without ever storing a matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property

import torch
from torch import Tensor

from archloom.data.loader import Batch
from archloom.fast import use_kernels
from archloom.supernet.gate import Gates
from archloom.supernet.shared_weights import Parameters, SharedWeights

SMALLEST_NORM = 1e-12  # below it a direction is noise and its product is zero


class Curvature:
    """Multiply vectors by the second derivatives of the loss: of the weights, of the logits, and of one of each.

    Products are exact, by double backward, where `step` is None. Otherwise they are central differences of gradients at
    a distance of `step` along the vector, whatever its length. Differences need no more memory than a gradient. In a
    network with ReLUs the two are different quantities: differences see the kinks, exact products do not.

    Weights are one flat vector, in the order of `SharedWeights.parameters`. Products have no side effects: wherever
    something is written, weights and buffers are copies, and every pass sees the same random numbers.

    Args:
        weights: the shared weights.
        batch: the images of the loss.
        gates: makes gates from logits.
        logits: the architecture parameters.
        step: the distance of differences; None for exact products.

    Examples:
        >>> import archloom, torch
        >>> space = archloom.Nb201(nodes=3, cells_per_stage=1)
        >>> supernet = archloom.build_network(space, archloom.EveryOption(), classes=2, colours=3, channels=4)
        >>> weights = archloom.SharedWeights(supernet)
        >>> batch = archloom.Batch(torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 0, 1]))
        >>> logits = torch.zeros(3, 5, requires_grad=True)
        >>> def mix(values):
        ...     rows = zip(space.decisions, values.softmax(1))
        ...     return {decision.name: archloom.Gate(weights=row) for decision, row in rows}
        >>> curvature = archloom.Curvature(weights, batch, mix, logits)
        >>> size = sum(value.numel() for value in weights.parameters.values())
        >>> curvature.multiply_weight_hessian(torch.zeros(size)).shape == (size,)
        True
    """

    def __init__(
        self,
        weights: SharedWeights,
        batch: Batch,
        gates: Callable[[Tensor], Gates],
        logits: Tensor,
        *,
        step: float | None = None,
    ) -> None:
        self._weights, self._batch, self._gates, self._logits, self._step = weights, batch, gates, logits, step
        self._random = _random_state(weights.device)

    def multiply_weight_hessian(self, vector: Tensor) -> Tensor:
        """Multiply the Hessian of the weights by a vector."""
        if self._step is None:
            return self._gradient_of_weights(self._along(vector), self._weights.parameters, retain_graph=True)
        return self._difference(vector, self._gradient_by_weights, vector)

    def multiply_mixed_derivative(self, vector: Tensor) -> Tensor:
        """Return the change of the gradient of the logits as the weights move along a vector."""
        if self._step is None:
            return self._weights.gradient(self._along(vector), of=self._logits, retain_graph=True)
        return self._difference(vector, self._gradient_by_logits, self._logits)

    def multiply_logit_hessian(self, vector: Tensor) -> Tensor:
        """Multiply the Hessian of the logits by a vector."""
        if self._step is None:
            return self._weights.gradient(self._logits_graph @ vector, of=self._logits, retain_graph=True)
        return self._difference(vector, self._gradient_at_logits, self._logits)

    # --- exact

    def _along(self, vector: Tensor) -> Tensor:
        return self._weights_graph @ vector.detach()

    @cached_property
    def _weights_graph(self) -> Tensor:
        """Return the gradient of the weights with its graph: one pass serves all products."""
        parameters = self._weights.parameters
        with use_kernels("plain"):  # fused cells have no second derivative
            loss = self._loss(parameters, self._logits)
            return self._gradient_of_weights(loss, parameters, create_graph=True)

    @cached_property
    def _logits_graph(self) -> Tensor:
        with use_kernels("plain"):
            loss = self._loss(self._weights.parameters, self._logits)
            return self._weights.gradient(loss, of=self._logits, create_graph=True)

    # --- by differences

    def _difference(self, vector: Tensor, gradient: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
        size = float(vector.norm())
        if size < SMALLEST_NORM:
            return torch.zeros_like(like)
        assert self._step is not None
        distance = self._step / size
        return (gradient(distance * vector) - gradient(-distance * vector)) / (2 * distance)

    def _gradient_by_weights(self, displacement: Tensor) -> Tensor:
        moved = {name: value.requires_grad_() for name, value in self._moved(displacement).items()}
        return self._gradient_of_weights(self._loss(moved, self._logits.detach()), moved)

    def _gradient_by_logits(self, displacement: Tensor) -> Tensor:
        return self._weights.gradient(self._loss(self._moved(displacement), self._logits), of=self._logits)

    def _gradient_at_logits(self, displacement: Tensor) -> Tensor:
        moved = (self._logits.detach() + displacement).requires_grad_()
        fixed = {name: value.detach() for name, value in self._weights.parameters.items()}
        return self._weights.gradient(self._loss(fixed, moved), of=moved)

    def _moved(self, displacement: Tensor) -> dict[str, Tensor]:
        parameters = self._weights.parameters
        parts = torch.split(displacement.detach(), [value.numel() for value in parameters.values()])
        return {
            name: value.detach() + part.view(value.shape)
            for (name, value), part in zip(parameters.items(), parts, strict=True)
        }

    # --- one pass

    def _gradient_of_weights(
        self, value: Tensor, parameters: Parameters, *, create_graph: bool = False, retain_graph: bool | None = None
    ) -> Tensor:
        found = self._weights.gradient(value, of=parameters, create_graph=create_graph, retain_graph=retain_graph)
        return to_vector(found.values())

    def _loss(self, parameters: Parameters, logits: Tensor) -> Tensor:
        buffers = self._weights.copy_buffers()
        with _random_numbers(self._random):
            return self._weights.loss(self._batch, self._gates(logits), parameters={**parameters, **buffers})


def to_vector(tensors: Iterable[Tensor]) -> Tensor:
    """Concatenate tensors into one vector."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _random_state(device: torch.device) -> dict[torch.device, Tensor]:
    states = {torch.device("cpu"): torch.get_rng_state()}
    if device.type == "cuda":
        states[device] = torch.cuda.get_rng_state(device)
    return states


@contextmanager
def _random_numbers(states: dict[torch.device, Tensor]) -> Iterator[None]:
    """Use these random states within the context, and restore the global ones afterwards."""
    others = [device for device in states if device.type == "cuda"]
    with torch.random.fork_rng(devices=others):
        torch.set_rng_state(states[torch.device("cpu")])
        for device in others:
            torch.cuda.set_rng_state(states[device], device)
        yield
