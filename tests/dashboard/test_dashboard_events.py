import asyncio
import json
from dataclasses import replace

import pytest

from archloom.dashboard.events import follow_for_page, follow_overview, follow_run
from archloom.dashboard.index import Index
from archloom.dashboard.summaries import Summary
from archloom.execution.run_folder import RunFolder


def parse(text):
    events = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            events.append((fields["event"], json.loads(fields["data"]), fields.get("id")))
    return events


async def collect(stream, until, act):
    """Return the events up to one that `until` accepts; `act` gets a number before every wait."""
    events, step = [], 0
    async for text in stream:
        events += parse(text)
        if any(until(event) for event in events):
            return events
        act(step)
        step += 1
    return events


@pytest.fixture
def index(runs):
    return Index([runs], clock=iter(range(10**6)).__next__)


def test_a_run_is_followed_to_its_end(runs, index):
    folder = runs / "search_trials_interrupted"
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    result = (runs / "search_random/architecture.json").read_text()

    def act(step):
        if step == 0:
            with (folder / "metrics.jsonl").open("a") as file:
                file.write(lines[-1])
        elif step == 1:
            (folder / "finalists.jsonl").write_text('{"finalist": 1}\n')
        elif step == 2:
            RunFolder(folder).write_result(json.loads(result))

    found = index.refresh() and index.find("runs/search_trials_interrupted")
    with RunFolder(folder).lock():
        stream = follow_run(index, found[0], every=0.01)
        events = asyncio.run(collect(stream, lambda event: event[0] == "end", act))
    names = [name for name, _, _ in events]
    assert names[:6] == ["record"] * 5 + ["state"]
    assert names[6:] == [
        "record",
        "state",
        "note",
        "state",
        "state",
        "end",
    ]  # a note changes the time of the last change
    assert events[5][1]["state"] == "running" and events[-1][1] == {"state": "finished"}
    numbers = [int(number) for name, _, number in events if name == "record"]
    assert numbers[-1] == sum(map(len, lines)) + len(lines[-1])


def test_a_page_that_comes_back_gets_only_later_records(runs, index):
    folder = runs / "search_trials_interrupted"
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    found = index.refresh() and index.find("runs/search_trials_interrupted")
    after = sum(map(len, lines[:3]))
    stream = follow_run(index, found[0], after=after, every=0.01)
    events = asyncio.run(collect(stream, lambda event: event[0] == "state", lambda step: None))
    assert [value["trial"] for name, value, _ in events if name == "record"] == [3, 4]
    stream = follow_run(index, found[0], after=None, every=0.01)
    events = asyncio.run(collect(stream, lambda event: event[0] == "state", lambda step: None))
    assert [name for name, _, _ in events] == ["state"]


def test_a_page_gets_its_state_as_a_piece_of_html_and_no_records(runs, index, monkeypatch):
    monkeypatch.setattr("archloom.dashboard.events.PAGE_EVERY", 0.01)
    folder = runs / "search_trials_interrupted"
    line = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)[-1]
    found = index.refresh() and index.find("runs/search_trials_interrupted")

    def act(step):
        if step == 0:
            with (folder / "metrics.jsonl").open("a") as file:
                file.write(line)

    with RunFolder(folder).lock():
        stream = follow_for_page(index, found[0], lambda summary: f"<p>{summary.done}</p>")
        events = asyncio.run(collect(stream, lambda event: "<p>6</p>" in event[1].get("html", ""), act))
    assert [name for name, _, _ in events] == ["state", "state"]
    assert [value["html"] for _, value, _ in events] == ["<p>5</p>", "<p>6</p>"]
    first, second = (value["milestone"] for _, value, _ in events)
    assert first != second and first.startswith("running 5 ") and second.startswith("running 6 ")


def test_progress_within_an_epoch_is_no_milestone():
    before = Summary(key="a", kind="search", state="running", title="", done=1, step=3, steps=9, updated=5.0)
    assert replace(before, step=4, seconds_left=1.0).milestone == before.milestone
    for change in ({"done": 2}, {"state": "finished"}, {"updated": 6.0}, {"verdict": "x"}, {"problem": "x"}):
        assert replace(before, **change).milestone != before.milestone, change


def test_the_stream_of_a_folder_that_goes_away_ends(runs, index):
    import shutil

    found = index.refresh() and index.find("runs/search_trials_interrupted")
    stream = follow_run(index, found[0], every=0.01)
    act = lambda step: shutil.rmtree(found[0].path)  # noqa: E731
    assert asyncio.run(collect(stream, lambda event: event[0] == "end", act))[-1][1] == {"state": "gone"}


def test_the_overview_hears_of_runs_that_change_come_and_go(runs, index):
    import shutil

    async def watch():
        stream = follow_overview(index, every=0.01)
        first = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.1)
        shutil.copytree(runs / "search_gdas", runs / "new")
        shutil.rmtree(runs / "search_random")
        return parse(await first)

    seen = {"changed": [], "gone": []}
    for name, value, _ in asyncio.run(watch()):
        assert name == "runs"
        seen = {key: seen[key] + value[key] for key in seen}
    assert seen["changed"] == ["runs/new"] or seen["gone"] == ["runs/search_random"]
