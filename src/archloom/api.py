"""What works on any run folder, whichever kind of run it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from archloom.core.events import Listener
from archloom.execution.run_folder import RunFolder
from archloom.retrainings.folder import is_retraining
from archloom.retrainings.report import write_retrain_report
from archloom.retrainings.run import resume_retraining
from archloom.searches.run import resume_search, write_search_report


def resume(
    directory: str | Path,
    *,
    data: Any = None,
    settings: Mapping[str, Any] | None = None,
    listeners: Sequence[Listener] = (),
    stop: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None] = lambda message: None,
    report: bool = True,
) -> Any:
    """Go on with a run that was interrupted; one that is complete is returned as it is.

    `settings` are for what may differ where it goes on: {"machine": {"device": "cpu"}, "data": {"directory": ...}}.
    A search gives a SearchResult, a retraining a RetrainResult.
    """
    run = RunFolder.open(Path(directory))
    if is_retraining(run.path):
        return resume_retraining(run.path, data=data, settings=settings, listeners=listeners, stop=stop, warn=warn)
    return resume_search(run, data=data, settings=settings, listeners=listeners, stop=stop, warn=warn, report=report)


def write_report(directory: str | Path) -> Path:
    """Write report.html (and cell.svg, if there is a result) of a run, finished or not."""
    run = RunFolder.open(Path(directory))
    if is_retraining(run.path):
        return write_retrain_report(run.path)
    return write_search_report(run)
