"""Trust: who may name code to import, or a place to write to.

What a user types on the command line or passes in Python is trusted. What a file or a folder holds is data: a plug-in
named there is refused until the user allows plug-ins. Everything is refused by default, so a reader of files that knows
nothing of trust is safe. See SECURITY.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from archloom.core.errors import SettingError

VARIABLE = "ARCHLOOM_PLUGINS"
ADVICE = f"to trust it, add --plugins (in Python plugins=True) or set {VARIABLE}=1"


class UntrustedError(SettingError):
    """A file names code to import or a place to write to, and the user has not allowed it."""


@dataclass(frozen=True)
class Trust:
    """What a user trusts: everything that files name, or certain texts."""

    plugins: bool = False
    texts: frozenset[str] = frozenset()


_NOTHING = Trust()
_TRUST: ContextVar[Trust] = ContextVar("archloom_trust", default=_NOTHING)


def current_trust() -> Trust:
    """Return what is trusted here; a job takes it along to the process that runs it."""
    return replace(_TRUST.get(), plugins=allows_plugins())


def allows_plugins() -> bool:
    """Return whether files may name plug-ins."""
    return _TRUST.get().plugins or os.environ.get(VARIABLE) == "1"


def is_trusted(text: str) -> bool:
    """Return whether a user typed or passed this text, or trusts all files."""
    return allows_plugins() or text in _TRUST.get().texts


def trust_texts(value: object) -> None:
    """Trust every text in a value, which a user typed or passed; it may be nested."""
    trust = _TRUST.get()
    _TRUST.set(replace(trust, texts=trust.texts.union(_list_texts(value))))


@contextmanager
def trusting(*values: object, plugins: bool = False) -> Iterator[None]:
    """Trust the texts in what a user passed from now on, and with `plugins` all files within the context."""
    trust_texts(values)
    before = _TRUST.get().plugins
    _TRUST.set(replace(_TRUST.get(), plugins=before or plugins))
    try:
        yield
    finally:
        _TRUST.set(replace(_TRUST.get(), plugins=before))


@contextmanager
def forgetting() -> Iterator[None]:
    """Trust afterwards only what was trusted before the context."""
    before = _TRUST.get()
    try:
        yield
    finally:
        _TRUST.set(before)


def _list_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _list_texts(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _list_texts(item)
