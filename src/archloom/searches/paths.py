"""Single paths through the trained weights of a run: the score of each architecture without further training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from archloom.core.errors import CheckpointError, DataError, SettingError, one_line, require
from archloom.core.settings import Settings, merge
from archloom.data import DataSet
from archloom.data.places import GIVEN
from archloom.execution.run_folder import RunFolder
from archloom.execution.run_settings import refuse_changed_settings, select_determining
from archloom.families import build_network, family_of, select_deployed_settings
from archloom.searches.one_shot import OneShotLoop
from archloom.searches.recalibration import recalibrate
from archloom.searches.shared_score import SharedScore
from archloom.searches.short_training import seeded
from archloom.searches.spec import NOT_DETERMINING, SearchSpec
from archloom.spaces import Architecture, SearchSpace
from archloom.strategies.base import OneShot
from archloom.supernet import Only, SharedWeights


class Paths:
    """Evaluates architectures, in percent, under shared weights, always on the same validation images.

    Without recalibration a path is evaluated as in the search: normalized by the statistics of the batch. With it, the
    path becomes a separate network with the same weights, whose running statistics come from training batches; the
    shared weights do not change.
    """

    def __init__(self, search: OneShotLoop, *, build: Callable[[Architecture], Any], batches: int) -> None:
        self.space: SearchSpace = search.strategy.path_space
        self._weights, self._images, self._build = search.weights, search.evaluation, build
        self._shared = SharedScore(self.space, search.weights, search.evaluation, gates=search.strategy.path_gates)
        self._train = [search.train.batch(*divmod(step, search.train.steps)) for step in range(batches)]

    def __call__(self, architecture: Architecture) -> float:
        evaluate = self._recalibrated(architecture) if self._train else self._shared
        return 100 * evaluate(architecture)

    def _recalibrated(self, architecture: Architecture) -> SharedScore:
        network = self._build(architecture).to(self._weights.device)
        self._weights.copy_into(network)
        recalibrate(network, self._train)
        return SharedScore(self.space, SharedWeights(network, task=family_of(self.space).task), self._images)


def trained_paths(
    run: Path,
    build_search: Callable[..., object],
    *,
    images: int,
    recalibrate: int = 0,
    data: DataSet | None = None,
    settings: Settings | None = None,
    warn: Callable[[str], None] = lambda message: None,
) -> Paths:
    """Return the paths of a one-shot run, finished or not, with the weights of its latest checkpoint.

    A path is evaluated on `images` validation images, with running statistics from `recalibrate` training batches (0:
    batch statistics). `settings` may change the device and the data folder. `build_search` is an argument because
    `searches.build` itself scores with paths.
    """
    require(
        {
            f"images must be at least 2, got {images}": images >= 2,
            f"recalibrate must be 0 (off) or more training batches, got {recalibrate}": recalibrate >= 0,
        }
    )
    directory = RunFolder.open(run)
    own = {"search": {"evaluation_images": images}}
    experiment = SearchSpec.resolve(merge(directory.config, settings or {}, own))
    refuse_without_shared_weights(directory, experiment)
    if experiment.data_set.name == GIVEN and data is None:
        raise DataError(f"{run} was given its data in Python, and has to be given them again: archloom.rank(data=...)")
    data = data or experiment.load_data()
    search = build_search(experiment, data=data)
    assert isinstance(search, OneShotLoop)
    may_differ = (*NOT_DETERMINING, "search.evaluation_images")
    _load(search, directory, select_determining(experiment.to_settings(), may_differ), warn)
    task = family_of(search.space).task
    shape = task.shape_of(data)

    def build(architecture: Architecture) -> Any:
        with seeded(0):  # all weights are copied, but initialization must not change the caller's generator
            resolve = Only(architecture, affine=False)  # as in the supernet: there is no scale to copy
            settings = select_deployed_settings(experiment.network.settings)
            return build_network(search.strategy.path_space, resolve, shape, **settings)

    return Paths(search, build=build, batches=recalibrate)


def refuse_without_shared_weights(run: RunFolder, experiment: SearchSpec) -> None:
    """Raise an error if a run has no trained shared weights."""
    if not isinstance(experiment.build_strategy(experiment.build_space()), OneShot):
        raise SettingError(
            f"{run.path} has no shared weights: its strategy, {experiment.strategy.name}, trains none; "
            "name a run of a one-shot strategy"
        )
    if not run.checkpoints.paths():
        raise CheckpointError(f"{run.path} has no checkpoint, and weights are kept there only")


def _load(search: OneShotLoop, run: RunFolder, settings: Settings, warn: Callable[[str], None]) -> None:
    """Load the weights only: the state of their optimizer is not needed."""
    state = run.checkpoints.load_latest(warn=warn) or {}
    refuse_changed_settings(run.config_path, state, settings)
    try:
        search.restore_stage(state)
        search.weights.load_network(state["weights"])
    except (KeyError, RuntimeError, TypeError) as error:
        raise CheckpointError(
            f"the checkpoint of {run.path} does not fit its config.toml ({one_line(error)}); was it changed?"
        ) from error
