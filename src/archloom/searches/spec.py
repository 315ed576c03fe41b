"""A search, resolved: every setting of a run, checked before anything is computed.

Each section of a configuration has the settings of what it configures. A value that is left out comes, from weakest to
strongest, from the defaults of that part, from the settings for small data, from the named space, and from the
strategy's preset.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import torch
from annotated_doc import Doc

from archloom.core.errors import DataError, SettingError, require, suggestion
from archloom.core.files import data_folder
from archloom.core.recipes import read_recipe
from archloom.core.registry import Entry
from archloom.core.sections import Sections
from archloom.core.seeds import derive_seed
from archloom.core.settings import Component, Settings, Target, flatten, merge, schema, tables_of
from archloom.data import DATA, FACTS, Facts, load
from archloom.data.parts import DataParts
from archloom.data.source import ImageData
from archloom.execution.machine import Machine, pick_device
from archloom.families import build_network, family_of
from archloom.objectives.target import TargetSettings
from archloom.searches.monitor import MonitorSettings
from archloom.spaces import SPACES, SearchSpace
from archloom.strategies import STRATEGIES
from archloom.strategies.base import BlackBox, OneShot
from archloom.supernet import EveryOption, Resolve, WeightSettings

SECTIONS = ("space", "strategy", "network", "data", "weights", "search", "target", "monitor", "machine")
NOT_DETERMINING = ("machine.", "data.directory", "search.trials", "search.study", "search.tensorboard")
GIVEN = "given"  # the name of data that Python code passes instead of a data set to load

Parts = TypeVar("Parts", bound=DataParts)

FOR_SMALL_DATA: Mapping[str, Mapping[str, Settings]] = {
    # 1,797 images make few steps: a small network, weights that learn fast, and an architecture that waits for them;
    # on tensors this small a second thread costs more than it gives
    "digits": {
        "space": {"cells_per_stage": 1},
        "network": {"channels": 8},
        "weights": {"learning_rate": 0.1},
        "search": {"epochs": 60, "evaluation_images": 500},
        "strategy": {"learning_rate": 0.02, "warmup": 0.5},
        "monitor": {"eigenvalue_steps": 0},
        "machine": {"torch_threads": 1},
    }
}


@dataclass(frozen=True, kw_only=True)
class DataSettings(DataParts):
    """What every data set has, in addition to its own settings."""

    split: Annotated[Literal["random", "nb201"], Doc("nb201: the benchmark's own split of CIFAR-10")] = "random"
    train_fraction: Annotated[float, Doc("share that trains; the rest validates architectures")] = 0.5


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """How long and how closely to search."""

    epochs: Annotated[int, Doc("of a one-shot search")] = 50
    batch_size: Annotated[int, Doc("training images of a step")] = 64
    valid_batch_size: Annotated[int, Doc("validation images of a step; 0: as batch_size")] = 0
    cutout: Annotated[
        int | None, Doc("side of the square blanked out in training images; left out: as the data set has it")
    ] = None
    evaluation_images: Annotated[int, Doc("validation images that evaluate a path under the shared weights")] = 1000
    random_baseline_samples: Annotated[int, Doc("random architectures that the result is compared with")] = 30
    finalist_steps: Annotated[int, Doc("training steps of each finalist, at full depth; 0: no finalist race")] = 120
    finalist_sweeps: Annotated[int, Doc("how often every change is tried, at most")] = 2
    finalist_channels: Annotated[int | None, Doc("width of finalists; left out: that of the search")] = None
    finalist_shrink: Annotated[int, Doc("divide height and width of the finalists' images by this")] = 1
    finalist_size: Annotated[
        float, Doc("penalty on the logarithm of a finalist's parameters, in units of its loss")
    ] = 0.3
    finalist_learning_rate: Annotated[float, Doc("of the finalists' SGD, on a cosine to 0")] = 0.1
    trials: Annotated[int, Doc("of a black-box search")] = 100
    score: Annotated[
        Literal["auto", "table", "training", "shared"], Doc("source of a trial's score; auto: a table if one has it")
    ] = "auto"
    score_epochs: Annotated[
        int | None, Doc("of `training`, or the table's column; left out: 5, or the table's full training")
    ] = None
    shared_run: Annotated[Path | None, Doc("the one-shot run whose weights `shared` scores with")] = None
    study: Annotated[
        str | None, Doc("file or database URL of trials that several processes share; left out: trials of its own")
    ] = None
    study_name: Annotated[str, Doc("name of the study in that database")] = "archloom"
    channels_last: Annotated[bool, Doc("use the memory layout that is faster nearly everywhere")] = True
    tensorboard: Annotated[bool, Doc("also write TensorBoard events into the run folder")] = False

    def __post_init__(self) -> None:
        least = {"epochs": 1, "batch_size": 2, "evaluation_images": 2, "trials": 1}
        least |= {"valid_batch_size": 0, "cutout": 0, "random_baseline_samples": 0, "finalist_steps": 0}
        least |= {"finalist_sweeps": 1, "finalist_shrink": 1}
        values = {name: getattr(self, name) or 0 for name in least}
        channels, rate = self.finalist_channels, self.finalist_learning_rate
        size, epochs, shared = self.finalist_size, self.score_epochs, self.score == "shared"
        require(
            {f"search.{n} must be at least {least[n]}, got {values[n]}": values[n] >= least[n] for n in least}
            | {
                f"search.finalist_channels must be at least 1, got {channels}": channels is None or channels >= 1,
                f"search.finalist_size must be 0 or more, got {size}": size >= 0,
                f"search.finalist_learning_rate must be above 0, got {rate}": rate > 0,
                f"search.score_epochs must be at least 1, got {epochs}": epochs is None or epochs >= 1,
                "search.score 'shared' needs search.shared_run, a one-shot run": not shared or bool(self.shared_run),
                f"search.shared_run is for search.score 'shared', got '{self.score}'": shared or not self.shared_run,
                f"search.study must be a file or a database URL, got {self.study!r}": self.study != "",
            }
        )

    def check_extras(self) -> None:
        """Raise a SettingError if a package is missing that a setting needs."""
        missing = self.tensorboard and importlib.util.find_spec("tensorboard") is None
        require({"search.tensorboard needs an extra: pip install 'archloom[tensorboard]'": not missing})
        missing = self.study is not None and importlib.util.find_spec("optuna") is None
        require({"search.study needs an extra: pip install 'archloom[optuna]'": not missing})

    def with_absolute_paths(self) -> SearchSettings:
        """Return the same settings for any working directory: a run may be resumed from another one."""
        return replace(
            self,
            shared_run=self.shared_run and self.shared_run.expanduser().absolute(),
            study=self.study if not self.study or "://" in self.study else _absolute(self.study),
        )


@dataclass(frozen=True)
class SearchSpec:
    """A resolved configuration of a search: what `config.toml` of a run has."""

    seed: int
    space: Component
    strategy: Component
    network: Component  # named by its family
    weights: WeightSettings
    search: SearchSettings
    target: TargetSettings
    monitor: MonitorSettings
    machine: Machine
    data: DataSettings
    data_set: Component  # its name and its own settings

    @classmethod
    def resolve(cls, given: Settings) -> SearchSpec:
        """Check a configuration as a whole.

        Args:
            given: settings by section, as a recipe has them; what is left out has a default.

        Returns:
            The configuration with every setting.

        Raises:
            SettingError: lists everything that is wrong.
        """
        sections = Sections(given, sections=SECTIONS, others=("seed",))
        seed = sections.seed()
        space_name, space = sections.find("space", SPACES, "nb201")
        strategy_name, named = sections.find("strategy", STRATEGIES, "gdas")
        data_name, data_set = find_data(sections)
        sections.problems.raise_if_any()  # nothing else can be checked without these three
        targets: dict[str, Target] = {
            "space": space.load(),
            "strategy": named.load(),
            "network": family_of(space.load()).network,
            **SECTION_TYPES,
        }
        preset = _find_preset(sections, targets["strategy"])
        small = {} if preset else _fit(FOR_SMALL_DATA.get(data_name, {}), targets)  # a preset is as published
        layers = merge(small, {"space": dict(space.settings)}, preset)
        parts: dict[str, Any] = {
            name: Component(named, sections.keywords(name, targets[name], defaults=layers.get(name)))
            for name, named in (
                ("space", space_name),
                ("strategy", strategy_name),
                ("network", family_of(space.load()).name),
            )
        }
        made: dict[str, Any] = {
            name: sections.make(name, kind, defaults=layers.get(name)) for name, kind in SECTION_TYPES.items()
        }
        data, own = resolve_data(sections, DataSettings, data_name, data_set)
        strategy = _try_parts(sections, seed=seed, **parts)
        _try_sections(sections, **made)
        if isinstance(strategy, OneShot) and made["search"] is not None:
            sections.attempt("search", lambda: strategy.stages(made["search"].epochs))
        if made["search"] is not None:
            sections.attempt("search", lambda: _check_finalist_width(made["search"], parts["network"]))
        sections.problems.raise_if_any()
        made["search"] = made["search"].with_absolute_paths()
        made["target"] = _with_absolute_source(made["target"])
        assert data is not None, "problems were raised"
        return cls(seed=seed, **parts, **made, data=data, data_set=own)

    def to_settings(self) -> Settings:
        """Return the contents of a TOML file that resolves to this again."""
        return {
            "seed": self.seed,
            "space": self.space.to_settings(),
            "strategy": self.strategy.to_settings(),
            "network": tables_of(self.network.settings),
            **{name: tables_of(getattr(self, name)) for name in SECTION_TYPES},
            "data": {**self.data_set.to_settings(), **tables_of(self.data), **tables_of(self.data_set.settings)},
        }

    def determining_settings(self) -> Settings:
        """Return what the scores of a black-box search depend on, by dotted name: no seed, no paths."""
        flat = flatten({name: values for name, values in self.to_settings().items() if name in SECTIONS})
        plain = json.loads(json.dumps(flat, default=str))  # as a database returns it
        omitted = ("target.",) if self.target.metric == "none" else ()  # older studies have no such section
        return {name: value for name, value in plain.items() if not name.startswith((*NOT_DETERMINING, *omitted))}

    @property
    def title(self) -> str:
        """Return the strategy, the space, the data and the seed, in words."""
        return f"{self.strategy.name} on {self.space.name}, {self.data_set.name}, seed {self.seed}"

    @property
    def stem(self) -> str:
        """Return the beginning of the name of a run folder."""
        return "-".join((self.space.name, self.strategy.name, self.data_set.name))

    @property
    def facts(self) -> Facts | None:
        """Return what is known of the data without reading them, or None."""
        return FACTS.get(self.data_set.name)

    def build_space(self) -> SearchSpace:
        """Return the search space."""
        return build_space(self.space)

    def build_strategy(self, space: SearchSpace) -> OneShot | BlackBox:
        """Return the strategy, with a random generator of its own."""
        return _build_strategy(self.strategy, space, self.seed)

    def load_data(self) -> ImageData:
        """Read the data set; a DataError says if the data came from Python code."""
        if self.data_set.name == GIVEN:
            raise DataError("this run was given its data in Python: pass `data=` to archloom.resume")
        return load(self.data_set.name, directory=self.data.directory, **self.data_set.settings)


SECTION_TYPES: Mapping[str, type] = {
    "weights": WeightSettings,
    "search": SearchSettings,
    "target": TargetSettings,
    "monitor": MonitorSettings,
    "machine": Machine,
}


def resolve_member(
    of: str,
    table: Settings,
    *,
    seed: int,
    beside: Path,
    defaults: Settings | None = None,
    shared: Settings | None = None,
    overrides: Settings | None = None,
) -> SearchSpec:
    """Return a search of a comparison or a pipeline: sections of its own over those of its recipe.

    The layers, from weakest to strongest: `defaults`, the recipe, `shared`, the table, `overrides`.
    """
    own = {name: value for name, value in table.items() if name not in ("seeds", "recipe")}
    after = (shared or {}, own, overrides or {})
    if any("seed" in layer for layer in after):
        raise SettingError(f"{of} has seeds, not a seed")
    layers = merge(defaults or {}, read_recipe(table.get("recipe"), beside), *after)
    spec = SearchSpec.resolve({**layers, "seed": seed})
    folder = spec.data.directory
    require({f"no data folder {folder}; check --data-dir": folder is None or folder.exists()})
    return spec


def build_space(space: Component) -> SearchSpace:
    """Return the search space that a configuration names."""
    built: SearchSpace = SPACES.find(space.name).load()(**space.settings)
    return built


def find_data(sections: Sections) -> tuple[str, Entry]:
    """Return the name of the data set and where it is; data that Python code passes have no settings of their own."""
    if sections.given.get("data", {}) and sections.table("data").get("name") == GIVEN:
        return sections.take("data", "name"), Entry("archloom.searches.spec:given_data")
    return sections.find("data", DATA, "digits")


def given_data(directory: Path | None) -> ImageData:
    """Declare no settings, for data that Python code passes. It is never called."""
    raise AssertionError


def resolve_data(sections: Sections, kind: type[Parts], name: str, data_set: Entry) -> tuple[Parts | None, Component]:
    """Return the section `data` as what every data set has, and as the data set's own settings."""
    common, function = schema(kind), data_set.load()
    given = sections.keywords("data", kind, function, defaults=data_set.settings)
    folder = data_folder(given["directory"])  # absolute: a run may be resumed from another working directory
    values = {**given, "directory": None if folder is None else folder.expanduser().absolute()}
    parts = sections.attempt("data", lambda: kind(**{key: values[key] for key in common}))
    return parts, Component(name, {key: value for key, value in values.items() if key not in common})


