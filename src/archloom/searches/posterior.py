"""The posterior of one run, or of several parallel ones together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from archloom.core.errors import CheckpointError, SettingError
from archloom.core.settings import (
    Settings,
    flatten,
)
from archloom.core.trust import (
    trusting,
)
from archloom.execution.run_folder import RunFolder
from archloom.execution.run_settings import refuse_changed_settings, select_determining
from archloom.policies import Chain
from archloom.policies.posterior import Posterior
from archloom.searches.spec import NOT_DETERMINING, SECTIONS, SearchSpec
from archloom.spaces import SearchSpace
from archloom.strategies.base import PosteriorStrategy


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


def _posterior_strategy(experiment: SearchSpec, space: SearchSpace, run: RunFolder) -> PosteriorStrategy:
    """Return the strategy of a run, which must be one that keeps its draws."""
    strategy = experiment.build_strategy(space)
    if not isinstance(strategy, PosteriorStrategy):
        raise SettingError(f"{run.path} has no posterior: its strategy, {experiment.strategy.name}, draws nothing")
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
