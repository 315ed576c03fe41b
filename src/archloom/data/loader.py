"""Batches as a pure function of (seed, epoch, step).

A loader has no hidden position: the two numbers are all there is to save, and a resumed run sees exactly the batches
that an unbroken one would have seen, whatever the number of threads that read ahead.
"""

from __future__ import annotations

import hashlib
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from archloom.core.errors import DataError, require
from archloom.data.augment import Augment, to_units
from archloom.data.source import Source

AHEAD = 2  # batches that each thread prepares in advance


@dataclass(frozen=True, eq=False)
class Batch:
    """What a network reads, and what it should predict.

    Attributes:
        inputs: images as float32 [b, C, H, W], normalised; or words as int64 [T, B].
        labels: the class of each image, int64 [b]; or the word after each word, int64 [T * B].
        stream: the text that a batch is a part of; '' for images, which need no order.
        place: the number of the batch within its stream.
        starts: whether a network begins to read here, with a state of zeros.
        rate: what the learning rate is multiplied by: a short segment takes a short step.

    Examples:
        >>> import archloom, torch
        >>> len(archloom.Batch(torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 0, 1])))
        4
    """

    inputs: Tensor
    labels: Tensor
    stream: str = ""
    place: int = 0
    starts: bool = True
    rate: float = 1.0

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def images(self) -> Tensor:
        """Return the inputs of a batch of images."""
        return self.inputs

    def first(self, count: int) -> Batch:
        """Return the first examples alone: so many images, or so many words of every column's beginning."""
        if not self.stream:
            return replace(self, inputs=self.inputs[:count], labels=self.labels[:count])
        columns = self.inputs.shape[1]
        rows = max(1, min(count // columns, len(self.inputs)))
        return replace(self, inputs=self.inputs[:rows], labels=self.labels[: rows * columns])


class Batches(ABC):
    """Batches as a function of the epoch and the step."""

    @property
    @abstractmethod
    def batch_size(self) -> int:
        """Return the examples of a batch."""

    @property
    @abstractmethod
    def examples(self) -> int:
        """Return the examples of an epoch."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """Return the number of batches per epoch."""

    def steps_of(self, epoch: int) -> int:
        """Return the number of batches of an epoch, where it differs from epoch to epoch."""
        return self.steps

    def locate(self, position: int) -> tuple[int, int]:
        """Return the epoch of a batch and its step, given how many batches come before."""
        return divmod(position, self.steps)

    @abstractmethod
    def batch(self, epoch: int, step: int) -> Batch:
        """Return the batch of this step; the same whenever it is asked for."""

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Return the batches of an epoch from step `start` on."""
        return (self.batch(epoch, step) for step in range(start, self.steps_of(epoch)))


class Loader(Batches):
    """Normalised, augmented batches of the images at `indices`.

    Args:
        source: the images, such as `ImageData.train`.
        indices: the positions of the images to load.
        batch_size: images of a batch.
        mean: mean of each channel.
        std: standard deviation of each channel.
        augment: random changes of the images; None for none.
        seed: the seed of order and augmentation.
        shuffle: use another order in every epoch.
        drop_last: leave out a last batch that is smaller.
        device: where the batches are.
        channels_last: the memory layout of the images.
        workers: threads that load batches in advance; 0 for none.

    Raises:
        SettingError: a size or an index is out of range.

    Examples:
        >>> import archloom, torch
        >>> data = archloom.from_tensors(torch.rand(8, 3, 4, 4), torch.arange(8) % 2)
        >>> loader = archloom.Loader(
        ...     data.train, torch.arange(8), batch_size=4, mean=data.mean, std=data.std, augment=None, seed=0
        ... )
        >>> loader.steps, loader.batch(0, 1).images.shape
        (2, torch.Size([4, 3, 4, 4]))
    """

    def __init__(
        self,
        source: Source,
        indices: Tensor,
        *,
        batch_size: int,
        mean: Sequence[float],
        std: Sequence[float],
        augment: Augment | None,
        seed: int,
        shuffle: bool = True,
        drop_last: bool = True,
        device: torch.device = torch.device("cpu"),
        channels_last: bool = True,
        workers: int = 0,
    ) -> None:
        _check(source, indices, batch_size=batch_size, workers=workers)
        self.source = source
        self.indices = indices
        self._batch_size = min(batch_size, len(indices))
        self.augment = augment or Augment()
        self.seed = seed
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.device = device
        self.workers = workers
        self.channels_last = channels_last
        self._mean, self._std = (self._spread(values) for values in (mean, std))
        self._order: tuple[int, Tensor] | None = None  # the epoch last asked for, and its order of indices

    @property
    def batch_size(self) -> int:
        """Return the images of a batch."""
        return self._batch_size

    @property
    def examples(self) -> int:
        """Return the number of images."""
        return len(self.indices)

    @property
    def steps(self) -> int:
        """Return the number of batches per epoch."""
        whole, rest = divmod(len(self.indices), self.batch_size)
        return whole if self.drop_last or rest == 0 else whole + 1

    def batch(self, epoch: int, step: int) -> Batch:
        """Return the batch of this step; the same whenever it is asked for."""
        assert 0 <= step < self.steps, f"step {step} of {self.steps}"
        start = step * self.batch_size
        index = self._indices(epoch)[start : start + self.batch_size]
        pixels = self.source.pixels(index).to(self.device)  # while they are bytes, a quarter of the floats
        images = self.augment(pixels, self._normalize, self._generator("augment", epoch, step))
        labels = self.source.labels[index].to(self.device)
        return Batch(_to_channels_first(images, channels_last_in_memory=self.channels_last), labels)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Return the batches of an epoch from step `start` on, prepared ahead by `workers` threads if there are any."""
        steps = range(start, self.steps)
        # also for images in memory: where a core is free, a thread takes the wait out of the step
        if self.workers == 0:
            return (self.batch(epoch, step) for step in steps)
        return self._read_ahead(epoch, steps)

    def _read_ahead(self, epoch: int, steps: range) -> Iterator[Batch]:
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="archloom-loader", initializer=_compute_alone)
        waiting: deque[Future[Batch]] = deque()
        complete = False
        try:
            for step in steps:
                waiting.append(pool.submit(self.batch, epoch, step))
                if len(waiting) > AHEAD * self.workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
            complete = True
        finally:
            # without waiting if it is left early: the garbage collector may end this generator while a thread starts,
            # which a join would then wait for in vain
            pool.shutdown(wait=complete, cancel_futures=True)

    def _normalize(self, pixels: Tensor) -> Tensor:
        return to_units(pixels).sub_(self._mean).div_(self._std)

    def _spread(self, values: Sequence[float]) -> Tensor:
        """Return one value per channel as a whole image [H, W, C]: faster to read than a few values repeated."""
        channels = self.source.shape[0]
        height, width = self.augment.size(*self.source.shape[1:])
        each = torch.tensor(values, dtype=torch.float32, device=self.device)
        return each.expand(height, width, channels).contiguous()

    def _indices(self, epoch: int) -> Tensor:
        if not self.shuffle:
            return self.indices
        known = self._order  # read once: another thread may replace it
        if known is None or known[0] != epoch:
            order = torch.randperm(len(self.indices), generator=self._generator("order", epoch))
            known = self._order = (epoch, self.indices[order])
        return known[1]

    def _generator(self, purpose: str, *position: int) -> torch.Generator:
        """Return a generator for a purpose and position; sums of seeds would make neighbours share theirs."""
        key = " ".join([purpose, *map(str, (self.seed, *position))])
        digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


_SETTING_THREADS = threading.Lock()


def _compute_alone() -> None:
    """Make torch compute in this thread without helpers.

    By default every thread has as many helpers as the main thread, and the helpers of two threads that compute at the
    same time wait for each other: with as many as there are cores, a step of a search took twice as long.
    """
    with _SETTING_THREADS:  # a thread that starts in between would take the 1 for the usual number
        usual = torch.get_num_threads()
        torch.set_num_threads(1)
        restore = threading.Thread(target=torch.set_num_threads, args=(usual,))  # sets the number of later threads
        restore.start()
        restore.join()


def _to_channels_first(images: Tensor, *, channels_last_in_memory: bool) -> Tensor:
    """Permute images [b, H, W, C] to [b, C, H, W]."""
    arranged = images if channels_last_in_memory else images.permute(0, 3, 1, 2).contiguous()
    # a single channel may have any stride, yet convolutions tell the layout by it: give it the one it should have
    arranged = arranged.flatten().view(arranged.shape)
    return arranged.permute(0, 3, 1, 2) if channels_last_in_memory else arranged


def _check(source: Source, indices: Tensor, *, batch_size: int, workers: int) -> None:
    require(
        {
            f"batch_size must be at least 1, got {batch_size}": batch_size >= 1,
            f"workers must be 0 or more, got {workers}": workers >= 0,
        }
    )
    if len(indices) == 0:
        raise DataError("a loader needs at least one image, got none")
    lowest, highest = int(indices.min()), int(indices.max())
    if lowest < 0 or highest >= len(source):
        raise DataError(
            f"image indices must lie in 0..{len(source) - 1}, got {lowest if lowest < 0 else highest}; "
            "does the split belong to this data set?"
        )
