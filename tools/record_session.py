"""Record the first search as a picture of a terminal: run the command, and let Rich draw what it prints as SVG.

    python tools/record_session.py [OUT]

Nothing is edited: the picture shows the command and its output.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "first-search.svg"
COMMAND = ("archloom", "search", "--space", "nb201_mini", "--budget", "3m", "--out", "runs/first")
WIDTH = 96


def record(command: tuple[str, ...]) -> str:
    """Return what a command prints, in the order of printing; leave where it fails."""
    program = shutil.which(command[0], path=str(Path(sys.executable).parent)) or command[0]
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run(
            [program, *command[1:]],
            cwd=folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"COLUMNS": str(WIDTH), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        )
    if ended.returncode:
        sys.exit(f"{' '.join(command)}: exit code {ended.returncode}\n{ended.stdout}")
    return ended.stdout


def draw(command: tuple[str, ...], printed: str) -> str:
    """Return a terminal with a command and its output as SVG."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text("$ ", style="green") + Text(" ".join(command), style="bold"))
    console.print(Text(printed.rstrip("\n")))
    return console.export_svg(title="archloom", unique_id="first-search")


def main() -> None:
    """Write the picture."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    out.write_text(draw(COMMAND, record(COMMAND)), encoding="utf-8")


if __name__ == "__main__":
    main()
