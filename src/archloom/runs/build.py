"""From an experiment to the search that carries it out: loaders, network, strategy, judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from archloom.backends.local import Machine
from archloom.benchmarks import find_benchmark
from archloom.data.augment import Augment
from archloom.data.loader import Loader
from archloom.data.source import ImageData
from archloom.data.splits import Split, limited, nb201_split, random_split
from archloom.engine.black_box import BlackBoxSearch, Score, TableScore
from archloom.engine.events import Listener
from archloom.engine.finals import Finals
from archloom.engine.one_shot import OneShotSearch
from archloom.engine.search import Judge, Search
from archloom.engine.training import StandaloneScore, seeded
from archloom.errors import ArchloomError, DataError
from archloom.networks import build_network
from archloom.runs.experiment import Experiment, SearchSettings, divided, stream
from archloom.spaces import Architecture
from archloom.strategies.base import BlackBox
from archloom.supernets import EveryOption, Only, SharedWeights

NB201_SPLIT = "cifar-split.txt"
EVALUATION_BATCH = 250


def build_search(
    experiment: Experiment, *, data: ImageData | None = None, listeners: Sequence[Listener] = ()
) -> Search:
    """The search, ready to run or to be given a saved state."""
    return _Builder(experiment, data or experiment.data()).search(listeners)


class _Builder:
    """Makes the objects of a search from an experiment and its data."""

    def __init__(self, experiment: Experiment, data: ImageData) -> None:
        self._experiment, self._data = experiment, data
        self._settings = SearchSettings(**experiment.settings["search"])
        self._machine = Machine(**experiment.settings["machine"])
        self._device = self._machine.prepare()
        self._common, _ = divided(experiment.settings["data"])
        self._space = experiment.space()
        self._shape = {"classes": len(data.classes), "colours": data.channels}

    def search(self, listeners: Sequence[Listener]) -> Search:
        strategy = self._experiment.strategy(self._space)
        name = self._experiment.names["data"]  # not that of the files: a folder may be called like a published data set
        found = find_benchmark(self._space, name, self._common.directory)
        common: dict[str, Any] = {"judge": Judge(found, data=name), "listeners": listeners}
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
            evaluation=self._evaluation_loader(split, part=0),
            comparison=self._evaluation_loader(split, part=1),
            epochs=self._settings.epochs,
            chance_samples=self._settings.chance_samples,
            finals=self._finals(split),
            **common,
        )

    def _finals(self, split: Split) -> Finals | None:
        if self._settings.finalist_steps == 0:
            return None
        return Finals(
            self._begin_finalist,
            train=self._loader(split.train, "finalists"),
            judge=self._evaluation_loader(split, part=0),
            steps=self._settings.finalist_steps,
        )

    def _begin_finalist(self, architecture: Architecture) -> SharedWeights:
        """A network of one architecture, as deep as it will be, with the same random start for all."""
        width = self._settings.finalist_channels
        network = {**self._experiment.settings["network"], **({} if width is None else {"channels": width})}
        rate = self._settings.finalist_learning_rate
        weights = {**self._experiment.settings["weights"], "learning_rate": rate, "learning_rate_end": rate}
        with seeded(stream(self._experiment.seed, "finalists")):
            made = build_network(self._space.at_full_depth(), Only(architecture), **self._shape, **network)
        return SharedWeights(self._placed(made), **weights)

    def _placed(self, network: nn.Module) -> nn.Module:
        layout = torch.channels_last if self._settings.channels_last else torch.contiguous_format
        placed: nn.Module = network.to(device=self._device, memory_format=layout)  # type: ignore[call-overload]
        return placed

    def _weights(self) -> SharedWeights:
        with seeded(stream(self._experiment.seed, "weights")):
            network = build_network(self._space, EveryOption(), **self._shape, **self._experiment.settings["network"])
        return SharedWeights(self._placed(network), **self._experiment.settings["weights"])

    def _split(self) -> Split:
        if self._common.split == "nb201":
            split = nb201_split(self._split_file())
        else:
            split = random_split(
                len(self._data.train), train_fraction=self._common.train_fraction, seed=self._common.split_seed
            )
        return limited(split, train=self._common.train_images, valid=self._common.valid_images)

    def _split_file(self) -> Path:
        folder = self._common.directory
        if folder is None:
            raise DataError(f"data.split 'nb201' needs {NB201_SPLIT} in the data folder; pass --data-dir")
        candidates = [folder / part / NB201_SPLIT for part in ("nasbench201", "nb201", "")]
        return next((path for path in candidates if path.is_file()), candidates[0])

    def _loader(
        self, indices: torch.Tensor, purpose: str, *, batch_size: int = 0, augmented: bool = True, **options: Any
    ) -> Loader:
        augment = self._data.augment if augmented else Augment()
        if purpose == "train" and self._settings.cutout is not None:
            augment = replace(augment, cutout=self._settings.cutout)
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

    def _evaluation_loader(self, split: Split, *, part: int) -> Loader:
        """Validation images that judge paths: one part while searching, another for the comparison with chance.

        What a strategy picked as the best on some images looks too good on these. Batches are large and alike, since
        their statistics take part in the judgement.
        """
        count = max(1, min(self._settings.evaluation_images, len(split.valid) // 2))
        images = split.valid[part * count : (part + 1) * count]
        batches = -(-count // EVALUATION_BATCH)
        return self._loader(images, f"evaluation {part}", batch_size=count // batches, augmented=False)

    def _score(self, found: tuple[Any, str] | None) -> Score:
        same = found is not None and found[1] == self._experiment.names["data"]  # a stand-in may judge, but not lead
        if self._settings.score == "table" or (self._settings.score == "auto" and same):
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
