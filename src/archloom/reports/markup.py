"""Make text safe for SVG and HTML: names come from plug-ins and files, and may hold anything."""

from __future__ import annotations

import html
import re

_UNPRINTABLE = re.compile(
    "[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)


def make_printable(text: str) -> str:
    """Replace characters that XML forbids (control characters, lone surrogates) or that turn text around by a mark."""
    return _UNPRINTABLE.sub("\ufffd", text)


def escape(text: str) -> str:
    """Return text that is safe between tags and in quoted attributes."""
    return html.escape(make_printable(text), quote=True)


def shorten(text: str, *, longest: int) -> str:
    """Return the text, or its beginning and an ellipsis if it is longer than `longest`."""
    return text if len(text) <= longest else text[: longest - 1] + "…"
