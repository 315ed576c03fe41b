"""Run a loop in its folder: begin or resume, keep metrics and checkpoints, write the result and the report.

What a kind of run supplies is a `FolderRun`: the loop, its configuration, the result and the report.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import torch

from archloom.core.errors import SettingError, StorageError
from archloom.core.events import Event, Listener, Noted, Recorded
from archloom.core.progress_file import ProgressWriter
from archloom.core.settings import Settings
from archloom.core.state import StateDict, refuse_bad_optimizers, refuse_other_types
from archloom.execution.checkpoint import decode, encode
from archloom.execution.loop import FollowerEnded, Interrupted, Loop
from archloom.execution.places import PROCESSES
from archloom.execution.run_folder import RunFolder
from archloom.execution.run_settings import MAY_DIFFER, SETTINGS, refuse_changed_settings, select_determining
from archloom.supernet.ranks import ALONE, Ranks

RANKS = "ranks"  # of a checkpoint
_COMPLETE = b"complete"  # sent in the place of a state: there is nothing to resume

ResultT = TypeVar("ResultT")
OutcomeT = TypeVar("OutcomeT")


@dataclass(frozen=True)
class RunOptions:
    """What a caller may ask of any run: to listen, to stop, to hear warnings, to leave out the report."""

    listeners: Sequence[Listener] = ()
    stop: Callable[[], bool] = lambda: False
    warn: Callable[[str], None] = lambda message: None
    report: bool = True
    ranks: Ranks = ALONE  # the processes of one run
    on: str = PROCESSES  # where the jobs of a search run: short trainings and trials
    spent: float = 0.0  # seconds that the caller took before, which count against a budget

    def emit(self, event: Event) -> None:
        """Call every listener with an event."""
        for listener in self.listeners:
            listener(event)


class FolderRun(ABC, Generic[OutcomeT, ResultT]):
    """A built loop with its folder, and how to describe its end."""

    ranks: Ranks = ALONE
    may_differ: ClassVar[tuple[str, ...]] = MAY_DIFFER  # beginnings of settings that a resumed run may change

    def __init__(self, folder: RunFolder, loop: Loop[Any, OutcomeT]) -> None:
        self.folder, self.loop = folder, loop

    @property
    @abstractmethod
    def settings(self) -> Settings:
        """Return the contents of config.toml."""

    @abstractmethod
    def finish(self, outcome: OutcomeT, seconds: float) -> ResultT:
        """Write the result to the folder and return it; the run took so many seconds since it began or resumed."""

    @abstractmethod
    def write_report(self, result: ResultT | None) -> None:
        """Write the report of the run so far; the result is None before the end."""

    def make_listeners(self) -> Sequence[Listener]:
        """Return listeners that write to the folder, which exists by now."""
        return ()

    def load(self, state: Any) -> None:
        """Load the state of a checkpoint."""
        self.loop.load_state_dict(state)

    def save(self, state: StateDict, step: int) -> None:
        """Write a checkpoint, with the settings that determine the run."""
        self.folder.checkpoints.save({**state, SETTINGS: self.determining_settings, RANKS: self.ranks.count}, step=step)

    @property
    def determining_settings(self) -> dict[str, Any]:
        """Return the settings that a resumed run must share with the run that began, by dotted name."""
        return select_determining(self.settings, self.may_differ)


def begin_run(folder: RunFolder, build: Callable[[], FolderRun[OutcomeT, ResultT]], options: RunOptions) -> ResultT:
    """Begin a run in a folder that is new or empty; return its result.

    Raises:
        Interrupted: If the run was asked to stop; `resume_run` continues it.
    """
    if not options.ranks.is_first:
        return _follow(build(), options)
    folder.refuse_if_taken()
    run = build()  # bad data is found before a folder is made
    folder.create(folder.path, settings=run.settings)
    with folder.lock():
        return _run(run, options)


def resume_run(
    folder: RunFolder,
    build: Callable[[], FolderRun[OutcomeT, ResultT]],
    read: Callable[[], ResultT | None],
    options: RunOptions,
    *,
    write_report: Callable[[], object] = lambda: None,
) -> ResultT:
    """Resume a run where it was interrupted; return its result, which `read` reads if the run is complete.

    A process may be killed between the result and the report. So `write_report` writes what a complete run lacks.

    Raises:
        SettingError: If config.toml was changed since the run began.
        Interrupted: If the run was asked to stop again.
    """
    ranks = options.ranks
    if not ranks.is_first:
        return _follow_resumed(folder, build, options)
    result = read() if folder.finished else None
    if result is not None:  # nothing to compute, so a disk that is read-only will do
        ranks.broadcast(_COMPLETE)
        if options.report:
            _write_missing(folder, write_report, options.warn)
        return result
    with folder.lock():
        result = read() if folder.finished else None  # another process may have been quicker
        if result is not None:
            ranks.broadcast(_COMPLETE)
            return result
        run = build()
        state = folder.checkpoints.load_latest(warn=options.warn)
        ranks.broadcast(encode(state))
        _load(run, folder, state, ranks)
        return _run(run, options)


def _load(run: FolderRun[OutcomeT, ResultT], folder: RunFolder, state: Any, ranks: Ranks) -> None:
    if state is None:
        return
    begun = state.get(RANKS, 1) if isinstance(state, Mapping) else 1
    if begun != ranks.count:
        raise SettingError(
            f"{folder.path} was begun with {begun} ranks, now there are {ranks.count}; use --devices {begun}, since "
            "statistics of batches and dropout depend on it"
        )
    refuse_changed_settings(folder.config_path, state, run.determining_settings)
    with folder.explain_misfit():
        refuse_other_types(state, run.loop.state_dict())
        refuse_bad_optimizers(state, torch.is_tensor)
        run.load(state)


def _follow_resumed(
    folder: RunFolder, build: Callable[[], FolderRun[OutcomeT, ResultT]], options: RunOptions
) -> ResultT:
    """Resume on another rank than the first: with the state that rank 0 read."""
    run = build()
    state = options.ranks.broadcast(b"")
    if state == _COMPLETE:
        raise FollowerEnded
    _load(run, folder, decode(state, name="of rank 0"), options.ranks)
    return _follow(run, options)


def _follow(run: FolderRun[OutcomeT, ResultT], options: RunOptions) -> ResultT:
    """Take part in the units of a run; rank 0 writes and concludes."""
    ranks = options.ranks
    run.loop.run_units(stop=lambda: ranks.any(options.stop()))
    raise FollowerEnded


def _write_missing(folder: RunFolder, write_report: Callable[[], object], warn: Callable[[str], None]) -> None:
    missing = ", ".join(folder.list_missing())
    if not missing:
        return
    try:
        with folder.lock():
            write_report()
    except StorageError as error:
        warn(f"{folder.path} lacks {missing}: {error}")
    else:
        warn(f"{folder.path} was complete but for {missing}, written now")


def _run(run: FolderRun[OutcomeT, ResultT], options: RunOptions) -> ResultT:
    folder, loop = run.folder, run.loop
    folder.write_metrics([record.to_json() for record in loop.history])
    progress = ProgressWriter(folder.path, lambda: loop.total)
    for listener in (*options.listeners, *run.make_listeners()):
        loop.listen(listener)
    loop.listen(progress)
    start = time.perf_counter()
    try:
        with folder.open_metrics() as append:

            def keep(event: Event) -> None:
                if isinstance(event, Recorded):
                    append(event.record.to_json())
                elif isinstance(event, Noted):
                    folder.note(event.record)

            loop.listen(keep)
            run.ranks = options.ranks
            loop.run_units(save=run.save, stop=lambda: options.ranks.any(options.stop()))
            loop.leave_ranks()
            loop.stop_with(options.stop)
            outcome = loop.conclude()
    except Interrupted:
        if options.report:
            run.write_report(None)
        raise
    finally:
        progress.remove()
    result = run.finish(outcome, time.perf_counter() - start)
    if options.report:
        run.write_report(result)
    return result
