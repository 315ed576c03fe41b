"""The trials of a black-box search: of one process, or of several that share a study in a database.

The state of an ask/tell strategy is determined by the trials reported to it. Processes therefore need no other
connection: each reports the trials of the others to its own strategy, and the database assigns trial numbers. Optuna
manages the database.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from archloom.core.errors import SettingError, StorageError, one_line
from archloom.core.files import expand
from archloom.core.renames import new_name
from archloom.core.settings import Settings
from archloom.spaces import Architecture, SearchSpace
from archloom.strategies.base import BlackBox, Trial

if TYPE_CHECKING:
    import optuna

HEARTBEAT = 30  # seconds between two heartbeats of a trial that is being scored
SILENCE = 150  # seconds without a heartbeat after which its process counts as dead
PAUSE = 0.5  # seconds between two checks of the trials that other processes still score
ATTEMPTS = 20  # to open a database while another process creates it
EXPERIMENT, ARCHITECTURE, SECONDS = "experiment", "architecture", "seconds"  # names in the database


@dataclass(frozen=True)
class Scored:
    """The score of an architecture after some epochs of training."""

    epochs: int
    score: float


class Score(Protocol):
    """Scores an architecture, higher is better; perhaps several times during training, where the last score counts."""

    @property
    def epochs(self) -> int:
        """Return the epochs of a full training; 0 where nothing is trained."""

    def __call__(self, architecture: Architecture) -> Iterator[Scored]: ...


@dataclass(frozen=True)
class FinishedTrial:
    """A trial with its scores; a pruned one was stopped early."""

    trial: Trial
    scores: tuple[Scored, ...]
    pruned: bool
    seconds: float


class Study(ABC):
    """Assign trials, and report the trials of other processes."""

    @abstractmethod
    def find_foreign_trial(self, known: Collection[int]) -> FinishedTrial | None:
        """Return a finished trial whose number this search does not know yet, if there is one."""

    @abstractmethod
    def begin(self, strategy: BlackBox, position: int) -> Trial | None:
        """Return the next trial to score, or None while other processes score all that are left."""

    @abstractmethod
    def keep_alive(self, trial: Trial) -> contextlib.AbstractContextManager[None]:
        """Return a context manager for the scoring of a trial: within it, the trial counts as running."""

    @abstractmethod
    def finish(self, finished: FinishedTrial) -> bool:
        """Store the result of a trial; return False if it came too late to count."""


class LocalStudy(Study):
    """The trials of one process, which its own checkpoints hold."""

    def find_foreign_trial(self, known: Collection[int]) -> FinishedTrial | None:
        """Return None: no other process takes part."""
        return None

    def begin(self, strategy: BlackBox, position: int) -> Trial | None:
        """Return the trial that the strategy proposes."""
        return strategy.ask(position)

    def keep_alive(self, trial: Trial) -> contextlib.AbstractContextManager[None]:
        """Return an empty context: no other process waits for the trial."""
        return contextlib.nullcontext()

    def finish(self, finished: FinishedTrial) -> bool:
        """Return True: the trial counts."""
        return True


class SharedStudy(Study):
    """A study of several processes, each with its own run folder; `trials` counts the trials of all.

    Every trial has its own random stream, so processes with the same seed sample different architectures. If a process
    dies, its trial has no more heartbeats; after a while the trial counts as failed and another one replaces it. If the
    process was only slow, its result comes too late and does not count.
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
        self._study_id = storage.get_study_id_from_name(study.study_name)
        self._trials, self._seed_of, self._sleep = trials, seed_of, sleep
        self._asked: dict[int, optuna.Trial] = {}

    @classmethod
    def open(cls, place: str, space: SearchSpace, *, name: str, experiment: Settings, **options: Any) -> SharedStudy:
        """Open the study in a file or at a database URL; create it if it is not there.

        `experiment` holds the settings that scores and samples depend on.

        Raises:
            SettingError: If the study was begun with other settings.
            StorageError: If the database cannot be used.
        """
        storage = _open_storage(place)
        with _errors_in_one_line(place):
            study = _open_study(storage, name)
            if EXPERIMENT not in study.user_attrs:
                study.set_user_attr(EXPERIMENT, dict(experiment))
            stored = study.user_attrs[EXPERIMENT]  # of the process that was first
        begun = {new_name(setting): value for setting, value in stored.items()}  # older studies have older names
        for setting in (*experiment, *begun):
            if experiment.get(setting) != begun.get(setting):
                raise SettingError(
                    f"study '{name}' in {_hide_password(place)} belongs to another experiment: {setting} is "
                    f"{begun.get(setting)!r} there and {experiment.get(setting)!r} here; choose another search.study"
                )
        return cls(study, storage, space, **options)

    def find_foreign_trial(self, known: Collection[int]) -> FinishedTrial | None:
        """Return a finished trial of another process that is not known yet, or None."""
        from optuna.trial import TrialState  # late: optuna is optional and slow to import

        finished = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
        found = next((trial for trial in finished if trial.number not in known), None)
        if found is None:
            return None
        return FinishedTrial(
            Trial(found.number, self._space.check(found.user_attrs[ARCHITECTURE])),
            tuple(Scored(epochs, score) for epochs, score in sorted(found.intermediate_values.items())),
            found.state == TrialState.PRUNED,
            found.user_attrs[SECONDS],
        )

    def begin(self, strategy: BlackBox, position: int) -> Trial | None:
        """Return a new trial, or None after a pause while other processes score the last ones."""
        self._fail_dead_trials()
        if self._count_before(None) < self._trials:
            with _without_warnings():
                asked = self._study.ask()
            self._record_heartbeat(asked.number)
            if self._count_before(asked.number) < self._trials:
                return self._sample_trial(strategy, asked)
            self._fail_trial(asked)  # several processes asked for the last one at the same time
        self._sleep(PAUSE)
        return None

    def _sample_trial(self, strategy: BlackBox, asked: optuna.Trial) -> Trial:
        strategy.generator.manual_seed(self._seed_of(asked.number))
        trial = strategy.ask(asked.number)
        asked.set_user_attr(ARCHITECTURE, dict(trial.architecture))
        self._asked[trial.number] = asked
        return trial

    def _count_before(self, number: int | None) -> int:
        """Return how many trials before this number are finished or running; of all, if it is None."""
        from optuna.trial import TrialState

        states = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)
        trials = self._study.get_trials(deepcopy=False, states=states)
        return sum(number is None or trial.number < number for trial in trials)

    def _fail_dead_trials(self) -> None:
        import optuna
        from optuna.trial import TrialState

        with _without_warnings():
            optuna.storages.fail_stale_trials(self._study)
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            # Optuna ignores a trial whose process died before its first heartbeat
            if ARCHITECTURE not in trial.user_attrs and self._age(trial) > SILENCE:
                self._study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)

    @staticmethod
    def _age(trial: optuna.trial.FrozenTrial) -> float:
        begun = trial.datetime_start
        return 0.0 if begun is None else (datetime.datetime.now() - begun).total_seconds()

    def _fail_trial(self, asked: optuna.Trial) -> None:
        from optuna.trial import TrialState

        self._study.tell(asked, state=TrialState.FAIL, skip_if_finished=True)

    def _record_heartbeat(self, number: int) -> None:
        self._storage.record_heartbeat(self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number))

    @contextlib.contextmanager
    def keep_alive(self, trial: Trial) -> Iterator[None]:
        """Mark the trial as alive at intervals while the context is open."""
        ended = threading.Event()

        def beat() -> None:
            self._record_heartbeat(trial.number)
            while not ended.wait(HEARTBEAT):
                self._record_heartbeat(trial.number)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        except BaseException:  # an interrupted trial, too, is replaced by another one
            self._fail_trial(self._asked.pop(trial.number))
            raise
        finally:
            ended.set()
            thread.join()

    def finish(self, finished: FinishedTrial) -> bool:
        """Store the score; return False if another process has given the trial up."""
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
            stored = self._study.tell(asked, state=TrialState.PRUNED, skip_if_finished=True)
        else:
            stored = self._study.tell(asked, finished.scores[-1].score, skip_if_finished=True)
        return stored.state != TrialState.FAIL


