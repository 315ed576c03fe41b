"""A search, resolved: every setting of a run, checked before anything is computed.

Each section of a configuration has the settings of what it configures. A value that is left out comes, from weakest to
strongest, from the defaults of that part, from the named space, and from the strategy's preset. What the data and the
time decide is completed later (`plan.py`), once the data are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import torch
from annotated_doc import Doc

from archloom.benchmarks import BENCHMARKS, Benchmark, find_benchmark, is_file
from archloom.core.errors import (
    DataError,
    SettingError,
    require,
    suggestion,
)
from archloom.core.files import data_folder, exists, expand
from archloom.core.recipes import read_recipe
from archloom.core.registry import Entry
from archloom.core.sections import Sections
from archloom.core.seeds import derive_seed
from archloom.core.settings import Component, Settings, Target, flatten, merge, schema, tables_of
from archloom.data import (
    DATA,
    DEFAULT_DATA,
    FACTS,
    DataSet,
    Facts,
    load,
)
from archloom.data.parts import DataParts, TextParts
from archloom.data.places import GIVEN, absolute_path, locate_data
from archloom.data.text import Lengths
from archloom.execution.machine import Machine, pick_device
from archloom.execution.survey import require_bfloat16
from archloom.families import build_network, family_of
from archloom.objectives.limits import LimitSettings
from archloom.objectives.target import TargetSettings
from archloom.searches.final_network import FinalSettings, resize
from archloom.searches.monitor import MonitorSettings
from archloom.searches.plugin_check import check_space, is_plugin
from archloom.searches.posterior_phase import PosteriorPhaseSettings
from archloom.searches.race_settings import RaceSettings
from archloom.searches.search_settings import TRACKERS, SearchSettings, absolute
from archloom.spaces import SPACES, SearchSpace
from archloom.strategies import STRATEGIES
from archloom.strategies.base import BlackBox, OneShot
from archloom.supernet import EveryOption, Resolve, WeightSettings
from archloom.tasks import CLASSIFICATION, LANGUAGE, Task

SECTIONS = (
    "space",
    "strategy",
    "network",
    "data",
    "weights",
    "search",
    "race",
    "target",
    "limit",
    "final",
    "monitor",
    "posterior",
    "machine",
)
NOT_DETERMINING = (
    "machine.",
    "posterior.",
    "data.directory",
    "search.trials",
    "search.study",
    *(f"search.{name}" for name in TRACKERS),
)

Parts = TypeVar("Parts", bound=DataParts | TextParts)
CostSettings = TypeVar("CostSettings", TargetSettings, LimitSettings)


@dataclass(frozen=True, kw_only=True)
class DataSettings(DataParts):
    """What every data set has, in addition to its own settings."""

    split: Annotated[Literal["random", "nb201"], Doc("nb201: the benchmark's own split of CIFAR-10")] = "random"
    train_fraction: Annotated[float, Doc("share that trains; the rest validates architectures")] = 0.5


@dataclass(frozen=True, kw_only=True)
class TextSettings(TextParts):
    """What every text has, in addition to its own settings."""

    lengths: Annotated[
        Lengths, Doc("fixed: all segments alike; darts: one in twenty half as long; drawn: normally distributed, too")
    ] = "fixed"


PARTS: Mapping[str, type[DataSettings] | type[TextSettings]] = {
    CLASSIFICATION.name: DataSettings,
    LANGUAGE.name: TextSettings,
}


@dataclass(frozen=True)
class SearchSpec:
    """A resolved configuration of a search: what `config.toml` of a run has."""

    seed: int
    space: Component
    strategy: Component
    network: Component  # named by its family
    weights: WeightSettings
    search: SearchSettings
    race: RaceSettings
    target: TargetSettings
    limit: LimitSettings
    final: FinalSettings
    monitor: MonitorSettings
    posterior: PosteriorPhaseSettings
    machine: Machine
    data: DataSettings | TextSettings
    data_set: Component  # its name and its own settings
    given: Settings = field(default_factory=dict, compare=False, repr=False)  # what the user wrote, by section

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
        strategy_name, named = sections.find("strategy", STRATEGIES, "gibbs")
        task = _find_task(space)
        data_name, data_set = find_data(sections, task.default_data)
        sections.problems.raise_if_any()  # nothing else can be checked without these three
        family = family_of(space.load())
        targets: dict[str, Target] = {
            "space": space.load(),
            "strategy": named.load(),
            "network": family.network,
            **SECTION_TYPES,
        }
        preset = _find_preset(sections, targets["strategy"])
        trials = family.trial_defaults if issubclass(named.load(), BlackBox) else {}
        layers = merge(family.search_defaults, trials, {"space": dict(space.settings)}, preset)
        parts: dict[str, Any] = {
            name: Component(named, sections.keywords(name, targets[name], defaults=layers.get(name)))
            for name, named in (
                ("space", space_name),
                ("strategy", strategy_name),
                ("network", family.name),
            )
        }
        made: dict[str, Any] = {
            name: sections.make(name, kind, defaults=layers.get(name)) for name, kind in SECTION_TYPES.items()
        }
        data, own = resolve_data(sections, PARTS[task.name], data_name, data_set)
        strategy = _try_parts(sections, seed=seed, **parts)
        _try_sections(sections, **made)
        if isinstance(strategy, OneShot) and made["search"] is not None:
            sections.attempt("search", lambda: strategy.stages(made["search"].epochs))
        if made["search"] is not None and made["race"] is not None:
            sections.attempt("search", lambda: _check_epochs(made["search"], made["race"]))
        if made["posterior"] is not None and strategy is not None:
            sections.attempt("posterior", lambda: made["posterior"].check(strategy))
        if made["race"] is not None and not len(sections.problems):
            sections.attempt("race", lambda: _try_race(made["race"], parts["space"], parts["network"]))
        if made["final"] is not None:
            sections.attempt("final", lambda: _try_final(parts["space"], parts["network"], made["final"]))
        sections.problems.raise_if_any()
        made["search"] = made["search"].with_absolute_paths()
        made["target"] = _with_absolute_source(made["target"])
        made["limit"] = _with_absolute_source(made["limit"])
        assert data is not None, "problems were raised"
        return cls(seed=seed, **parts, **made, data=data, data_set=own, given=merge(layers, sections.given))

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

    def with_seed(self, seed: int) -> SearchSpec:
        """Return the same search with another seed, also where its other settings are planned later."""
        return replace(self, seed=seed, given={**self.given, "seed": seed})

    def written_settings(self) -> Settings:
        """Return the settings that the user or a recipe wrote: the others may be planned once the data are read."""
        return _select_written(self.to_settings(), self.given)

    def determining_settings(self) -> Settings:
        """Return what the scores of a black-box search depend on, by dotted name: no seed, no paths."""
        flat = flatten({name: values for name, values in self.to_settings().items() if name in SECTIONS})
        plain = json.loads(json.dumps(flat, default=str))  # as a database returns it
        unused = [name for name in ("target", "limit") if getattr(self, name).metric == "none"]
        unused += ["final"] if len(unused) == 2 else []  # nothing counts costs
        omitted = (*(f"{name}." for name in unused), "search.trials_at_once")  # older studies have none of these
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

    def find_table(self, space: SearchSpace) -> tuple[Benchmark, str] | None:
        """Return the benchmark table of the search and its data set to use, None where no table covers the space."""
        return find_benchmark(space, self.data_set.name, self.data.directory, named=self.search.table)

    def find_guide(self, space: SearchSpace) -> tuple[Benchmark, str] | None:
        """Return the table whose scores may guide a search: validation scores of the same data."""
        found = self.find_table(space)
        guides = found is not None and found[1] == self.data_set.name and "valid" in found[0].metrics
        return found if guides else None

    def load_data(self) -> Any:
        """Read the data set; a DataError says if the data came from Python code."""
        if self.data_set.name == GIVEN:
            raise DataError("this run was given its data in Python: pass `data=` to archloom.resume")
        return load(self.data_set.name, directory=self.data.directory, **self.data_set.settings)


SECTION_TYPES: Mapping[str, type] = {
    "weights": WeightSettings,
    "search": SearchSettings,
    "race": RaceSettings,
    "target": TargetSettings,
    "limit": LimitSettings,
    "final": FinalSettings,
    "monitor": MonitorSettings,
    "posterior": PosteriorPhaseSettings,
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
    require({f"no data folder {folder}; check --data-dir": folder is None or exists(folder)})
    spec.search.refuse_untrusted_study()
    return spec


def build_space(space: Component) -> SearchSpace:
    """Return the search space that a configuration names."""
    built: SearchSpace = SPACES.find(space.name).load()(**space.settings)
    return built


def _find_task(space: Entry | None) -> Task:
    """Return the task of a space; of an unknown one, which is a problem already, any."""
    return CLASSIFICATION if space is None else family_of(space.load()).task


def find_data(sections: Sections, default: str = DEFAULT_DATA) -> tuple[str, Entry]:
    """Return the name of the data set and its entry; data that Python code passes have no settings of their own.

    A path in the place of the name becomes the name of the data set at that path.
    """
    if sections.given.get("data", {}) and sections.table("data").get("name") == GIVEN:
        return sections.take("data", "name"), Entry("archloom.searches.spec:given_data")
    located = sections.problems.attempt(lambda: locate_data(sections.table("data")))
    if located is None:
        return default, DATA[default]
    sections.put("data", located)
    return sections.find("data", DATA, default)


def _select_written(settings: Settings, given: Settings) -> Settings:
    return {
        name: _select_written(value, given[name])
        if isinstance(value, Mapping) and isinstance(given[name], Mapping)
        else value
        for name, value in settings.items()
        if name in given
    }


def given_data(directory: Path | None) -> DataSet:
    """Declare no settings, for data that Python code passes. It is never called."""
    raise AssertionError


def resolve_data(sections: Sections, kind: type[Parts], name: str, data_set: Entry) -> tuple[Parts | None, Component]:
    """Return the section `data` as what every data set has, and as the data set's own settings."""
    common, function = schema(kind), data_set.load()
    given = sections.keywords("data", kind, function, defaults=data_set.settings)
    folder = data_folder(given["directory"])  # absolute: a run may be resumed from another working directory
    values = {**given, "directory": None if folder is None else expand(folder).absolute()}
    if name in DATA and isinstance(values.get("path"), str):
        values["path"] = absolute_path(values["path"], values["directory"])
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


