"""The trials of a black-box search: those of one process, or of several that work on one study in a database.

A strategy is a function of what it was told. So processes need not talk to each other: each tells its own strategy what
the others found, and a database deals out the numbers. Optuna keeps that database.
"""

from __future__ import annotations

import contextlib
import datetime
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from archloom.core.errors import SettingError, StorageError, one_line
from archloom.core.events import Record
from archloom.spaces import Architecture, SearchSpace
from archloom.strategies.base import BlackBox, Trial

if TYPE_CHECKING:
    import optuna

HEARTBEAT = 30  # seconds between two signs of life of a trial that is being scored
SILENCE = 150  # seconds without one after which its process counts as dead
PAUSE = 0.5  # seconds between two looks at what others are still scoring
ATTEMPTS = 20  # to open a database that another process is just about to create
EXPERIMENT, ARCHITECTURE, SECONDS = "experiment", "architecture", "seconds"  # names in the database


@dataclass(frozen=True)
class Scored:
    """How good an architecture was found to be after so many epochs of training."""

    epochs: int
    score: float


class Score(Protocol):
    """How good an architecture is, higher is better; perhaps in instalments, of which the last one counts."""

    @property
    def epochs(self) -> int:
        """Of a full training; 0 where nothing is trained."""

    def __call__(self, architecture: Architecture) -> Iterator[Scored]: ...


@dataclass(frozen=True)
class Finished:
    """A trial with its scores; a pruned one was stopped before the last."""

    trial: Trial
    scores: tuple[Scored, ...]
    pruned: bool
    seconds: float


class Study(ABC):
    """Which trial is next, and what others have found."""

    @abstractmethod
    def news(self, known: Sequence[Record]) -> Finished | None:
        """A trial that is finished, but not among the records of this search."""

    @abstractmethod
    def begin(self, strategy: BlackBox, position: int) -> Trial | None:
        """The next trial to score; None while others still work on all that are left."""

    @abstractmethod
    def at_work(self, trial: Trial) -> contextlib.AbstractContextManager[None]:
        """Surrounds the scoring of a trial."""

    @abstractmethod
    def finish(self, finished: Finished) -> bool:
        """Keep the result of a trial; False where it came too late to count."""


class LocalStudy(Study):
    """One process by itself: the trials are in its own checkpoints."""

    def news(self, known: Sequence[Record]) -> Finished | None:
        return None

    def begin(self, strategy: BlackBox, position: int) -> Trial | None:
        return strategy.ask(position)

    def at_work(self, trial: Trial) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def finish(self, finished: Finished) -> bool:
        return True


