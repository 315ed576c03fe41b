"""`archloom serve`: watch runs in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from archloom.cli.console import open_message_console, open_result_console, print_line


def serve(
    folders: Annotated[list[Path] | None, typer.Argument(help="Folders with runs. Default: runs/.")] = None,
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
        print_line(address.link, console=open_result_console())
        print_line("Ctrl-C ends it", console=open_message_console())

    run_server(folders or [Path("runs")], host=host, port=port, announce=announce)
