"""An experiment: every setting of a run, resolved and checked before anything is computed.

Each section of a configuration is the keywords of the thing it configures. What a user does not say comes, from weakest
to strongest, from: that thing's own defaults, what small data wants, the named space, the strategy's preset.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from annotated_doc import Doc
from torch import nn

from archloom.core.errors import DataError, SettingError, one_line, require, suggestion
from archloom.core.files import data_folder
from archloom.core.registry import Catalogue, Entry
from archloom.core.settings import check, merge, named_sections, schema
from archloom.data import DATA, FACTS, Facts, load
from archloom.data.parts import DataParts
from archloom.data.source import ImageData
from archloom.execution.machine import Machine
from archloom.families import build_network, family_of
from archloom.objectives.target import TargetSettings
from archloom.searches.monitor import MonitorSettings
from archloom.spaces import SPACES, SearchSpace
from archloom.strategies import STRATEGIES
from archloom.strategies.base import BlackBox, OneShot
from archloom.supernet import EveryOption, SharedWeights, WeightSettings

SECTIONS = ("space", "strategy", "network", "data", "weights", "search", "target", "monitor", "machine")
NOT_DETERMINING = ("machine.", "data.directory", "search.trials", "search.study", "search.tensorboard")
GIVEN = "given"  # the name of data handed over in Python rather than loaded

FOR_SMALL_DATA: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # 1,797 images make few steps: a small network, weights that learn fast, and an architecture that waits for them;
    # on tensors this small a second thread costs more than it gives
    "digits": {
        "space": {"cells_per_stage": 1},
        "network": {"channels": 8},
        "weights": {"learning_rate": 0.1},
        "search": {"epochs": 60, "evaluation_images": 500},
        "strategy": {"learning_rate": 0.02, "warmup": 0.5},
        "monitor": {"eigenvalue_steps": 0},
        "machine": {"threads": 1},
    }
}


@dataclass(frozen=True, kw_only=True)
class DataSettings(DataParts):
    """What every data set can be asked, beside its own settings."""

    split: Annotated[Literal["random", "nb201"], Doc("nb201: the benchmark's own split of CIFAR-10")] = "random"
    train_fraction: Annotated[float, Doc("the rest validates architectures")] = 0.5


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """How long and how closely to search."""

    epochs: Annotated[int, Doc("of a one-shot search")] = 50
    batch_size: Annotated[int, Doc("training images of a step")] = 64
    valid_batch_size: Annotated[int, Doc("0: as batch_size")] = 0
    cutout: Annotated[
        int | None, Doc("side of the square blanked out in training images; left out: as the data have it")
    ] = None
    evaluation_images: Annotated[int, Doc("validation images that judge one path under the shared weights")] = 1000
    chance_samples: Annotated[int, Doc("architectures drawn by chance that the result is compared with")] = 30
    finalist_steps: Annotated[int, Doc("of each of a strategy's finalists, trained at full depth; 0: no finals")] = 120
    finalist_sweeps: Annotated[int, Doc("how often every change is tried, at most")] = 2
    finalist_channels: Annotated[int | None, Doc("their width; left out: that of the search")] = None
    finalist_shrink: Annotated[int, Doc("they see images so many times smaller in height and width")] = 1
    finalist_size: Annotated[
        float, Doc("what a unit of the logarithm of their parameters weighs against one of their loss")
    ] = 0.3
    finalist_learning_rate: Annotated[float, Doc("of their SGD, on a cosine to 0")] = 0.1
    trials: Annotated[int, Doc("of a black-box search")] = 100
    score: Annotated[
        Literal["auto", "table", "training", "shared"], Doc("of a trial; auto: from a table if one has it")
    ] = "auto"
    score_epochs: Annotated[
        int | None, Doc("of `training`, or the table's column; left out: 5, or the table's full training")
    ] = None
    shared_run: Annotated[Path | None, Doc("the one-shot run under whose weights `shared` scores")] = None
    study: Annotated[
        str | None, Doc("a file or database URL of trials that several processes share; left out: its own")
    ] = None
    study_name: Annotated[str, Doc("which study of that database")] = "archloom"
    channels_last: Annotated[bool, Doc("the memory layout that is faster nearly everywhere")] = True
    tensorboard: Annotated[bool, Doc("also write TensorBoard events into the run")] = False

    def __post_init__(self) -> None:
        least = {"epochs": 1, "batch_size": 2, "evaluation_images": 2, "trials": 1}
        least |= {"valid_batch_size": 0, "cutout": 0, "chance_samples": 0, "finalist_steps": 0}
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
        missing = self.tensorboard and importlib.util.find_spec("tensorboard") is None
        require({"search.tensorboard needs an extra: pip install 'archloom[tensorboard]'": not missing})
        missing = self.study is not None and importlib.util.find_spec("optuna") is None
        require({"search.study needs an extra: pip install 'archloom[optuna]'": not missing})


@dataclass(frozen=True)
class SearchSpec:
    """A resolved configuration: what `config.toml` of a run holds."""

    seed: int
    names: Mapping[str, str]  # of the space, the strategy and the data
    settings: Mapping[str, Mapping[str, Any]]  # by section, complete: what a preset said is in it

    @classmethod
    def resolve(cls, given: Mapping[str, Any]) -> SearchSpec:
        """Check a configuration as a whole; a SettingError lists everything that is wrong with it."""
        return _Resolver(given).experiment()

    def to_settings(self) -> dict[str, Any]:
        """What a TOML file has to say to get this experiment again."""
        return {"seed": self.seed, **named_sections(self.names, self.settings)}

    def determining(self) -> dict[str, Any]:
        """What the scores of a black-box search depend on, by dotted name: all but the seed and where things are."""
        sections = {name: values for name, values in self.to_settings().items() if name in SECTIONS}
        flat = {f"{section}.{name}": value for section, values in sections.items() for name, value in values.items()}
        plain = json.loads(json.dumps(flat, default=str))  # as a database gives it back
        aimless = (
            ("target.",) if self.settings["target"]["metric"] == "none" else ()
        )  # studies begun before there was one
        return {name: value for name, value in plain.items() if not name.startswith((*NOT_DETERMINING, *aimless))}

    @property
    def title(self) -> str:
        return f"{self.names['strategy']} on {self.names['space']}, {self.names['data']}, seed {self.seed}"

    @property
    def stem(self) -> str:
        return "-".join(self.names[name] for name in ("space", "strategy", "data"))

    def build_space(self) -> SearchSpace:
        space: SearchSpace = SPACES.find(self.names["space"]).load()(**self.settings["space"])
        return space

    def build_strategy(self, space: SearchSpace) -> OneShot | BlackBox:
        generator = torch.Generator().manual_seed(stream(self.seed, "strategy"))
        strategy: OneShot | BlackBox = STRATEGIES.find(self.names["strategy"]).load()(
            space, generator, **self.settings["strategy"]
        )
        return strategy

    def facts(self) -> Facts | None:
        """What is known of the data without reading them, if anything is."""
        return FACTS.get(self.names["data"])

    def load_data(self) -> ImageData:
        if self.names["data"] == GIVEN:
            raise DataError("this run was given its data in Python: pass `data=` to archloom.resume to go on")
        common, own = divided(self.settings["data"])
        return load(self.names["data"], directory=common.directory, **own)


def stream(seed: int, purpose: str) -> int:
    """A seed of its own for every purpose, so that no two generators of a run draw the same numbers."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{purpose}".encode()).digest()[:7], "little")


