"""A page: a template and what it shows. Its pictures are drawn one by one, when a reader gets to see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from archloom.dashboard.folders import KINDS
from archloom.dashboard.summaries import STATES, Summary
from archloom.reports.markup import escape
from archloom.reports.pages import make_environment, render_template
from archloom.reports.pictures import Picture
from archloom.reports.tables import duration
from archloom.searches.report_findings import FindingSection


@dataclass(frozen=True)
class Page:
    """A page as it is at one moment."""

    template: str
    context: Mapping[str, object]
    version: str = ""

    @cached_property
    def pictures(self) -> Mapping[str, Picture]:
        """Return every picture of the page by its name."""
        return {picture.name: picture for picture in _find_pictures(self.context)}

    def render(self, **more: object) -> str:
        """Return the page as HTML."""
        context = {"version": self.version, **self.context, **more, "layout": "served.html"}
        return render_template(self.template, context, environment=templates())


def _find_pictures(value: object) -> Iterator[Picture]:
    if isinstance(value, Picture):
        yield value
    elif isinstance(value, FindingSection):
        yield from _find_pictures(value.figure)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _find_pictures(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _find_pictures(item)


@cache
def templates() -> jinja2.Environment:
    """Return the templates of the dashboard and, behind them, those of reports: both use the same sections."""
    environment = make_environment("archloom.dashboard", "archloom.reports")
    environment.filters |= {"drawing": _reserve_place, "left": write_left, "page": page_address, "quote": quote}
    environment.globals |= {"kinds": KINDS, "states": STATES}
    return environment


@jinja2.pass_context
def _reserve_place(context: jinja2.runtime.Context, picture: Picture) -> Markup:
    """Return the place of a picture, which the page's script fills, and links that save it."""
    key = str(context["key"])
    parts = {form: escape(f"/{form}/{quote(picture.name)}/{quote(key)}{context.get('query', '')}") for form in FORMS}
    links = " ".join(
        f'<a href="{address}" download="{escape(_file_name(key, picture, form))}" '
        f'aria-label="Save {escape(picture.heading)} as {form.upper()}">{form.upper()}</a>'
        for form, address in parts.items()
    )
    return Markup(
        f'<div class="picture" data-picture="{parts["svg"]}"><noscript><img src="{parts["svg"]}" '
        f'alt="{escape(picture.heading)}"></noscript></div><p class="save">{links}</p>'
    )


FORMS = ("svg", "csv")


def _file_name(key: str, picture: Picture, form: str) -> str:
    return f"{key.replace('/', '-')}-{picture.name}.{form}"


def page_address(key: str) -> str:
    """Return the address of a run's page."""
    return f"/page/{quote(key)}"


def write_left(summary: Summary) -> str:
    """Return the time left in words; after the last epoch or trial, what is done instead; or ''."""
    if summary.state != "running":
        return ""
    is_last = summary.total is not None and summary.done >= summary.total
    if summary.doing or is_last:
        return summary.doing or "finalists"
    return "" if summary.seconds_left is None else duration(summary.seconds_left) + " left"
