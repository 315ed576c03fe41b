"""What works on any run folder, whichever kind of run it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from archloom.comparisons.results import ComparisonResult
from archloom.comparisons.run import compare, write_comparison_report
from archloom.core.events import Listener
from archloom.core.progress_display import show_api_progress
from archloom.core.run_kinds import require_kind
from archloom.core.settings import Settings
from archloom.core.trust import trusting
from archloom.execution.places import PROCESSES
from archloom.execution.run import RunOptions
from archloom.execution.run_folder import RunFolder
from archloom.pipelines.results import PipelineResult
from archloom.pipelines.run import run as run_recipe
from archloom.pipelines.run import write_pipeline_report
from archloom.retrainings.folder import RetrainFolder, is_retraining
from archloom.retrainings.report import write_retrain_report
from archloom.retrainings.result import RetrainResult
from archloom.retrainings.run import resume_retraining
from archloom.searches.result import SearchResult
from archloom.searches.run import resume_search, write_search_report
from archloom.supernet.ranks import ALONE, Ranks


def resume(
    folder: str | Path,
    *,
    data: Any = None,
    settings: Settings | None = None,
    listeners: Sequence[Listener] = (),
    stop: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None] = lambda message: None,
    report: bool = True,
    plugins: bool = False,
    on: str = PROCESSES,
    ranks: Ranks = ALONE,
    progress: bool | None = None,
) -> SearchResult | RetrainResult | ComparisonResult | PipelineResult:
    """Resume a run where it was interrupted; the end is the same as without the interruption.

    Args:
        folder: The folder of a search, a retraining, a comparison or a pipeline; a complete one only returns its
            result.
        data: The data, if the run was given its data in Python.
        settings: What may differ from before: {"machine": {"device": "cpu"}, "data": {"directory": ...}}. Those of a
            comparison or a pipeline are as in `compare` and `run`.
        listeners: Called with every event of a search or a retraining: `Started`, `Advanced`, `Recorded`, ...
        stop: Asked after every step; once true, the run saves and stops.
        warn: Called with a line for every checkpoint that is damaged.
        report: Whether to write the report of a search.
        plugins: Whether to import plug-ins that only the folder names; see SECURITY.md.
        on: Where jobs run: "processes", "serial", "ray", "ray://HOST:PORT" or "slurm".
        ranks: The processes of a run on several devices, which torchrun started.
        progress: Whether to show progress. Default: in a terminal or a notebook.

    Returns:
        A `SearchResult`, `RetrainResult`, `ComparisonResult` or `PipelineResult`.

    Raises:
        SettingError: If there is no run in the folder, or only the folder names a plug-in.
        Interrupted: If `stop` was true.

    Examples:
        >>> import archloom, tempfile
        >>> run = tempfile.mkdtemp() + "/run"
        >>> settings = {"search": {"trials": 3}}
        >>> result = archloom.search("nb201_mini", "random_search", out=run, settings=settings)
        >>> archloom.resume(run).text == result.text
        True
    """
    kind = require_kind(Path(folder))
    if kind == "pipeline":
        return run_recipe(folder, settings=settings, note=warn, stop=stop, on=on, plugins=plugins, progress=progress)
    if kind == "comparison":
        return compare(folder, settings=settings, stop=stop, on=on, plugins=plugins, progress=progress)
    run = RunFolder.open(Path(folder))
    with trusting(settings, plugins=plugins), show_api_progress(progress, listeners) as listening:
        options = RunOptions(listening, stop, warn, report, ranks=ranks, on=on)
        if is_retraining(run.path):
            return resume_retraining(RetrainFolder(run.path), data=data, settings=settings, options=options)
        return resume_search(run, data=data, settings=settings, options=options)


def write_report(folder: str | Path, *, out: str | Path | None = None, plugins: bool = False) -> Path:
    """Write the report of a run, finished or not.

    Args:
        folder: The folder of a search, a retraining, a comparison or a pipeline.
        out: The folder to write to. Default: the run folder.
        plugins: Whether to import plug-ins that only the folder names; see SECURITY.md.

    Returns:
        The path of report.html; cell.svg is written beside it if there is a result.

    Raises:
        SettingError: If there is no run in the folder, or only the folder names a plug-in.

    Examples:
        >>> import archloom, tempfile
        >>> run = tempfile.mkdtemp() + "/run"
        >>> result = archloom.search("nb201_mini", "random_search", out=run, settings={"search": {"trials": 3}})
        >>> archloom.write_report(run).name
        'report.html'
    """
    kind, place = require_kind(Path(folder)), None if out is None else Path(out)
    with trusting(plugins=plugins):
        if kind == "pipeline":
            return write_pipeline_report(Path(folder), out=place)
        if kind == "comparison":
            return write_comparison_report(Path(folder), out=place)
        run = RunFolder.open(Path(folder))
        if is_retraining(run.path):
            return write_retrain_report(run.path, out=place)
        return write_search_report(run, out=place)
