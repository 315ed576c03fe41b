"""Shared weights: the only access that a strategy has to the network and its optimizer.

Mixed precision, compilation and data parallelism stay behind it; no strategy sees them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import overload

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.dropout import _DropoutNd

from archloom.core.errors import SettingError
from archloom.core.metrics import Metric
from archloom.core.state import StateDict
from archloom.data.loader import Batch
from archloom.fast import use_bfloat16
from archloom.samplers import Classification, sample_labels
from archloom.supernet.frozen_slices import freeze_unused_slices
from archloom.supernet.gate import Gates
from archloom.supernet.gradients import find_gradients, gradients_of
from archloom.supernet.masked_width import SharedKernel
from archloom.supernet.outputs import CarriedState, Continuation, Output, StepResult, logits_of, to_precision
from archloom.supernet.ranks import ALONE, Ranks
from archloom.supernet.resolve import inherit
from archloom.supernet.skip_dropout import SkipDropout
from archloom.supernet.weight_settings import WeightSettings
from archloom.tasks import CLASSIFICATION, Task

Parameters = Mapping[str, Tensor]


class SharedWeights:
    """Hold a network, its loss and its optimizer: SGD with a cosine learning rate and clipped gradients by default.

    Network and optimizer are private: strategies and loops use the methods.

    Dropout is a function of `noise_seed` and the number of fits. All evaluations within one step therefore see the same
    network, and the global random state is left untouched.

    Parameters outside the sampled path get no gradient at all. Neither weight decay nor momentum updates them.

    Args:
        network: the supernet, called with (images, gates).
        settings: how it is trained.
        noise_seed: the seed of dropout.
        ranks: the processes that compute a part of every batch each; left out: this one alone.
        task: what the predictions are for; by default, image classification.
        one_path: the network has a single path, so that every step updates the same parameters.

    Examples:
        >>> import archloom, torch
        >>> space = archloom.Nb201(nodes=3, cells_per_stage=1)
        >>> supernet = archloom.build_network(space, archloom.EveryOption(), classes=2, colours=3, channels=4)
        >>> weights = archloom.SharedWeights(supernet, archloom.WeightSettings(learning_rate=0.05))
        >>> batch = archloom.Batch(torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 0, 1]))
        >>> path = archloom.path_gates(space, space.parse("|nor_conv_3x3~0|+|none~0|skip_connect~1|"))
        >>> result = weights.fit(batch, path)
        >>> 0 <= float(weights.score(batch, path)) <= 1
        True
    """

    def __init__(
        self,
        network: nn.Module,
        settings: WeightSettings = WeightSettings(),
        *,
        noise_seed: int = 0,
        ranks: Ranks = ALONE,
        task: Task = CLASSIFICATION,
        one_path: bool = False,
    ) -> None:
        self._network, self._one_path = network, one_path
        self._settings, self._task, self.ranks = settings, task, ranks
        self._carried: dict[str, CarriedState] = {}  # by stream
        self._noise_seed, self._fits = noise_seed, 0
        self._dropouts = [module for module in network.modules() if isinstance(module, _DropoutNd)]
        self._kernels = [module for module in network.modules() if isinstance(module, SharedKernel)]
        self._start, self._end, self._clip = settings.learning_rate, settings.learning_rate_end, settings.clip
        self._names = [name for name, _ in network.named_parameters()]
        self._parameters = list(network.parameters())
        self.moved: Sequence[Tensor] = ()  # the weights that the last step of `fit` had a gradient for

    @cached_property
    def _optimizer(self) -> torch.optim.Optimizer:
        """Make SGD when first needed, because torch imports a compiler for it."""
        # one call for all tensors, of which a supernet has a thousand; the fused one is twice as fast, but fails where
        # only some parameters have a momentum yet
        how = {"fused": True} if self._one_path else {"foreach": True}
        return torch.optim.SGD(
            self._parameters,
            lr=self._settings.learning_rate,
            momentum=self._settings.momentum,
            weight_decay=self._settings.weight_decay,
            nesterov=self._settings.nesterov,
            **how,
        )

    def optimize_with(self, optimizer: torch.optim.Optimizer) -> None:
        """Replace SGD by another optimizer. It sees unclipped gradients and does its own clipping.

        Its learning rate falls on a cosine from its present value to the `lr_end` of its first group (default 0).
        """
        self._optimizer, self._clip = optimizer, 0.0
        group = optimizer.param_groups[0]
        self._start, self._end = group["lr"], group.get("lr_end", 0.0)

    @property
    def device(self) -> torch.device:
        """Return the device of the weights."""
        return self._parameters[0].device

    @property
    def metric(self) -> Metric:
        """Return how scores are named and printed."""
        return self._task.metric

    @property
    def parameters(self) -> Parameters:
        """Return all weights."""
        return dict(zip(self._names, self._parameters, strict=True))

    @property
    def parameter_count(self) -> int:
        """Return the number of weights."""
        return sum(parameter.numel() for parameter in self._parameters)

    @property
    def learning_rate(self) -> float:
        """Return the current learning rate of the optimizer."""
        return float(self._optimizer.param_groups[0]["lr"])

    @property
    def clip(self) -> float:
        """Return the largest norm of a gradient; 0 for no clipping."""
        return self._clip

    @property
    def weight_decay(self) -> float:
        """Return the weight decay of the optimizer."""
        return float(self._optimizer.param_groups[0].get("weight_decay", 0.0))

    def set_progress(self, progress: float) -> None:
        """Set the learning rate to its value on the cosine, for progress from 0 to 1."""
        self.set_learning_rate(self._end + (self._start - self._end) * (1 + math.cos(math.pi * progress)) / 2)

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of every parameter group."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate

    def set_weight_decay(self, decay: float) -> None:
        """Set the weight decay, or the `decay` of an optimizer that has its own."""
        for group in self._optimizer.param_groups:
            group["decay" if "decay" in group else "weight_decay"] = decay

    def set_skip_dropout(self, rate: float) -> None:
        """Set the rate of dropout on skips, in a supernet that has it."""
        for module in self._dropouts:
            if isinstance(module, SkipDropout):
                module.p = rate

    def train(self) -> None:
        """Put the network into training mode."""
        self._network.train()

    def frozen(self) -> SharedWeights:
        """Return a view of these weights that evaluates as usual and whose `fit` updates nothing."""
        view = object.__new__(_FrozenWeights)
        view.__dict__ = self.__dict__  # a view, not a copy: both see the same network, optimizer and number of fits
        return view

    # --- evaluate

    def step_result(self, batch: Batch, gates: Gates, *, parameters: Parameters | None = None) -> StepResult:
        """Return loss and score of a batch, at other parameters if given. The graph reaches parameters and gates.

        The state that a network carries through a text moves on with the batch.
        """
        own = self.ranks.take(batch)
        prediction = self._predict(own, self.ranks.take_gates(gates, len(batch)), parameters)
        return self._average(self._measure(prediction, own), len(batch))

    def loss(self, batch: Batch, gates: Gates, *, parameters: Parameters | None = None) -> Tensor:
        """Return the loss of a batch, with a gradient; at other parameters, no carried state moves on."""
        return self._local_loss(batch, gates, parameters, moves_on=parameters is None)

    def _local_loss(
        self, batch: Batch, gates: Gates, parameters: Parameters | None = None, *, moves_on: bool
    ) -> Tensor:
        """Return the mean loss of a batch, whose graph is that of the rows of this rank."""
        own, images = self.ranks.take(batch), len(batch)
        prediction = self._predict(own, self.ranks.take_gates(gates, images), parameters, moves_on=moves_on)
        return self.ranks.average_loss(self._loss(prediction, own.labels), images)

    def score(self, batch: Batch, gates: Gates) -> Tensor:
        """Return the score without dropout and without a graph.

        Normalisation keeps using the statistics of the batch: shared weights have no running ones.
        """
        with torch.no_grad(), _evaluation_mode([self._network, *self._dropouts]):
            return self.step_result(batch, gates).score

    def evaluate_examples(self, batch: Batch, gates: Gates) -> tuple[Tensor, Tensor]:
        """Return the mean loss and a figure for each example, without dropout and without a graph.

        Normalisation uses the statistics of the batch, as in `score`.
        """
        with torch.no_grad(), _evaluation_mode([self._network, *self._dropouts]):
            prediction = self._predict(batch, gates)
            columns = batch.inputs.shape[-1]
            examples = self._task.score_examples(logits_of(prediction), batch.labels, columns=columns)
            return self._loss(prediction, batch.labels), examples

    def deployed_score(self, batches: Iterable[Batch]) -> float:
        """Return the score over many batches in evaluation mode, where normalisation uses running statistics."""
        self._network.eval()
        total, examples = 0.0, 0
        with torch.no_grad():
            for batch in batches:
                total += self._task.sum_scores(logits_of(self._predict(batch, None)), batch.labels)
                examples += len(batch)
        self._network.train()
        return self._task.score_of_sum(total, examples)

    def _average(self, own: StepResult, images: int) -> StepResult:
        """Return the result of a whole batch from that of the rows of each rank."""
        if self.ranks.count == 1:
            return own
        loss, score = self.ranks.average_loss(own.loss, images), self.ranks.average_score(own.score, images)
        return replace(own, loss=loss, score=score)

    def _measure(self, prediction: Output, batch: Batch) -> StepResult:
        loss, logits = self._loss(prediction, batch.labels), logits_of(prediction)
        plain = None if self._settings.label_smoothing else loss.detach()
        return StepResult(loss, self._task.score(logits, batch.labels, loss=plain), self.metric)

    def _loss(self, prediction: Output, labels: Tensor) -> Tensor:
        """Return the loss that is reported, and that gates get their gradient of."""
        if isinstance(prediction, Tensor):
            return self._task.loss(prediction, labels, label_smoothing=self._settings.label_smoothing)
        if isinstance(prediction, Continuation):
            return self._loss(prediction.logits, labels)
        auxiliary = self._loss(prediction.auxiliary, labels)
        return self._loss(prediction.logits, labels) + self._settings.auxiliary_weight * auxiliary

    def _training_loss(self, prediction: Output, labels: Tensor, plain: list[Tensor]) -> Tensor:
        """Return the loss that weights are trained on; add that of a text without what training adds to the list."""
        loss = self._loss(prediction, labels)
        if not isinstance(prediction, Continuation):
            return loss
        smoothed = self._settings.label_smoothing > 0
        plain.append(self._task.loss(prediction.logits.detach(), labels) if smoothed else loss.detach())
        return loss + prediction.penalty

    def _predict(
        self, batch: Batch, gates: Gates | None, parameters: Parameters | None = None, *, moves_on: bool = True
    ) -> Output:
        before = self._state_before(batch)
        others = (gates, before) if batch.stream else () if gates is None else (gates,)
        low, on_cpu = self._settings.mixed_precision, self.device.type == "cpu"
        try:
            with (
                self._noise(),
                torch.autocast(self.device.type, torch.bfloat16, enabled=low and not on_cpu),
                use_bfloat16(low and on_cpu),
            ):
                if parameters is None:
                    output = self._network(batch.inputs, *others)
                else:
                    output = functional_call(self._network, dict(parameters), (batch.inputs, *others))
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise SettingError(
                "batch normalisation needs more than one value per channel, got one image of one pixel, or one column "
                "of text; use larger images or batches, or one path for the whole batch"
            ) from error
        kind = self._parameters[0].dtype
        if isinstance(output, Continuation) and moves_on:
            self._carried[batch.stream] = CarriedState(batch.place, before, output.state.detach())
        return (
            to_precision(output, kind)
            if isinstance(output, Tensor)
            else type(output)(*(to_precision(part, kind) for part in output))
        )

    def _state_before(self, batch: Batch) -> Tensor | None:
        """Return the state that a batch begins with, None for zeros.

        All passes of one batch begin with the same state. So a step may evaluate several paths, or differences of
        gradients, and only the next batch sees what the last of them left.
        """
        known = self._carried.get(batch.stream)
        if batch.starts or known is None:
            return None
        return known.before if known.place == batch.place else known.after

    @contextmanager
    def _noise(self) -> Iterator[None]:
        """Seed the random numbers by the present step, and restore the global random state afterwards."""
        if not self._dropouts:
            yield
            return
        own = f"/{self.ranks.rank}" if self.ranks.rank else ""  # ranks have other images
        digest = hashlib.blake2b(f"{self._noise_seed}/{self._fits}{own}".encode(), digest_size=8).digest()
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(int.from_bytes(digest, "little") >> 1)
            yield

    # --- update

    def fit(self, batch: Batch, gates: Gates, *, also: Tensor | None = None) -> StepResult:
        """Take one optimizer step on the weights.

        Gradients of the gates are not computed, except for `also`: a tensor behind them, which gets its gradient of the
        same loss in `grad` and is left as it is.
        """
        fixed = gates if also is not None else {name: gate.detach() for name, gate in gates.items()}
        own, images = self.ranks.take(batch), len(batch)
        fixed = self.ranks.take_gates(fixed, images)
        plain = list[Tensor]()
        loss = Classification(
            self._network,
            lambda: self._predict(own, fixed),
            own.labels,
            loss=lambda prediction, labels: self.ranks.average_loss(
                self._training_loss(prediction, labels, plain), images
            ),
            parameters=self._parameters if also is None else [*self._parameters, also],
            average=self.ranks.average_gradients,
            sample=lambda logits, generator: self._sample_labels(logits, images, generator),
            observations=images,
        )
        with freeze_unused_slices(self._kernels, self._optimizer), scaled_rate(self._optimizer, batch.rate):
            self._optimizer.step(self._clip_gradients_of(loss) if self._clip else loss)  # type: ignore[arg-type]
        self.moved = [parameter for parameter in self._parameters if parameter.grad is not None]
        self._optimizer.zero_grad(set_to_none=True)
        self._fits += 1
        self.ranks.average_statistics(self._network)
        assert loss.loss is not None and loss.logits is not None
        if not batch.stream:
            score = self._task.score(loss.logits, own.labels)
            return StepResult(loss.loss, self.ranks.average_score(score, images), self.metric)
        return StepResult(plain[0], self._task.score(loss.logits, batch.labels, loss=plain[0]), self.metric)

    def _sample_labels(self, logits: Tensor, images: int, generator: torch.Generator) -> Tensor:
        """Sample labels of the rows of this rank; all ranks draw the labels of all rows from the same numbers."""
        labels = sample_labels(self.ranks.gather(logits.detach(), images), generator)
        return labels if self.ranks.count == 1 else labels[self.ranks.rows(images)]

    def gradient_on_sampled_labels(
        self, batch: Batch, gates: Gates, *, of: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Return the gradient of the mean loss on labels sampled from the model: its square estimates curvature."""
        prediction = self._predict(self.ranks.take(batch), self.ranks.take_gates(gates, len(batch)))
        labels = self._sample_labels(logits_of(prediction), len(batch), generator)
        return self.gradient(self.ranks.average_loss(self._loss(prediction, labels), len(batch)), of=of)

    def _clip_gradients_of(self, closure: Callable[[], Tensor]) -> Callable[[], Tensor]:
        def compute_and_clip() -> Tensor:
            loss = closure()
            nn.utils.clip_grad_norm_([p for p in self._parameters if p.grad is not None], self._clip, foreach=True)
            return loss

        return compute_and_clip

    def virtual_step(self, batch: Batch, gates: Gates) -> Parameters:
        """Return the weights after one SGD step, and leave the real ones and carried states alone.

        Momentum and decay are included, clipping and the look-ahead of Nesterov are not. Weights outside the path keep
        their values.
        """
        return self._step_virtually(self._find_gradients(batch, gates), rate=batch.rate)

    def clipped_virtual_step(self, batch: Batch, gates: Gates) -> tuple[Parameters, float]:
        """Return the weights after one SGD step whose gradient is clipped, and the factor that clipped it."""
        gradients = self._find_gradients(batch, gates)
        known = [gradient for gradient in gradients if gradient is not None]
        factor = clip_factor(float(nn.utils.get_total_norm(known)), self._clip)
        clipped = [None if gradient is None else factor * gradient for gradient in gradients]
        return self._step_virtually(clipped, rate=batch.rate), factor

    def _find_gradients(self, batch: Batch, gates: Gates) -> list[Tensor | None]:
        found = find_gradients(self._local_loss(batch, gates, moves_on=False), self._parameters)
        return self.ranks.average_gradients(found, self._parameters)

    def _step_virtually(self, gradients: list[Tensor | None], *, rate: float) -> Parameters:
        return {
            name: (parameter.detach() - rate * self._sgd_step(parameter, gradient)).requires_grad_()
            for name, parameter, gradient in zip(self._names, self._parameters, gradients, strict=True)
        }

    def _sgd_step(self, parameter: Tensor, gradient: Tensor | None) -> Tensor:
        if gradient is None:
            return torch.zeros_like(parameter)
        group = self._optimizer.param_groups[0]
        step: Tensor = gradient + group.get("weight_decay", 0.0) * parameter.detach()
        buffer = self._optimizer.state.get(parameter, {}).get("momentum_buffer")  # get: reading must not add an entry
        if buffer is not None:
            step = step + group["momentum"] * buffer
        return self.learning_rate * step

    # --- differentiate

    @overload
    def gradient(
        self, value: Tensor, *, of: Tensor, create_graph: bool = False, retain_graph: bool | None = None
    ) -> Tensor: ...

    @overload
    def gradient(
        self, value: Tensor, *, of: Parameters, create_graph: bool = False, retain_graph: bool | None = None
    ) -> dict[str, Tensor]: ...

    def gradient(
        self,
        value: Tensor,
        *,
        of: Tensor | Parameters,
        create_graph: bool = False,
        retain_graph: bool | None = None,
    ) -> Tensor | dict[str, Tensor]:
        """Return the gradient of a value by a tensor or by named tensors, zero where it does not depend on one.

        It is the mean over ranks. With a graph it is that of this rank: its products are averaged when they are taken.
        """
        named = {"": of} if isinstance(of, Tensor) else of
        tensors = list(named.values())
        found = gradients_of(value, tensors, create_graph=create_graph, retain_graph=retain_graph)
        if not create_graph:
            found = self.ranks.average_tensors(found)
        return found[0] if isinstance(of, Tensor) else dict(zip(named, found, strict=True))

    # --- weights and state

    def copy_buffers(self) -> dict[str, Tensor]:
        """Return a copy of all buffers, such as running statistics."""
        return {name: buffer.clone() for name, buffer in self._network.named_buffers()}

    def copy_into(self, standalone: nn.Module) -> None:
        """Copy the weights of one architecture into a network of its own."""
        inherit(standalone, self._network)

    def load_network(self, state: StateDict) -> None:
        """Load the weights of a saved state, and leave the optimizer alone."""
        self._network.load_state_dict(state["network"])

    def state_dict(self) -> StateDict:
        """Return everything that a checkpoint must hold."""
        carried = {name: vars(state) for name, state in self._carried.items()}
        return {
            "network": self._network.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "fits": self._fits,
            **({"carried": carried} if carried else {}),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned."""
        self.load_network(state)
        self._optimizer.load_state_dict(state["optimizer"])
        self._fits = state.get("fits", 0)  # states of older versions have none
        self._carried = {name: CarriedState(**values) for name, values in state.get("carried", {}).items()}


class _FrozenWeights(SharedWeights):
    """A frozen view of shared weights: `fit` evaluates in training mode and updates nothing."""

    def fit(self, batch: Batch, gates: Gates, *, also: Tensor | None = None) -> StepResult:
        with torch.set_grad_enabled(also is not None):
            result = self.step_result(batch, gates)
        if also is not None:
            also.grad = self.gradient(result.loss, of=also)
        return replace(result, loss=result.loss.detach())


@contextmanager
def scaled_rate(optimizer: torch.optim.Optimizer, factor: float) -> Iterator[None]:
    """Multiply the learning rate of an optimizer within the context."""
    if factor == 1.0:
        yield
        return
    before = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] *= factor
    try:
        yield
    finally:
        for group, rate in zip(optimizer.param_groups, before, strict=True):
            group["lr"] = rate


def clip_factor(norm: float, limit: float) -> float:
    """Return what a gradient of this norm is multiplied by, as torch clips; a limit of 0 is none."""
    return min(1.0, limit / (norm + 1e-6)) if limit else 1.0


@contextmanager
def _evaluation_mode(modules: list[nn.Module]) -> Iterator[None]:
    """Put these modules into evaluation mode, but not the modules inside them."""
    before = [module.training for module in modules]
    for module in modules:
        module.training = False
    try:
        yield
    finally:
        for module, training in zip(modules, before, strict=True):
            module.training = training
