"""Files of fitted cost models: one reader and one writer, and how the networks behind a model were timed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from archloom.core.errors import SettingError
from archloom.core.files import write_atomically
from archloom.core.json_object import JsonObject, from_json_object, to_json_object
from archloom.core.settings import Settings, settings_of
from archloom.core.tagged_json import read_tagged
from archloom.objectives.cost_source import ModelledCost
from archloom.objectives.linear_cost import Fit, LinearCost
from archloom.spaces import SearchSpace
from archloom.spaces.base import Feature

KIND, VERSION = "archloom cost model", 2  # files without a version are of the first edition and have the same entries


@dataclass(frozen=True, kw_only=True)
class TimingSetup:
    """How networks are built and timed: milliseconds of different setups do not compare."""

    space: str
    space_settings: Settings
    classes: int
    image_shape: tuple[int, int, int]
    batch: int
    network: Settings
    device: str
    threads: int
    repeats: int
    seed: int  # of the sampled architectures
    versions: Mapping[str, str]

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Return the setup that a file holds."""
        return from_json_object(cls, value)

    def to_json(self) -> JsonObject:
        """Return the setup as JSON values."""
        return to_json_object(self)

    def find_differences(self, other: TimingSetup) -> list[str]:
        """Return the names of all fields that differ, as a file would hold them."""
        own, theirs = (json.loads(json.dumps(setup.to_json())) for setup in (self, other))
        return sorted(name for name in own if own[name] != theirs[name])


@dataclass(frozen=True, kw_only=True)
class CostModelFile:
    """A fitted model of latencies, with all that its figures depend on."""

    setup: TimingSetup
    decisions: Mapping[str, Sequence[str]]  # of the space it was fitted on
    constant_ms: float  # of the reference network that others were timed against
    forced: bool  # written although it predicts latencies badly
    networks: int
    uncovered_features: int
    held_out_r2: float
    held_out_error: float
    intercept: float
    weights: Mapping[Feature, float]
    unit: str = "ms"
    dtype: str = "float32"

    @classmethod
    def from_fit(cls, fit: Fit, setup: TimingSetup, *, constant_ms: float, forced: bool) -> Self:
        """Return the contents of the file of a fitted model."""
        return cls(
            setup=setup,
            decisions=_list_options(fit.model.space),
            constant_ms=constant_ms,
            forced=forced,
            networks=fit.networks,
            uncovered_features=fit.uncovered,
            held_out_r2=fit.r2,
            held_out_error=fit.error,
            intercept=fit.model.intercept,
            weights=fit.model.weights,
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the model in a file.

        Raises:
            DataError: If the file holds no model.
        """
        return read_tagged(path, KIND, cls._from_json, otherwise="is no model of archloom latency fit")

    @classmethod
    def _from_json(cls, value: JsonObject) -> Self:
        rows = [(tuple((str(name), str(option)) for name, option in row), float(w)) for *row, w in value["weights"]]
        if not rows:
            raise ValueError("it has no weights")
        figures = {name: float(value[name]) for name in ("constant_ms", "held_out_r2", "held_out_error", "intercept")}
        return cls(
            setup=TimingSetup.from_json(value),
            decisions={str(name): list(map(str, options)) for name, options in value["decisions"].items()},
            forced=bool(value["forced"]),
            networks=int(value["networks"]),
            uncovered_features=int(value["uncovered_features"]),
            weights=dict(rows),
            unit=str(value["unit"]),
            dtype=str(value["dtype"]),
            **figures,
        )

    def write(self, path: Path) -> None:
        """Write the model as JSON."""
        own = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "setup"}
        rows = [[*map(list, feature), weight] for feature, weight in self.weights.items()]
        content = {"kind": KIND, "version": VERSION, **self.setup.to_json(), **own, "weights": rows}
        write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())

    def to_source(
        self,
        space: SearchSpace,
        path: Path,
        *,
        network: Settings | None = None,
        image_shape: tuple[int, ...] | None = None,
    ) -> ModelledCost:
        """Return the model as the cost of a target, for a space with the decisions that it was fitted on.

        The caveat names what the timed networks have otherwise than the network that the cost is about.

        Raises:
            SettingError: If the space has other decisions.
        """
        if self.decisions != _list_options(space):
            raise SettingError(
                f"the cost model {path} was fitted for other decisions than this space has; fit one for it"
            )
        machine = f"{self.setup.device}, {self.setup.threads} threads, batch {self.setup.batch}"
        model = LinearCost(space, self.intercept, self.weights)
        caveat = self._describe_differences(space, network or {}, image_shape or self.setup.image_shape)
        return ModelledCost(model, unit=self.unit, provenance=f"{path.name} ({machine})", caveat=caveat)

    def _describe_differences(self, space: SearchSpace, network: Settings, image_shape: tuple[int, ...]) -> str:
        """Return how the timed networks differ from those of a space with the same decisions."""
        own = json.loads(json.dumps(settings_of(space)))  # as a file holds it
        other = [f"space.{name}" for name, value in self.setup.space_settings.items() if own.get(name) != value]
        other += [f"network.{name}" for name, value in self.setup.network.items() if network.get(name, value) != value]
        parts = [f"of networks with another {', '.join(sorted(other))}"] if other else []
        if image_shape[1:] != self.setup.image_shape[1:]:  # other colours change the first convolution only
            parts.append(f"for images of {'x'.join(map(str, self.setup.image_shape[1:]))}")
        return " ".join(parts)


def _list_options(space: SearchSpace) -> dict[str, list[str]]:
    return {decision.name: list(decision.options) for decision in space.decisions}
