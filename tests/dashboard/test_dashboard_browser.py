"""The pages in Chromium: live searches, slider, overlay, comparisons, retrainings, damage; no request to elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from archloom.api import write_report
from archloom.core.files import write_atomically
from archloom.core.progress_file import progress_path
from archloom.execution.run_folder import RunFolder

pytest.importorskip("uvicorn", reason="needs the extra web")
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
playwright.expect.set_options(timeout=90_000)
expect = playwright.expect

STORED = Path(__file__).parents[1] / "data_files" / "first_edition"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update"]  # fmt: skip
WAIT = 90_000  # milliseconds: machines of tests are slow
NOON = datetime(2026, 1, 1, 12)
EVIL = "<script>document.title='taken'</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def address(root: Path) -> Iterator[str]:
    """Serve the folder as `archloom serve` does, from a thread."""
    import uvicorn

    from archloom.dashboard.app import make_app
    from archloom.dashboard.guard import list_hosts
    from archloom.dashboard.server import open_socket

    opened = open_socket("127.0.0.1", 0)
    app = make_app([root], hosts=list_hosts("127.0.0.1"))
    config = uvicorn.Config(app, log_level="warning", lifespan="off", ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{opened.getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Any]:
    """Open pages; in the end, no request has left the machine and no page had an error."""
    requests, errors, contexts = [], [], []

    def open_page(path: str, *, width: int = 1280, height: int = 900, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        context.set_default_timeout(WAIT)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("dialog", lambda dialog: errors.append(f"dialog {dialog.message}") or dialog.dismiss())
        page.goto(address + path)
        page.wait_for_selector("body[data-ready=yes]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert requests
    outside = [url for url in requests if not url.startswith((f"{address}/", "data:", "blob:"))]
    assert not outside, outside
    assert not errors, errors


def draw_all(page: Any) -> None:
    """Scroll through the page until every picture is drawn."""
    page.evaluate("""async () => {
      for (const place of document.querySelectorAll("[data-picture]")) {
        place.scrollIntoView();
        for (let n = 0; n < 200 && !place.querySelector("svg"); n++) await new Promise((done) => setTimeout(done, 50));
      }
    }""")
    assert page.locator("[data-picture]").count() == page.locator("[data-picture] > svg").count() > 0


def copy(root: Path, *names: str) -> None:
    for name in names:
        shutil.copytree(STORED / name, root / name)


def test_a_search_is_watched_from_its_start_to_its_end(root: Path, visit: Any) -> None:
    page = visit("/")
    assert page.locator("#runs-table tbody tr").count() == 0
    command = [sys.executable, "-m", "archloom", "search", "--space", "nb201_mini", "--strategy", "gdas", "--quiet",
               "--data", "digits", "--epochs", "12", "--set", "search.finalist_steps=4",
               "--set", "search.random_baseline_samples=2", "--out", str(root / "live")]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as search:
        page.wait_for_selector("tr[data-key='runs/live']")  # it appears by itself
        page.click("tr[data-key='runs/live'] a")
        page.wait_for_selector("#moment")  # with the first epoch, without a reload
        expect(page.locator("#moment")).to_have_attribute("max", "12")
        page.wait_for_selector(".badge.finished")
        assert search.wait() == 0, search.stderr
    page.wait_for_selector("#architecture p.verdict")
    assert page.locator("#moment").input_value() == "12"  # the slider followed the search
    assert page.get_attribute("body", "data-events") == ""  # nothing is left to wait for
    assert page.locator("#unfinished").count() == 0
    draw_all(page)

    last = page.locator("#cell-now").inner_html()
    page.focus("#moment")
    page.keyboard.press("Home")
    expect(page.locator("#moment-text")).to_contain_text("After epoch 1: ")
    assert page.locator("#cell-now").inner_html() != last
    assert page.get_attribute("#cell-svg", "href").endswith("/svg/cell/runs/live?place=0")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#moment-text")).to_contain_text("After epoch 2: ")
    with page.expect_download() as saved:
        page.click("#stability .save a:has-text('CSV')")
    assert Path(saved.value.path()).read_text().startswith("epoch,accuracy with shared weights")


def write_progress(folder: Path, position: int) -> None:
    path = progress_path(folder)
    path.parent.mkdir(exist_ok=True)
    figures = {"position": position, "total": 200, "units_per_record": 100, "seconds_per_unit": 0.5}
    write_atomically(path, json.dumps(figures).encode())


def test_steps_and_time_left_move_within_an_epoch(root: Path, visit: Any) -> None:
    copy(root, "search_epochs_interrupted")
    folder, row = root / "search_epochs_interrupted", "tr[data-key='runs/search_epochs_interrupted']"
    with RunFolder(folder).lock():
        write_progress(folder, 110)
        page = visit("/")
        page.focus(f"{row} a")
        assert page.get_attribute(f"{row} progress", "value") == "0.5500"
        write_progress(folder, 120)
        expect(page.locator(f"{row} progress")).to_have_attribute("value", "0.6000")
        assert page.evaluate("document.activeElement.textContent") == "runs/search_epochs_interrupted"  # as before
        page.keyboard.press("Enter")
        expect(page.locator("#step")).to_contain_text("step 20 of 100")
        for position, left in ((140, "30.0 s left"), (180, "10.0 s left")):
            write_progress(folder, position)
            expect(page.locator("#step")).to_contain_text(f"step {position - 100} of 100")
            assert "1 of 2 epochs" in page.inner_text("#state") and left in page.inner_text("#state")
            assert page.get_attribute("#state progress", "value") == f"{position / 200:.4f}"
    expect(page.locator("#state .badge")).to_have_text("interrupted")
    assert page.locator("#step").count() == 0


def test_the_posterior_of_a_search_shows_while_it_runs(root: Path, visit: Any) -> None:
    page = visit("/")
    command = [sys.executable, "-m", "archloom", "search", "--space", "nb201_mini", "--strategy", "gibbs", "--quiet",
               "--epochs", "2000", "--set", "data.train_images=64", "--set", "data.valid_images=64",
               "--set", "search.batch_size=16", "--out", str(root / "live")]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as search:
        try:
            page.click("tr[data-key='runs/live'] a")
            page.wait_for_selector("#posterior")
            assert page.inner_text("#state .badge") == "running"
            assert page.locator("#posterior tbody tr").count() >= 3  # a row for every decision
            before = page.inner_text("#posterior p")
            expect(page.locator("#posterior p").first).not_to_have_text(before)  # it follows the draws
        finally:
            search.send_signal(signal.SIGINT)
    expect(page.locator("#state .badge")).to_have_text("interrupted")


def test_two_runs_are_ticked_and_overlaid(root: Path, visit: Any) -> None:
    copy(root, "search_gdas", "search_gibbs", "retrain")
    page = visit("/")
    assert page.is_disabled("#compare-button")
    for name in ("search_gdas", "search_gibbs"):
        page.focus(f"tr[data-key='runs/{name}'] input")
        page.keyboard.press("Space")
    page.click("#compare-button")
    page.wait_for_selector("body[data-page=overlay]")
    draw_all(page)
    assert page.locator("#curves svg.plot text", has_text="runs/search_gdas").count() == 1
    assert page.locator("#cells figure").count() == 2
    assert page.locator("#differences td", has_text="strategy.name").count() == 1


def test_a_comparison_fills_up_and_gets_its_verdict_last(root: Path, visit: Any) -> None:
    copy(root, "comparison")
    last, result = root / "comparison/runs/gdas-1/architecture.json", root / "comparison/comparison.json"
    texts = {path: path.read_bytes() for path in (last, result)}
    for path in texts:
        path.unlink()
    with RunFolder(root / "comparison").lock():
        page = visit("/page/runs/comparison")
        assert "The verdict comes when all 4 planned seeds are in" in page.inner_text("#planned")
        assert page.locator("#verdict").count() == 0
        assert page.locator("#planned .seed.finished").count() == 3
        last.write_bytes(texts[last])
        expect(page.locator("#planned .seed.finished")).to_have_count(4)
        assert page.locator("#verdict").count() == 0  # not before the comparison itself has ended
        result.write_bytes(texts[result])
    page.wait_for_selector("#verdict")
    assert "All planned seeds are in" in page.inner_text("#planned")


def test_a_retraining_shows_curves_confusion_and_mistakes(root: Path, visit: Any) -> None:
    copy(root, "retrain")
    page = visit("/page/runs/retrain")
    draw_all(page)
    assert page.locator("#confusion svg.plot.paper").count() == 1
    pictures = page.locator(".mistakes img")
    assert pictures.count() > 3
    page.locator("#mistakes").scroll_into_view_if_needed()
    assert pictures.evaluate_all("all => all.every((one) => one.complete && one.naturalWidth === 96)")


def test_damaged_folders_and_names_with_markup_do_no_harm(root: Path, visit: Any) -> None:
    copy(root, "search_gdas", "retrain", "search_random")
    (root / "search_gdas/architecture.json").write_text('{"half')
    path = root / "retrain/result.json"
    value = json.loads(path.read_text())
    value["classes"] = [EVIL, *value["classes"][1:]]
    path.write_text(json.dumps(value))
    page = visit("/")
    assert page.inner_text("tr[data-key='runs/search_gdas'] .badge") == "damaged"
    assert "architecture.json is damaged" in page.inner_text("tr[data-key='runs/search_gdas']")
    assert page.inner_text("tr[data-key='runs/search_random'] .badge") == "finished"
    page.click("tr[data-key='runs/search_gdas'] a")
    page.wait_for_selector("#damaged")
    page = visit("/page/runs/retrain")
    draw_all(page)
    assert page.locator("#confusion svg text", has_text="<script>").count() > 0
    assert page.title() != "taken"


def test_five_hundred_runs_are_sorted_and_filtered(root: Path, visit: Any) -> None:
    for number in range(500):
        folder = root / f"run-{number:03d}"
        folder.mkdir()
        source = STORED / ("search_gdas" if number % 2 else "search_random")
        for name in ("config.toml", "architecture.json"):
            shutil.copy(source / name, folder / name)
        os.utime(folder, (1e9 + number, 1e9 + number))
    page = visit("/")
    rows = "#runs-table tbody tr"
    assert page.locator(rows).count() == 500
    assert page.get_attribute(f"{rows}:first-child", "data-key") == "runs/run-499"  # the last change first
    page.click("thead button:has-text('run')")
    assert page.get_attribute(f"{rows}:first-child", "data-key") == "runs/run-000"
    assert page.get_attribute("thead th:nth-child(2)", "aria-sort") == "ascending"
    page.click("thead button:has-text('run')")
    assert page.get_attribute(f"{rows}:first-child", "data-key") == "runs/run-499"
    page.fill("#filter", "gdas run-00")
    assert page.inner_text("#count") == "5 runs"
    assert page.locator(f"{rows}:visible").count() == 5
    page.fill("#filter", "")
    page.select_option("#kind", "retraining")
    assert page.inner_text("#count") == "0 runs"


KINDS = {
    "overview": "/",
    "search": "/page/runs/search_gibbs",
    "trials": "/page/runs/search_random",
    "interrupted": "/page/runs/search_epochs_interrupted",
    "retraining": "/page/runs/retrain",
    "comparison": "/page/runs/comparison",
    "pipeline": "/page/runs/pipeline",
    "overlay": "/overlay?run=runs/search_gdas&run=runs/search_gibbs&run=runs/retrain",
    "damaged": "/page/runs/damaged",
}
WIDTHS = (1600, 768, 400, 360)
PLAIN_TEXT = "svg.plot:not(.paper) text:is([fill='#4b5563'], [fill='#1f2937'], :not([fill]))"  # not a line's colour
LONG = "a_name_without_a_place_to_break_it_that_is_longer_than_a_narrow_window_is_wide_0123456789"


def assert_fits(page: Any) -> None:
    """Assert that no width needs a horizontal scroll bar, and that colours follow the scheme, in light and in dark."""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        if page.locator("[data-picture]").count():
            draw_all(page)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (width, scheme)
            paper, ink = page.evaluate(
                "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
            )
            dark, light = (paper, ink) if scheme == "dark" else (ink, paper)
            assert brightness(dark) < 70 and brightness(light) > 200, (width, scheme)
            fills = page.evaluate(
                "(texts) => [...document.querySelectorAll(texts)].map((one) => getComputedStyle(one).fill)", PLAIN_TEXT
            )
            assert all((brightness(fill) < 120) == (scheme == "light") for fill in fills), (width, scheme)


@pytest.mark.parametrize("kind", KINDS)
def test_pages_fit_narrow_and_wide_windows_in_the_dark_and_in_the_light(root: Path, visit: Any, kind: str) -> None:
    shutil.copytree(STORED, root, dirs_exist_ok=True)
    shutil.copytree(STORED / "search_gdas", root / "damaged")
    (root / "damaged/architecture.json").write_text('{"half')
    shutil.copytree(STORED / "search_gdas", root / LONG)
    assert_fits(visit(KINDS[kind]))


@pytest.mark.parametrize("name", ["search_gibbs", "search_random", "retrain", "comparison", "pipeline"])
def test_reports_fit_narrow_and_wide_windows_too(root: Path, browser: Any, name: str) -> None:
    copy(root, name)
    context = browser.new_context()
    page = context.new_page()
    page.goto(write_report(root / name).as_uri())
    assert_fits(page)
    context.close()


BROKEN_WORDS = """[...document.querySelectorAll("main td")].flatMap((cell) => {
  const broken = [], walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    for (const word of text.data.matchAll(/[^ ]+/g)) {
      const range = document.createRange();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map((box) => box.top)).size;
      if (word[0].length <= 7 && lines > 1) broken.push(word[0]);
    }
  }
  return broken;
})"""


def test_short_words_in_tables_of_a_report_stay_whole(root: Path, browser: Any) -> None:
    copy(root, "search_gibbs")
    context = browser.new_context()
    page = context.new_page()
    page.goto(write_report(root / "search_gibbs").as_uri())
    assert page.locator("#finalists").count() == 1
    for width in (1280, 400):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(BROKEN_WORDS) == [], width
    context.close()


def brightness(colour: str) -> float:
    red, green, blue = (float(part) for part in colour.strip("rgba()").split(",")[:3])
    return 0.299 * red + 0.587 * green + 0.114 * blue


def append_record(folder: Path) -> None:
    """Append the last record once more, with the next number."""
    path = folder / "metrics.jsonl"
    last = json.loads(path.read_text().splitlines()[-1])
    with path.open("a") as file:
        file.write(json.dumps({**last, "epoch": last["epoch"] + 1}) + "\n")


def wait_for_rest(page: Any) -> None:
    """Wait until a refresh has drawn everything."""
    for _ in range(WAIT // 50):
        if not page.evaluate("refreshing"):
            return
        page.wait_for_timeout(50)
    raise AssertionError("the page is still refreshing")


def hide(page: Any, hidden: bool) -> None:
    page.evaluate(
        """(hidden) => {
          Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_a_hidden_page_asks_for_nothing_and_catches_up(root: Path, visit: Any) -> None:
    copy(root, "search_epochs_interrupted")
    folder = root / "search_epochs_interrupted"
    page = visit("/page/runs/search_epochs_interrupted")
    asked: list[str] = []
    hide(page, True)
    page.on("request", lambda request: asked.append(request.url))
    append_record(folder)
    page.evaluate("refresh()")  # as an event would that was on its way
    time.sleep(3)
    assert asked == []
    hide(page, False)
    expect(page.locator("#moment")).to_have_attribute("max", "2")


def test_figures_wait_while_records_come_quickly_and_the_state_does_not(root: Path, visit: Any) -> None:
    copy(root, "search_epochs_interrupted")
    folder = root / "search_epochs_interrupted"
    with RunFolder(folder).lock():
        page = visit("/page/runs/search_epochs_interrupted")
        page.clock.install(time=NOON)
        page.clock.pause_at(NOON + timedelta(minutes=1))  # timers of the page wait for the test
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))

        def count_pages() -> int:
            return sum("/page/" in url for url in asked)

        append_record(folder)
        expect(page.locator("#moment")).to_have_attribute("max", "2")
        for number in (3, 4):
            append_record(folder)
            expect(page.locator("#state")).to_contain_text(f"{number} of 2 epochs")  # by the event itself
        assert count_pages() == 1 and page.get_attribute("#moment", "max") == "2"
        wait_for_rest(page)
        page.clock.run_for(20_000)
        expect(page.locator("#moment")).to_have_attribute("max", "4")
        assert count_pages() == 2


