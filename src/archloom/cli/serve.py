"""`archloom serve`: watch runs in a browser, also beside a search."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from archloom.cli.console import open_message_console, open_result_console, print_line
from archloom.core.errors import SettingError
from archloom.core.recipes import RUNS
from archloom.core.run_kinds import find_kind


def serve(
    folders: Annotated[list[Path] | None, typer.Argument(help="Folders with runs, or of one. Default: runs/.")] = None,
    *,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Any but this machine's own needs the token that is printed.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port. Default: 8421, or a free one if it is taken.")
    ] = None,
) -> None:
    """Show all runs below some folders as live pages in a browser.

    Nothing is written, nothing is loaded from other machines, and runs need not know of it. Ctrl-C ends it.
    """
    from archloom.dashboard.server import Address
    from archloom.dashboard.server import serve as run_server

    def announce(address: Address) -> None:
        is_run = len(shown) == 1 and find_kind(shown[0]) is not None  # its page, not a list with one line
        page = f"page/{quote(shown[0].resolve().name)}" if is_run else ""
        print_line(replace(address, page=page).link, console=open_result_console())
        print_line("Ctrl-C ends it", console=open_message_console())

    shown = folders or [RUNS]
    run_server(shown, host=host, port=port, announce=announce)


@contextmanager
def serve_beside(folder: Path) -> Iterator[None]:
    """Serve the folder that holds a run while it runs; in a terminal, until Ctrl-C after it ended.

    The server is a process of its own, at low priority: it takes no time from the search.
    """
    folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "archloom.dashboard.beside", str(folder.absolute().parent)]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert server.stdout is not None and server.stderr is not None, "both are pipes"
        link = server.stdout.readline().strip()
        if not link:
            raise SettingError(server.stderr.read().strip() or "the server of --serve did not start")
        print_line(
            f"live page: {link}page/{folder.absolute().parent.name}/{folder.name}", console=open_message_console()
        )
        yield
        if sys.stdout.isatty():
            print_line("the page stays until Ctrl-C", console=open_message_console())
            with suppress(KeyboardInterrupt):
                server.wait()
    finally:
        server.terminate()
        server.wait()