def _build_strategy(strategy: Component, space: SearchSpace, seed: int) -> OneShot | BlackBox:
    generator = torch.Generator().manual_seed(derive_seed(seed, "strategy"))
    built: OneShot | BlackBox = STRATEGIES.find(strategy.name).load()(space, generator, **strategy.settings)
    return built


def _find_preset(sections: Sections, strategy: Any) -> Mapping[str, Settings]:
    preset = sections.take("strategy", "preset")
    if preset is None:
        return {}
    if not isinstance(preset, str) or preset not in strategy.presets:
        near = suggestion(str(preset), strategy.presets)
        sections.problems.add(f"unknown preset '{preset}' of the strategy{near}")
        return {}
    settings: Mapping[str, Settings] = strategy.presets[preset]
    return settings


def _fit(layers: Mapping[str, Settings], targets: Mapping[str, Target]) -> dict[str, Settings]:
    """Return only those settings that the targets have."""
    return {
        section: {name: value for name, value in values.items() if name in schema(targets[section])}
        for section, values in layers.items()
    }


def _try_parts(
    sections: Sections, *, seed: int, space: Component, strategy: Component, network: Component
) -> OneShot | BlackBox | None:
    """Build what plug-ins declare once, without memory or data: a value of the right type may still break a rule.

    Returns the strategy, None where it cannot be built.
    """
    built = sections.attempt("space", lambda: build_space(space))
    if built is None:
        return None
    made = sections.attempt("strategy", lambda: _build_strategy(strategy, built, seed))
    searched, resolve = (made.supernet_space, made.resolve()) if isinstance(made, OneShot) else (built, EveryOption())
    with torch.device("meta"):
        sections.attempt("network", lambda: _try_network(searched, resolve, network.settings))
    return made