def test_a_record_changes_drawings_in_their_place(root: Path, visit: Any) -> None:
    copy(root, "search_epochs_interrupted")
    folder = root / "search_epochs_interrupted"
    page = visit("/page/runs/search_epochs_interrupted")
    draw_all(page)
    page.evaluate("""() => {
      document.querySelector("#cell-now svg").kept = "cell";
      document.querySelector("[data-picture] svg").kept = "figure";
      document.querySelector("#state").kept = "state";
      for (const one of document.querySelectorAll("details")) one.open = true;
    }""")
    opened = page.locator("details[open]").count()
    append_record(folder)
    expect(page.locator("#moment-text")).to_contain_text("After epoch 2: ")
    wait_for_rest(page)
    kept = page.evaluate("""[...document.querySelectorAll("#cell-now svg, [data-picture] svg, #state")]
      .map((one) => one.kept).filter(Boolean)""")
    assert sorted(kept) == ["cell", "figure", "state"]
    assert page.locator("details[open]").count() == opened > 0


def test_the_keyboard_reaches_the_content_first(root: Path, visit: Any) -> None:
    copy(root, "search_gdas")
    page = visit("/page/runs/search_gdas")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    unnamed = page.evaluate("""[...document.querySelectorAll("input, button, select, a")].filter((one) =>
      !(one.textContent.trim() || one.getAttribute("aria-label") || (one.labels && one.labels.length))).length""")
    assert unnamed == 0
