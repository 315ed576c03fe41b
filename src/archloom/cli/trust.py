"""Trust on the command line: what is typed is trusted, and --plugins trusts what files name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from archloom.core.trust import VARIABLE, forgetting, trusting

Plugins = Annotated[
    bool,
    typer.Option(
        "--plugins",
        help=f"Trust the files: import plug-ins that they name, write where they say. Also: {VARIABLE}=1.",
    ),
]


def add_plugins_option(app: typer.Typer) -> None:
    """Give every command of an application the option --plugins; no command can forget it."""
    for command in app.registered_commands:
        assert command.callback is not None, "every command is a function"
        command.callback = _with_trust(command.callback)
    for group in app.registered_groups:
        assert group.typer_instance is not None, "every group is an application of its own"
        add_plugins_option(group.typer_instance)


def _with_trust(command: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(command, eval_str=True)
    plugins = inspect.Parameter("plugins", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Plugins)

    @functools.wraps(command)
    def run(*, plugins: bool, **typed: Any) -> Any:
        with forgetting(), trusting(list(list_typed(typed)), plugins=plugins):
            return command(**typed)

    parameters = [*signature.parameters.values(), plugins]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def list_typed(typed: dict[str, Any]) -> Iterator[str]:
    """Yield the texts among the values of a command, and the value of each `--set NAME=VALUE`.

    The name of a file is none of them: a shell may have completed it, so another person may have chosen it.
    """
    for value in typed.values():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not _is_file(text):
                yield text
                yield text.partition("=")[2].strip().strip("\"'")


def _is_file(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # too long for a file name
        return False
