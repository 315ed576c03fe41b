"""Folders of runs to look at: stored ones, real ones and damaged ones."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

STORED = Path(__file__).parents[1] / "data_files" / "first_edition"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with one run of every kind."""
    folder = tmp_path / "runs"
    shutil.copytree(STORED, folder)
    return folder


@pytest.fixture
def ask(runs: Path) -> Callable[..., Any]:
    """Ask the pages of `runs` as a browser would."""
    testclient = pytest.importorskip("starlette.testclient", reason="needs the extra web and httpx")
    from archloom.dashboard.app import Dashboard
    from archloom.dashboard.guard import Guard, list_hosts
    from archloom.dashboard.index import Index

    index = Index([runs], clock=itertools.count().__next__)  # every request looks at the disk
    app = Guard(Dashboard(index).app, list_hosts("127.0.0.1"))
    client = testclient.TestClient(app, base_url="http://127.0.0.1:8421")
    return client.get
