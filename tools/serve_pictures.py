"""Take the pictures of docs/serve.md: run small searches, a comparison and a retraining, and look at their pages.

    python tools/serve_pictures.py [FOLDER] [--runs FOLDER]

Writes serve-*.png, by default into docs/images. It takes some eight minutes and needs Chromium. With `--runs`, the runs
stay in that folder, and the next call takes their pictures without running them again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "images"
PROGRAM = (sys.executable, "-m", "archloom")
SMALL = ("--space", "nb201_mini", "--quiet", "--threads", "1")
LARGER = ("--space", "nb201", "--quiet", "--threads", "1", "--data", "digits", "--set", "network.channels=4",
          "--set", "space.cells_per_stage=1", "--set", "race.contestants=0")  # fmt: skip
FINISHED = (
    ("search", *SMALL, "--budget", "90s", "--out", "runs/first"),
    ("search", *LARGER, "--strategy", "darts", "--epochs", "24", "--out", "runs/darts"),
    ("search", *SMALL, "--strategy", "gdas", "--data", "digits", "--epochs", "20", "--out", "runs/gdas"),
    (
        "retrain",
        "runs/first",
        "--epochs",
        "12",
        "--quiet",
        "--threads",
        "1",
        "--set",
        "space.cells_per_stage=1",
        "--set",
        "network.channels=16",
        "--out",
        "runs/model",
    ),
)
RUNNING = ("search", *SMALL, "--data", "digits", "--epochs", "400", "--out", "runs/running")
COMPARING = ("compare", "first", "--seeds", "0-4", "--out", "runs/compare", "--quiet")
EPOCHS = 12  # that the search that runs has in its picture
COMPARED_SEEDS, LONGEST = 4, 600.0  # it is interrupted after so many searches, or so many seconds

MISSING = """[...document.querySelectorAll("[data-picture][data-seen=yes], #cell-now")]
  .some((one) => !one.querySelector("svg"))
  || [...document.images].some((one) => one.loading !== "lazy" && !one.complete)"""


@dataclass(frozen=True)
class Picture:
    """One picture: the file, the address of the page, its size, and whether it is dark."""

    file: str
    path: str
    width: int = 1100
    height: int = 1250
    dark: bool = False
    start: str = ""  # what stands at the top; left out: the top of the page
    click: str = ""  # what is pressed before


SHOWN = (
    Picture("serve-overview.png", "", 1280, 820, click="#parts"),
    Picture("serve-first.png", "page/runs/first", height=1000, start="#architecture"),
    Picture("serve-search.png", "page/runs/darts", height=1062),
    Picture("serve-dark.png", "page/runs/running", dark=True),
    Picture("serve-comparison.png", "page/runs/compare", height=1100),
    Picture("serve-retraining.png", "page/runs/model", height=1300, start="#confusion"),
    Picture("serve-overlay.png", "overlay?run=runs/first&run=runs/darts&run=runs/gdas", height=1200),
    Picture("serve-narrow.png", "page/runs/first", 360, 1400),
    Picture("serve-wide.png", "page/runs/first", 1600, 1100),
    Picture("serve-damaged.png", "page/runs/damaged", height=420),
)


def make_runs(folder: Path) -> None:
    """Make runs that are complete, one that is half done, and one that is damaged."""
    for command in FINISHED:
        if not list((folder / command[-1]).glob("*.json")):
            subprocess.run([*PROGRAM, *command], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    if (folder / "runs/damaged").exists():
        return
    with subprocess.Popen([*PROGRAM, *COMPARING], cwd=folder, stdout=subprocess.DEVNULL) as comparison:
        ended = time.monotonic() + LONGEST
        while time.monotonic() < ended and count_compared(folder) < COMPARED_SEEDS:
            time.sleep(0.2)
        comparison.send_signal(signal.SIGTERM)  # SIGINT is ignored by processes that a shell runs beside it
    shutil.copytree(folder / "runs/gdas", folder / "runs/damaged")
    (folder / "runs/damaged/config.toml").write_text("seed = \n")


def count_compared(folder: Path) -> int:
    """Return how many searches of the comparison have ended."""
    return len(list(folder.glob("runs/compare/runs/*/architecture.json")))


@contextmanager
def begin(folder: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command beside us, and end it at last."""
    with subprocess.Popen([*PROGRAM, *command], cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def wait_for_records(path: Path) -> None:
    """Wait until the search that runs has some epochs."""
    deadline = time.monotonic() + LONGEST
    while time.monotonic() < deadline and (not path.exists() or path.read_bytes().count(b"\n") < EPOCHS):
        time.sleep(0.5)


def wait_for_figures(page: Any) -> None:
    """Wait until every figure that is seen is drawn, and every small drawing is loaded."""
    page.wait_for_timeout(1000)  # what is seen is known
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and page.evaluate(MISSING):
        page.wait_for_timeout(200)
    page.wait_for_timeout(500)


def take(browser: Any, address: str, picture: Picture, out: Path) -> Path:
    """Write one picture, and return its file."""
    size = {"width": picture.width, "height": picture.height}
    page = browser.new_page(viewport=size, color_scheme="dark" if picture.dark else "light")
    page.goto(address + picture.path)
    page.wait_for_selector("body[data-ready=yes]")
    if picture.click:
        page.click(picture.click)
    wait_for_figures(page)
    if picture.start:
        page.locator(picture.start).evaluate("one => one.scrollIntoView()")
        wait_for_figures(page)
    page.screenshot(path=str(out / picture.file))
    page.close()
    return out / picture.file


def main() -> None:
    """Write all pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=PICTURES)
    parser.add_argument("--runs", type=Path, help="keep the runs here, and use those that are here")
    options = parser.parse_args()
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if program is None:
        sys.exit("needs Chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        folder = Path(name) if options.runs is None else options.runs
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / "runs/running", ignore_errors=True)
        make_runs(folder)
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        with begin(folder, *RUNNING), begin(folder, "serve", "runs", "--port", "0") as server:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            wait_for_records(folder / "runs/running/metrics.jsonl")
            for picture in SHOWN:
                print(take(browser, address, picture, options.out))
        browser.close()


if __name__ == "__main__":
    main()
