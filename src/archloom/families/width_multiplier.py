"""A multiplier of all widths of a network, as in MobileNet: one architecture at several sizes."""

from __future__ import annotations

from dataclasses import replace

from archloom.spaces.mobile import rounded
from archloom.supernet import Width


def check_multiplier(multiplier: float) -> dict[str, bool]:
    """Return the rule of the setting."""
    return {f"network.width_multiplier must be above 0, got {multiplier}": multiplier > 0}


def scale_width(width: Width, multiplier: float) -> Width:
    """Return a width times a multiplier, rounded to 8; times 1 it is unchanged, since a width need not be such."""
    if multiplier == 1:
        return width
    return replace(width, sizes=tuple(rounded(size * multiplier) for size in width.sizes))
