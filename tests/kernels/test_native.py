"""Compiled kernels against what `kernels.base` says in double precision; and what happens where there are none."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from archloom.errors import SettingError
from archloom.kernels.base import Geometry, Kernels, Slot, Term
from archloom.kernels.native import NativeKernels, levels, load, loader

LEVELS = levels()
NONE_BUILT = "no compiled kernels here: they are built when the package is installed where there is a C++ compiler"
EXACT = Kernels()

SIZES = [(1, 1, 1), (3, 1, 1), (1, 5, 7), (3, 8, 8), (2, 9, 9)]  # batch, height, width
CHANNELS = [1, 3, 4, 8, 12, 16, 20, 32, 36, 48]
SHAPES = [(*size, channels) for size in SIZES for channels in CHANNELS]
LARGE = (8, 33, 32, 16)  # enough work to be shared out
Shape = tuple[int, int, int, int]

native = pytest.mark.parametrize(
    "level", LEVELS or [pytest.param("none", marks=pytest.mark.skip(reason=NONE_BUILT))], ids=str
)
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1)


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def kernels_of(level: str) -> NativeKernels:
    found = load(level)
    assert found is not None
    return found


class Recorder(NativeKernels):
    """Fails where torch would do the work."""

    def __init__(self, level: str) -> None:
        kernels = kernels_of(level)
        super().__init__(level, kernels._functions)


def image(shape: Sequence[int], *, sliced: bool = False, mean: float = 0.0) -> Tensor:
    """Random pixels; `sliced`: as some channels of a wider image."""
    *size, channels = shape
    wide = torch.randn(*size, channels + 5) + mean if sliced else torch.randn(*size, channels) + mean
    return wide[..., 2 : 2 + channels] if sliced else wide


def slot(shape: Sequence[int], *, sliced: bool = False, filled: bool = False) -> Slot:
    """What must not be read is not a number."""
    place = image(shape, sliced=sliced)
    return Slot(place if filled else place.fill_(torch.nan), filled)


def doubled(value: Slot | None) -> Slot | None:
    return None if value is None else Slot(None if value.image is None else value.image.double(), value.filled)


def agree(found: Tensor | None, exact: Tensor | None, *, tolerance: float = 5e-6, size: float = 0.0) -> None:
    """Equal up to rounding of numbers as large as the result, or as the `size` of what it is a difference of."""
    assert found is not None
    assert exact is not None
    assert found.dtype is torch.float32
    assert found.shape == exact.shape
    torch.testing.assert_close(
        found.double(), exact, rtol=0.0, atol=tolerance * max(float(exact.abs().max()), size, 1e-3), check_stride=False
    )


@pytest.fixture(autouse=True)
def _no_fallback(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a test is about compiled kernels, torch must not do their work behind its back."""
    if "falls_back" in request.keywords or "level" not in request.fixturenames:
        return

    def refuse(name: str, plain: Callable[..., object], self: Kernels, *args: object, **kwargs: object) -> object:
        assert not isinstance(self, NativeKernels), f"{name} was left to torch"
        return plain(self, *args, **kwargs)

    for name in [name for name in vars(Kernels) if callable(getattr(Kernels, name)) and not name.startswith("_")]:
        plain = getattr(Kernels, name)
        method = partial(refuse, name, plain)
        monkeypatch.setattr(Kernels, name, lambda self, *args, method=method, **kw: method(self, *args, **kw))
