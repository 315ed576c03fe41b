"""Text made safe to stand in SVG and HTML: names come from plug-ins and files, and may hold anything."""

from __future__ import annotations

import html
import re

_UNPRINTABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def printable(text: str) -> str:
    """The text without what XML forbids (control characters, lone surrogates); each becomes a replacement mark."""
    return _UNPRINTABLE.sub("\ufffd", text)


def escaped(text: str) -> str:
    """The text as it may stand between tags or in a quoted attribute."""
    return html.escape(printable(text), quote=True)


def shortened(text: str, *, longest: int) -> str:
    """The text itself, or its beginning and an ellipsis where it is too long to draw."""
    return text if len(text) <= longest else text[: longest - 1] + "…"
