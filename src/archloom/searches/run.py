"""Run a search in its folder: begin, resume, report."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import torch

from archloom.benchmarks import find_benchmark
from archloom.core.errors import BenchmarkError, SettingError
from archloom.core.events import Event, Listener, Noted, Recorded
from archloom.core.json_object import JsonObject
from archloom.core.settings import merge, settings_of
from archloom.data import Facts
from archloom.data.arrays import from_dataset, from_tensors
from archloom.data.source import ImageData
from archloom.execution.loop import Interrupted
from archloom.execution.machine import pick_device
from archloom.execution.run_facts import RunFacts
from archloom.execution.run_folder import RunFolder
from archloom.objectives import CostTable
from archloom.reports.cells import draw_cells
from archloom.searches.build import build_search
from archloom.searches.loop import SearchLoop, TableLookup
from archloom.searches.report import ReportData, render
from archloom.searches.result import SearchOutcome, SearchResult, read_history, read_result
from archloom.searches.spec import GIVEN, SearchSpec
from archloom.searches.tensorboard import tensorboard_listener
from archloom.spaces import SearchSpace

RUNS = Path("runs")


def search(
    space: str | SearchSpace = "nb201",
    strategy: str | type = "gdas",
    data: Any = "digits",
    *,
    epochs: int | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    listeners: Sequence[Listener] = (),
    stop: Callable[[], bool] = lambda: False,
) -> SearchResult:
    """Search, and return what was found; everything is also written to a run directory (`out`, else runs/...).

    `space`, `strategy` and `data` are names (see `archloom list`), or your own: a SearchSpace, a strategy class, an
    ImageData, a torch Dataset of (image, label), or a pair of tensors (images, labels). `settings` is a nested mapping
    like a recipe: {"strategy": {"temperature_start": 5}, "network": {"channels": 8}}.
    """
    own = as_image_data(data)
    given = merge(
        settings or {},
        {"space": _space_settings(space), "strategy": {"name": _strategy_name(strategy)}},
        {"data": {"name": data if own is None else GIVEN}},
        {} if epochs is None else {"search": {"epochs": epochs}},
        {} if seed is None else {"seed": seed},
    )
    return run_experiment(SearchSpec.resolve(given), data=own, out=out, listeners=listeners, stop=stop)


def run_experiment(
    experiment: SearchSpec,
    *,
    data: ImageData | None = None,
    out: str | Path | None = None,
    listeners: Sequence[Listener] = (),
    stop: Callable[[], bool] = lambda: False,
    report: bool = True,
) -> SearchResult:
    """Begin a run of a resolved experiment; `write_report` can make up later for a report left out."""
    path = RunFolder.next_free(RUNS, experiment.stem) if out is None else Path(out)
    RunFolder(path).refuse_if_taken()
    search = _Prepared(experiment, data)  # bad data is found before a directory is made
    run = RunFolder.create(path, settings=experiment.to_settings())
    with run.lock():
        run.write_metrics([])
        return search.run(run, listeners, stop, report=report)


def resume_search(
    run: RunFolder,
    *,
    data: Any = None,
    settings: Mapping[str, Any] | None = None,
    listeners: Sequence[Listener] = (),
    stop: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None] = lambda message: None,
    report: bool = True,
) -> SearchResult:
    """Go on with a search that was interrupted; one that is complete is returned as it is."""
    experiment = SearchSpec.resolve(merge(run.config, settings or {}))
    with run.lock():
        if run.finished:
            result = read_result(run, experiment.build_space())
            assert result is not None
            return result
        search = _Prepared(experiment, as_image_data(data))
        state = run.checkpoints.load_latest(warn=warn)
        if state is not None:
            search.load(state, run)
        run.write_metrics([record.to_json() for record in search.search.history])
        return search.run(run, listeners, stop, report=report)


def write_search_report(run: RunFolder) -> Path:
    """Write report.html (and cell.svg, if there is a result) of a search, finished or not."""
    experiment = SearchSpec.resolve(run.config)
    space = experiment.build_space()
    result = read_result(run, space)
    if result is not None:
        run.write_text(run.cell_path.name, draw_cells(space.graphs(result.architecture), title=experiment.title))
    report = ReportData(
        title=experiment.title,
        subtitle=f"{experiment.names['strategy']} on {experiment.names['space']}, seed {experiment.seed}",
        settings=experiment.to_settings(),
        history=read_history(run) if result is None else result.history,
        result=result,
        space=space,
        tested=_look_up_probable(experiment, space, result),
    )
    run.write_text(run.report_path.name, render(report))
    return run.report_path


def _look_up_probable(experiment: SearchSpec, space: SearchSpace, result: SearchResult | None) -> dict[str, float]:
    """Return the test accuracies of the most probable architectures, if a table covers the space; by text form."""
    if result is None or result.posterior is None:
        return {}
    with contextlib.suppress(BenchmarkError):  # a report is written all the same where a table was damaged since
        look_up = TableLookup(find_benchmark(space, experiment.data_set.name, experiment.data.directory))
        entries = {row.text: look_up(space.check(row.architecture)) for row in result.posterior.architectures}
        return {text: entry.test for text, entry in entries.items() if entry is not None}
    return {}


class _Prepared:
    """A search that is built, with what is needed to describe its end."""

    def __init__(self, experiment: SearchSpec, data: ImageData | None) -> None:
        self._experiment = experiment
        facts = experiment.facts if data is None else None
        if facts is None:  # only reading the data tells their shape
            data = data or experiment.load_data()
            facts = Facts(len(data.classes), (data.channels, *data.resolution))
        self._data_name = experiment.names["data"] if data is None else data.name
        self.search: SearchLoop[Any] = build_search(experiment, data=data)
        # before the search: a network that cannot be counted is told now
        self._costs = _cost_table(self.search.space, facts, experiment.settings["network"])

    def load(self, state: Any, run: RunFolder) -> None:
        with run.restoring():
            self.search.load_state_dict(state)
        self.search.notes = list(run.read_notes())

    def run(
        self, run: RunFolder, listeners: Sequence[Listener], stop: Callable[[], bool], *, report: bool
    ) -> SearchResult:
        for listener in listeners:
            self.search.listen(listener)
        if self._experiment.settings["search"]["tensorboard"]:
            self.search.listen(tensorboard_listener(run.path / "tensorboard"))
        start = time.perf_counter()
        try:
            with run.appending_metrics() as append:
                self.search.listen(lambda event: _keep(append, run.note, event))
                outcome = self.search.run(save=lambda state, step: run.checkpoints.save(state, step=step), stop=stop)
        except Interrupted:
            if report:
                write_search_report(run)
            raise
        result = self._result(run, outcome, time.perf_counter() - start)
        run.write_result(result.to_json())
        if report:
            write_search_report(run)
        return result

    def _result(self, run: RunFolder, outcome: SearchOutcome, seconds: float) -> SearchResult:
        """Return the outcome with how it was found."""
        experiment, history = self._experiment, self.search.history
        return SearchResult(
            **vars(outcome),
            space=self.search.space,
            space_name=experiment.names["space"],
            strategy=experiment.names["strategy"],
            data=self._data_name,
            seed=experiment.seed,
            cost=self._costs.cost(outcome.architecture),
            run=RunFacts.collect(
                seconds=sum(record.seconds for record in history),
                seconds_since_start=seconds,
                records=len(history),
                device=pick_device(experiment.settings["machine"]["device"]),
            ),
            history=tuple(history),
            folder=run.path,
        )


_COSTS: dict[str, CostTable] = {}  # many runs of one process may be of one space and network


def _cost_table(space: SearchSpace, facts: Facts, network: Mapping[str, Any]) -> CostTable:
    what = repr((space, facts, sorted(network.items())))
    if what not in _COSTS:
        _COSTS[what] = CostTable(space, classes=facts.classes, image_shape=facts.image_shape, **network)
    return _COSTS[what]


def _keep(append: Callable[[JsonObject], None], note: Callable[[JsonObject], None], event: Event) -> None:
    if isinstance(event, Recorded):
        append(event.record.to_json())
    elif isinstance(event, Noted):
        note(event.record)


def as_image_data(data: Any) -> ImageData | None:
    """Whatever a user has, as an ImageData; None for a name, which is loaded later."""
    if data is None or isinstance(data, str):
        return None
    if isinstance(data, ImageData):
        return data.check()
    if isinstance(data, tuple) and len(data) == 2 and all(isinstance(part, torch.Tensor) for part in data):
        return from_tensors(*data).check()
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return from_dataset(data).check()
    raise SettingError(
        f"data must be a name, an ImageData, a pair of tensors (images, labels) or a torch Dataset, got {type(data)}"
    )


def _space_settings(space: str | SearchSpace) -> dict[str, Any]:
    if isinstance(space, str):
        return {"name": space}
    assert is_dataclass(space)
    if space.kept:
        raise SettingError("a restricted space cannot be searched by itself: it is a stage within a strategy")
    return {"name": _import_path(type(space)), **settings_of(space)}


def _strategy_name(strategy: str | type) -> str:
    return strategy if isinstance(strategy, str) else _import_path(strategy)


def _import_path(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


__all__ = ["resume_search", "run_experiment", "search", "write_search_report"]
