from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from archloom.core.errors import DataError, SettingError
from archloom.data.augment import Augment
from archloom.data.loader import Batch, Loader
from archloom.data.source import InMemory, Source

COUNT = 23


class Numbered(Source):
    """Image i is filled with the number i and labelled i."""

    def __init__(self, count: int = COUNT) -> None:
        self.images = torch.arange(count).float().view(-1, 1, 1, 1).expand(count, 2, 4, 4).contiguous()
        self.labels = torch.arange(count)
        self.shape = (2, 4, 4)

    def fetch(self, index: Tensor) -> Tensor:
        return self.images[index]


def make(**changes: Any) -> Loader:
    settings: dict[str, Any] = {
        "batch_size": 5,
        "mean": (0.0, 0.0),
        "std": (1.0, 1.0),
        "augment": None,
        "seed": 0,
    }
    return Loader(Numbered(), torch.arange(COUNT), **{**settings, **changes})


def same(first: Batch, second: Batch) -> bool:
    return torch.equal(first.images, second.images) and torch.equal(first.labels, second.labels)


def seen(loader: Loader, epoch: int) -> list[int]:
    return [label for batch in loader.epoch(epoch) for label in batch.labels.tolist()]


def test_images_go_with_their_labels() -> None:
    for batch in make().epoch(0):
        assert torch.equal(batch.images[:, 0, 0, 0].long(), batch.labels)
        assert len(batch) == 5


def test_an_epoch_shows_every_image_at_most_once() -> None:
    assert sorted(seen(make(drop_last=False), 0)) == list(range(COUNT))
    assert len(set(seen(make(), 0))) == 20


def test_only_the_given_indices_are_used() -> None:
    loader = Loader(Numbered(), torch.tensor([3, 8, 11]), batch_size=1, mean=(0.0,), std=(1.0,), augment=None, seed=0)
    assert sorted(seen(loader, 0)) == [3, 8, 11]


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = [seen(make(seed=seed), epoch) for seed in range(3) for epoch in range(3)]
    assert len({tuple(order) for order in orders}) == 9


def test_without_shuffle_the_order_is_given() -> None:
    loader = make(shuffle=False, drop_last=False)
    assert seen(loader, 0) == seen(loader, 7) == list(range(COUNT))


@pytest.mark.parametrize(
    ("batch_size", "drop_last", "steps"), [(5, True, 4), (5, False, 5), (23, True, 1), (23, False, 1), (100, True, 1)]
)
def test_steps_count_the_batches(batch_size: int, drop_last: bool, steps: int) -> None:
    loader = make(batch_size=batch_size, drop_last=drop_last)
    assert loader.steps == steps == len(list(loader.epoch(0)))


def test_fewer_images_than_a_batch_make_one_batch_of_all() -> None:
    assert len(make(batch_size=100).batch(0, 0)) == COUNT


def test_a_batch_is_a_pure_function_of_its_position() -> None:
    augment = Augment(crop_padding=1, flip=True, cutout=1)
    asked = make(augment=augment)
    asked.batch(3, 1)
    asked.batch(0, 2)
    fresh = make(augment=augment)
    torch.manual_seed(99)  # the global seed plays no part
    assert same(asked.batch(1, 3), fresh.batch(1, 3))
    assert same(asked.batch(1, 3), list(fresh.epoch(1))[3])


def test_augmentation_differs_between_steps_and_epochs() -> None:
    source = InMemory(torch.arange(1.0, 65).view(1, 1, 8, 8).expand(8, 1, 8, 8), torch.zeros(8).long())
    settings: dict[str, Any] = {"batch_size": 4, "mean": (0.0,), "std": (1.0,), "seed": 0}
    loader = Loader(source, torch.arange(8), augment=Augment(crop_padding=4), **settings)
    positions = [(epoch, step) for epoch in range(3) for step in range(2)]
    pictures = {tuple(loader.batch(*position).images.flatten().tolist()) for position in positions}
    assert len(pictures) == len(positions)


def test_an_epoch_can_start_in_the_middle() -> None:
    loader = make()
    whole = list(loader.epoch(2))
    assert all(same(a, b) for a, b in zip(whole[3:], loader.epoch(2, start=3), strict=True))
    assert list(loader.epoch(2, start=loader.steps)) == []


