"""Run a search in its folder: begin, resume, report."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from archloom.core.durations import parse_duration
from archloom.core.errors import BenchmarkError, SettingError
from archloom.core.events import Listener, Planning
from archloom.core.progress_display import show_api_progress
from archloom.core.recipes import RUNS
from archloom.core.settings import Settings, merge, settings_of
from archloom.core.trust import (
    trusting,
)
from archloom.data import (
    DEFAULT_DATA,
    DataSet,
    Facts,
)
from archloom.data.places import GIVEN
from archloom.data.user_data import as_data_set
from archloom.execution.machine import pick_device
from archloom.execution.places import PROCESSES, is_remote
from archloom.execution.run import FolderRun, RunOptions, begin_run, resume_run
from archloom.execution.run_facts import RunFacts
from archloom.execution.run_folder import RunFolder
from archloom.objectives import Cost, CostTable
from archloom.reports.cells import draw_cells
from archloom.searches.black_box import BlackBoxLoop
from archloom.searches.budget import PLAN_END, Budget
from archloom.searches.build import JobPlace, build_search
from archloom.searches.final_network import FinalNetwork, facts_of
from archloom.searches.finalist_race import ShortScore
from archloom.searches.loop import SearchLoop, TableLookup
from archloom.searches.memory import refuse_large_search, refuse_large_trials
from archloom.searches.mlflow_runs import mlflow_listener
from archloom.searches.plan import complete_search, refuse_budget_of_ranks
from archloom.searches.plugin_check import check_network, is_plugin
from archloom.searches.records import SearchRecord
from archloom.searches.report import ReportData, render
from archloom.searches.result import SearchOutcome, SearchResult, read_history, read_result
from archloom.searches.short_training import StandaloneScore
from archloom.searches.spec import NOT_DETERMINING, SearchSpec
from archloom.searches.tensorboard import tensorboard_listener
from archloom.searches.weights_and_biases import wandb_listener
from archloom.spaces import SearchSpace
from archloom.strategies import STRATEGIES
from archloom.strategies.base import OneShot

DEFAULT_OPTIONS = RunOptions()


def search(
    space: str | SearchSpace = "nb201",
    strategy: str | type = "gibbs",
    data: Any = DEFAULT_DATA,
    *,
    epochs: int | None = None,
    budget: str | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    settings: Settings | None = None,
    listeners: Sequence[Listener] = (),
    stop: Callable[[], bool] = lambda: False,
    on: str = PROCESSES,
    progress: bool | None = None,
) -> SearchResult:
    """Search for an architecture; everything is also written to a run folder.

    Args:
        space: The name of a search space (`archloom list spaces`), or your own `SearchSpace`.
        strategy: The name of a strategy (`archloom list strategies`), or your own class.
        data: The name of a data set (`archloom list data`), the path of a folder of pictures or of an .npz file, an
            `ImageData`, a pair (images, labels) of tensors, arrays or lists, a pair of such pairs (training, test), a
            torch Dataset of (image, label) or its DataLoader, or a `TextData`.
        epochs: Epochs of the shared weights; one-shot strategies only. A search with epochs and no budget has no plan.
        budget: Time for all of it, such as "10m": sizes, epochs and the finalist race are planned to fit.
        seed: Everything random follows from it.
        out: The run folder. Default: the next free one in `runs/`.
        settings: Any other settings by section, as in a recipe: {"strategy": {"temperature_start": 5}}.
        listeners: Called with every event: `Started`, `Advanced`, `Recorded`, ...
        stop: Asked after every step; once true, the search saves and stops.
        on: Where trials and short trainings run: "processes", "serial", "ray", "ray://HOST:PORT" or "slurm".
        progress: Whether to show progress. Default: in a terminal or a notebook.

    Returns:
        The architecture, how good it is known to be, and the records of the search.

    Raises:
        SettingError: If a setting is wrong; the message lists everything that is.
        Interrupted: If `stop` was true; `archloom.resume` continues the run.

    Examples:
        >>> import archloom, tempfile
        >>> folder = tempfile.mkdtemp() + "/run"
        >>> settings = {"search": {"trials": 20}}
        >>> result = archloom.search("nb201_mini", "random_search", "digits", seed=0, out=folder, settings=settings)
        >>> len(result.history)
        20
    """
    own = as_data_set(data)
    given = merge(
        settings or {},
        {"space": _space_settings(space)},
        {"strategy": {"name": strategy if isinstance(strategy, str) else _import_path(strategy)}},
        {"data": {"name": str(data) if own is None else GIVEN}},
        {} if epochs is None else {"search": {"epochs": epochs}},
        {} if budget is None else {"search": {"budget": budget}},
        {} if seed is None else {"seed": seed},
    )
    with trusting(given), show_api_progress(progress, listeners) as listening:
        options = RunOptions(listeners=listening, stop=stop, on=on)
        return run_search(SearchSpec.resolve(given), data=own, out=out, options=options)


def run_search(
    spec: SearchSpec,
    *,
    data: DataSet | None = None,
    out: str | Path | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
) -> SearchResult:
    """Begin a run of a resolved search."""
    folder = RunFolder(RunFolder.next_free(RUNS, spec.stem) if out is None else Path(out))
    refuse_budget_of_ranks(spec, options.ranks.count)

    def build() -> SearchRun:
        planned = complete_search(spec, data, note=lambda line: options.emit(Planning(line)), spent=options.spent)
        return SearchRun(folder, planned.spec, data, planned.budget, options)

    return begin_run(folder, build, options)


def resume_search(
    folder: RunFolder,
    *,
    data: Any = None,
    settings: Settings | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
) -> SearchResult:
    """Resume a search that was interrupted; return the result of a complete one."""
    spec = SearchSpec.resolve(merge(folder.config, settings or {}))
    return resume_run(
        folder,
        lambda: SearchRun(folder, spec, as_data_set(data), _budget_of(spec), options),
        lambda: read_result(folder, spec.build_space()),
        options,
        write_report=lambda: write_search_report(folder),
    )


def _budget_of(spec: SearchSpec) -> Budget | None:
    if spec.search.budget is None:
        return None
    return Budget.begin(parse_duration(spec.search.budget), spec.search.budget_clock)


class SearchRun(FolderRun[SearchOutcome, SearchResult]):
    """A search in its folder."""

    may_differ = NOT_DETERMINING
    loop: SearchLoop[Any]

    def __init__(
        self,
        folder: RunFolder,
        spec: SearchSpec,
        data: DataSet | None,
        budget: Budget | None = None,
        options: RunOptions = DEFAULT_OPTIONS,
    ) -> None:
        self._spec, self._budget = spec, budget
        if data is None and spec.facts is None:  # only reading the data shows their shape
            data = spec.load_data()
        facts = facts_of(spec, data)
        if is_plugin(spec.space.name):
            check_network(spec.space.name, spec.build_space(), facts, spec.network.settings)
        self._data_name = spec.data_set.name if data is None else data.name
        cost = _refuse_uncountable(spec.build_space(), facts, spec.network.settings)
        is_late = budget is not None and budget.is_past(PLAN_END)  # timed steps must show alone that it fits
        if issubclass(STRATEGIES.find(spec.strategy.name).load(), OneShot) and not is_late:
            refuse_large_search(spec, facts, cost)
        place = JobPlace(options.on, folder.path)
        loop = build_search(spec, data=data, budget=budget, jobs=place, ranks=options.ranks)
        trains = isinstance(loop, BlackBoxLoop) and isinstance(loop.score, StandaloneScore | ShortScore)
        if trains and not is_late and not is_remote(options.on):
            refuse_large_trials(spec, facts, cost)
        super().__init__(folder, loop)
        self._final = FinalNetwork.of(spec, facts)

    @property
    def settings(self) -> Settings:
        """Return the settings that config.toml holds."""
        return self._spec.to_settings()

    def make_listeners(self) -> Sequence[Listener]:
        """Return the listeners for TensorBoard, Weights & Biases and MLflow that the settings ask for."""
        search, path, settings = self._spec.search, self.folder.path, self.settings
        makers: Mapping[str, Callable[[Path], Listener]] = {
            "tensorboard": tensorboard_listener,
            "wandb": lambda folder: wandb_listener(folder, settings),
            "mlflow": lambda folder: mlflow_listener(folder, settings),
        }
        return [make(path / name) for name, make in makers.items() if getattr(search, name)]

    def load(self, state: Any) -> None:
        """Restore the loop and its notes."""
        super().load(state)
        self.loop.notes = list(self.folder.read_notes())

    def finish(self, outcome: SearchOutcome, seconds: float) -> SearchResult:
        """Write the result of the search and return it."""
        history = self.loop.history
        result = SearchResult(
            **vars(outcome),
            space=self.loop.space,
            space_name=self._spec.space.name,
            strategy=self._spec.strategy.name,
            data=self._data_name,
            seed=self._spec.seed,
            cost=self._final.count(outcome.architecture),
            final_network=self._final.description,
            run=RunFacts.collect(
                seconds=sum(record.seconds for record in history),
                seconds_since_start=seconds,
                records=len(history),
                device=pick_device(self._spec.machine.device),
            ),
            history=tuple(history),
            folder=self.folder.path,
        )
        self.folder.write_result(result.to_json())
        return result

    def write_report(self, result: SearchResult | None) -> None:
        """Write the report page, of an unfinished run too."""
        with_pictures = self._budget is None or self._budget.has_time_for_pictures()
        loop = self.loop
        _write_report(
            self.folder, self._spec, loop.space, loop.history, result, loop.look_up, with_pictures=with_pictures
        )


def write_search_report(folder: RunFolder, *, out: Path | None = None) -> Path:
    """Write report.html (and cell.svg, if there is a result) of a search, finished or not, into its folder or `out`."""
    spec = SearchSpec.resolve(folder.config)
    space, look_up = spec.build_space(), TableLookup()
    result = read_result(folder, space)
    if result is not None and result.posterior is not None:
        with contextlib.suppress(BenchmarkError):  # a table that was damaged since leaves only a column out
            look_up = TableLookup(spec.find_table(space))
    place = folder if out is None else RunFolder(out)
    return _write_report(place, spec, space, read_history(folder), result, look_up)


def _write_report(
    folder: RunFolder,
    spec: SearchSpec,
    space: SearchSpace,
    history: Sequence[SearchRecord],
    result: SearchResult | None,
    look_up: TableLookup,
    *,
    with_pictures: bool = True,
) -> Path:
    if result is not None:
        folder.write_text(folder.cell_path.name, draw_cells(space.graphs(result.architecture), title=spec.title))
    report = ReportData(
        title=spec.title,
        subtitle=f"{spec.strategy.name} on {spec.space.name}, seed {spec.seed}",
        settings=spec.to_settings(),
        history=history,
        result=result,
        space=space,
        tested=_look_up_probable(space, result, look_up),
    )
    folder.write_text(folder.report_path.name, render(report, with_pictures=with_pictures))
    return folder.report_path


def _look_up_probable(space: SearchSpace, result: SearchResult | None, look_up: TableLookup) -> dict[str, float]:
    """Return the test accuracies of the most probable architectures by text form, as far as a table has them."""
    if result is None or result.posterior is None:
        return {}
    entries = {row.text: look_up(space.check(row.architecture)) for row in result.posterior.architectures}
    return {text: entry.test for text, entry in entries.items() if entry is not None}


_COUNTED: dict[str, Cost | None] = {}  # many runs of one process may be of one space and network


def _refuse_uncountable(space: SearchSpace, facts: Facts, network: Settings) -> Cost | None:
    """Return the cost of the supernet, or None where its options share weights.

    Raises:
        SettingError: If the cost of a network cannot be counted: before the search, and not at its end.
    """
    what = repr((space, facts, sorted(network.items())))
    if what not in _COUNTED:
        _COUNTED[what] = CostTable(space, **vars(facts), **network).supernet_cost
    return _COUNTED[what]


def _space_settings(space: str | SearchSpace) -> Settings:
    if isinstance(space, str):
        return {"name": space}
    assert is_dataclass(space)
    if space.kept:
        raise SettingError("a restricted space cannot be searched by itself: it is a stage within a strategy")
    return {"name": _import_path(type(space)), **settings_of(space)}


def _import_path(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"