class SharedStudy(Study):
    """Several processes, each with a run of its own, on one set of `trials` that counts all of theirs.

    Every trial draws from a random stream of its own, so that processes of equal seed do not draw the same. A process
    that dies leaves a trial without signs of life; after a while that trial counts as failed, and another is drawn in
    its place. Whoever was only slow finds that its result came too late.
    """

    def __init__(
        self,
        study: optuna.Study,
        storage: optuna.storages.RDBStorage,
        space: SearchSpace,
        *,
        trials: int,
        seed_of: Callable[[int], int],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._study, self._storage, self._space = study, storage, space
        self._trials, self._seed_of, self._sleep = trials, seed_of, sleep
        self._asked: dict[int, optuna.Trial] = {}

    @classmethod
    def open(
        cls, place: str, space: SearchSpace, *, name: str, experiment: Mapping[str, Any], **options: Any
    ) -> SharedStudy:
        """The study in a file or at a database URL, begun if need be.

        `experiment` is everything that its scores and draws depend on: one begun with another is refused.
        """
        storage = _opened(place)
        with _told_in_one_line(place):
            study = _study(storage, name)
            if EXPERIMENT not in study.user_attrs:
                study.set_user_attr(EXPERIMENT, dict(experiment))
            begun = study.user_attrs[EXPERIMENT]  # as it is there, whoever was first
        for setting in (*experiment, *begun):
            if experiment.get(setting) != begun.get(setting):
                raise SettingError(
                    f"study '{name}' in {_shown(place)} belongs to another experiment: {setting} is "
                    f"{begun.get(setting)!r} there and {experiment.get(setting)!r} here; choose another search.study"
                )
        return cls(study, storage, space, **options)

    def news(self, known: Sequence[Record]) -> Finished | None:
        from optuna.trial import TrialState

        numbers = {record["trial"] for record in known}
        finished = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
        found = next((trial for trial in finished if trial.number not in numbers), None)
        if found is None:
            return None
        return Finished(
            Trial(found.number, self._space.check(found.user_attrs[ARCHITECTURE])),
            tuple(Scored(epochs, score) for epochs, score in sorted(found.intermediate_values.items())),
            found.state == TrialState.PRUNED,
            found.user_attrs[SECONDS],
        )

    def begin(self, strategy: BlackBox, position: int) -> Trial | None:
        self._bury_the_dead()
        if self._ahead_of(None) < self._trials:
            with _without_warnings():
                asked = self._study.ask()
            self._storage.record_heartbeat(asked._trial_id)
            if self._ahead_of(asked.number) < self._trials:
                return self._next(strategy, asked)
            self._give_up(asked)  # several asked for the last one at the same time
        self._sleep(PAUSE)
        return None

    def _next(self, strategy: BlackBox, asked: optuna.Trial) -> Trial:
        strategy.generator.manual_seed(self._seed_of(asked.number))
        trial = strategy.ask(asked.number)
        asked.set_user_attr(ARCHITECTURE, dict(trial.architecture))
        self._asked[trial.number] = asked
        return trial

    def _ahead_of(self, number: int | None) -> int:
        """How many trials before this number are done or being done."""
        from optuna.trial import TrialState

        states = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)
        trials = self._study.get_trials(deepcopy=False, states=states)
        return sum(number is None or trial.number < number for trial in trials)

    def _bury_the_dead(self) -> None:
        import optuna
        from optuna.trial import TrialState

        with _without_warnings():
            optuna.storages.fail_stale_trials(self._study)
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            # one that died before its first sign of life, which Optuna passes over
            if ARCHITECTURE not in trial.user_attrs and self._age(trial) > SILENCE:
                self._study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)

    @staticmethod
    def _age(trial: optuna.trial.FrozenTrial) -> float:
        begun = trial.datetime_start
        return 0.0 if begun is None else (datetime.datetime.now() - begun).total_seconds()

    def _give_up(self, asked: optuna.Trial) -> None:
        from optuna.trial import TrialState

        self._study.tell(asked, state=TrialState.FAIL, skip_if_finished=True)

    @contextlib.contextmanager
    def at_work(self, trial: Trial) -> Iterator[None]:
        from optuna.storages._heartbeat import get_heartbeat_thread

        asked = self._asked[trial.number]
        with get_heartbeat_thread(asked._trial_id, self._storage):
            try:
                yield
            except BaseException:  # an interrupted trial too is another's to draw
                self._give_up(self._asked.pop(trial.number))
                raise

    def finish(self, finished: Finished) -> bool:
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        asked = self._asked.pop(finished.trial.number)
        try:
            for scored in finished.scores:
                asked.report(scored.score, step=scored.epochs)
            asked.set_user_attr(SECONDS, finished.seconds)
        except UpdateFinishedTrialError:
            return False
        if finished.pruned:
            told = self._study.tell(asked, state=TrialState.PRUNED, skip_if_finished=True)
        else:
            told = self._study.tell(asked, finished.scores[-1].score, skip_if_finished=True)
        return told.state != TrialState.FAIL


# --- the database


def _opened(place: str) -> optuna.storages.RDBStorage:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    url = place if "://" in place else f"sqlite:///{Path(place).expanduser().absolute()}"
    waits = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {}  # for another process' write
    with _told_in_one_line(place), _without_warnings():
        for _ in range(ATTEMPTS):
            with _unless_just_created():
                return optuna.storages.RDBStorage(
                    url, engine_kwargs=waits, heartbeat_interval=HEARTBEAT, grace_period=SILENCE
                )
    raise StorageError(f"search.study: {_shown(place)} is being created by another process; try again")


def _study(storage: optuna.storages.RDBStorage, name: str) -> optuna.Study:
    import optuna

    return optuna.create_study(
        storage=storage,
        study_name=name,
        direction="maximize",
        sampler=optuna.samplers.RandomSampler(),  # never asked: our own strategies choose
        pruner=optuna.pruners.NopPruner(),
        load_if_exists=True,
    )


@contextlib.contextmanager
def _unless_just_created() -> Iterator[None]:
    """Two processes that create the tables of a new database get in each other's way; a moment later all is there."""
    from sqlalchemy.exc import DBAPIError

    try:
        yield
    except DBAPIError as error:
        if not any(words in str(error.orig) for words in ("already exists", "UNIQUE", "duplicate key", "locked")):
            raise
        time.sleep(PAUSE)


@contextlib.contextmanager
def _told_in_one_line(place: str) -> Iterator[None]:
    from optuna.exceptions import OptunaError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, OptunaError, ImportError, RuntimeError, ValueError) as error:
        cause = getattr(error, "orig", None) or error  # what the database itself says
        raise StorageError(f"search.study: {_shown(place)} cannot be used: {one_line(cause)}") from error


def _shown(place: str) -> str:
    """The place without the password that a URL may hold."""
    scheme, separator, rest = place.partition("://")
    return f"{scheme}://...@{rest.rpartition('@')[2]}" if separator and "@" in rest else place


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Optuna calls its heartbeats experimental and meant for its own loop, which is nothing that a user can mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
