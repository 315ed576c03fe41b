"""Where an architecture comes from, and what is other where it is trained: classes, images, width, depth, stem.

A cell found on one data set is often meant for another. Nothing of it changes, but what is around it does, and whoever
compares accuracies must know that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from archloom.core.errors import SettingError
from archloom.core.settings import read_toml, schema
from archloom.data import DATA, FACTS
from archloom.data.source import ImageData
from archloom.families import family_of
from archloom.retrainings.build import cost_of_model, shown_shape
from archloom.retrainings.spec import RetrainSpec
from archloom.searches.architectures import Found
from archloom.searches.spec import GIVEN
from archloom.spaces import SearchSpace

SOME_WIDTHS = (8, 16, 32)
LARGE = 96  # pixels from which images get the stem that divides their resolution by eight


@dataclass(frozen=True)
class Origin:
    """What the run says that an architecture comes from; nothing where it is only a text."""

    space: SearchSpace
    data: Mapping[str, Any] = field(default_factory=dict)  # its name, folder and own settings
    network: Mapping[str, Any] = field(default_factory=dict)
    classes: int | None = None
    image_shape: tuple[int, ...] | None = None


def origin_of(given: str, found: Found) -> Origin:
    folder = Path(given) if found.content and not given.lstrip().startswith("{") else None
    config_path = folder and (folder if folder.is_dir() else folder.parent) / "config.toml"
    if config_path is None or not config_path.is_file():
        return Origin(found.space)
    config = read_toml(config_path)
    data, name = config.get("data", {}), str(config.get("data", {}).get("name", ""))
    facts = FACTS.get(name)
    classes, shape = found.content.get("classes"), found.content.get("image_shape")
    return Origin(
        found.space,
        data=_own(name, data),
        network=config.get("network", {}),
        classes=len(classes) if classes else facts.classes if facts else None,
        image_shape=tuple(shape) if shape else facts.image_shape if facts else None,
    )


def _own(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """What says which images: not how a search split them."""
    if name in ("", GIVEN):
        return {}
    known = ("name", "directory", *schema(DATA.find(name).load()))
    return {key: value for key, value in data.items() if key in known}


# --- what follows from the images


def adapted(given: Mapping[str, Any], retrain: RetrainSpec, data: ImageData) -> tuple[dict[str, Any], list[str]]:
    """Settings of the network that the images ask for, where nobody said otherwise, and a sentence on each."""
    said, notes = given.get("network", {}), []
    network: dict[str, Any] = {}
    side, known = min(shown_shape(data)[1:]), retrain.settings["network"]
    if side >= LARGE and "stem" in known and "stem" not in said:
        network["stem"] = "imagenet"
        notes.append(f"stem: cifar -> imagenet, since images have {side} pixels")
    elif side >= LARGE and "stem" not in known:
        notes.append(
            f"stem: as for 32 pixels; images have {side}, so that a step costs about {(side / 32) ** 2:.0f} times as "
            "much (a smaller data.size is quicker)"
        )
    limit = retrain.training.multiply_adds_limit
    if limit and "channels" not in said:
        width, count = widest(retrain, data, limit, **network)
        network["channels"] = width
        notes.append(
            f"width: {width} channels, {count / 1e6:.0f} M multiply-adds: the widest network of at most "
            f"{limit / 1e6:.0f} M"
        )
    return network, notes


def widest(retrain: RetrainSpec, data: ImageData, limit: int, **network: Any) -> tuple[int, int]:
    """The largest even number of channels whose network has at most so many multiply-adds, and how many it has."""

    @cache
    def count(channels: int) -> int:
        return cost_of_model(retrain, data, channels=channels, **network).multiply_adds

    # the count is a polynomial of the second degree in the width, so that three widths tell where the limit lies
    parabola = np.polyfit(SOME_WIDTHS, [count(width) for width in SOME_WIDTHS], 2) - [0, 0, limit]
    width = max(2, 2 * int(max(np.roots(parabola).real) / 2))
    while width > 2 and count(width) > limit:
        width -= 2
    while count(width + 2) <= limit:
        width += 2
    if count(width) > limit:
        raise SettingError(
            f"training.multiply_adds_limit must be at least {count(width)}, what the narrowest network has, got {limit}"
        )
    return width, count(width)


# --- in words


def differences(origin: Origin, retrain: RetrainSpec, data: ImageData) -> Iterator[str]:
    """What is other than in the run that found the architecture, a sentence each."""
    if origin.data and origin.data.get("name") != retrain.names["data"]:
        yield f"data: {origin.data['name']} -> {retrain.names['data']}"
    if origin.classes is not None and origin.classes != len(data.classes):
        yield f"classes: {origin.classes} -> {len(data.classes)}"
    shape = shown_shape(data)
    if origin.image_shape is not None and origin.image_shape != shape:
        yield f"images: {_times(origin.image_shape)} -> {_times(shape)}"
    before, after = origin.network.get("channels"), retrain.settings["network"].get("channels")
    sizes = [f"width {before} -> {after}"] if before is not None and before != after else []
    depths = depth_of(origin.space), depth_of(retrain.build_space())
    sizes += [f"{depths[0][1]} {depths[0][0]} -> {depths[1][0]}"] if origin.network and depths[0] != depths[1] else []
    if sizes:
        yield ", ".join(sizes)


def depth_of(space: SearchSpace) -> tuple[int, str]:
    """How deep a network of this space is, and in what."""
    depth = family_of(space).depth_of(space)
    return (depth.count, depth.unit) if depth else (0, "cells")


def _times(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
