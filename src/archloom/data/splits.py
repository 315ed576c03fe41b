"""Split the training images: one part trains the weights, the other evaluates architectures."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from archloom.core.errors import DataError, SettingError


@dataclass(frozen=True, eq=False)
class Split:
    """Two parts of the training images, as int64 indices; no image is in both."""

    train: Tensor
    valid: Tensor


def random_split(count: int, *, train_fraction: float = 0.5, seed: int) -> Split:
    """Return all of `count` images in an order drawn from `seed`, the first part to train on."""
    if not 0 < train_fraction < 1:
        raise SettingError(f"train_fraction must lie in (0, 1), got {train_fraction}")
    size = round(count * train_fraction)
    if not 0 < size < count:
        raise SettingError(f"train_fraction {train_fraction} of {count} images leaves a part of the split empty")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return Split(order[:size], order[size:])


def nb201_split(path: Path) -> Split:
    """Return the split of CIFAR-10 that NAS-Bench-201 publishes as `cifar-split.txt`, which its table uses."""
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read the split '{path}': {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"the split '{path}' must be JSON: {error}") from error
    train, valid = (_read_indices(content, part, path) for part in ("train", "valid"))
    if len({*train.tolist(), *valid.tolist()}) != len(train) + len(valid):
        raise DataError(f"the split '{path}' must list every image once")
    return Split(train, valid)


def _read_indices(content: Any, part: str, path: Path) -> Tensor:
    """Return the indices under one key: `["int", ["0", "5", ...]]`."""
    try:
        kind, texts = content[part]
        indices = [int(text) for text in texts]
        if kind != "int" or not indices or min(indices) < 0:
            raise ValueError(kind)
        return torch.tensor(indices, dtype=torch.int64)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(f'the split \'{path}\' must hold "{part}": ["int", ["0", "5", ...]]') from error


def limit_split(split: Split, *, train: int | None, valid: int | None) -> Split:
    """Return the first so many images of each part; None keeps all."""
    return Split(_first(split.train, train, "training"), _first(split.valid, valid, "validation"))


def _first(indices: Tensor, count: int | None, part: str) -> Tensor:
    if count is None:
        return indices
    if not 0 < count <= len(indices):
        raise SettingError(f"the number of {part} images must lie in 1..{len(indices)}, got {count}")
    return indices[:count]


def hold_out(labels: Tensor, *, fraction: float) -> tuple[Tensor, Tensor]:
    """Return indices to keep and to hold out as a test: the last `fraction` of every class, always the same ones."""
    if not 0 <= fraction < 1:
        raise SettingError(f"data.test_fraction must lie in [0, 1), got {fraction}")
    held = torch.zeros(len(labels), dtype=torch.bool)
    for label in set(labels.tolist()):
        members = (labels == label).nonzero().flatten()
        held[members[len(members) - int(len(members) * fraction) :]] = True
    return (~held).nonzero().flatten(), held.nonzero().flatten()
