"""Pages from templates: one style, all values escaped. Reports are self-contained, the dashboard has its own layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import jinja2
from markupsafe import Markup

from archloom.reports.markup import make_printable
from archloom.reports.pictures import Picture

Show = Callable[[Picture], Markup]
"""How a page shows a picture."""


def embed(picture: Picture) -> Markup:
    """Return a picture as a part of the page: our own SVG, whose text is escaped where it is made.

    A figure is drawn twice, and the style sheet shows the one that fits the page.
    """
    return Markup(picture.svg if picture.narrow == picture.svg else picture.svg + picture.narrow)


def leave_out(picture: Picture) -> Markup:
    """Return only pictures that are drawn at once, and a line in the place of others."""
    if picture.is_quick:
        return embed(picture)
    return Markup("<p>Not drawn, because the budget was over: <code>archloom report</code> of this run draws it.</p>")


@cache
def make_environment(*packages: str, show: Show = embed) -> jinja2.Environment:
    """Return the templates of these packages, the first that has a name counts, with this way to show a picture."""
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package, ".") for package in packages]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["drawing"] = show
    return environment


def render_template(
    template: str,
    context: Mapping[str, object],
    *,
    environment: jinja2.Environment | None = None,
    with_pictures: bool = True,
) -> str:
    """Return the page that a template makes, by default one of this package; pictures may be left out, to save time."""
    known = environment or make_environment("archloom.reports", show=embed if with_pictures else leave_out)
    return make_printable(known.get_template(template).render(context))
