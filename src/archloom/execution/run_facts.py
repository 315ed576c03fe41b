"""Facts about one execution: time, memory, machine and versions, as results of searches and retrainings hold them."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import archloom
from archloom.core.json_object import JsonObject, from_json_object, to_json_object
from archloom.core.lazy_imports import lazy_imports

with lazy_imports():  # reading results needs no torch
    import archloom.execution.machine as machine


@dataclass(frozen=True)
class RunFacts:
    """How long a run took, on what, and with which versions."""

    seconds: float  # of all records, those before an interruption included
    seconds_since_start: float  # since it was started or resumed
    peak_memory_mb: float
    records: int = 0
    device: str = ""
    threads: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    finished: str = ""  # time in UTC, ISO 8601

    @classmethod
    def collect(cls, *, seconds: float, seconds_since_start: float, records: int, device: Any) -> Self:
        """Return the facts of a run that ends now, in this process."""
        import torch  # late: reading results needs no torch

        return cls(
            seconds=seconds,
            seconds_since_start=seconds_since_start,
            peak_memory_mb=machine.peak_memory_mb(device),
            records=records,
            device=str(device),
            threads=torch.get_num_threads(),
            versions=installed_versions(),
            finished=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        )

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Return the facts that a record holds."""
        return from_json_object(cls, value, partial=True)

    def to_json(self) -> JsonObject:
        """Return the facts as JSON values."""
        return to_json_object(self)


def installed_versions() -> dict[str, str]:
    """Return the versions that results depend on."""
    import torch  # late: reading results needs no torch

    return {"archloom": archloom.__version__, "torch": torch.__version__, "python": platform.python_version()}
