"""Run the web server: on this machine alone unless another address is asked for, and then with a token."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from archloom.core.errors import ArchloomError, SettingError

LOOPBACK, PORT = "127.0.0.1", 8421
NICENESS = 10  # a search that is watched goes first


@dataclass(frozen=True)
class Address:
    """Where pages are served."""

    host: str
    port: int
    token: str | None = None
    page: str = ""  # of one run, below the root

    @property
    def link(self) -> str:
        """Return what a user opens."""
        host = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(self.host, self.host)
        name = f"[{host}]" if ":" in host else host
        return f"http://{name}:{self.port}/{self.page}" + (f"?token={self.token}" if self.token else "")


def open_socket(host: str, port: int | None) -> socket.socket:
    """Return a listening socket; without a port, the usual one or, where that is taken, a free one.

    Raises:
        ArchloomError: If the address cannot be used.
    """
    wanted = [PORT, 0] if port is None else [port]
    for place, one in enumerate(wanted):
        try:
            return _bind(host, one)
        except OSError as error:
            if place == len(wanted) - 1:
                raise ArchloomError(
                    f"cannot listen on {host} port {one}: {error.strerror or error}; choose another --host or --port"
                ) from error
    raise AssertionError("one of the ports was tried last")


def _bind(host: str, port: int) -> socket.socket:
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((host, port))
        opened.listen(64)
    except OSError:
        opened.close()
        raise
    return opened


def serve(
    folders: Sequence[Path],
    *,
    host: str = LOOPBACK,
    port: int | None = None,
    announce: Callable[[Address], None] = lambda address: None,
) -> None:
    """Serve the pages of all runs below some folders until the process is asked to stop.

    Raises:
        SettingError: If a folder does not exist, or the extra `web` is not installed.
        ArchloomError: If the address cannot be used.
    """
    missing = [folder for folder in folders if not folder.is_dir()]
    if missing:
        raise SettingError([f"no folder {folder}; archloom search makes runs/" for folder in missing])
    try:
        import uvicorn

        from archloom.dashboard.app import make_app
        from archloom.dashboard.guard import is_loopback, list_hosts
    except ImportError as error:
        raise SettingError("archloom serve needs an extra: pip install 'archloom[web]'") from error
    token = None if is_loopback(host) else secrets.token_urlsafe(24)
    opened = open_socket(host, port)
    app = make_app(folders, hosts=list_hosts(host), token=token)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        loop="asyncio",
        http="h11",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    announce(Address(host, opened.getsockname()[1], token))
    threading.Thread(target=_prepare, name="import", daemon=True).start()
    uvicorn.Server(config).run(sockets=[opened])


def _prepare() -> None:
    """Import what pages of runs need while the reader looks at the overview."""
    import archloom.dashboard.pages
    import archloom.reports.figures

    archloom.reports.figures.make_figure(lambda figure: None, height=1.0)
