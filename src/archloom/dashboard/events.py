"""Server-sent events: what changes in a run folder, for our pages and for pages of others (docs/serve.md).

A stream looks at the sizes of a few files once a second and reads only what was appended. It ends with the run. Our own
pages need no records and look less often: a browser beside a search that fills the machine takes time from it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict

from archloom.core.json_object import JsonObject
from archloom.dashboard.folders import Folder
from archloom.dashboard.growing_file import GrowingFile, Growth, parse_object
from archloom.dashboard.index import Index
from archloom.dashboard.summaries import Summary

EVERY = 1.0  # seconds between two looks at a run
PAGE_EVERY = 2.5  # the same for a page: its progress moves as often
OVERVIEW_EVERY = 3.0
HEARTBEAT = 15.0  # seconds after which a quiet stream shows that it is there

OVER = ("finished", "damaged")


def write_event(name: str, data: JsonObject, *, number: int | None = None) -> str:
    """Return one event as the browser reads it."""
    identity = "" if number is None else f"id: {number}\n"
    return f"{identity}event: {name}\ndata: {json.dumps(data, allow_nan=False)}\n\n"


def to_json(summary: Summary) -> JsonObject:
    """Return a summary as the events and /api/runs have it."""
    return {**asdict(summary), "share": summary.share}


def follow_for_page(index: Index, folder: Folder, render: Callable[[Summary], str]) -> AsyncIterator[str]:
    """Yield `note` and `state` events; `state` has the part of the page that shows it, and the page's milestone."""

    def describe(summary: Summary) -> JsonObject:
        return {"state": summary.state, "milestone": summary.milestone, "html": render(summary)}

    return follow_run(index, folder, after=None, every=PAGE_EVERY, describe=describe, with_records=False)


async def follow_run(
    index: Index,
    folder: Folder,
    *,
    after: int | None = 0,
    every: float = EVERY,
    describe: Callable[[Summary], JsonObject] = to_json,
    with_records: bool = True,
) -> AsyncIterator[str]:
    """Yield `record`, `note` and `state` events of a run until it ends.

    `after` is the number of the last record seen; None leaves out all records that are there already.
    `describe` returns the data of a `state` event.
    """
    metrics, notes = GrowingFile(folder.path / "metrics.jsonl"), GrowingFile(folder.path / "finalists.jsonl")
    last: Summary | None = None
    seen_notes, quiet = 0, 0.0
    if after is None:
        metrics.skip_to_end()
        seen_notes, after = len(notes.read().lines), 0
    while True:
        found = await asyncio.to_thread(index.find, folder.key)
        if found is None:
            yield write_event("end", {"state": "gone"})
            return
        summary, texts = found[1], []
        growth = metrics.read() if with_records else Growth()
        number = metrics.bytes_of_whole_lines - sum(len(line) + 1 for line in growth.lines)
        for line in growth.lines:
            number += len(line) + 1
            value = parse_object(line)
            if value is not None and number > after:
                texts.append(write_event("record", value, number=number))
        if growth.restarted:
            after = 0
        fresh, seen_notes = _new_notes(notes, seen_notes)
        texts += [write_event("note", value) for value in fresh]
        if summary != last:
            texts.append(write_event("state", describe(summary)))
            last = summary
        quiet = 0.0 if texts else quiet + every
        if quiet >= HEARTBEAT:
            texts, quiet = [": quiet\n\n"], 0.0
        if texts:
            yield "".join(texts)
        if summary.state in OVER:
            yield write_event("end", {"state": summary.state})
            return
        await asyncio.sleep(every if summary.state in ("running", "starting") else 3 * every)


def _new_notes(file: GrowingFile, seen: int) -> tuple[list[JsonObject], int]:
    """Return the notes that are new; their file is replaced as a whole, and holds a few dozen lines."""
    growth = file.read()
    if not growth:
        return [], seen
    values = [value for line in growth.lines if (value := parse_object(line)) is not None]
    return (values[seen:], max(seen, len(values))) if growth.restarted or seen == 0 else (values, seen + len(values))


async def follow_overview(index: Index, *, every: float = OVERVIEW_EVERY) -> AsyncIterator[str]:
    """Yield a `runs` event with the keys of all runs that changed, appeared or went."""
    last: Mapping[str, Summary] = await asyncio.to_thread(index.refresh)
    quiet = 0.0
    while True:
        await asyncio.sleep(every)
        now = await asyncio.to_thread(index.refresh)
        changed = [key for key, summary in now.items() if last.get(key) != summary]
        gone = [key for key in last if key not in now]
        last, quiet = now, quiet + every
        if changed or gone:
            yield write_event("runs", {"changed": changed, "gone": gone})
            quiet = 0.0
        elif quiet >= HEARTBEAT:
            yield ": quiet\n\n"
            quiet = 0.0
