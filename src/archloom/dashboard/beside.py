"""The server that `archloom search --serve` starts: `python -m archloom.dashboard.beside FOLDER`.

It prints its address as the first line, and ends with the process that started it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from archloom.core.errors import ArchloomError
from archloom.dashboard.server import serve

EVERY = 2.0  # seconds between two looks at the parent


def main(folder: Path) -> None:
    """Serve a folder until the parent process ends."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    try:
        serve([folder], announce=lambda address: print(address.link, flush=True))
    except ArchloomError as error:
        sys.exit(str(error))


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(EVERY)
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
