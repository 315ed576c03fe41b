"""Progress of a run as progress of its job."""

from __future__ import annotations

import time
from collections.abc import Callable

from archloom.core.events import Advanced, Event, JobListener, JobLogged, JobProgressed, Listener, Started
from archloom.core.progress_lines import LogLines

SECONDS_BETWEEN_PROGRESS = 0.3


def progress_listener(job: str, emit: JobListener, clock: Callable[[], float] = time.perf_counter) -> Listener:
    """Return a listener to a loop that emits the progress of its job, a few times a second at most, and its log."""
    total, emitted, lines = 1, clock(), LogLines()

    def listen(event: Event) -> None:
        nonlocal total, emitted
        for line in lines(event):
            emit(JobLogged(job, line))
        if isinstance(event, Started):
            total = max(1, event.total)
        elif isinstance(event, Advanced) and clock() >= emitted + SECONDS_BETWEEN_PROGRESS:
            emitted = clock()
            emit(JobProgressed(job, event.position / total))

    return listen