def _try_sections(
    sections: Sections,
    *,
    search: SearchSettings | None,
    weights: WeightSettings | None,
    machine: Machine | None,
    **_: Any,
) -> None:
    if search is not None:
        sections.attempt("search", search.check_extras)
    if weights is not None and machine is not None:
        sections.attempt("weights", lambda: check_precision("weights", weights.mixed_precision, machine))


def _check_finalist_width(search: SearchSettings, network: Component) -> None:
    """Raise a SettingError if finalists are to have a width that the network cannot be given."""
    rule = (
        f"search.finalist_channels must be left out for the family '{network.name}', whose network has no setting "
        f"'channels', got {search.finalist_channels}"
    )
    require({rule: search.finalist_channels is None or "channels" in network.settings})


def check_precision(section: str, mixed_precision: bool, machine: Machine) -> None:
    """Raise a SettingError if mixed precision is asked for on a CPU."""
    rule = f"{section}.mixed_precision must be false on a CPU, where bfloat16 is slower or crashes; use a GPU"
    require({rule: not mixed_precision or pick_device(machine.device).type != "cpu"})


_BUILT: set[str] = set()  # many runs of one process differ only in their seeds: a network is tried once


def _try_network(space: SearchSpace, resolve: Resolve, settings: Settings) -> None:
    what = repr((space, resolve, sorted(settings.items())))
    if what not in _BUILT:
        build_network(space, resolve, classes=2, colours=3, **settings)
        _BUILT.add(what)


def _with_absolute_source(target: TargetSettings) -> TargetSettings:
    """Return the target with an absolute path where its source is a file; the name of a device stays as it is."""
    return replace(target, source=_absolute(str(target.file))) if target.file is not None else target


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())
