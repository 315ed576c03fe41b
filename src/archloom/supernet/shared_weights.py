"""The one door through which a strategy touches the network: losses, gradients, a fitting step.

Mixed precision, compilation and data parallelism belong behind it; no strategy sees them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import torch
from annotated_doc import Doc
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.modules.dropout import _DropoutNd

from archloom.core.errors import SettingError, require
from archloom.data.loader import Batch
from archloom.samplers import Classification
from archloom.supernet.gate import Gates
from archloom.supernet.masked_width import SharedKernel
from archloom.supernet.partial_rest import unused_parts_resting

Parameters = Mapping[str, Tensor]


@dataclass(frozen=True)
class Outcome:
    """Mean loss on a batch (with its graph, if asked for) and the share of images classified rightly."""

    loss: Tensor
    accuracy: Tensor


class Prediction(NamedTuple):
    """What a network with an auxiliary head returns in training mode."""

    logits: Tensor
    auxiliary: Tensor


class SharedWeights:
    """A network, its loss and its optimizer: SGD with a cosine learning rate and clipped gradients, or another one.

    What dropout drops is a function of `noise_seed` and of the number of fits done. So all that a strategy computes in
    one step sees the same network, and nothing outside sees a random number drawn.

    Weights outside the sampled path get no gradient at all, and so neither decay nor momentum moves them: what was not
    part of the loss rests.
    """

    def __init__(
        self,
        network: nn.Module,
        noise_seed: int = 0,
        *,
        learning_rate: Annotated[float, Doc("of SGD, at the start of the cosine")] = 0.025,
        learning_rate_end: Annotated[float, Doc("at its end")] = 0.001,
        momentum: Annotated[float, Doc("of SGD")] = 0.9,
        weight_decay: Annotated[float, Doc("of SGD")] = 3e-4,
        nesterov: Annotated[bool, Doc("look ahead along the momentum")] = False,
        clip: Annotated[float, Doc("largest norm of the gradient; 0 is off")] = 5.0,
        mixed_precision: Annotated[
            bool, Doc("bfloat16 where it is safe, on a GPU; cells then run module by module")
        ] = False,
        auxiliary_weight: Annotated[float, Doc("of the auxiliary head's loss, where network.auxiliary is on")] = 0.4,
        label_smoothing: Annotated[
            float, Doc("share of the truth that is spread over all classes, in every loss")
        ] = 0.0,
    ) -> None:
        require(
            {
                f"weights.learning_rate must be above 0, got {learning_rate}": learning_rate > 0,
                f"weights.learning_rate_end must be 0 or more, got {learning_rate_end}": learning_rate_end >= 0,
                f"weights.momentum must be in [0, 1), got {momentum}": 0 <= momentum < 1,
                f"weights.weight_decay must be 0 or more, got {weight_decay}": weight_decay >= 0,
                f"weights.clip must be 0 (off) or more, got {clip}": clip >= 0,
                f"weights.auxiliary_weight must be 0 or more, got {auxiliary_weight}": auxiliary_weight >= 0,
                f"weights.label_smoothing must lie in [0, 1), got {label_smoothing}": 0 <= label_smoothing < 1,
                "weights.mixed_precision must be false on a CPU, where bfloat16 is slower or crashes; take a GPU": (
                    not mixed_precision or next(network.parameters()).device.type != "cpu"
                ),
                f"weights.nesterov must be false where momentum is 0, got {nesterov}": momentum > 0 or not nesterov,
            }
        )
        self.network = network
        self._mixed_precision = mixed_precision
        self._auxiliary_weight, self._label_smoothing = auxiliary_weight, label_smoothing
        self._noise_seed, self._fits = noise_seed, 0
        self._dropouts = [module for module in network.modules() if isinstance(module, _DropoutNd)]
        self._kernels = [module for module in network.modules() if isinstance(module, SharedKernel)]
        self._start, self._end, self._clip = learning_rate, learning_rate_end, clip
        self._names = [name for name, _ in network.named_parameters()]
        self._parameters = list(network.parameters())
        self._sgd: dict[str, Any] = {
            "lr": learning_rate,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "foreach": True,  # one call for all tensors, of which a supernet has a thousand
        }

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        """SGD, unless another one was given; made when first needed, as torch imports a compiler for it."""
        return torch.optim.SGD(self._parameters, **self._sgd)

    def optimize_with(self, optimizer: torch.optim.Optimizer) -> None:
        """Move the weights by another optimizer, which sees gradients as they are and does its own clipping.

        Its learning rate falls on a cosine from where it is to the `lr_end` of its group, 0 where there is none.
        """
        self.optimizer, self._clip = optimizer, 0.0
        group = optimizer.param_groups[0]
        self._start, self._end = group["lr"], group.get("lr_end", 0.0)

    @property
    def device(self) -> torch.device:
        return self._parameters[0].device

    @property
    def parameters(self) -> Parameters:
        return dict(zip(self._names, self._parameters, strict=True))

    @property
    def learning_rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def set_progress(self, progress: float) -> None:
        """Put the learning rate on its cosine, for progress from 0 to 1."""
        rate = self._end + (self._start - self._end) * (1 + math.cos(math.pi * progress)) / 2
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    # --- values

    def evaluate(self, batch: Batch, gates: Gates, *, parameters: Parameters | None = None) -> Outcome:
        """Loss and accuracy, at other parameters if given. The graph reaches parameters and gates."""
        prediction = self._predict(batch, gates, parameters)
        return Outcome(self._loss(prediction, batch.labels), _accuracy(prediction, batch))

    def _loss(self, prediction: Tensor | Prediction, labels: Tensor) -> Tensor:
        if isinstance(prediction, Tensor):
            return F.cross_entropy(prediction, labels, label_smoothing=self._label_smoothing)
        auxiliary = self._loss(prediction.auxiliary, labels)
        return self._loss(prediction.logits, labels) + self._auxiliary_weight * auxiliary

    def _predict(self, batch: Batch, gates: Gates, parameters: Parameters | None = None) -> Tensor | Prediction:
        try:
            with self._noise(), torch.autocast(self.device.type, torch.bfloat16, enabled=self._mixed_precision):
                if parameters is None:
                    output = self.network(batch.images, gates)
                else:
                    output = functional_call(self.network, dict(parameters), (batch.images, gates))
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise SettingError(
                "batch normalisation needs more than one value per channel, got one image of one pixel; "
                "take larger images or batches, or one path for the whole batch"
            ) from error
        kind = self._parameters[0].dtype
        return output.to(kind) if isinstance(output, Tensor) else Prediction(*(part.to(kind) for part in output))

    @contextmanager
    def _noise(self) -> Iterator[None]:
        """The random numbers of the present step within, and those outside as if nothing had been drawn."""
        if not self._dropouts:
            yield
            return
        digest = hashlib.blake2b(f"{self._noise_seed}/{self._fits}".encode(), digest_size=8).digest()
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(int.from_bytes(digest, "little") >> 1)
            yield

    def loss(self, batch: Batch, gates: Gates, *, parameters: Parameters | None = None) -> Tensor:
        return self.evaluate(batch, gates, parameters=parameters).loss

    def accuracy(self, batch: Batch, gates: Gates) -> Tensor:
        """Nothing is dropped here. Normalisation stays as it is: shared weights know the batch's statistics only."""
        with torch.no_grad(), _resting([self.network, *self._dropouts]):
            return self.evaluate(batch, gates).accuracy

    # --- moving the weights

    def fit(self, batch: Batch, gates: Gates) -> Outcome:
        """One optimizer step on the weights. Gradients of the gates are not computed."""
        fixed = {name: gate.detach() for name, gate in gates.items()}
        loss = Classification(
            self.network,
            lambda: self._predict(batch, fixed),
            batch.labels,
            loss=self._loss,
            parameters=self._parameters,
        )
        with unused_parts_resting(self._kernels, self.optimizer):
            self.optimizer.step(self._clipping(loss) if self._clip else loss)  # type: ignore[arg-type]
        self.optimizer.zero_grad(set_to_none=True)
        self._fits += 1
        assert loss.loss is not None and loss.logits is not None
        return Outcome(loss.loss, _accuracy(loss.logits, batch))

    def _clipping(self, closure: Callable[[], Tensor]) -> Callable[[], Tensor]:
        def clipped() -> Tensor:
            loss = closure()
            nn.utils.clip_grad_norm_([p for p in self._parameters if p.grad is not None], self._clip, foreach=True)
            return loss

        return clipped

    def virtual_step(self, batch: Batch, gates: Gates) -> Parameters:
        """The weights after one SGD step, leaving the real ones alone.

        Momentum and decay are included, clipping and the look-ahead of Nesterov are not; weights outside the path rest.
        """
        gradients = torch.autograd.grad(self.loss(batch, gates), self._parameters, allow_unused=True)
        return {
            name: (parameter.detach() - self._movement(parameter, gradient)).requires_grad_()
            for name, parameter, gradient in zip(self._names, self._parameters, gradients, strict=True)
        }

    def _movement(self, parameter: Tensor, gradient: Tensor | None) -> Tensor:
        if gradient is None:
            return torch.zeros_like(parameter)
        group = self.optimizer.param_groups[0]
        step: Tensor = gradient + group.get("weight_decay", 0.0) * parameter.detach()
        buffer = self.optimizer.state.get(parameter, {}).get("momentum_buffer")  # get: looking must not make an entry
        if buffer is not None:
            step = step + group["momentum"] * buffer
        return self.learning_rate * step

    # --- derivatives

    def gradient(
        self,
        loss: Tensor,
        *,
        at: Parameters | None = None,
        create_graph: bool = False,
        retain_graph: bool | None = None,
    ) -> dict[str, Tensor]:
        """Gradient of a loss by the weights (or by the parameters it was evaluated at); zero where there is none."""
        parameters = self.parameters if at is None else at
        gradients = torch.autograd.grad(
            loss, list(parameters.values()), create_graph=create_graph, retain_graph=retain_graph, allow_unused=True
        )
        return {
            name: torch.zeros_like(parameter) if gradient is None else gradient
            for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True)
        }

    # --- state

    def state_dict(self) -> dict[str, Any]:
        return {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict(), "fits": self._fits}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._fits = state.get("fits", 0)  # earlier states have none, and nothing that draws either


def _accuracy(prediction: Tensor | Prediction, batch: Batch) -> Tensor:
    logits = prediction if isinstance(prediction, Tensor) else prediction.logits
    with torch.no_grad():
        return (logits.argmax(dim=1) == batch.labels).float().mean()


@contextmanager
def _resting(modules: list[nn.Module]) -> Iterator[None]:
    """These very modules in evaluation mode, and not the parts that they have."""
    before = [module.training for module in modules]
    for module in modules:
        module.training = False
    try:
        yield
    finally:
        for module, training in zip(modules, before, strict=True):
            module.training = training


def gradient_by(value: Tensor, by: Tensor, *, retain_graph: bool | None = None) -> Tensor:
    """Gradient of a value, zero where the value does not depend on `by`."""
    if not value.requires_grad:
        return torch.zeros_like(by)
    (gradient,) = torch.autograd.grad(value, [by], allow_unused=True, retain_graph=retain_graph)
    return torch.zeros_like(by) if gradient is None else gradient
