"""Times of networks, kept in a file beside the model that is fitted to them: nothing is timed twice."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import dataclass, field
from pathlib import Path

from archloom.core.errors import SettingError
from archloom.core.files import write_atomically
from archloom.core.json_object import JsonObject
from archloom.core.tagged_json import read_tagged
from archloom.objectives.cost_model_file import TimingSetup

KIND, VERSION = "archloom timings", 2  # files without a version are of the first edition and have the same entries


@dataclass(frozen=True)
class Timings:
    """Times of networks relative to a constant reference network, and the seconds of that one at the time."""

    ratios: list[float] = field(default_factory=list)
    constants: list[float] = field(default_factory=list)

    @property
    def constant_ms(self) -> float:
        """Return the usual time of the reference network, in milliseconds."""
        return 1000 * statistics.median(self.constants)

    @property
    def milliseconds(self) -> list[float]:
        """Return the time of each network at the usual speed of the machine."""
        return [self.constant_ms * ratio for ratio in self.ratios]

    @property
    def slowness(self) -> list[float]:
        """Return how slow the machine was at the time of each, as a logarithm: 0 is as usual."""
        return [math.log(1000 * constant / self.constant_ms) for constant in self.constants]

    def first(self, count: int) -> Timings:
        """Return the first `count` timings."""
        return Timings(self.ratios[:count], self.constants[:count])

    def add(self, more: Timings) -> None:
        """Append more timings."""
        self.ratios.extend(more.ratios)
        self.constants.extend(more.constants)


def timings_path(model: Path) -> Path:
    """Return the path of the timings that belong to a model file."""
    return model.with_suffix(".timings.json")


def write_timings(path: Path, timings: Timings, setup: TimingSetup) -> None:
    """Write timings and how they were taken."""
    content = {"kind": KIND, "version": VERSION, "about": setup.to_json(), **vars(timings)}
    write_atomically(path, (json.dumps(content) + "\n").encode())


def read_timings(path: Path, setup: TimingSetup) -> Timings:
    """Return what was timed earlier with the same setup; nothing if there is no file.

    Raises:
        SettingError: If the file was timed with another setup.
    """
    if not path.exists():
        return Timings()
    timings, earlier = read_tagged(
        path, KIND, _from_json, otherwise="holds no timings of archloom latency fit, and must be removed"
    )
    different = setup.find_differences(earlier)
    if different:
        raise SettingError(f"{path} was timed with another {', '.join(different)}; remove it, or choose another --out")
    return timings


def _from_json(value: JsonObject) -> tuple[Timings, TimingSetup]:
    ratios, constants = ([float(one) for one in value[name]] for name in ("ratios", "constants"))
    if len(ratios) != len(constants):
        raise ValueError("expected as many constants as ratios")
    return Timings(ratios, constants), TimingSetup.from_json(value["about"])
