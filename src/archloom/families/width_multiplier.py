"""A multiplier of all widths of a network, as in MobileNet: one architecture at several sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, ClassVar

from annotated_doc import Doc

from archloom.core.settings import Settings
from archloom.families.base import Family, Size, Space
from archloom.spaces.mobile import rounded
from archloom.supernet import Width

Masked = Annotated[bool, Doc("compute all channels and put those too many to zero: slow, to compare with")]
WidthMultiplier = Annotated[float, Doc("every width times this, rounded to 8, as in MobileNet")]


def check_multiplier(multiplier: float) -> dict[str, bool]:
    """Return the rule of the setting."""
    return {f"network.width_multiplier must be above 0, got {multiplier}": multiplier > 0}


def scale_width(width: Width, multiplier: float) -> Width:
    """Return a width times a multiplier, rounded to 8; times 1 it is unchanged, since a width need not be such."""
    if multiplier == 1:
        return width
    return replace(width, sizes=tuple(rounded(size * multiplier) for size in width.sizes))


class FixedDepthFamily(Family[Space]):
    """A family in which every layer has decisions of its own: depth is fixed, widths can be scaled."""

    width_multipliers: ClassVar[Sequence[float]]  # from small to published

    def has_fixed_depth(self, space: Space) -> bool:
        return True

    def sizes_of(self, space: Space) -> Sequence[Size]:
        return [Size({}, {"width_multiplier": times}) for times in self.width_multipliers]

    def final_size(self, space: Space) -> Size:
        return Size({}, {"width_multiplier": 1.0})

    def describe_size(self, space: Space, settings: Settings) -> str:
        return f"widths times {settings['width_multiplier']:g}"
