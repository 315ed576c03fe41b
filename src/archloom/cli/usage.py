"""Mistakes in the words of a command line: one line each, as for all other bad input."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import typer

from archloom.core.errors import one_line

UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # of click, or of the copy of it that typer brings
PARSED = "Input should be "  # how a value that cannot be read is described


def describe_usage_error(error: Any, words: Sequence[str]) -> str:
    """Return one line: what is wrong with the words, and the nearest right one or the command that explains them."""
    line, context = _describe(error, words), error.ctx
    place = "archloom" if context is None else context.command_path
    return line if line.endswith("?") else f"{line}; see: {place} --help"


def _describe(error: Any, words: Sequence[str]) -> str:
    unknown = getattr(error, "option_name", None)
    if unknown is not None and getattr(error, "param", None) is None and error.ctx is not None:
        options = [name[2:] for param in error.ctx.command.params for name in param.opts if name.startswith("--")]
        near = difflib.get_close_matches(unknown.lstrip("-"), options, n=1)
        suggested = f"; did you mean '--{near[0]}'?" if near else ""
        return f"unknown option '{unknown}'{suggested}"
    if isinstance(error, typer.BadParameter) and error.message.startswith(PARSED):
        names = getattr(error.param, "opts", ())
        rule = error.message.removeprefix(PARSED).partition(", unable")[0]
        return f"{' / '.join(names)} must be {rule}, got '{find_value(words, names)}'"
    line = one_line(error.format_message()).rstrip(".").replace(". Did you", "; did you")
    return line[:1].lower() + line[1:]


def find_value(words: Sequence[str], names: Sequence[str]) -> str:
    """Return the last value that the words give to an option, `--epochs 3` or `--epochs=3`."""
    given = ""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, is_joined, value = word.partition("=")
        if name in names:
            given = value if is_joined else following
    return given
