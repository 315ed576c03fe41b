"""Measure `archloom serve`: time to first paint and to interactive, CPU of an idle page, and a search that is watched.

    python benchmarks/serve.py --runs 500 --seconds 60

It needs Chromium and Playwright (extra `dev`). A search is timed alone and watched in turns, on one thread and on two.
Browser and server share the machine with it, so on two cores a search of two threads has to give them some of its time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import sync_playwright

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
SEARCH = ("search", "--space", "nb201_mini", "--strategy", "gdas", "--data", "digits", "--epochs", "60", "--quiet",
          "--set", "race.steps=0")  # fmt: skip
THREADS = (1, 2)
PAINT = """() => Object.fromEntries(performance.getEntriesByType("paint").map((one) => [one.name, one.startTime]))"""


@contextmanager
def serve(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield the server's process and its address."""
    command = [sys.executable, "-m", "archloom", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            yield server, server.stdout.readline().strip()
        finally:
            server.terminate()


def cpu_of(process: int) -> float:
    """Return the CPU seconds that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def copy_runs(source: Path, folder: Path, count: int) -> None:
    """Fill a folder with copies of one run."""
    left_out = shutil.ignore_patterns("checkpoints", "report.html")
    for number in range(count):
        shutil.copytree(source, folder / f"run-{number:03d}", ignore=left_out)


@dataclass(frozen=True)
class Taken:
    """The seconds that a search took: of processor time and by the clock."""

    cpu: float
    wall: float


def run_search(out: Path, threads: int, meanwhile: Callable[[], None] = lambda: None) -> Taken:
    """Run a search; return what it took."""
    before, start = os.times(), time.monotonic()
    command = [sys.executable, "-m", "archloom", *SEARCH, "--threads", str(threads), "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as search:
        meanwhile()
        assert search.wait() == 0
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Taken(cpu, time.monotonic() - start)


def measure_paint(browser: Any, address: str, path: str, repeats: int) -> None:
    """Print the times of loading a page: first contentful paint, and when its script has set it up."""
    paints, ready = [], []
    for _ in range(repeats):
        page = browser.new_page()
        page.add_init_script(
            "new MutationObserver(() => { if (document.body?.dataset.ready && !window.readyAt) window.readyAt = "
            "performance.now(); }).observe(document, { attributes: true, childList: true, subtree: true })"
        )
        page.goto(address + path)
        page.wait_for_selector("body[data-ready=yes]")
        page.wait_for_timeout(300)
        paints.append(page.evaluate(PAINT).get("first-contentful-paint", float("nan")))
        ready.append(page.evaluate("window.readyAt"))
        page.close()
    print(f"{path}: first paint {paints[0]:.0f} ms at first, median {median(paints):.0f} ms; "
          f"interactive {ready[0]:.0f} ms at first, median {median(ready):.0f} ms")  # fmt: skip


def measure_idle(browser: Any, server: int, address: str, path: str, seconds: float) -> None:
    """Print the CPU time of the server while one page is open and nothing happens."""
    page = browser.new_page()
    page.goto(address + path)
    page.wait_for_selector("body[data-ready=yes]")
    time.sleep(8)  # what the page asked for is drawn
    before = cpu_of(server)
    time.sleep(seconds)
    print(f"{path}: {cpu_of(server) - before:.2f} CPU s of the server in {seconds:.0f} s with an open page")
    page.close()


def measure_search(browser: Any, server: int, address: str, folder: Path, *, threads: int, repeats: int) -> None:
    """Print the times of a search alone and while its own page is open, alternating, and those of the server."""
    alone, watched = [], []
    served = 0.0
    for number in range(repeats):
        alone.append(run_search(folder / f"alone-{threads}-{number}", threads))
        page, path = browser.new_page(), folder / f"watched-{threads}-{number}"
        before = cpu_of(server)
        watched.append(run_search(path, threads, partial(open_run, page, path, address)))
        served += cpu_of(server) - before
        page.close()
    for name in ("cpu", "wall"):
        both = [[getattr(one, name) for one in some] for some in (alone, watched)]
        ratios = [second / first for first, second in zip(*both, strict=True)]
        print(f"search of {threads} threads, {name} seconds, alone and watched: {_write_both(both)}; "
              f"median ratio {median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")  # fmt: skip
    print(f"the server took {served / repeats:.2f} CPU s for each search that was watched")


def _write_both(both: list[list[float]]) -> str:
    return " and ".join(f"{median(some):.2f} ({min(some):.2f} to {max(some):.2f})" for some in both)


def open_run(page: Any, path: Path, address: str) -> None:
    """Open the page of a run as soon as it has a record."""
    while not (path / "metrics.jsonl").is_file() or not (path / "metrics.jsonl").stat().st_size:
        time.sleep(0.05)
    page.goto(f"{address}page/{path.parent.name}/{path.name}", timeout=120_000)
    page.wait_for_selector("body[data-live=yes]", timeout=120_000)


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        folder, own = Path(name) / "runs", Path(name) / "watched"
        own.mkdir()
        run_search(folder / "first", THREADS[-1])
        copy_runs(folder / "first", folder, options.runs - 1)
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        with serve(folder) as (server, address):
            measure_paint(browser, address, "", options.repeats)
            measure_paint(browser, address, "page/runs/first", options.repeats)
            measure_idle(browser, server.pid, address, "", options.seconds)
            (folder / "first/architecture.json").unlink()  # an interrupted run: its page waits for more
            measure_idle(browser, server.pid, address, "page/runs/first", options.seconds)
        with serve(own) as (server, address):
            for threads in THREADS:
                measure_search(browser, server.pid, address, own, threads=threads, repeats=options.repeats)
        browser.close()


if __name__ == "__main__":
    main()
