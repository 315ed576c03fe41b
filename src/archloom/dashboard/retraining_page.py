"""The page of a retraining: the report so far."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

from archloom.dashboard.page import Page
from archloom.dashboard.views import RetrainView
from archloom.retrainings.report import list_links, make_context


def make_retraining_page(view: RetrainView) -> Page:
    """Return the page of a retraining as it is now."""
    graphs = view.graphs(view.config.get("architecture", {}))
    context = make_context(view.path, view.config, view.history, view.result, graphs)
    links = [replace(link, address=f"/file/{quote(view.key)}?name={link.address}") for link in list_links(view.path)]
    more = {
        "links": links,
        "subtitle": view.key,
        "panels": "run_panels.html",
        "damaged": view.damaged,
        "plugin": view.space is None,
    }
    return Page("retrained.html", {**context, **more}, view.version)