def divided(settings: Mapping[str, Any]) -> tuple[DataSettings, dict[str, Any]]:
    """The settings of every data set, and those of the one at hand."""
    common = schema(DataSettings)
    return (
        DataSettings(**{name: value for name, value in settings.items() if name in common}),
        {name: value for name, value in settings.items() if name not in common},
    )


class _Resolver:
    """Collects every problem of a configuration before giving up."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.problems: list[str] = []
        self._unfit: set[str] = set()  # sections with values of the wrong kind: whether they break rules cannot be told
        self.seed = self._seed(given)
        known = ("seed", *SECTIONS)
        self.problems += [f"unknown section '{name}'{suggestion(name, known)}" for name in given if name not in known]
        self.given = {name: self._table(name, given.get(name, {})) for name in SECTIONS}

    def _seed(self, given: Mapping[str, Any]) -> int:
        seed = given.get("seed", 0)
        if type(seed) is not int or not 0 <= seed < 2**63:
            self.problems.append(f"seed must be a whole number from 0, got {seed!r}")
            return 0
        return seed

    def _table(self, section: str, value: Any) -> dict[str, Any]:
        if isinstance(value, Mapping):
            return dict(value)
        self.problems.append(f"{section} must be a table of settings, got {value!r}")
        return {}

    def _raise_if_any(self) -> None:
        if self.problems:
            raise SettingError(self.problems)

    def experiment(self) -> SearchSpec:
        space = self._entry(SPACES, "space", "nb201")
        strategy = self._entry(STRATEGIES, "strategy", "gdas")
        data = self._data_entry()
        self._raise_if_any()  # without these three nothing else can be checked
        names = {"space": space[0], "strategy": strategy[0], "data": data[0]}
        targets: dict[str, Any] = {
            "space": space[1].load(),
            "strategy": strategy[1].load(),
            "network": family_of(space[1].load()).network,
            "weights": WeightSettings,
            "search": SearchSettings,
            "target": TargetSettings,
            "monitor": MonitorSettings,
            "machine": Machine,
        }
        preset = self._preset(targets["strategy"])
        small = {} if preset else _fitting(FOR_SMALL_DATA.get(data[0], {}), targets)  # a preset is as published
        layers = merge(small, {"space": dict(space[1].settings)}, preset)
        settings = {name: self._section(name, targets[name], layers) for name in targets}
        settings["data"] = self._data_section(data[1])
        settings["search"] |= _anchored(settings["search"])
        settings["target"] |= _anchored_source(settings["target"]["source"])
        experiment = SearchSpec(self.seed, names, settings)
        self._try(experiment)
        self._raise_if_any()
        return experiment

    def _entry(self, catalogue: Catalogue, section: str, default: str) -> tuple[str, Entry]:
        name = self.given[section].pop("name", default)
        try:
            return name, catalogue.find(str(name))
        except SettingError as error:
            self.problems += error.problems
            return default, catalogue[default]

    def _data_entry(self) -> tuple[str, Entry]:
        if self.given["data"].get("name") == GIVEN:
            return self.given["data"].pop("name"), Entry("archloom.searches.spec:given_data")
        return self._entry(DATA, "data", "digits")

    def _preset(self, strategy: Any) -> Mapping[str, Any]:
        preset = self.given["strategy"].pop("preset", None)
        if preset is None:
            return {}
        if not isinstance(preset, str) or preset not in strategy.presets:
            near = suggestion(str(preset), strategy.presets)
            self.problems.append(f"unknown preset '{preset}' of the strategy{near}")
            return {}
        settings: Mapping[str, Any] = strategy.presets[preset]
        return settings

    def _section(self, name: str, target: Any, layers: Mapping[str, Any]) -> dict[str, Any]:
        """All settings of a section: defaults, layers, then what the user gave."""
        values, problems = check(name, target, merge(layers.get(name, {}), self.given[name]))
        self.problems += problems
        self._unfit |= {name} if problems else set()
        return {key: values.get(key, setting.default) for key, setting in schema(target).items()}

    def _data_section(self, entry: Entry) -> dict[str, Any]:
        function = entry.load()
        known = {**schema(DataSettings), **schema(function)}
        given = self.given["data"]
        unknown = [name for name in given if name not in known]
        self.problems += [f"unknown setting 'data.{name}'{suggestion(name, known)}" for name in unknown]
        complete: dict[str, Any] = {}
        for target in (DataSettings, function):
            own = {name: value for name, value in {**entry.settings, **given}.items() if name in schema(target)}
            values, problems = check("data", target, own)
            self.problems += problems
            self._unfit |= {"data"} if problems else set()
            complete |= {key: values.get(key, setting.default) for key, setting in schema(target).items()}
        folder = data_folder(complete["directory"])  # as it is now, wherever the run is resumed from
        return {**complete, "directory": None if folder is None else folder.expanduser().absolute()}

    def _try(self, experiment: SearchSpec) -> None:
        """Settings of the right kind may still break a rule: build everything once, without memory or data."""
        settings = experiment.settings
        self._attempt("search", lambda: SearchSettings(**settings["search"]).check_extras())
        self._attempt("target", lambda: TargetSettings(**settings["target"]))
        self._attempt("monitor", lambda: MonitorSettings(**settings["monitor"]))
        self._attempt("machine", lambda: Machine(**settings["machine"]))
        self._attempt("data", lambda: divided(settings["data"]))
        self._attempt("weights", lambda: SharedWeights(nn.Linear(1, 1), WeightSettings(**settings["weights"])))
        space = self._attempt("space", experiment.build_space)
        if space is not None:
            self._attempt("strategy", lambda: experiment.build_strategy(space))
            with torch.device("meta"):
                self._attempt("network", lambda: _try_network(space, settings["network"]))

    def _attempt(self, section: str, make: Callable[[], Any]) -> Any:
        if section in self._unfit:
            return None
        try:
            return make()
        except SettingError as error:
            self.problems += error.problems
        except (RuntimeError, OverflowError, MemoryError) as error:  # of torch, for sizes beyond reason
            self.problems.append(f"{section} cannot be built: {one_line(error)}")
        return None


_BUILT: set[str] = set()  # many runs of one process differ in their seeds only: what was built once can be built


def _try_network(space: SearchSpace, settings: Mapping[str, Any]) -> None:
    what = repr((space, sorted(settings.items())))
    if what not in _BUILT:
        build_network(space, EveryOption(), classes=2, colours=3, **settings)
        _BUILT.add(what)


def _anchored(search: Mapping[str, Any]) -> dict[str, Any]:
    """The files that a search names, as they are now, wherever the run is resumed from."""
    run, study = search["shared_run"], search["study"]
    return {
        "shared_run": run and run.expanduser().absolute(),
        "study": study if not study or "://" in study else str(Path(study).expanduser().absolute()),
    }


def _anchored_source(source: str | None) -> dict[str, Any]:
    """The file of a cost model or of latencies, as it is now; the name of a device stays one."""
    is_file = source is not None and source.endswith((".csv", ".json"))
    return {"source": str(Path(source).expanduser().absolute()) if source is not None and is_file else source}


def given_data(directory: Path | None) -> ImageData:
    """Stands in the place of a loading function for data that Python code hands over; never called."""
    raise AssertionError


def _fitting(layers: Mapping[str, Mapping[str, Any]], targets: Mapping[str, Any]) -> dict[str, Any]:
    """Only those settings that the things at hand have."""
    return {
        section: {name: value for name, value in values.items() if name in schema(targets[section])}
        for section, values in layers.items()
    }
