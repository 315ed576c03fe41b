"""The place of a candidate operation: channels in and out, stride, and normalisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import nn

from archloom.core.errors import SettingError, suggestion


class Normalize(Protocol):
    """Make the normalisation after a convolution or pool; `scaled=False` never has a scale and shift to learn."""

    def __call__(self, channels: int, *, scaled: bool = True) -> nn.Module: ...


@dataclass(frozen=True)
class Place:
    """Hold what an operation must fit.

    Attributes:
        channels_in: channels of the input.
        channels_out: channels of the result.
        stride: 1, or 2 where the resolution halves.
        normalize: makes the normalisation for a number of channels.

    Examples:
        >>> import archloom
        >>> place = archloom.Place(8, 16, 2, archloom.EveryOption().normalize)
        >>> archloom.ReluConvNorm(place, kernel=3)[1].stride
        (2, 2)
    """

    channels_in: int
    channels_out: int
    stride: int
    normalize: Normalize


Make = Callable[[Place], nn.Module]


def make_operation(table: Mapping[str, Make], name: str, place: Place) -> nn.Module:
    """Return the named operation of a table, built for a place."""
    if name not in table:
        raise SettingError(f"unknown operation '{name}'{suggestion(name, table)}")
    return table[name](place)
