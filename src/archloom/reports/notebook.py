"""Tables as HTML for notebooks, which show the `_repr_html_` of a result."""

from __future__ import annotations

from archloom.reports.markup import escape
from archloom.reports.tables import Table


def to_html(table: Table) -> str:
    """Return a table as an HTML element with everything escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{rows}</tbody></table>"
