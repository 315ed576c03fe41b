"""A retraining, resolved: every setting of it, checked before anything is computed.

A value that a user leaves out comes, from weakest to strongest, from the defaults of each part, from the run that found
the architecture, and from the recipe, which may have more for one family of networks (`[darts.network]`) than for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from annotated_doc import Doc

from archloom.core.errors import DataError, ParseError, SettingError, require, suggestion
from archloom.core.sections import Sections
from archloom.core.settings import Component, Settings, Target, merge, schema, settings_of, tables_of
from archloom.data import DATA, load
from archloom.data.parts import DataParts, TextParts
from archloom.data.places import GIVEN, locate_data
from archloom.data.text import Lengths
from archloom.execution.machine import Machine, pick_device
from archloom.execution.survey import require_bfloat16
from archloom.families import FAMILIES, build_network, family_of
from archloom.retrainings.loop import TrainingSettings
from archloom.retrainings.optimization import OptimizerSettings
from archloom.searches.spec import build_space, find_data, resolve_data
from archloom.spaces import SPACES, Architecture, SearchSpace
from archloom.supernet import Only
from archloom.tasks import CLASSIFICATION, LANGUAGE

KIND = "retrain"
SECTIONS = ("space", "network", "data", "optimizer", "training", "machine")
OTHERS = ("kind", "recipe", "seed", "architecture", "changed")


SECTION_TYPES = {"optimizer": OptimizerSettings, "training": TrainingSettings, "machine": Machine}


@dataclass(frozen=True, kw_only=True)
class RetrainData(DataParts):
    """What every data set has, in addition to its own settings."""

    split: Annotated[Literal["random", "nb201", "none"], Doc("none: train on all images, and keep the last epoch")] = (
        "random"
    )
    train_fraction: Annotated[float, Doc("of a random split; the rest picks the best epoch")] = 0.9


@dataclass(frozen=True, kw_only=True)
class RetrainText(TextParts):
    """What every text has, in addition to its own settings."""

    lengths: Annotated[
        Lengths, Doc("fixed: all segments alike; darts: one in twenty half as long; drawn: normally distributed, too")
    ] = "drawn"
    valid_columns: Annotated[int, Doc("pieces that the validation text is cut into")] = 10
    test_columns: Annotated[int, Doc("pieces that the test text is cut into; 1 is exact and slow")] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = {"valid_columns": self.valid_columns, "test_columns": self.test_columns}
        require({f"data.{name} must be at least 1, got {count}": count >= 1 for name, count in counts.items()})


PARTS: Mapping[str, type[RetrainData] | type[RetrainText]] = {
    CLASSIFICATION.name: RetrainData,
    LANGUAGE.name: RetrainText,
}


@dataclass(frozen=True)
class RetrainSpec:
    """A resolved configuration of a retraining: what its `config.toml` has."""

    seed: int
    recipe: str
    space: Component
    network: Component  # named by its family
    architecture: Architecture
    data: RetrainData | RetrainText
    data_set: Component  # its name and its own settings
    optimizer: OptimizerSettings
    training: TrainingSettings
    machine: Machine
    changed: tuple[str, ...] = ()  # what differs from the run that found the architecture, a sentence each

    @classmethod
    def resolve(cls, given: Settings) -> RetrainSpec:
        """Check a configuration as a whole.

        Args:
            given: settings by section, with the architecture; `compose` puts them together.

        Returns:
            The configuration with every setting.

        Raises:
            SettingError: lists everything that is wrong.
        """
        sections = Sections(given, sections=SECTIONS, others=OTHERS)
        problems, seed = sections.problems, sections.seed()
        choices = sections.table("architecture")
        name = str(sections.take("space", "name", ""))
        kind: Any = problems.attempt(lambda: SPACES.find(name).load())
        data_name, data_set = find_data(sections)
        problems.raise_if_any()  # nothing else can be checked without these
        family = family_of(kind)
        space = Component(name, sections.keywords("space", kind))
        network = Component(family.name, sections.keywords("network", family.network))
        optimizer = sections.make("optimizer", OptimizerSettings)
        training = sections.make("training", TrainingSettings)
        machine = sections.make("machine", Machine)
        data, own = resolve_data(sections, PARTS[family.task.name], data_name, data_set)
        architecture = _try_network(sections, space, network, choices)
        if training is not None and machine is not None:
            problems.attempt(lambda: _check_precision(training, machine))
        problems.raise_if_any()
        assert architecture is not None and data is not None, "problems were raised"
        assert optimizer is not None and training is not None and machine is not None, "problems were raised"
        return cls(
            seed=seed,
            recipe=str(given.get("recipe", "")),
            space=space,
            network=network,
            architecture=architecture,
            data=data,
            data_set=own,
            optimizer=optimizer,
            training=training,
            machine=machine,
            changed=_read_sentences(given.get("changed")),
        )

    def to_settings(self) -> Settings:
        """Return the contents of a TOML file that resolves to this again."""
        return {
            "kind": KIND,
            "recipe": self.recipe,
            "seed": self.seed,
            "changed": list(self.changed),
            "architecture": dict(self.architecture),
            "space": self.space.to_settings(),
            "network": tables_of(self.network.settings),
            **{name: tables_of(getattr(self, name)) for name in SECTION_TYPES},
            "data": {**self.data_set.to_settings(), **tables_of(self.data), **tables_of(self.data_set.settings)},
        }

    @property
    def title(self) -> str:
        """Return the space, the data, the recipe and the seed, in words."""
        return f"{self.space.name} trained on {self.data_set.name} (recipe {self.recipe}), seed {self.seed}"

    @property
    def stem(self) -> str:
        """Return the beginning of the name of a run folder."""
        return "-".join((KIND, self.space.name, self.data_set.name))

    def build_space(self) -> SearchSpace:
        """Return the space of the architecture."""
        return build_space(self.space)

    def load_data(self) -> Any:
        """Read the data set; a DataError says if the data came from Python code."""
        if self.data_set.name == GIVEN:
            raise DataError("this run was given its data in Python: pass `data=` to archloom.retrain or resume")
        return load(self.data_set.name, directory=self.data.directory, **self.data_set.settings)


def _read_sentences(value: object) -> tuple[str, ...]:
    """Return sentences for a report; anything else in a file is worth no error."""
    return tuple(str(line) for line in value) if isinstance(value, list | tuple) else ()


def _check_precision(training: TrainingSettings, machine: Machine) -> None:
    """Raise a SettingError if bfloat16 is asked for on a processor without instructions for it."""
    require_bfloat16("training", on_cpu=training.mixed_precision and pick_device(machine.device).type == "cpu")


def _try_network(sections: Sections, space: Component, network: Component, choices: Settings) -> Architecture | None:
    """Return the architecture, after its network was built once without memory: a value may still break a rule."""
    built = sections.attempt("space", lambda: build_space(space))
    if built is None:
        return None
    architecture = sections.problems.attempt(lambda: _check_architecture(built, choices))
    if architecture is not None:
        resolve = Only(architecture)
        with torch.device("meta"):
            shape = family_of(built).task.any_shape
            sections.attempt("network", lambda: build_network(built, resolve, shape, **network.settings))
    return architecture


def _check_architecture(space: SearchSpace, choices: Settings) -> Architecture:
    try:
        return space.check(choices)
    except ParseError as error:
        raise SettingError(f"the architecture does not fit the space it is to be trained in: {error}") from error


def compose(
    name: str,
    space: SearchSpace,
    architecture: Architecture,
    *,
    recipe: tuple[str, Settings],
    inherited: Settings,
    overrides: Settings,
) -> Settings:
    """Return a configuration to resolve: an architecture, a recipe, the data it was found with, a user's overrides."""
    recipe_name, tables = recipe
    kind = family_of(space)
    known = (*SECTIONS, *FAMILIES, kind.name)
    unknown = [key for key in tables if key not in known]
    if unknown:
        raise SettingError(f"unknown section '{unknown[0]}' of recipe '{recipe_name}'{suggestion(unknown[0], known)}")
    family = merge({key: tables[key] for key in SECTIONS if key in tables}, tables.get(kind.name, {}))
    overrides = {**overrides, "data": locate_data(overrides.get("data", {}))}
    own = overrides["data"]
    data_name = own.get("name") or inherited.get("name") or family.get("data", {}).get("name", kind.task.default_data)
    layers = {
        "space": {"name": name, **settings_of(space), **kind.select_space_settings(space, family.get("space", {}))},
        "network": _select(family.get("network", {}), kind.network),
        "data": {
            **_select(
                family.get("data", {}),
                PARTS[kind.task.name],
                *([] if data_name == GIVEN else [DATA.find(data_name).load()]),
            ),
            **(inherited if data_name == inherited.get("name") else {}),
            "name": data_name,
        },
        **{key: family.get(key, {}) for key in ("optimizer", "training", "machine")},
    }
    return merge({"recipe": recipe_name, "architecture": dict(architecture)}, layers, overrides)


def _select(values: Settings, *targets: Target) -> Settings:
    """Return only those settings that the targets have: a recipe is for many."""
    return {key: value for key, value in values.items() if any(key in schema(target) for target in targets)}
