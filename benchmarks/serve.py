"""Measure `archloom serve`: time to first paint and to interactive, CPU of an idle page, and a search that is watched.

    python benchmarks/serve.py --runs 500 --seconds 60
    python benchmarks/serve.py --parts replay --seconds 15 --busy   # processor time alone: it counts beside other work
    python benchmarks/serve.py --parts search --repeats 5          # wall times: on an idle machine only

It needs Chromium and Playwright (extra `dev`). `replay` appends the records of a finished search to a new folder, four
each second, and prints the processor time of server and browser. The number of records does not depend on the load.
`search` times a search alone and watched in turns, on one thread and on two.
A browser on the same machine takes some of its time. `elsewhere` is a reader without a browser, which asks for what a
page asks for, as often as a page does: what is left is the cost of the server.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urljoin

from playwright.sync_api import sync_playwright

from archloom.execution.run_folder import RunFolder

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
SEARCH = ("search", "--space", "nb201_mini", "--strategy", "gdas", "--data", "digits", "--quiet",
          "--set", "race.steps=0")  # fmt: skip
THREADS = (1, 2)
PARTS = ("paint", "idle", "replay", "search")
RECORDS_PER_SECOND = 4
SHORTEST_PAUSE, LONGEST_PAUSE = 5.0, 20.0  # seconds between two refreshes, as serve.js has them
SEEN_PICTURES = 2  # of the page of a search, before anybody scrolls
PAINT = """() => Object.fromEntries(performance.getEntriesByType("paint").map((one) => [one.name, one.startTime]))"""


AS_IMPORTANT = "from archloom.dashboard import server; server.NICENESS = 0; from archloom.cli.main import run; run()"


@contextmanager
def serve(folder: Path, *, is_busy: bool = False) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield the server's process and its address; on a busy machine, one at low priority would never answer."""
    program = ("-c", AS_IMPORTANT) if is_busy else ("-m", "archloom")
    command = [sys.executable, *program, "serve", str(folder), "--port", "0"]
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


