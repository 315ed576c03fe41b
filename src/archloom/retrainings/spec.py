"""A retraining: every setting of it, resolved and checked before anything is computed; what its config.toml holds.

What a user does not say comes, from weakest to strongest, from: the defaults of each part, the run whose architecture
it is, and the recipe, which may say more for one family of networks (`[darts.network]`) than for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from annotated_doc import Doc

from archloom.core.errors import ArchloomError, DataError, ParseError, SettingError, one_line, require, suggestion
from archloom.core.files import data_folder
from archloom.core.settings import check, merge, named_sections, schema, settings_of
from archloom.data import DATA, load
from archloom.data.parts import DataParts
from archloom.data.source import ImageData
from archloom.execution.machine import Machine, pick_device
from archloom.families import FAMILIES, build_network, family_of
from archloom.retrainings.loop import TrainingSettings
from archloom.retrainings.optimization import OptimizerSettings
from archloom.searches.spec import GIVEN
from archloom.spaces import SPACES, Architecture, SearchSpace
from archloom.supernet import Only

KIND = "retrain"
SECTIONS = ("space", "network", "data", "optimizer", "training", "machine")
OTHERS = ("kind", "recipe", "seed", "architecture", "changed")


@dataclass(frozen=True, kw_only=True)
class RetrainData(DataParts):
    """What every data set can be asked, beside its own settings."""

    split: Annotated[Literal["random", "nb201", "none"], Doc("none: train on all images, and keep the last epoch")] = (
        "random"
    )
    train_fraction: Annotated[float, Doc("of a random split; the rest picks the best epoch")] = 0.9


@dataclass(frozen=True)
class RetrainSpec:
    """A resolved configuration: what `config.toml` of a retraining holds."""

    seed: int
    recipe: str
    names: Mapping[str, str]  # of the space and the data
    architecture: Architecture
    settings: Mapping[str, Mapping[str, Any]]  # by section, complete
    changed: tuple[str, ...] = ()  # what is other than where the architecture was found, a sentence each

    @classmethod
    def resolve(cls, given: Mapping[str, Any]) -> RetrainSpec:
        """Check a configuration as a whole; a SettingError lists everything that is wrong with it."""
        return _Resolver(given).retrain()

    def to_settings(self) -> dict[str, Any]:
        """What a TOML file has to say to get this again."""
        top = {"kind": KIND, "recipe": self.recipe, "seed": self.seed, "changed": list(self.changed)}
        return {**top, "architecture": dict(self.architecture), **named_sections(self.names, self.settings)}

    @property
    def title(self) -> str:
        return f"{self.names['space']} trained on {self.names['data']} (recipe {self.recipe}), seed {self.seed}"

    @property
    def stem(self) -> str:
        return "-".join((KIND, self.names["space"], self.names["data"]))

    def build_space(self) -> SearchSpace:
        return make_space(self.names["space"], self.settings["space"])

    def load_data(self) -> ImageData:
        if self.names["data"] == GIVEN:
            raise DataError("this run was given its data in Python: pass `data=` to archloom.retrain or resume")
        return load(self.names["data"], directory=self.common.directory, **self._own_data)

    @property
    def common(self) -> RetrainData:
        known = schema(RetrainData)
        return RetrainData(**{name: value for name, value in self.settings["data"].items() if name in known})

    @property
    def _own_data(self) -> dict[str, Any]:
        known = schema(RetrainData)
        return {name: value for name, value in self.settings["data"].items() if name not in known}

    @property
    def optimizer(self) -> OptimizerSettings:
        return OptimizerSettings(**self.settings["optimizer"])

    @property
    def training(self) -> TrainingSettings:
        return TrainingSettings(**self.settings["training"])

    @property
    def machine(self) -> Machine:
        return Machine(**self.settings["machine"])


def make_space(name: str, settings: Mapping[str, Any]) -> SearchSpace:
    space: SearchSpace = SPACES.find(name).load()(**settings)
    return space


def compose(
    name: str,
    space: SearchSpace,
    architecture: Architecture,
    *,
    recipe: tuple[str, Mapping[str, Any]],
    inherited: Mapping[str, Any],
    said: Mapping[str, Any],
) -> dict[str, Any]:
    """A configuration to resolve: of an architecture, a recipe, the data it was found with, and what the user said."""
    called, told = recipe
    kind = family_of(space)
    known = (*SECTIONS, *FAMILIES, kind.name)
    unknown = [key for key in told if key not in known]
    if unknown:
        raise SettingError(f"unknown section '{unknown[0]}' of recipe '{called}'{suggestion(unknown[0], known)}")
    family = merge({key: told[key] for key in SECTIONS if key in told}, told.get(kind.name, {}))
    own = said.get("data", {})
    data_name = own.get("name") or inherited.get("name") or family.get("data", {}).get("name", "digits")
    layers = {
        "space": {"name": name, **settings_of(space), **kind.select_space_settings(space, family.get("space", {}))},
        "network": _known(family.get("network", {}), kind.network),
        "data": {
            **_known_data(family.get("data", {}), data_name),
            **(inherited if data_name == inherited.get("name") else {}),
            "name": data_name,
        },
        **{key: family.get(key, {}) for key in ("optimizer", "training", "machine")},
    }
    return merge({"recipe": called, "architecture": dict(architecture)}, layers, said)


def _known(values: Mapping[str, Any], target: Any) -> dict[str, Any]:
    """Only those settings that the thing at hand has: a recipe is for many."""
    return {key: value for key, value in values.items() if key in schema(target)}


def _known_data(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    own = {} if name == GIVEN else schema(DATA.find(name).load())
    return {key: value for key, value in values.items() if key in own or key in schema(RetrainData)}


class _Resolver:
    """Collects every problem of a configuration before giving up."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        known = (*OTHERS, *SECTIONS)
        self._given = given
        self._problems = [f"unknown section '{key}'{suggestion(key, known)}" for key in given if key not in known]
        self._unfit: set[str] = set()  # sections with values of the wrong kind: whether they break rules cannot be told

    def retrain(self) -> RetrainSpec:
        seed = self._given.get("seed", 0)
        if type(seed) is not int or not 0 <= seed < 2**63:
            self._problems.append(f"seed must be a whole number from 0, got {seed!r}")
        tables = {name: self._table(name) for name in (*SECTIONS, "architecture")}
        names = {"space": str(tables["space"].pop("name", "")), "data": str(tables["data"].pop("name", ""))}
        self._raise_if_any()
        kind = SPACES.find(names["space"]).load()
        targets = {
            "space": kind,
            "network": family_of(kind).network,
            "optimizer": OptimizerSettings,
            "training": TrainingSettings,
            "machine": Machine,
        }
        settings = {name: self._section(name, target, tables[name]) for name, target in targets.items()}
        settings["data"] = self._data(names["data"], tables["data"])
        self._raise_if_any()
        architecture = self._architecture(make_space(names["space"], settings["space"]), tables["architecture"])
        changed = tuple(str(line) for line in self._given.get("changed", ()))
        made = RetrainSpec(seed, str(self._given.get("recipe", "")), names, architecture, settings, changed)
        self._try(made)
        self._raise_if_any()
        return made

    def _table(self, section: str) -> dict[str, Any]:
        value = self._given.get(section, {})
        if isinstance(value, Mapping):
            return dict(value)
        self._problems.append(f"{section} must be a table of settings, got {value!r}")
        return {}

    def _raise_if_any(self) -> None:
        if self._problems:
            raise SettingError(self._problems)

    def _section(self, name: str, target: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        values, problems = check(name, target, given)
        self._problems += problems
        return {key: values.get(key, setting.default) for key, setting in schema(target).items()}

    def _data(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        function = None if name == GIVEN else DATA.find(name).load()
        own = schema(function) if function else {}
        known = {**schema(RetrainData), **own}
        self._problems += [f"unknown setting 'data.{key}'{suggestion(key, known)}" for key in given if key not in known]
        complete = self._section("data", RetrainData, {k: v for k, v in given.items() if k in schema(RetrainData)})
        if function:
            entry = {**DATA.find(name).settings, **{key: value for key, value in given.items() if key in own}}
            complete |= self._section("data", function, entry)
        folder = data_folder(complete["directory"])  # as it is now, wherever the run is resumed from
        return {**complete, "directory": None if folder is None else folder.expanduser().absolute()}

    def _architecture(self, space: SearchSpace, choices: Mapping[str, Any]) -> Architecture:
        try:
            return space.check(choices)
        except ParseError as error:
            raise SettingError(f"the architecture does not fit the space it is to be trained in: {error}") from error

    def _try(self, made: RetrainSpec) -> None:
        """Settings of the right kind may still break a rule: build everything once, without memory or data."""
        for part in ("common", "optimizer", "training", "machine"):
            self._attempt(part, lambda part=part: getattr(made, part))  # type: ignore[misc]
        with torch.device("meta"):
            self._attempt("network", lambda: _meta_network(made, classes=2, colours=3))
        if made.settings["training"]["mixed_precision"] and not self._problems:
            rule = "training.mixed_precision must be false on a CPU, where bfloat16 is slower or crashes; take a GPU"
            require({rule: pick_device(made.machine.device).type != "cpu"})

    def _attempt(self, what: str, make: Callable[[], Any]) -> None:
        try:
            make()
        except SettingError as error:
            self._problems += error.problems
        except ArchloomError as error:
            self._problems.append(str(error))
        except (RuntimeError, OverflowError, MemoryError) as error:  # of torch, for sizes beyond reason
            self._problems.append(f"{what} cannot be built: {one_line(error)}")


def _meta_network(made: RetrainSpec, *, classes: int, colours: int) -> Any:
    return build_network(
        made.build_space(), Only(made.architecture), classes=classes, colours=colours, **made.settings["network"]
    )