# --- the database


def _open_storage(place: str) -> optuna.storages.RDBStorage:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    url = place if "://" in place else f"sqlite:///{expand(place).absolute()}"
    waits = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {}  # for another process' write
    with _errors_in_one_line(place), _without_warnings():
        for _ in range(ATTEMPTS):
            with _retry_while_created():
                return optuna.storages.RDBStorage(
                    url, engine_kwargs=waits, heartbeat_interval=HEARTBEAT, grace_period=SILENCE
                )
    raise StorageError(f"search.study: {_hide_password(place)} is being created by another process; try again")


def _open_study(storage: optuna.storages.RDBStorage, name: str) -> optuna.Study:
    import optuna

    return optuna.create_study(
        storage=storage,
        study_name=name,
        direction="maximize",
        sampler=optuna.samplers.RandomSampler(),  # never used: our own strategies choose
        pruner=optuna.pruners.NopPruner(),
        load_if_exists=True,
    )


@contextlib.contextmanager
def _retry_while_created() -> Iterator[None]:
    """Ignore conflicts of two processes that create the tables of a new database; a moment later all exist."""
    from sqlalchemy.exc import DBAPIError

    try:
        yield
    except DBAPIError as error:
        if not any(words in str(error.orig) for words in ("already exists", "UNIQUE", "duplicate key", "locked")):
            raise
        time.sleep(PAUSE)


@contextlib.contextmanager
def _errors_in_one_line(place: str) -> Iterator[None]:
    """Turn errors of the database into a StorageError of one line."""
    from optuna.exceptions import OptunaError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, OptunaError, ImportError, RuntimeError, ValueError) as error:
        cause = getattr(error, "orig", None) or error  # the message of the database itself
        raise StorageError(f"search.study: {_hide_password(place)} cannot be used: {one_line(cause)}") from error


def _hide_password(place: str) -> str:
    """Return the place without the password that a URL may hold."""
    scheme, separator, rest = place.partition("://")
    return f"{scheme}://...@{rest.rpartition('@')[2]}" if separator and "@" in rest else place


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Hide Optuna's warnings that heartbeats are experimental: users can do nothing about them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
