"""Transfer an architecture to other images: adapt the network around it, and list what changed.

A cell found on one data set is often trained on another. The cell stays; classes, images, width, depth and stem may
change, and accuracies must be compared with that in mind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from archloom.core.errors import SettingError
from archloom.core.settings import Settings, read_toml, schema
from archloom.data import DATA, FACTS
from archloom.data.places import GIVEN
from archloom.data.source import ImageData
from archloom.families import family_of
from archloom.retrainings.build import cost_of_model, shown_shape
from archloom.retrainings.spec import RetrainSpec
from archloom.searches.architectures import FoundArchitecture
from archloom.spaces import SearchSpace

SOME_WIDTHS = (8, 16, 32)
LARGE = 96  # pixels from which images need a stem that shrinks them


@dataclass(frozen=True)
class Origin:
    """The search that found an architecture; nothing but the space where it is only a text."""

    space: SearchSpace
    data: Settings = field(default_factory=dict)  # its name, folder and own settings
    network: Settings = field(default_factory=dict)
    classes: int | None = None
    image_shape: tuple[int, ...] | None = None


def find_origin(given: str, found: FoundArchitecture) -> Origin:
    """Read what the run of an architecture says of its data and network."""
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
        data=_select_source(name, data),
        network=config.get("network", {}),
        classes=len(classes) if classes else facts.classes if facts else None,
        image_shape=tuple(shape) if shape else facts.image_shape if facts else None,
    )


def _select_source(name: str, data: Settings) -> Settings:
    """Return the settings that say which images, not how a search split them."""
    if name in ("", GIVEN):
        return {}
    known = ("name", "directory", *schema(DATA.find(name).load()))
    return {key: value for key, value in data.items() if key in known}


# --- settings that follow from the images


def adapt_network(given: Settings, retrain: RetrainSpec, data: ImageData) -> tuple[Settings, list[str]]:
    """Return the network settings that suit the images, unless they were given, and a sentence on each."""
    overrides = given.get("network", {})
    network, notes = _adapt_stem(overrides, retrain, min(shown_shape(data)[1:]))
    limit = retrain.training.multiply_adds_limit
    if not limit or "channels" in overrides:
        return network, notes
    if "channels" not in retrain.network.settings:
        family = family_of(retrain.build_space())
        raise SettingError(
            f"training.multiply_adds_limit must be 0 for the family '{family.name}', whose network has no setting "
            f"'channels' to be widened, got {limit}"
        )
    width, count = find_widest(retrain, data, limit, **network)
    note = f"width: {width} channels, {count / 1e6:.0f} M multiply-adds: the widest network of at most "
    return {**network, "channels": width}, [*notes, f"{note}{limit / 1e6:.0f} M"]


def _adapt_stem(overrides: Settings, retrain: RetrainSpec, side: int) -> tuple[Settings, list[str]]:
    if side < LARGE:
        return {}, []
    space = retrain.build_space()
    stem = family_of(space).stem_for(space, side)
    if stem is None:
        times = (side / 32) ** 2
        return {}, [
            f"stem: made for 32 pixels; images have {side}, and a step costs about {times:.0f} times as much; "
            "a smaller data.size is faster"
        ]
    before = retrain.network.settings
    changes = {name: value for name, value in stem.items() if name not in overrides and before[name] != value}
    return changes, [f"{name}: {before[name]} -> {to}, since images have {side} pixels" for name, to in changes.items()]


def find_widest(retrain: RetrainSpec, data: ImageData, limit: int, **network: Any) -> tuple[int, int]:
    """Return the largest even number of channels within a limit of multiply-adds, and how many its network has."""

    @cache
    def count(channels: int) -> int:
        return cost_of_model(retrain, data, channels=channels, **network).multiply_adds

    # the count is a polynomial of the second degree in the width: three widths show where the limit lies
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


def list_differences(origin: Origin, retrain: RetrainSpec, data: ImageData) -> Iterator[str]:
    """Yield what differs from the search that found the architecture, a sentence each."""
    if origin.data and origin.data.get("name") != retrain.data_set.name:
        yield f"data: {origin.data['name']} -> {retrain.data_set.name}"
    if origin.classes is not None and origin.classes != len(data.classes):
        yield f"classes: {origin.classes} -> {len(data.classes)}"
    shape = shown_shape(data)
    if origin.image_shape is not None and origin.image_shape != shape:
        yield f"images: {_write_shape(origin.image_shape)} -> {_write_shape(shape)}"
    sizes = [*_list_widths(origin, retrain), *_list_depths(origin, retrain)]
    if sizes:
        yield ", ".join(sizes)


def _list_widths(origin: Origin, retrain: RetrainSpec) -> Iterator[str]:
    for setting, name in (("channels", "width"), ("width_multiplier", "width multiplier")):
        before, after = origin.network.get(setting), retrain.network.settings.get(setting)
        if before is not None and before != after:
            yield f"{name} {before} -> {after}"


def _list_depths(origin: Origin, retrain: RetrainSpec) -> Iterator[str]:
    space = retrain.build_space()
    before, after = family_of(origin.space).depth_of(origin.space), family_of(space).depth_of(space)
    if origin.network and before and after and before != after:
        yield f"{before.unit} {before.count} -> {after.count}"


def _write_shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
