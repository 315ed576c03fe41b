"""Searches of a second or less, and what a contract does with them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch

from archloom.core.json_object import to_json_object
from archloom.core.settings import Settings, merge
from archloom.core.state import (
    StateDict,
)
from archloom.core.trust import (
    trust_texts,
)
from archloom.data import DataSet
from archloom.data.arrays import from_tensors
from archloom.data.source import ImageData
from archloom.data.text import TextData
from archloom.execution.checkpoint import encode
from archloom.execution.loop import Interrupted
from archloom.families import family_of
from archloom.searches.build import build_search
from archloom.searches.loop import SearchLoop
from archloom.searches.spec import SearchSpec
from archloom.spaces import SPACES
from archloom.tasks import LANGUAGE

_TINY: Mapping[str, Settings] = {
    "data": {"name": "given"},
    "search": {
        "epochs": 2,
        "batch_size": 8,
        "evaluation_images": 16,
        "random_baseline_samples": 2,
        "trials": 6,
        "score_epochs": 1,
    },
    "race": {"steps": 1, "batch_size": 8},
    "monitor": {"eigenvalue_steps": 1, "eigenvalue_images": 4},
    "machine": {"torch_threads": 1, "device": "cpu"},
}


_TINY_TEXT: Mapping[str, Settings] = {
    "data": {"segment": 6},
    "network": {"hidden": 4},
    "search": {"batch_size": 8, "evaluation_images": 60},
}


@cache
def make_tiny_data() -> ImageData:
    """Return 48 random colour images of 8x8 pixels in three classes.

    Returns:
        The images, the same at every call.

    Examples:
        >>> from archloom.testing import make_tiny_data
        >>> len(make_tiny_data().train), make_tiny_data().resolution
        (48, (8, 8))
    """
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (48, 3, 8, 8), dtype=torch.uint8, generator=generator)
    return from_tensors(images, torch.arange(48) % 3)


@cache
def make_tiny_text() -> TextData:
    """Return 240 words to train on and 200 to validate with, of a vocabulary of seven.

    Returns:
        The text, the same at every call.

    Examples:
        >>> from archloom.testing.searches import make_tiny_text
        >>> len(make_tiny_text().words), len(make_tiny_text().train)
        (7, 240)
    """
    generator = torch.Generator().manual_seed(0)
    train, valid = (torch.randint(7, (count,), generator=generator) for count in (240, 200))
    return TextData(name="tiny text", words=tuple("abcdefg"), train=train, valid=valid)


def make_search(
    strategy: str, space: str = "nb201_mini", /, *, seed: int = 0, data: DataSet | None = None, **sections: Settings
) -> SearchLoop[Any]:
    """Build a tiny search: two epochs on 48 images, or six trials.

    Args:
        strategy: the name of a strategy, or `module:Class`.
        space: the name of a space, or `module:Class`.
        seed: the seed of the search.
        data: the data; tiny images, or a tiny text, if left out.
        sections: further settings by section, over the tiny ones: `search={"epochs": 1}`.

    Returns:
        The search, before its first step.

    Raises:
        SettingError: a name or a setting is wrong.

    Examples:
        >>> from archloom.testing import make_search
        >>> search = make_search("rsps", network={"channels": 2}, search={"epochs": 1})
        >>> search.position, search.total
        (0, 3)
    """
    named: Mapping[str, Settings] = {"space": {"name": space}, "strategy": {"name": strategy}}
    trust_texts(named)
    settings = {**merge(_TINY, _TINY_TEXT if _is_of_texts(space) else {}, named, sections), "seed": seed}
    trust_texts(settings)
    return build_search(SearchSpec.resolve(settings), data=data or tiny_data_for(space))


def tiny_data_for(space: str) -> DataSet:
    """Return tiny images, or a tiny text for a space of recurrent cells."""
    return make_tiny_text() if _is_of_texts(space) else make_tiny_data()


def _is_of_texts(space: str) -> bool:
    return family_of(SPACES.find(space).load()).task is LANGUAGE


def finish(search: SearchLoop[Any]) -> StateDict:
    """Run a search to its end and return its final state with its outcome.

    Args:
        search: the search, at any position.

    Returns:
        Everything that a checkpoint would hold, and `outcome`.

    Examples:
        >>> from archloom.testing import find_differences, finish, make_search
        >>> small = {"network": {"channels": 2}, "search": {"epochs": 1}, "strategy": {"candidates": 2}}
        >>> first, again = (finish(make_search("rsps", **small)) for _ in range(2))
        >>> find_differences(first, again)
        []
    """
    outcome = search.run()
    return {"outcome": to_json_object(outcome), **search.state_dict()}


def save_interrupted(search: SearchLoop[Any], stop_after: int) -> bytes:
    """Stop a search and return the checkpoint that it saves.

    Args:
        search: the search, before its first step.
        stop_after: the number of units (steps or trials) to run.

    Returns:
        The checkpoint, for `archloom.execution.checkpoint.decode`.

    Raises:
        AssertionError: the search ended before, or did not stop where it should.

    Examples:
        >>> from archloom.testing import make_search, save_interrupted
        >>> len(save_interrupted(make_search("rsps", network={"channels": 2}), 1)) > 0
        True
    """
    saved: list[bytes] = []
    units = iter(range(stop_after, 0, -1))
    try:
        search.run(save=lambda state, step: saved.append(encode(state)), stop=lambda: next(units) == 1)
    except Interrupted:
        assert search.position == stop_after, f"the search must stop after {stop_after} units, got {search.position}"
        return saved[-1]
    raise AssertionError(f"the search must stop after {stop_after} units, but it ended")
