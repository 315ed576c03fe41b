"""One search in several processes: the only place that knows of other ranks.

All ranks hold the same weights, architecture parameters and random numbers, and see the same batches. Each computes the
loss of its own rows of a batch; what leaves shared weights is the mean over all rows. So all ranks take the same step,
and strategies, policies and samplers need not know that there are others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, distributed, nn

from archloom.core.errors import DivergedError, RunLostError, SettingError, one_line
from archloom.data.loader import Batch
from archloom.supernet.gate import Gate, Gates

_WORD = 8  # bytes of a digest that are compared


class RankLostError(RunLostError):
    """Another rank ended, or does not answer."""


@dataclass(frozen=True)
class Ranks:
    """This process among all that run one search; a search of one process has only rank 0."""

    rank: int = 0
    count: int = 1
    device: str = "cpu"  # of what is sent

    @property
    def is_first(self) -> bool:
        """Return whether this rank writes files and prints."""
        return self.rank == 0

    # --- rows of a batch

    def rows(self, images: int) -> slice:
        """Return the rows of a batch that this rank computes."""
        if images < self.count:
            raise SettingError(
                f"a batch must have an image for each of {self.count} ranks, got {images}; use larger batches or fewer "
                "ranks"
            )
        return slice(images * self.rank // self.count, images * (self.rank + 1) // self.count)

    def take(self, batch: Batch) -> Batch:
        """Return the part of a batch that this rank computes."""
        if self.count == 1:
            return batch
        rows = self.rows(len(batch))
        return replace(batch, inputs=batch.inputs[rows], labels=batch.labels[rows])

    def take_gates(self, gates: Gates, images: int) -> Gates:
        """Return gates for the rows of this rank: those of single images are cut, the others are as they were."""
        if self.count == 1:
            return gates
        rows = self.rows(images)
        return {name: _cut(gate, rows) for name, gate in gates.items()}

    def gather(self, own: Tensor, images: int) -> Tensor:
        """Return the rows of all ranks."""
        if self.count == 1:
            return own
        whole = own.new_zeros((images, *own.shape[1:]))
        whole[self.rows(images)] = own
        return self._sum(whole)

    # --- means

    def average_loss(self, loss: Tensor, images: int) -> Tensor:
        """Return the mean loss of a whole batch from that of the rows of each rank.

        Its value is the mean over all rows; its graph is that of this rank. A mean of the gradients over ranks is
        then the gradient of the whole, for any function of the loss.
        """
        if self.count == 1:
            return loss
        rows = self.rows(images)
        mean: Tensor = _Mean.apply(loss * ((rows.stop - rows.start) * self.count / images), self)  # type: ignore[no-untyped-call]
        return mean

    def average_score(self, score: Tensor, images: int) -> Tensor:
        """Return the mean score of a whole batch from that of the rows of each rank."""
        return self.average_loss(score, images)

    def average_gradients(self, gradients: Sequence[Tensor | None], like: Sequence[Tensor]) -> list[Tensor | None]:
        """Return the means over ranks; a gradient that is None on every rank stays None.

        Where images have paths of their own, a rank may lack a gradient that another one has.
        """
        if self.count == 1:
            return list(gradients)
        flags = torch.tensor([float(gradient is not None) for gradient in gradients], device=self.device)
        used = [flag > 0 for flag in self._sum(flags).tolist()]
        own = [
            torch.zeros_like(tensor) if gradient is None else gradient
            for gradient, tensor, is_used in zip(gradients, like, used, strict=True)
            if is_used
        ]
        means = iter(self._average(own))
        return [next(means) if is_used else None for is_used in used]

    def average_tensors(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the means of tensors over ranks."""
        return list(tensors) if self.count == 1 else self._average(tensors)

    def average_statistics(self, network: nn.Module) -> None:
        """Give all ranks the same running statistics of normalisations: each has seen other images."""
        if self.count == 1:
            return
        kinds = nn.modules.batchnorm._NormBase
        found = [
            statistic
            for module in network.modules()
            if isinstance(module, kinds)
            for statistic in (module.running_mean, module.running_var)
            if statistic is not None
        ]
        for statistic, mean in zip(found, self._average(found), strict=True):
            statistic.copy_(mean)

    def _average(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        if not tensors:
            return []
        with torch.no_grad():
            flat = self._sum(torch.cat([tensor.detach().reshape(-1) for tensor in tensors])).div_(self.count)
            parts = torch.split(flat, [tensor.numel() for tensor in tensors])
            return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

    # --- agreement

    def any(self, flag: bool) -> bool:
        """Return whether the flag is true on some rank."""
        if self.count == 1:
            return flag
        return bool(self._sum(torch.tensor(float(flag), device=self.device)) > 0)

    def refuse_difference(self, what: str, digest: bytes) -> None:
        """Raise a DivergedError if ranks have different digests of something."""
        if self.count == 1:
            return
        word = int.from_bytes(hashlib.sha256(digest).digest()[:_WORD], "big", signed=True)
        words = torch.zeros(self.count, dtype=torch.int64, device=self.device)
        words[self.rank] = word
        found = self._sum(words).tolist()
        if len(set(found)) > 1:
            own = ", ".join(f"rank {rank}: {number & (2**64 - 1):016x}" for rank, number in enumerate(found))
            raise DivergedError(
                f"{what} differ between ranks ({own}); the run is stopped, since it has no longer one architecture"
            )

    def broadcast(self, content: bytes) -> bytes:
        """Return the content that rank 0 has."""
        if self.count == 1:
            return content
        size = torch.tensor(len(content), device=self.device)
        _call(lambda: distributed.broadcast(size, 0))
        data = torch.zeros(max(1, int(size)), dtype=torch.uint8, device=self.device)
        if self.is_first and content:
            data.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        _call(lambda: distributed.broadcast(data, 0))
        return bytes(data.cpu().numpy().data)[: int(size)]

    @staticmethod
    def _sum(values: Tensor) -> Tensor:
        """Add the values of all ranks, in place; every rank gets the same bits."""
        _call(lambda: distributed.all_reduce(values))
        return values


ALONE = Ranks()


class _Mean(torch.autograd.Function):
    """The mean over ranks, with the same bits on each, and the gradient of this rank."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, ranks: Ranks) -> Tensor:
        return ranks._sum(own.clone()) / ranks.count

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


def _cut(gate: Gate, rows: slice) -> Gate:
    index = gate.index[rows] if isinstance(gate.index, Tensor) and gate.index.dim() == 1 else gate.index
    weights = gate.weights[rows] if gate.weights is not None and gate.weights.dim() == 2 else gate.weights
    return Gate(index, weights, gate.offset)


def _call(exchange: Callable[[], object]) -> None:
    try:
        exchange()
    except RuntimeError as error:
        raise RankLostError(
            f"another rank of this run ended or does not answer ({one_line(error)}); what was saved before is intact: "
            "resume the run with as many ranks"
        ) from error
