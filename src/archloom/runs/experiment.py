"""An experiment: every setting of a run, resolved and checked before anything is computed.

Each section of a configuration is the keywords of the thing it configures. What a user does not say comes, from weakest
to strongest, from: that thing's own defaults, what small data wants, the named space, the strategy's preset.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from archloom.backends.local import Machine
from archloom.benchmarks import find_benchmark
from archloom.catalogue import Catalogue, Entry
from archloom.data import DATA, FOLDER_VARIABLE, load
from archloom.data.augment import Augment
from archloom.data.loader import Loader
from archloom.data.source import ImageData
from archloom.data.splits import Split, limited, nb201_split, random_split
from archloom.engine.black_box import BlackBoxSearch, Score, TableScore
from archloom.engine.events import Listener
from archloom.engine.one_shot import OneShotSearch
from archloom.engine.search import Judge, Search
from archloom.engine.training import StandaloneScore, seeded
from archloom.errors import ArchloomError, DataError, SettingError, suggestion
from archloom.networks import build_network
from archloom.runs.settings import check, merge, schema
from archloom.spaces import SPACES, SearchSpace
from archloom.strategies import STRATEGIES
from archloom.strategies.base import BlackBox, OneShot
from archloom.supernets import EveryOption, SharedWeights

SECTIONS = ("space", "strategy", "network", "data", "weights", "search", "machine")
NB201_SPLIT = "cifar-split.txt"
GIVEN = "given"  # the name of data handed over in Python rather than loaded

FOR_SMALL_DATA: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # 1,797 images make few steps: a small network, and an architecture that learns faster than on 50,000
    "digits": {
        "space": {"cells_per_stage": 1},
        "network": {"channels": 8},
        "search": {"epochs": 40, "evaluation_images": 500},
        "strategy": {"learning_rate": 0.01},
    }
}


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """What every data set can be asked, beside its own settings."""

    directory: Path | None = None  # the data folder; else $ARCHLOOM_DATA
    split: Literal["random", "nb201"] = "random"  # nb201: the benchmark's own split of CIFAR-10
    split_seed: int = 0  # apart from the run's seed, so that searches of all seeds see the same split
    train_fraction: float = 0.5  # the rest validates architectures
    train_images: int | None = None  # take only so many of the training part
    valid_images: int | None = None  # take only so many of the validation part


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """How long and how closely to search."""

    epochs: int = 50  # of a one-shot search
    batch_size: int = 64
    valid_batch_size: int = 0  # 0: as batch_size
    cutout: int = 0  # side of the square blanked out in training images
    evaluation_images: int = 1000  # validation images that judge one path under the shared weights
    chance_samples: int = 30  # architectures drawn by chance that the result is compared with
    trials: int = 100  # of a black-box search
    score: Literal["auto", "table", "training"] = "auto"  # what a black-box search asks; auto: a table if there is one
    score_epochs: int = 5  # for how long `training` trains each architecture
    channels_last: bool = True  # the memory layout that is faster nearly everywhere
    tensorboard: bool = False  # also write TensorBoard events into the run

    def __post_init__(self) -> None:
        least = {"epochs": 1, "batch_size": 2, "evaluation_images": 2, "trials": 1, "score_epochs": 1}
        least |= {"valid_batch_size": 0, "cutout": 0, "chance_samples": 0}
        problems = [
            f"search.{name} must be at least {bound}, got {getattr(self, name)}"
            for name, bound in least.items()
            if getattr(self, name) < bound
        ]
        if problems:
            raise SettingError(problems)


@dataclass(frozen=True)
class Experiment:
    """A resolved configuration: what `config.toml` of a run holds."""

    seed: int
    names: Mapping[str, str]  # of the space, the strategy and the data
    settings: Mapping[str, Mapping[str, Any]]  # by section, complete
    preset: str | None = None

    @classmethod
    def resolve(cls, given: Mapping[str, Any]) -> Experiment:
        """Check a configuration as a whole; a SettingError lists everything that is wrong with it."""
        return _Resolver(given).experiment()

    def to_settings(self) -> dict[str, Any]:
        """What a TOML file has to say to get this experiment again."""
        sections: dict[str, Any] = {name: dict(values) for name, values in self.settings.items()}
        for name, value in self.names.items():
            sections[name] = {"name": value, **sections[name]}
        if self.preset is not None:
            sections["strategy"]["preset"] = self.preset
        return {"seed": self.seed, **sections}

    @property
    def title(self) -> str:
        return f"{self.names['strategy']} on {self.names['space']}, {self.names['data']}, seed {self.seed}"

    @property
    def stem(self) -> str:
        return "-".join(self.names[name] for name in ("space", "strategy", "data"))

    def space(self) -> SearchSpace:
        space: SearchSpace = SPACES.find(self.names["space"]).load()(**self.settings["space"])
        return space

    def strategy(self, space: SearchSpace) -> OneShot | BlackBox:
        generator = torch.Generator().manual_seed(stream(self.seed, "strategy"))
        strategy: OneShot | BlackBox = STRATEGIES.find(self.names["strategy"]).load()(
            space, generator, **self.settings["strategy"]
        )
        return strategy

    def data(self) -> ImageData:
        if self.names["data"] == GIVEN:
            raise DataError("this run was given its data in Python: pass `data=` to archloom.resume to go on")
        common, own = _divided(self.settings["data"])
        return load(self.names["data"], directory=common.directory, **own)

    def build(self, *, data: ImageData | None = None, listeners: Sequence[Listener] = ()) -> Search:
        """The search, ready to run or to be given a saved state."""
        return _Builder(self, data or self.data()).search(listeners)


def stream(seed: int, purpose: str) -> int:
    """A seed of its own for every purpose, so that no two generators of a run draw the same numbers."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{purpose}".encode()).digest()[:7], "little")