def _try_parts(
    sections: Sections, *, seed: int, space: Component, strategy: Component, network: Component
) -> OneShot | BlackBox | None:
    """Build what plug-ins declare once, without memory or data: a value of the right type may still break a rule.

    Returns the strategy, None where it cannot be built.
    """
    built = sections.attempt("space", lambda: build_space(space))
    if built is None:
        return None
    if is_plugin(space.name):
        before = len(sections.problems)
        sections.attempt("space", lambda: check_space(space.name, built))
        if len(sections.problems) > before:
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
        table = search.table
        if table is not None and not is_file(table):  # before any search of a comparison runs
            sections.attempt("search", lambda: BENCHMARKS.find(table))
    if weights is not None and machine is not None:
        sections.attempt("weights", lambda: _check_precision(weights, machine))


def _check_epochs(search: SearchSettings, race: RaceSettings) -> None:
    """Raise a SettingError if nothing is trained: only the finalist race needs no epochs."""
    rule = f"search.epochs must be at least 1 without a finalist race, got {search.epochs}; give search.budget"
    require({rule: search.epochs > 0 or search.budget is not None or race.is_on})


def _try_race(race: RaceSettings, space: Component, network: Component) -> None:
    """Build the space and the network of a contestant once, without memory."""
    built = build_space(Component(space.name, {**space.settings, **race.space}))
    unknown = [name for name in race.network if name not in network.settings]
    rules = {f"race.network has no setting '{name}'{suggestion(name, network.settings)}": False for name in unknown}
    require(rules)
    with torch.device("meta"):
        _try_network(built, EveryOption(), {**network.settings, **race.network})


def _check_precision(weights: WeightSettings, machine: Machine) -> None:
    """Raise a SettingError if bfloat16 is asked for on a processor without instructions for it."""
    require_bfloat16("weights", on_cpu=weights.mixed_precision and pick_device(machine.device).type == "cpu")


_BUILT: set[str] = set()  # many runs of one process differ only in their seeds: a network is tried once


def _try_network(space: SearchSpace, resolve: Resolve, settings: Settings) -> None:
    what = repr((space, resolve, sorted(settings.items())))
    if what not in _BUILT:
        build_network(space, resolve, family_of(space).task.any_shape, **settings)
        _BUILT.add(what)


def _try_final(space: Component, network: Component, final: FinalSettings) -> None:
    """Raise a SettingError if the final network cannot have the size that is asked for."""
    if final != FinalSettings():
        resize(build_space(space), network.settings, final)


def _with_absolute_source(target: CostSettings) -> CostSettings:
    """Return the target or limit with an absolute path where its source is a file; a device stays as it is."""
    return replace(target, source=absolute(str(target.file))) if target.file is not None else target
