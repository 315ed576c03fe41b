"""Make the page of any run folder, and keep what was read of it for the next time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from archloom.core.errors import ArchloomError
from archloom.core.json_object import JsonObject
from archloom.dashboard.comparison_page import make_comparison_page
from archloom.dashboard.folders import Folder
from archloom.dashboard.index import Index
from archloom.dashboard.overlay_page import MOST_RUNS, View, make_overlay_page
from archloom.dashboard.page import Page
from archloom.dashboard.pipeline_page import make_pipeline_page
from archloom.dashboard.retraining_page import make_retraining_page
from archloom.dashboard.search_page import describe_moment, draw_moment, make_search_page
from archloom.dashboard.summaries import Summary
from archloom.dashboard.views import RetrainView, SearchView
from archloom.reports.pictures import Picture
from archloom.reports.tables import Table
from archloom.retrainings.report import list_links
from archloom.searches.records import EpochRecord
from archloom.searches.report_plots import tabulate_probabilities

MOST_VIEWS = 64  # runs whose records stay in memory

Found = tuple[Folder, Summary]


class Pages:
    """Pages of searches, retrainings, comparisons and pipelines."""

    def __init__(self, index: Index) -> None:
        self._index, self._lock = index, threading.Lock()
        self._views: OrderedDict[Path, View] = OrderedDict()

    def make(self, folder: Folder, summary: Summary) -> Page:
        """Return the page of a folder as it is now."""
        if summary.kind == "comparison":
            return make_comparison_page(folder, summary, self._index.members_of(folder.key))
        if summary.kind == "pipeline":
            return make_pipeline_page(folder, self._index.members_of(folder.key), self._index.find_path)
        view = self._open(folder, summary)
        return make_retraining_page(view) if isinstance(view, RetrainView) else make_search_page(view)

    def make_overlay(self, found: Sequence[Found]) -> Page | None:
        """Return a page with several runs; None for fewer than two."""
        runs = [one for one in found if one[1].kind in ("search", "retraining") and one[1].state != "damaged"]
        views = [self._open(*one) for one in runs[:MOST_RUNS]]
        return make_overlay_page(views) if len(views) > 1 else None

    def show_moment(self, folder: Folder, summary: Summary, place: int | None) -> JsonObject:
        """Return the cells after one epoch or trial, and what is known of them."""
        view = self._open_search(folder, summary)
        at = len(view.history) - 1 if place is None else place
        return {"svg": draw_moment(view, at), "text": describe_moment(view.history, at)}

    def picture_moment(self, folder: Folder, summary: Summary, place: int | None) -> Picture:
        """Return the same as a picture that can be saved."""
        view = self._open_search(folder, summary)
        at = len(view.history) - 1 if place is None else place
        record = view.history[at]
        decisions = () if view.space is None else view.space.decisions

        def tabulate() -> Table:
            if isinstance(record, EpochRecord):
                return tabulate_probabilities([record], decisions)
            return Table("", tuple(record.architecture.items()), ("decision", "option"))

        return Picture("cell", describe_moment(view.history, at), lambda: draw_moment(view, at), tabulate)

    def find_file(self, folder: Folder, name: str) -> Path | None:
        """Return a file that the page of a retraining lists by this name."""
        return folder.path / name if name in {link.name for link in list_links(folder.path)} else None

    def _open_search(self, folder: Folder, summary: Summary) -> SearchView:
        view = self._open(folder, summary)
        if not isinstance(view, SearchView):
            raise ArchloomError(f"{folder.key} is not a search")
        return view

    def _open(self, folder: Folder, summary: Summary) -> View:
        """Return the view of a run with all that is new."""
        kind = RetrainView if summary.kind == "retraining" else SearchView
        with self._lock:
            view = self._views.pop(folder.path, None)
            if not isinstance(view, kind):
                view = kind(folder)
            self._views[folder.path] = view
            while len(self._views) > MOST_VIEWS:
                self._views.popitem(last=False)
        view.update()
        return view
