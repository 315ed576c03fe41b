"""A search with a known answer: each of three decisions must pass on its own image, not another image of the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from archloom.spaces import Nb201

GOOD, BAD = "own_image", "other_image"


@dataclass(frozen=True, kw_only=True)
class ToySpace(Nb201):
    """Three decisions between an option that keeps the label and one that does not."""

    nodes: int = 3
    operations: tuple[str, ...] = (BAD, GOOD)
    network: ClassVar[str] = "toy:ToyNetwork"


class OtherImage(nn.Module):
    """Return the previous image of the batch: useless, and too bright for two other decisions to outvote."""

    def forward(self, x: Tensor) -> Tensor:
        return 2.2 * x.roll(1, dims=0)


class ToyNetwork(nn.Module):
    """Every decision reads the pixels; a linear head reads the sum."""

    def __init__(self, space, resolve, classes: int, colours: int, /) -> None:
        super().__init__()
        modules = {GOOD: nn.Identity, BAD: OtherImage}
        self.choices = nn.ModuleList(resolve.operation(d, lambda option: modules[option]()) for d in space.decisions)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(colours * 16, classes))

    def forward(self, images: Tensor, gates=None) -> Tensor:
        total = sum(choice(images, gates) for choice in self.choices)
        return self.head(total)


def toy_images(count: int = 1024) -> tuple[Tensor, Tensor]:
    """4x4 images of two classes, bright in one half or in the other."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 2
    images = 0.3 * torch.randn(count, 1, 4, 4, generator=generator)
    images[labels == 0, :, :2] += 1.0
    images[labels == 1, :, 2:] += 1.0
    return images, labels