def _divided(settings: Mapping[str, Any]) -> tuple[DataSettings, dict[str, Any]]:
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

    def experiment(self) -> Experiment:
        space = self._entry(SPACES, "space", "nb201")
        strategy = self._entry(STRATEGIES, "strategy", "gdas")
        data = self._data_entry()
        self._raise_if_any()  # without these three nothing else can be checked
        names = {"space": space[0], "strategy": strategy[0], "data": data[0]}
        targets: dict[str, Any] = {
            "space": space[1].load(),
            "strategy": strategy[1].load(),
            "network": Entry(space[1].load().network).load(),
            "weights": SharedWeights,
            "search": SearchSettings,
            "machine": Machine,
        }
        preset, preset_settings = self._preset(targets["strategy"])
        layers = merge(
            _fitting(FOR_SMALL_DATA.get(data[0], {}), targets), {"space": dict(space[1].settings)}, preset_settings
        )
        settings = {name: self._section(name, targets[name], layers) for name in targets}
        settings["data"] = self._data_section(data[1])
        self._raise_if_any()
        experiment = Experiment(self.seed, names, settings, preset)
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
            return self.given["data"].pop("name"), Entry("archloom.runs.experiment:given_data")
        return self._entry(DATA, "data", "digits")

    def _preset(self, strategy: Any) -> tuple[str | None, Mapping[str, Any]]:
        preset = self.given["strategy"].pop("preset", None)
        if preset is None:
            return None, {}
        if preset not in strategy.presets:
            self.problems.append(
                f"unknown preset '{preset}' of the strategy{suggestion(str(preset), strategy.presets)}"
            )
            return None, {}
        return preset, strategy.presets[preset]

    def _section(self, name: str, target: Any, layers: Mapping[str, Any]) -> dict[str, Any]:
        """All settings of a section: defaults, layers, then what the user gave."""
        values, problems = check(name, target, merge(layers.get(name, {}), self.given[name]))
        self.problems += problems
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
            complete |= {key: values.get(key, setting.default) for key, setting in schema(target).items()}
        return complete

    def _try(self, experiment: Experiment) -> None:
        """Settings of the right kind may still break a rule: build everything once, without memory or data."""
        self._attempt(lambda: SearchSettings(**experiment.settings["search"]))
        self._attempt(lambda: Machine(**experiment.settings["machine"]).prepare())
        self._attempt(lambda: SharedWeights(nn.Linear(1, 1), **experiment.settings["weights"]))
        space = self._attempt(experiment.space)
        if space is not None:
            self._attempt(lambda: experiment.strategy(space))
            with torch.device("meta"):
                settings = experiment.settings["network"]
                self._attempt(lambda: build_network(space, EveryOption(), classes=2, colours=3, **settings))

    def _attempt(self, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except SettingError as error:
            self.problems += error.problems
            return None


def given_data(directory: Path | None) -> ImageData:
    """Stands in the place of a loading function for data that Python code hands over; never called."""
    raise AssertionError


def _fitting(layers: Mapping[str, Mapping[str, Any]], targets: Mapping[str, Any]) -> dict[str, Any]:
    """Only those settings that the things at hand have."""
    return {
        section: {name: value for name, value in values.items() if name in schema(targets[section])}
        for section, values in layers.items()
    }


class _Builder:
    """Makes the objects of a search from an experiment and its data."""

    def __init__(self, experiment: Experiment, data: ImageData) -> None:
        self._experiment, self._data = experiment, data
        self._settings = SearchSettings(**experiment.settings["search"])
        self._machine = Machine(**experiment.settings["machine"])
        self._device = self._machine.prepare()
        self._common, _ = _divided(experiment.settings["data"])
        self._space = experiment.space()
        self._shape = {"classes": len(data.classes), "colours": data.channels}

    def search(self, listeners: Sequence[Listener]) -> Search:
        strategy = self._experiment.strategy(self._space)
        found = find_benchmark(self._space, self._data.name, self._folder())
        common: dict[str, Any] = {"judge": Judge(found), "listeners": listeners}
        if isinstance(strategy, BlackBox):
            score = self._score(found)
            return BlackBoxSearch(self._space, strategy, score, trials=self._settings.trials, **common)
        split = self._split()
        strategy.to(self._device)
        return OneShotSearch(
            self._space,
            strategy,
            self._weights(),
            train=self._loader(split.train, "train"),
            valid=self._loader(split.valid, "valid", batch_size=self._settings.valid_batch_size),
            evaluation=self._evaluation_loader(split),
            epochs=self._settings.epochs,
            chance_samples=self._settings.chance_samples,
            **common,
        )

    def _folder(self) -> Path | None:
        variable = os.environ.get(FOLDER_VARIABLE)
        return self._common.directory or (Path(variable) if variable else None)

    def _weights(self) -> SharedWeights:
        with seeded(stream(self._experiment.seed, "weights")):
            network = build_network(self._space, EveryOption(), **self._shape, **self._experiment.settings["network"])
        layout = torch.channels_last if self._settings.channels_last else torch.contiguous_format
        network = network.to(device=self._device, memory_format=layout)  # type: ignore[call-overload]
        return SharedWeights(network, **self._experiment.settings["weights"])

    def _split(self) -> Split:
        if self._common.split == "nb201":
            split = nb201_split(self._split_file())
        else:
            split = random_split(
                len(self._data.train), train_fraction=self._common.train_fraction, seed=self._common.split_seed
            )
        return limited(split, train=self._common.train_images, valid=self._common.valid_images)

    def _split_file(self) -> Path:
        folder = self._folder()
        if folder is None:
            raise DataError(f"data.split 'nb201' needs {NB201_SPLIT} in the data folder; pass --data-dir")
        candidates = [folder / part / NB201_SPLIT for part in ("nasbench201", "nb201", "")]
        return next((path for path in candidates if path.is_file()), candidates[0])

    def _loader(
        self, indices: torch.Tensor, purpose: str, *, batch_size: int = 0, augmented: bool = True, **options: Any
    ) -> Loader:
        augment = replace(self._data.augment, cutout=self._settings.cutout) if augmented else Augment()
        return Loader(
            self._data.train,
            indices,
            batch_size=batch_size or self._settings.batch_size,
            mean=self._data.mean,
            std=self._data.std,
            augment=augment,
            seed=stream(self._experiment.seed, purpose),
            device=self._device,
            channels_last=self._settings.channels_last,
            workers=self._machine.workers,
            **options,
        )

    def _evaluation_loader(self, split: Split) -> Loader:
        """Large batches: what judges an architecture are batch statistics too."""
        images = split.valid[: self._settings.evaluation_images]
        return self._loader(images, "evaluation", batch_size=min(250, len(images)), augmented=False)

    def _score(self, found: tuple[Any, str] | None) -> Score:
        if self._settings.score == "table" or (self._settings.score == "auto" and found is not None):
            if found is None:
                raise ArchloomError(
                    f"no benchmark table knows space '{self._experiment.names['space']}' on "
                    f"{self._data.name}; set search.score = 'training', or pass --data-dir with the table"
                )
            return TableScore(*found)
        split = self._split()
        return StandaloneScore(
            self._space,
            train=self._loader(split.train, "train"),
            valid=self._loader(split.valid, "valid", batch_size=250, augmented=False, drop_last=False),
            epochs=self._settings.score_epochs,
            seed=stream(self._experiment.seed, "weights"),
            device=self._device,
            network=dict(self._experiment.settings["network"]),
            weights=dict(self._experiment.settings["weights"]),
            **self._shape,
        )
