"""Seeds: as people write them (`0-4`, `0-4,9`, or a list of numbers), and derived for every purpose of a run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence

from archloom.core.errors import SettingError

MOST_SEEDS = 100_000


def derive_seed(seed: int, purpose: str) -> int:
    """Return a seed for one purpose of a run, so that no two of its generators draw the same numbers."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{purpose}".encode()).digest()[:7], "little")


def parse_seeds(given: object) -> tuple[int, ...]:
    """Return the seeds of `0-4`, `0-4,9`, or a list of numbers; a SettingError says what is wrong with it."""
    listed = given if isinstance(given, list | tuple) else ()
    seeds = list(_ranges(given)) if isinstance(given, str) else list(listed)
    if not seeds or any(type(seed) is not int or not 0 <= seed < 2**63 for seed in seeds):
        raise SettingError(f'seeds must be numbers from 0 such as "0-4", "0-4,9" or [0, 3], got {given!r}')
    if len(set(seeds)) != len(seeds):
        raise SettingError(f"seeds must differ from one another, got {given!r}")
    return tuple(seeds)


def _ranges(text: str) -> Iterator[int]:
    for part in text.split(","):
        found = re.fullmatch(r"\s*([0-9]{1,19})\s*(?:-\s*([0-9]{1,19})\s*)?", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
        if not found or not first <= last < first + MOST_SEEDS:
            raise SettingError(f'seeds must be numbers from 0 such as "0-4", "0-4,9" or [0, 3], got {text!r}')
        yield from range(first, last + 1)


def seeds_text(seeds: Sequence[int]) -> str:
    """Return the seeds as a file has them: consecutive numbers by their first and last."""
    parts: list[list[int]] = []
    for seed in seeds:
        if parts and seed == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], seed]
        else:
            parts.append([seed])
    return ",".join("-".join(map(str, part)) for part in parts)