@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_gives_the_same_batches(workers: int) -> None:
    augment = Augment(crop_padding=2, flip=True)
    plain, ahead = make(augment=augment), make(augment=augment, workers=workers)
    for epoch, start in ((0, 0), (1, 2)):
        assert all(same(a, b) for a, b in zip(plain.epoch(epoch, start), ahead.epoch(epoch, start), strict=True))


def test_torch_computes_alone_in_a_thread_that_reads_ahead_and_nowhere_else() -> None:
    class Watched(Numbered):
        def fetch(self, index: Tensor) -> Tensor:
            threads.append(torch.get_num_threads())
            return super().fetch(index)

    threads: list[int] = []
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        loader = Loader(Watched(), torch.arange(4), batch_size=2, mean=(0.0,), std=(1.0,), augment=None, seed=0)
        list(loader.epoch(0))
        loader.workers = 2
        list(loader.epoch(0))
        assert threads == [3, 3, 1, 1]
        assert torch.get_num_threads() == 3
        another = threading.Thread(target=lambda: threads.append(torch.get_num_threads()))
        another.start()
        another.join()
        assert threads[-1] == 3
    finally:
        torch.set_num_threads(before)


def test_an_epoch_left_early_reads_no_further() -> None:
    source = Numbered(1000)
    loader = Loader(source, torch.arange(1000), batch_size=1, mean=(0.0,), std=(1.0,), augment=None, seed=0, workers=2)
    reads: list[Tensor] = []
    fetch = source.fetch
    source.fetch = lambda index: (reads.append(index), fetch(index))[1]  # type: ignore[method-assign]
    batches = loader.epoch(0)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert 1 <= len(reads) <= 10


def test_an_epoch_left_early_waits_for_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    loader, release, begun = make(workers=1), threading.Event(), threading.Event()
    batch = loader.batch

    def block(epoch: int, step: int) -> Batch:
        if step > 0:
            begun.set()
            release.wait()
        return batch(epoch, step)

    monkeypatch.setattr(loader, "batch", block)
    batches = loader.epoch(0)
    try:
        next(batches)
        begun.wait()
        leaving = threading.Thread(target=batches.close, daemon=True)  # type: ignore[attr-defined]
        leaving.start()
        leaving.join(timeout=60)
        assert not leaving.is_alive()
    finally:
        release.set()


def test_an_error_in_a_worker_reaches_the_caller() -> None:
    class Broken(Numbered):
        def fetch(self, index: Tensor) -> Tensor:
            raise DataError("cannot read the image 'a.png'")

    loader = Loader(Broken(), torch.arange(4), batch_size=2, mean=(0.0,), std=(1.0,), augment=None, seed=0, workers=2)
    with pytest.raises(DataError, match=r"a\.png"):
        list(loader.epoch(0))


def test_bytes_are_scaled_and_normalised_per_channel() -> None:
    images = torch.tensor([0, 255], dtype=torch.uint8).view(1, 2, 1, 1)
    source = InMemory(images, torch.tensor([0]))
    loader = Loader(source, torch.arange(1), batch_size=1, mean=(0.5, 0.2), std=(0.5, 0.4), augment=None, seed=0)
    assert loader.batch(0, 0).images.flatten().tolist() == pytest.approx([-1.0, 2.0])


