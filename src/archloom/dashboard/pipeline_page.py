"""The page of a pipeline: its searches and retrainings as they run, then the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from archloom.core.settings import read_toml
from archloom.dashboard.folders import Folder
from archloom.dashboard.page import Page, page_address
from archloom.dashboard.summaries import Summary, count_jobs
from archloom.pipelines.report import make_context
from archloom.pipelines.results import PipelineResult

Find = Callable[[Path], str | None]
"""Returns the key of the run in a folder."""


def make_pipeline_page(folder: Folder, members: Sequence[Summary], find: Find) -> Page:
    """Return the page of a pipeline as it is now."""
    result = _read_pipeline(folder)

    def address(path: Path) -> str:
        """Return the page of a run; of anything else, the place of the list."""
        key = find(path if path.is_absolute() else path.absolute()) or find(folder.path / path)
        return "#members" if key is None else page_address(key)

    more = {"panels": "pipeline_panels.html", "members": members, "subtitle": folder.key}
    version = "-".join(f"{member.done}{member.state[0]}" for member in members)
    return Page("pipeline.html", {**make_context(result, address), **more}, f"{version}-{folder.changed}")


def _read_pipeline(folder: Folder) -> PipelineResult:
    """Return the result in the folder; before there is one, only what is planned."""
    if (folder.path / PipelineResult.file_name).is_file():
        return PipelineResult.read(folder.path)
    settings = read_toml(folder.path / "pipeline.toml")
    searches = int(settings.get("searches", 1))
    return PipelineResult(
        title=str(settings.get("title", folder.path.name)),
        protocol=str(settings.get("protocol", "")),
        search_count=searches,
        model_count=count_jobs(settings, "pipeline") - searches,
    )
