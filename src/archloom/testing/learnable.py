"""A search with a known answer that takes about a millisecond a step: four rows of pixels, one operation each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, ClassVar

import torch
from annotated_doc import Doc
from torch import Tensor, nn

from archloom.core.errors import ParseError
from archloom.data.arrays import from_tensors
from archloom.data.source import ImageData
from archloom.spaces import NONE, Architecture, CellGraph, Decision, SearchSpace
from archloom.supernet import Gates, Resolve

RIGHT = "learned"  # the right option of every decision
OPTIONS = (NONE, "shuffled", "faint", RIGHT)
FAINT = 0.5  # share of its own row in `faint`
PIXELS = 4  # of a row
SIGNAL = 0.8  # of a pixel, where its noise is 1: one row alone does not suffice
CLUTTER = 4.0  # beside the rows, whose mean has a standard deviation of 0.5
IMAGES = 3200  # with batches of 32 and halves to train and to validate, 50 steps an epoch


@dataclass(frozen=True, kw_only=True)
class LearnableSpace(SearchSpace):
    """One operation for each row of an image: `learned` is right, the others pass noise, little signal or nothing.

    Args:
        rows: rows of the image, each a decision.

    Examples:
        >>> from archloom.testing import LearnableSpace
        >>> LearnableSpace().cardinality
        256
    """

    rows: Annotated[int, Doc("rows of the image, each a decision")] = 4

    network: ClassVar[str] = "archloom.testing.learnable:LearnableNetwork"

    def full_decisions(self) -> tuple[Decision, ...]:
        """Return a decision for each row."""
        return tuple(Decision(f"row{row}", OPTIONS) for row in range(self.rows))

    def enumerate(self) -> Iterator[Architecture]:
        """Yield every architecture."""
        names = [decision.name for decision in self.decisions]
        for choice in itertools.product(*(decision.options for decision in self.decisions)):
            yield Architecture(dict(zip(names, choice, strict=True)))

    def parse(self, text: str) -> Architecture:
        """Read options joined by '+'."""
        options = text.strip().split("+")
        if len(options) != self.rows:
            raise ParseError(f"an architecture of this space has {self.rows} options joined by '+', got {text[:200]!r}")
        names = [decision.name for decision in self.decisions]
        return self.check(dict(zip(names, options, strict=True)))

    def format(self, architecture: Architecture) -> str:
        """Return the options joined by '+'."""
        return "+".join(architecture[decision.name] for decision in self.decisions)

    def graphs(self, architecture: Architecture) -> tuple[CellGraph, ...]:
        """Return one graph: every row goes to the sum by its operation."""
        options = [architecture[decision.name] for decision in self.decisions]
        edges = tuple((row, self.rows, option) for row, option in enumerate(options) if option != NONE)
        return (CellGraph("rows", tuple(f"row {row}" for row in range(self.rows)), self.rows + 1, edges, (self.rows,)),)


class LearnableNetwork(nn.Module):
    """An operation for each row, and a linear head that reads their sum with some clutter.

    Without clutter, weights could make up for an option of little probability, and every mixture would be as good.
    """

    def __init__(self, space: LearnableSpace, resolve: Resolve, classes: int, colours: int, /) -> None:
        super().__init__()
        self.choices = nn.ModuleList(resolve.operation(decision, make_option) for decision in space.decisions)
        self.head = nn.Linear(PIXELS, classes)

    def forward(self, images: Tensor, gates: Gates | None = None) -> Tensor:
        """Return the logits of the classes."""
        rows = images.mean(dim=1).unbind(dim=1)  # [images, pixels] each
        outputs = [choice(row, gates) for choice, row in zip(self.choices, rows, strict=True)]
        clutter = CLUTTER * torch.stack(rows).mean(dim=0).roll(2, dims=0)
        total = sum((output for output in outputs if output is not None), start=clutter)
        logits: Tensor = self.head(total)
        return logits


class Learned(nn.Module):
    """A linear map of the row, normalized as after a convolution: weights cannot make it louder."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(PIXELS, PIXELS, bias=False)

    def forward(self, row: Tensor) -> Tensor:
        """Return the mapped row with a mean square of 1."""
        mapped: Tensor = self.linear(row)
        return mapped * mapped.square().mean().clamp_min(1e-6).rsqrt()


class Shuffled(nn.Module):
    """Return the row of another image, and little of its own: noise that no weight can remove."""

    def __init__(self, own: float) -> None:
        super().__init__()
        self._own = own

    def forward(self, row: Tensor) -> Tensor:
        """Return rows in another order."""
        return self._own * row + row.roll(1, dims=0)


def make_option(option: str) -> nn.Module:
    """Return the module of an option other than `none`."""
    if option == RIGHT:
        return Learned()
    return Shuffled({"shuffled": 0.0, "faint": FAINT}[option])


@cache
def make_learnable_data() -> ImageData:
    """Return images of two classes: every row is a pattern of its own, in one sign or the other, under noise.

    The patterns of the rows differ, so that a row must be transformed before the rows can be summed.

    Returns:
        The images, the same at every call.

    Examples:
        >>> from archloom.testing import make_learnable_data
        >>> data = make_learnable_data()
        >>> len(data.train), data.resolution
        (3200, (4, 4))
    """
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(IMAGES) % 2
    signs = (2.0 * labels - 1).view(-1, 1, 1, 1)
    patterns = torch.tensor([[1.0, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])
    noise = torch.randn(IMAGES, 1, 4, PIXELS, generator=generator)
    return from_tensors(SIGNAL / 2 * signs * patterns + noise, labels)
