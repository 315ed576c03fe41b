"""Self-contained pages from the templates of this package: one style, all values escaped."""

from __future__ import annotations

from collections.abc import Mapping

import jinja2
from markupsafe import Markup

from archloom.reports.markup import make_printable


def render_template(template: str, context: Mapping[str, object]) -> str:
    """Return the page that a template of this package makes."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("archloom.reports", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["drawing"] = Markup  # our own SVG, whose text is escaped where it is made
    return make_printable(environment.get_template(template).render(context))
