"""The posterior of one run, or of several parallel ones together."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from archloom.core.durations import parse_duration
from archloom.core.errors import CheckpointError, SettingError
from archloom.core.files import write_atomically
from archloom.core.settings import Settings, flatten, merge
from archloom.core.trust import trusting
from archloom.data.source import ImageData
from archloom.execution.run_folder import RunFolder
from archloom.execution.run_settings import refuse_changed_settings, select_determining
from archloom.policies import Chain
from archloom.policies.posterior import Posterior
from archloom.searches.build import build_search
from archloom.searches.one_shot import OneShotLoop
from archloom.searches.paths import refuse_without_shared_weights
from archloom.searches.posterior_phase import PosteriorPhase, PosteriorPhaseSettings, Progress
from archloom.searches.spec import NOT_DETERMINING, SECTIONS, SearchSpec
from archloom.spaces import SearchSpace
from archloom.strategies.posterior_strategy import PosteriorStrategy

FILE = "posterior.json"  # of a run folder: what the posterior phase found


def posterior(
    directories: str | Path | Sequence[str | Path],
    *,
    warn: Callable[[str], None] = lambda message: None,
    plugins: bool = False,
) -> Posterior:
    """Return the posterior of runs together, each after its own burn-in; runs need not be finished.

    Several runs are parallel chains: the same settings with different seeds. R-hat then compares the chains.

    Args:
        directories: A run folder, or several.
        warn: Called with warnings about checkpoints.
        plugins: Whether to import plug-ins that only a run folder names; see SECURITY.md.

    Returns:
        The probabilities of options, the most frequent architectures, and how well the chains mixed.

    Raises:
        SettingError: If a strategy draws from no posterior, or runs are not parallel chains.
        CheckpointError: If a checkpoint is missing or does not fit.

    Examples:
        >>> import archloom
        >>> type(archloom.posterior("runs/first")).__name__
        'Posterior'
    """
    paths = [directories] if isinstance(directories, str | Path) else directories
    runs = [RunFolder.open(Path(path)) for path in paths]
    if not runs:
        raise SettingError("name at least one run")
    with trusting(plugins=plugins):  # what is found is trusted from then on
        experiments = [SearchSpec.resolve(run.config) for run in runs]
    _refuse_different(runs, experiments)
    space = experiments[0].build_space()
    strategy = _posterior_strategy(experiments[0], space, runs[0])
    chains = [_read_chain(run, experiment, space, warn) for run, experiment in zip(runs, experiments, strict=True)]
    return strategy.summarize_chains(chains, runs=[str(run.path) for run in runs])


def sample_posterior(
    directory: str | Path,
    *,
    phase: PosteriorPhaseSettings | None = None,
    budget: str | None = None,
    data: ImageData | None = None,
    settings: Settings | None = None,
    progress: Progress = lambda draws, r_hat: None,
    stop: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None] = lambda message: None,
    plugins: bool = False,
) -> Posterior:
    """Draw from the posterior of the architecture parameters given the shared weights of a run, until chains agree.

    Args:
        directory: A run folder; the weights are those of its latest checkpoint and do not change.
        phase: How many chains there are, how long they run at most, and when they have converged.
        budget: Time after which the draws so far are the result, such as `10m`; left out: no limit.
        data: The data of a run that got its data in Python.
        settings: Settings that may differ here: device, data folder.
        progress: Called with the draws of each chain so far and their R-hat.
        stop: If it returns true, the draws so far are the result.
        warn: Called with warnings about checkpoints.
        plugins: Whether to import plug-ins that only a run folder names; see SECURITY.md.

    Returns:
        The posterior; its `mixing` says whether the chains converged. The run folder gets it as `posterior.json`.

    Raises:
        SettingError: If the strategy draws from no posterior, or ArviZ is not installed.
        CheckpointError: If a checkpoint is missing or does not fit.
    """
    run, wanted = RunFolder.open(Path(directory)), phase or PosteriorPhaseSettings()
    ends = math.inf if budget is None else time.monotonic() + parse_duration(budget)
    with trusting(settings, plugins=plugins):
        experiment = SearchSpec.resolve(merge(run.config, settings or {}))
        refuse_without_shared_weights(run, experiment)
        search = build_search(experiment, data=data or experiment.load_data())
    assert isinstance(search, OneShotLoop), "refuse_without_shared_weights asks for a one-shot strategy"
    if not isinstance(search.strategy, PosteriorStrategy):
        raise _without_posterior(run, experiment)
    state = run.checkpoints.load_latest(warn=warn)
    assert state is not None, "refuse_without_shared_weights asks for a checkpoint"
    refuse_changed_settings(run.config_path, state, select_determining(experiment.to_settings(), NOT_DETERMINING))
    search.load_state_dict(state)
    found = PosteriorPhase(search.strategy, wanted).run(
        search.weights, search.later_draws(), progress=progress, stop=lambda: stop() or time.monotonic() > ends
    )
    write_atomically(run.path / FILE, json.dumps(found.to_json(), allow_nan=False, indent=2).encode())
    return found


def _without_posterior(run: RunFolder, experiment: SearchSpec) -> SettingError:
    return SettingError(f"{run.path} has no posterior: its strategy, {experiment.strategy.name}, draws nothing")


def _posterior_strategy(experiment: SearchSpec, space: SearchSpace, run: RunFolder) -> PosteriorStrategy:
    """Return the strategy of a run, which must be one that keeps its draws."""
    strategy = experiment.build_strategy(space)
    if not isinstance(strategy, PosteriorStrategy):
        raise _without_posterior(run, experiment)
    return strategy


def _read_chain(run: RunFolder, experiment: SearchSpec, space: SearchSpace, warn: Callable[[str], None]) -> Chain:
    """Return the draws in the latest checkpoint of a run."""
    chain = _posterior_strategy(experiment, space, run).chain
    size, state = chain.draws.shape[1], run.checkpoints.load_latest(warn=warn)
    if state is None:
        raise CheckpointError(f"{run.path} has no checkpoint, and draws are kept there only")
    refuse_changed_settings(run.config_path, state, select_determining(experiment.to_settings(), NOT_DETERMINING))
    try:
        chain.load_state_dict(state["strategy"]["chain"])
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"the checkpoint of {run.path} holds no draws") from error
    if chain.draws.shape[1] != size:
        raise CheckpointError(f"the checkpoint of {run.path} does not fit its config.toml; was it changed?")
    if len(chain) == 0:
        raise SettingError(f"{run.path} has no draws yet: until then its weights warm up")
    return chain


def _refuse_different(runs: Sequence[RunFolder], experiments: Sequence[SearchSpec]) -> None:
    """Raise a SettingError if runs differ in more than their seed, or are the same chain twice."""
    wanted, seeds = _relevant_settings(experiments[0]), {experiments[0].seed: runs[0].path}
    for run, experiment in zip(runs[1:], experiments[1:], strict=True):
        own = _relevant_settings(experiment)
        for name in (*wanted, *own):
            if own.get(name) != wanted.get(name):
                raise SettingError(
                    f"{run.path} is no parallel chain of {runs[0].path}: {name} is {own.get(name)!r}, "
                    f"there {wanted.get(name)!r}"
                )
        if experiment.seed in seeds:
            raise SettingError(
                f"{run.path} has seed {experiment.seed} like {seeds[experiment.seed]}: parallel chains have seeds of "
                "their own"
            )
        seeds[experiment.seed] = run.path


def _relevant_settings(experiment: SearchSpec) -> Settings:
    """Return the settings on which draws depend: all but the seed, the machine, and where the data are."""
    flat = flatten({name: values for name, values in experiment.to_settings().items() if name in SECTIONS})
    return {name: value for name, value in flat.items() if not name.startswith(("machine.", "data.directory"))}
