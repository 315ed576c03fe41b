"""What a pipeline is to run: a recipe, a folder of results, or just data. Finding it needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from archloom.core.files import expand
from archloom.core.recipes import PIPELINES, SpecSource, find_spec, shipped
from archloom.core.settings import Settings, merge
from archloom.data import DATA
from archloom.data.places import is_data_path

FROM_DATA = f"{PIPELINES}folder"  # what is run where the user names only data
FILE_NAME = "pipeline.toml"
SEARCHES, RETRAININGS = "searches", "retrainings"  # folders of its runs


def find_pipeline_source(
    given: str | Path | Settings, root: Path, *, out: Path | None = None, overrides: Settings
) -> tuple[SpecSource, Settings]:
    """Return the file of a pipeline, and what overrides it; the path of data stands for the shipped recipe on them."""
    if isinstance(given, Mapping) or not names_data(str(given)):
        return find_spec("run", given, root, out=out), overrides
    source = find_spec("run", FROM_DATA, root, out=out)
    if out is None:  # each data set has a folder of its own: a later call resumes there
        source = replace(source, folder=root / f"run-{Path(given).absolute().stem}")
    name = str(expand(given).absolute()) if is_data_path(str(given)) else str(given)
    return source, merge({"search": {"data": {"name": name}}}, overrides)


def names_data(given: str) -> bool:
    """Return whether the first argument names data: neither a recipe nor the folder of an earlier pipeline."""
    names = shipped()
    if given.endswith(".toml") or given in names or f"{PIPELINES}{given}" in names:
        return False
    return given in DATA or (is_data_path(given) and not (Path(given) / FILE_NAME).is_file())