def color_images(count: int = 12, channels: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randint(256, (count, channels, 6, 7), generator=generator, dtype=torch.uint8)


class Plain(Source):
    """Images laid out as they were given."""

    def __init__(self, images: Tensor) -> None:
        self.images, self.labels = images, torch.arange(len(images))
        self.shape = (images.shape[1], images.shape[2], images.shape[3])

    def fetch(self, index: Tensor) -> Tensor:
        return self.images[index]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("channels", [1, 3])
def test_layout_and_source_change_memory_but_no_value(dtype: torch.dtype, channels_last: bool, channels: int) -> None:
    stored = color_images(channels=channels)
    images = stored if dtype == torch.uint8 else stored.to(dtype) / 255
    mean, std = torch.linspace(0.3, 0.5, channels), torch.linspace(0.2, 0.3, channels)
    plain = (images.float() / (255 if dtype == torch.uint8 else 1) - mean[:, None, None]) / std[:, None, None]
    augment = Augment(crop_padding=2, flip=True, cutout=3)
    settings: dict[str, Any] = {"batch_size": 4, "mean": mean.tolist(), "std": std.tolist(), "seed": 0}
    batches = []
    for source in (InMemory(images, torch.arange(12)), Plain(images)):
        still = Loader(source, torch.arange(12), augment=None, channels_last=channels_last, **settings).batch(0, 1)
        assert torch.equal(still.images, plain[still.labels])
        moved = Loader(source, torch.arange(12), augment=augment, channels_last=channels_last, **settings).batch(0, 1)
        batches += [moved.images]
        for made in (still.images, moved.images):
            assert made.dtype == torch.float32
            # told by strides, since with a single channel both layouts are the same memory
            assert made.stride() == (
                (42 * channels, 1, 7 * channels, channels) if channels_last else (42 * channels, 42, 7, 1)
            )
    other = Loader(Plain(images), torch.arange(12), augment=augment, channels_last=not channels_last, **settings)
    assert torch.equal(batches[0], batches[1])
    assert torch.equal(batches[0], other.batch(0, 1).images)
    assert not torch.equal(batches[0], plain[still.labels])


def test_padding_and_holes_hold_the_mean() -> None:
    """White images, so that normalised pixels are 2 and whatever is not image is 0."""
    source = InMemory(torch.full((64, 1, 8, 8), 255, dtype=torch.uint8), torch.arange(64))
    settings: dict[str, Any] = {"batch_size": 64, "mean": (0.5,), "std": (0.25,), "seed": 0}
    for augment in (Augment(crop_padding=4), Augment(cutout=4)):
        images = Loader(source, torch.arange(64), augment=augment, **settings).batch(0, 0).images
        assert set(images.flatten().tolist()) == {0.0, 2.0}


def test_batches_are_on_the_device_asked_for() -> None:
    augment = Augment(crop_padding=1, flip=True, cutout=2)
    batch = make(device=torch.device("meta"), augment=augment).batch(0, 0)
    assert batch.images.device.type == batch.labels.device.type == "meta"


@pytest.mark.parametrize("augment", [None, Augment(crop_padding=1), Augment(flip=True), Augment(cutout=2)])
def test_the_source_keeps_its_images(augment: Augment | None) -> None:
    class OwnMemory(Numbered):
        def pixels(self, index: Tensor) -> Tensor:
            return self.images.permute(0, 2, 3, 1)

    source = OwnMemory()
    source.images = source.images.contiguous(memory_format=torch.channels_last)
    loader = Loader(
        source, torch.arange(COUNT), batch_size=COUNT, mean=(1.0, 1.0), std=(2.0, 2.0), augment=augment, seed=0
    )
    assert not torch.equal(loader.batch(0, 0).images, source.images)
    assert torch.equal(source.images, Numbered().images)


def test_a_step_past_the_end_is_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError, match="step 4 of 4"):
        make().batch(0, 4)


def test_bad_settings_are_named_at_once() -> None:
    with pytest.raises(SettingError) as caught:
        make(batch_size=0, workers=-1)
    assert caught.value.problems == ("batch_size must be at least 1, got 0", "workers must be 0 or more, got -1")


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([], "at least one image"),
        ([0, 23], r"must lie in 0\.\.22, got 23; does the split belong"),
        ([-1, 2], r"must lie in 0\.\.22, got -1"),
    ],
)
def test_indices_must_belong_to_the_source(indices: list[int], message: str) -> None:
    index = torch.tensor(indices, dtype=torch.int64)
    with pytest.raises(DataError, match=message):
        Loader(Numbered(), index, batch_size=1, mean=(0.0,), std=(1.0,), augment=None, seed=0)


def test_an_augmentation_that_changes_the_size_is_normalised_at_the_new_one() -> None:
    source = InMemory(torch.full((4, 3, 8, 8), 128, dtype=torch.uint8), torch.arange(4))
    for augment, side in ((Augment(resized_crop=5), 5), (Augment(centre_crop=6), 6)):
        loader = Loader(source, torch.arange(4), batch_size=4, mean=[0.5] * 3, std=[0.25] * 3, augment=augment, seed=0)
        images = loader.batch(0, 0).images
        assert images.shape == (4, 3, side, side)
        assert torch.allclose(images, torch.full_like(images, (128 / 255 - 0.5) / 0.25), atol=1e-5)
