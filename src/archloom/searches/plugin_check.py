"""Find the mistakes of a space and a network of one's own before anything is trained, one clear line each.

Only plug-ins are checked: the spaces of the package have tests. `archloom check plugin` runs more, and takes longer.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from archloom.core.errors import ArchloomError, SettingError, excerpt, one_line
from archloom.core.settings import Settings
from archloom.data import Facts
from archloom.families import build_network, family_of
from archloom.spaces import SPACES, Architecture, Decision, SearchSpace
from archloom.supernet import EveryOption, path_gates

SAMPLES = 20
BATCH = 4
Value = TypeVar("Value")


def is_plugin(name: str) -> bool:
    """Return whether a space is not of this package."""
    return name not in SPACES


def check_space(name: str, space: SearchSpace) -> None:
    """Raise a SettingError for the first mistake of a space: decisions, samples, text forms, graphs, network."""
    decisions = _call(name, "full_decisions()", space.full_decisions)
    wrong = [one for one in decisions if not isinstance(one, Decision)]
    if not decisions or wrong:
        got = f"got {one_line(repr(wrong[0]))}" if wrong else "got none"
        raise SettingError(f"space '{name}': full_decisions() must return a tuple of Decision, {got}")
    rng = random.Random(0)
    for _ in range(SAMPLES):
        _check_architecture(name, space, _call(name, "sample()", lambda: space.sample(rng)))
    check_signature(name, space)


def _check_architecture(name: str, space: SearchSpace, architecture: Architecture) -> None:
    """Raise a SettingError if an architecture cannot be written, read back and drawn."""
    text = _call(name, "format()", lambda: space.format(architecture))
    if not isinstance(text, str):
        raise SettingError(f"space '{name}': format() must return text, got {one_line(repr(text))}")
    read = _call(name, f"parse({excerpt(text)!r})", lambda: space.parse(text))
    if read != architecture:
        different = next((one for one in architecture if _get(read, one) != architecture[one]), "")
        raise SettingError(
            f"space '{name}': parse() must return what format() wrote; of {excerpt(text)!r} it returns "
            f"{different} = {_get(read, different)!r}, expected {architecture.get(different)!r}"
        )
    _call(name, "graphs()", lambda: tuple(space.graphs(architecture)))


def _get(read: Any, decision: str) -> object:
    return read.get(decision) if hasattr(read, "get") else read


def check_signature(name: str, space: SearchSpace) -> None:
    """Raise a SettingError if the network of a space cannot be called with images and gates."""
    network = family_of(space).network
    if not isinstance(network, type) or not issubclass(network, nn.Module):
        return  # a function: its network is known when it is built
    taken = inspect.signature(network.forward).parameters.values()
    is_open = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in taken)
    places = [one for one in taken if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if not is_open and len(places) < 3:  # self, images, gates
        listed = ", ".join(parameter.name for parameter in places)
        raise SettingError(
            f"space '{name}': {network.__name__}.forward must take (self, images, gates=None), got ({listed})"
        )


def check_network(name: str, space: SearchSpace, facts: Facts, settings: Settings) -> None:
    """Raise a SettingError if paths through the network fail on images of the data, or give other shapes than logits.

    Shapes are computed without memory.
    """
    channels, height, width = facts.image_shape
    rng = random.Random(0)
    with torch.device("meta"):
        network = build_network(space, EveryOption(), classes=facts.classes, colours=channels, **settings)
        for _ in range(SAMPLES):
            architecture = space.sample(rng)
            images = torch.empty(BATCH, channels, height, width)
            what = f"its network on images {list(images.shape)}, for {excerpt(space.format(architecture))}"
            gates = path_gates(space, architecture)
            logits = _call(name, what, lambda: network(images, gates))  # noqa: B023 - called at once
            if not isinstance(logits, torch.Tensor) or tuple(logits.shape) != (BATCH, facts.classes):
                got = list(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
                raise SettingError(
                    f"space '{name}': {type(network).__name__}.forward must return logits [{BATCH}, {facts.classes}] "
                    f"of images {list(images.shape)}, got {got}"
                )


def _call(name: str, what: str, function: Callable[[], Value]) -> Value:
    """Return what the user's code returns; its error becomes a line that names the part."""
    try:
        return function()
    except SettingError:
        raise
    except ArchloomError as error:
        raise SettingError(f"space '{name}': {what} failed: {one_line(error)}") from error
    except Exception as error:  # foreign code may fail in any way
        raise SettingError(f"space '{name}': {what} failed: {type(error).__name__}: {one_line(error)}") from error
