"""One search as a job among others: of a comparison or of a pipeline."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from archloom.core.errors import SettingError
from archloom.core.events import Advanced, Event, Listener, Started
from archloom.core.settings import write_toml
from archloom.execution import workers
from archloom.execution.loop import Interrupted
from archloom.execution.run_folder import RunFolder, State
from archloom.searches.run import resume_search, run_experiment
from archloom.searches.spec import SearchSpec

FEWEST_THREADS = {"machine": {"threads": 1}}  # several searches at once slow each other down with more
MAY_DIFFER = ("machine.", "data.directory")  # where a run is resumed, which changes nothing about what it finds
SECONDS_BETWEEN_SHARES = 0.3


@dataclass(frozen=True)
class Task:
    """One run of a comparison."""

    entry: str
    seed: int
    experiment: SearchSpec
    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def run(self) -> RunFolder:
        return RunFolder(self.path)

    @property
    def state(self) -> State:
        return self.run.state


def refuse_changed(tasks: Sequence[Task]) -> None:
    """A SettingError where runs were begun with other settings than these: they are neither resumed nor overwritten."""
    problems = [line for task in tasks if task.run.config_path.is_file() for line in _changes(task)]
    if problems:
        raise SettingError(problems)


def _changes(task: Task) -> Iterator[str]:
    now, had = _plain(task.experiment.to_settings()), task.run.config
    if now == _flat(had):
        return
    written = _plain(SearchSpec.resolve(had).to_settings())  # with whatever has got a default since
    for name in dict.fromkeys([*now, *written]):
        if now.get(name) != written.get(name):
            yield (
                f"{task.path} was begun with {name} = {written.get(name)!r}, now it is {now.get(name)!r}; "
                "change it back, or choose another --out"
            )


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as a file would give them back, one name each."""
    return _flat(tomllib.loads(write_toml(settings)))


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        elif not f"{prefix}{name}".startswith(MAY_DIFFER):
            flat[f"{prefix}{name}"] = value
    return flat


def run_task(task: Task, tell: Callable[[float], None], stop: Callable[[], bool]) -> None:
    """One run of a comparison, in a process that may do many: begun, or gone on with where it was interrupted."""
    listeners = [share_listener(tell)]
    try:
        if task.run.config_path.is_file():
            here = {name: task.experiment.settings["machine"][name] for name in ("device", "threads", "workers")}
            folder = task.experiment.settings["data"]["directory"]
            settings = {"machine": here, "data": {} if folder is None else {"directory": folder}}
            resume_search(task.run, settings=settings, listeners=listeners, stop=stop, report=False)
        else:
            run_experiment(task.experiment, out=task.path, listeners=listeners, stop=stop, report=False)
    except Interrupted as interrupted:
        raise workers.StoppedTask from interrupted


def share_listener(tell: Callable[[float], None], clock: Callable[[], float] = time.perf_counter) -> Listener:
    """Tells the share of a search that is done, a few times a second at most."""
    total, told = 1, clock()

    def hear(event: Event) -> None:
        nonlocal total, told
        if isinstance(event, Started):
            total = max(1, event.total)
        elif isinstance(event, Advanced) and clock() >= told + SECONDS_BETWEEN_SHARES:
            told = clock()
            tell(event.position / total)

    return hear