def list_browser() -> list[int]:
    """Return the processes of the browsers that this process started: its descendants by that name."""
    found: dict[int, tuple[int, str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            start, _, rest = path.read_text().rpartition(")")
            found[int(path.parent.name)] = int(rest.split()[1]), start.partition("(")[2]
    children = {os.getpid()}
    while more := {one for one, (parent, _) in found.items() if parent in children} - children:
        children |= more
    return [one for one in children if found.get(one, (0, ""))[1].startswith("chrom")]


def cpu_of_browser() -> float:
    """Return the CPU seconds of all processes of the browser, those that ended included."""
    total = 0
    for process in list_browser():
        with suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(field) for field in fields[11:15])  # its own, and those of children that ended
    return total / os.sysconf("SC_CLK_TCK")


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


def run_search(out: Path, threads: int, epochs: int, meanwhile: Callable[[], None] = lambda: None) -> Taken:
    """Run a search; return what it took."""
    before, start = os.times(), time.monotonic()
    command = [sys.executable, "-m", "archloom", *SEARCH, "--epochs", str(epochs), "--threads", str(threads)]
    command += ["--out", str(out)]
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
    """Print the CPU time of server and browser while one page is open and nothing happens."""
    page = browser.new_page()
    page.goto(address + path)
    page.wait_for_selector("body[data-ready=yes]")
    time.sleep(8)  # what the page asked for is drawn
    before = cpu_of(server), cpu_of_browser()
    time.sleep(seconds)
    print(f"{path}: {cpu_of(server) - before[0]:.2f} CPU s of the server and {cpu_of_browser() - before[1]:.2f} of the "
          f"browser in {seconds:.0f} s with an open page")  # fmt: skip
    page.close()


def measure_replay(browser: Any, server: int, address: str, source: Path, folder: Path, seconds: float) -> None:
    """Print the CPU time of server and browser while the page of a search is opened, and while its records come in."""
    path = folder / "replayed"
    records = [json.loads(line) for line in (source / "metrics.jsonl").read_text().splitlines()]
    shutil.copytree(source, path, ignore=shutil.ignore_patterns("checkpoints", "*.html", "architecture.json"))
    (path / "metrics.jsonl").write_text(json.dumps(records[0]) + "\n")
    page = browser.new_page()
    page.goto("about:blank")
    time.sleep(2)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    with RunFolder(path).lock():
        before = cpu_of(server), cpu_of_browser()
        page.goto(f"{address}page/{folder.name}/{path.name}", timeout=120_000)
        page.wait_for_selector("body[data-drawn=yes]", timeout=120_000)
        page.wait_for_timeout(4000)  # the first figures are drawn
        opened, first = (cpu_of(server), cpu_of_browser()), len(asked)
        for number in range(1, round(seconds * RECORDS_PER_SECOND)):
            with (path / "metrics.jsonl").open("a") as file:
                file.write(json.dumps({**records[number % len(records)], "epoch": number}) + "\n")
            page.wait_for_timeout(1000 / RECORDS_PER_SECOND)
        watched = cpu_of(server), cpu_of_browser()
    page.close()
    for name, place in (("server", 0), ("browser", 1)):
        print(f"replay, {name}: {opened[place] - before[place]:.2f} CPU s to open the page, "
              f"{watched[place] - opened[place]:.2f} CPU s for {seconds:.0f} s of records")  # fmt: skip
    print(f"replay: {len(asked) - first} requests for {seconds:.0f} s of records")


def measure_search(
    browser: Any, server: int, address: str, folder: Path, *, threads: int, epochs: int, repeats: int
) -> None:
    """Print the times of a search alone, watched in a browser here and watched from elsewhere, in turns."""
    times: dict[str, list[Taken]] = {"alone": [], "in a browser here": [], "from elsewhere": []}
    served, browsed = dict.fromkeys(times, 0.0), dict.fromkeys(times, 0.0)
    for number in range(repeats):
        for name, found in times.items():
            path, before = folder / f"{name.split()[-1]}-{threads}-{number}", (cpu_of(server), cpu_of_browser())
            with watching(browser if "browser" in name else None, address, path) as watch:
                found.append(run_search(path, threads, epochs, watch if name != "alone" else lambda: None))
            served[name] += cpu_of(server) - before[0]
            browsed[name] += cpu_of_browser() - before[1]
    for name, found in times.items():
        print(
            f"{threads} threads, {name}: {_write_times(found, times['alone'])}; "
            f"{served[name] / repeats:.2f} CPU s of the server, {browsed[name] / repeats:.2f} of the browser"
        )


def _write_times(found: list[Taken], alone: list[Taken]) -> str:
    ratios = [one.wall / other.wall for one, other in zip(found, alone, strict=True)]
    walls = [one.wall for one in found]
    cpu = median(one.cpu for one in found)
    return (f"{cpu:.2f} CPU s, {median(walls):.2f} s ({min(walls):.2f} to {max(walls):.2f}), "
            f"{median(ratios):.3f} times as long as alone ({min(ratios):.3f} to {max(ratios):.3f})")  # fmt: skip


@contextmanager
def watching(browser: Any, address: str, path: Path) -> Iterator[Callable[[], None]]:
    """Yield what begins to watch a run as soon as it has a record, in a browser or without one; stop at the end."""
    place, ended = f"{address}page/{path.parent.name}/{path.name}", threading.Event()
    page = None if browser is None else browser.new_page()

    def begin() -> None:
        while not (path / "metrics.jsonl").is_file() or not (path / "metrics.jsonl").stat().st_size:
            time.sleep(0.05)
        if page is None:
            threading.Thread(target=_read_often, args=(place, ended), daemon=True).start()
        else:
            page.goto(place, timeout=120_000)
            page.wait_for_selector("body[data-live=yes]", timeout=120_000)

    yield begin
    ended.set()
    if page is not None:
        page.close()


def _read_often(place: str, ended: threading.Event) -> None:
    """Ask for a page, its cell and the pictures that are seen first, and pause as a page does."""
    while not ended.is_set():
        start = time.monotonic()
        text = _read(place)
        pictures = re.findall(r'data-picture="([^"]+)"', text)[:SEEN_PICTURES]
        cells = [f"{cell}?place=0" for cell in re.findall(r'data-cell="([^"]+)"', text)]
        for picture in (*cells, *pictures):
            _read(urljoin(place, picture))
        taken = time.monotonic() - start
        ended.wait(min(LONGEST_PAUSE, max(SHORTEST_PAUSE, 50 * taken)))


def _read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return str(answer.read().decode())


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=60, help="of the searches that are timed alone and watched")
    parser.add_argument("--source", type=Path, help="a finished search, instead of one that is run first")
    parser.add_argument("--busy", action="store_true", help="serve at our own priority: for `replay` on a busy machine")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    options = parser.parse_args()
    parts = set(options.parts.split(","))
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        folder, own = Path(name) / "runs", Path(name) / "watched"
        own.mkdir()
        if options.source is None:
            run_search(folder / "first", THREADS[-1], 60)
        else:
            shutil.copytree(options.source, folder / "first")
        copy_runs(folder / "first", folder, options.runs - 1)
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        with serve(folder, is_busy=options.busy) as (server, address):
            if "paint" in parts:
                measure_paint(browser, address, "", options.repeats)
                measure_paint(browser, address, "page/runs/first", options.repeats)
            if "replay" in parts:
                measure_replay(browser, server.pid, address, folder / "first", folder, options.seconds)
            if "idle" in parts:
                measure_idle(browser, server.pid, address, "", options.seconds)
                (folder / "first/architecture.json").unlink()  # an interrupted run: its page waits for more
                measure_idle(browser, server.pid, address, "page/runs/first", options.seconds)
        with serve(own, is_busy=options.busy) as (server, address):
            for threads in THREADS if "search" in parts else ():
                times = {"threads": threads, "epochs": options.epochs, "repeats": options.repeats}
                measure_search(browser, server.pid, address, own, **times)
        browser.close()


if __name__ == "__main__":
    main()
