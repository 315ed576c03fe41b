"""What a log says of a run: a line per epoch with figures, time elapsed and time left, and a line per phase."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from statistics import fmean

from archloom.core.events import Advanced, Deriving, Event, Planning, Record, Recorded, Started
from archloom.core.metrics import additive, from_additive

LINES_OF_TRIALS = 10  # how many lines a log gets from a search by trials
TRIAL_FIGURES = ("score", "best", "perplexity", "best_perplexity")


class Pace:
    """Position, metrics and speed of a run: means since the last complete epoch or trial."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._begun = self._since = self._latest = clock()
        self._first, self.position, self.total, self.each = 0, 0, 1, 1
        self._unit = "step"
        self._records, self._is_within = 0, False  # complete epochs, and whether one has begun since
        self._images = 0
        self._values: dict[str, list[float]] = {}
        self.status = ""  # of the last complete epoch
        self._warned = False

    def update(self, event: Event) -> None:
        """Update the figures with an event."""
        if isinstance(event, Started):
            self._first = self.position = event.position
            self.total, self.each, self._unit = event.total, event.units_per_record, event.unit
            self._begun = self._since = self._clock()
            self._records, self._is_within = len(event.history), False
        elif isinstance(event, Advanced):
            self._add(event)
        elif isinstance(event, Recorded):
            self._images, self._values = 0, {}
            self._records, self._is_within = self._records + 1, False
            self._since = self._clock()
            self.status = event.record.status

    def _add(self, event: Advanced) -> None:
        self.position, self._latest, self._is_within = event.position, self._clock(), True
        self._images += event.images
        for name, value in event.metrics.items():  # not every step reports all of them
            self._values.setdefault(name, []).append(additive(name, value))

    def new_warning(self, record: Record) -> str:
        """Return the warning of a record if the record before had none: a lasting alarm is printed once."""
        before, self._warned = self._warned, bool(record.warning)
        return "" if before else record.warning

    @property
    def place(self) -> str:
        """Return `epoch 3/40` or `trial 12/100`."""
        records = max(1, round(self.total / self.each))
        if self._unit != "step":
            return f"{self._unit} {min(records, -(-max(1, self.position) // self.each))}/{records}"
        epoch = self._records + self._is_within  # counted, as epochs of a text may differ in length
        return f"epoch {min(records, max(1, epoch))}/{records}"

    @property
    def figures(self) -> str:
        """Return losses, accuracies and speed, as far as they are reported."""
        means = {name: from_additive(name, fmean(values)) for name, values in self._values.items()}
        parts = [_pair("loss", means, "loss", "{:.3f}", 1), _pair("accuracy", means, "accuracy", "{:.1f} %", 100)]
        parts.append(_pair("perplexity", means, "perplexity", "{:,.1f}", 1))
        parts += [f"{name.replace('_', ' ')} {means[name]:,.2f}" for name in TRIAL_FIGURES if name in means]
        if self._images:
            examples = "words" if any(name.endswith("perplexity") for name in means) else "images"
            parts.append(f"{self._images / max(1e-9, self._latest - self._since):,.0f} {examples}/s")
        return ", ".join(part for part in parts if part)

    @property
    def times(self) -> str:
        """Time elapsed, and time left at this speed."""
        elapsed = self._clock() - self._begun
        done = self.position - self._first
        left = _clock_text(elapsed * (self.total - self.position) / done) if done else "?"
        return f"{_clock_text(elapsed)} elapsed, {left} left"


def _pair(label: str, means: Mapping[str, float], ending: str, form: str, factor: float) -> str:
    """Return `loss train 0.523 valid 0.611`."""
    values = [
        f"{part} {form.format(factor * means[f'{part}_{ending}'])}"
        for part in ("train", "valid")
        if f"{part}_{ending}" in means
    ]
    return f"{label} {' '.join(values)}" if values else ""


def _clock_text(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class LogLines:
    """The lines of a log: one per epoch; of trials, ten in all; plans and phases as they come."""

    def __init__(self, pace: Pace | None = None) -> None:
        self._pace = pace or Pace()

    def __call__(self, event: Event) -> list[str]:
        """Return the lines that an event is worth."""
        lines = list(self._describe(event))  # before the pace is reset
        self._pace.update(event)
        return lines

    def _describe(self, event: Event) -> Iterator[str]:
        if isinstance(event, Recorded) and self._is_due():
            parts = (self._pace.place, self._pace.figures, event.record.status, self._pace.times)
            yield "  ".join(part for part in parts if part)
            if text := self._pace.new_warning(event.record):
                yield text
        elif isinstance(event, Deriving):
            yield event.what
        elif isinstance(event, Planning):
            yield event.line

    def _is_due(self) -> bool:
        every = max(1, self._pace.total // LINES_OF_TRIALS) if self._pace.each == 1 else 1
        return self._pace.position % every == 0 or self._pace.position == self._pace.total
