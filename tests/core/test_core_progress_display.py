"""Progress: the figures by hand, a log of plain lines, a bar in a terminal, and silence."""

from __future__ import annotations

import io
import sys
import types

import pytest
from rich.console import Console

from archloom.core.events import Advanced, Deriving, Event, Recorded, Started
from archloom.core.progress_display import is_interactive, show_api_progress, show_progress
from archloom.core.progress_lines import Pace
from archloom.searches.records import Health
from search_runs import make_epoch, make_trial

LOSSES = {"train_loss": 2.0, "valid_loss": 3.0, "train_accuracy": 0.25, "valid_accuracy": 0.5}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def epochs(count: int, steps: int = 2) -> list[Event]:
    events: list[Event] = [Started("step", 0, count * steps, steps, ())]
    for position in range(1, count * steps + 1):
        events.append(Advanced(position, 10, LOSSES))
        if position % steps == 0:
            events.append(Recorded(make_epoch()))
    return [*events, Deriving("picking")]


def trials(count: int) -> list[Event]:
    events: list[Event] = [Started("trial", 0, count, 1, ())]
    for position in range(1, count + 1):
        events += [Advanced(position, 0, {"score": 1.0 * position, "best": 90.0}), Recorded(make_trial())]
    return events


def shown(events: list[Event], *, terminal: bool = False, quiet: bool = False) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100, color_system=None)
    with show_progress(console, quiet=quiet) as listener:
        for event in events:
            listener(event)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_figures_are_means_since_the_last_epoch() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.update(Started("step", 0, 40, 10, ()))
    clock.now = 2.0
    pace.update(Advanced(1, 100, {"train_loss": 1.0, "train_accuracy": 0.5}))
    clock.now = 4.0
    pace.update(Advanced(2, 100, {"train_loss": 2.0, "train_accuracy": 0.75}))
    clock.now = 100.0  # nothing was trained meanwhile
    assert pace.figures == "loss train 1.500, accuracy train 62.5 %, 50 images/s"
    pace.update(Advanced(3, 0, {"train_loss": 3.0, "valid_loss": 4.0}))  # validated by some steps only
    assert pace.figures.startswith("loss train 2.000 valid 4.000, ")
    pace.update(Recorded(make_epoch()))
    assert pace.figures == ""


@pytest.mark.parametrize(
    ("position", "place"), [(0, "epoch 1/4"), (1, "epoch 1/4"), (10, "epoch 1/4"), (11, "epoch 2/4"), (40, "epoch 4/4")]
)
def test_the_epoch_is_the_one_under_way(position: int, place: str) -> None:
    pace, resumed = Pace(), Pace()
    done = (position - 1) // 10 if position else 0
    resumed.update(Started("step", 10 * done, 40, 10, (make_epoch(),) * done))
    pace.update(Started("step", 0, 40, 10, ()))
    for step in range(1, position + 1):
        for one in (pace, resumed) if step > 10 * done else (pace,):
            one.update(Advanced(step, 10, LOSSES))
        if step % 10 == 0 and step < position:
            pace.update(Recorded(make_epoch()))
    assert (pace.place, resumed.place) == (place, place)


def test_a_line_names_the_epoch_that_ended_however_long_it_was() -> None:
    """Epochs of 3, 6 and 4 steps, each taken to have 4: by steps, the second would end as the third."""
    pace, places = Pace(), []
    pace.update(Started("step", 0, 13, 4, ()))
    for step in range(1, 14):
        pace.update(Advanced(step, 10, LOSSES))
        if step in (3, 9, 13):
            places.append(pace.place)
            pace.update(Recorded(make_epoch()))
    assert places == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]


def test_time_left_follows_from_what_was_done_since_the_start() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.update(Started("step", 20, 40, 10, ()))  # resumed half-way
    assert pace.times == "0:00 elapsed, ? left"
    clock.now = 700.0
    pace.update(Advanced(22, 1, {}))
    assert pace.times == "11:40 elapsed, 1:45:00 left"


def test_a_log_has_a_line_for_each_epoch() -> None:
    lines = shown(epochs(3)).splitlines()
    assert [line.split("  ")[0] for line in lines] == ["epoch 1/3", "epoch 2/3", "epoch 3/3", "picking"]
    assert "  loss train 2.000 valid 3.000, accuracy train 25.0 % valid 50.0 %, " in lines[0]
    assert lines[0].endswith(" left")


def test_a_log_has_about_ten_lines_of_many_trials() -> None:
    lines = shown(trials(55)).splitlines()
    assert [line.split()[1] for line in lines] == [f"{n}/55" for n in range(5, 60, 5)]
    assert "  score 5.00, best 90.00  " in lines[0]


def test_a_log_has_every_one_of_few_trials() -> None:
    assert len(shown(trials(4)).splitlines()) == 4


def test_a_terminal_has_a_bar() -> None:
    text = shown(epochs(3)[:-1], terminal=True)
    assert "epoch 3/3" in text
    assert "━━━" in text
    assert "loss train 2.000 valid 3.000" in text  # of the last epoch, though it is complete
    assert "picking" in shown(epochs(3), terminal=True)


@pytest.mark.parametrize("terminal", [False, True])
def test_quiet_is_silent(terminal: bool) -> None:
    assert shown(epochs(2), terminal=terminal, quiet=True) == ""


def test_health_is_part_of_the_line_and_an_alarm_has_its_own() -> None:
    sick = Health(skip=0.5, pool=0.0, none=0.25, eigenvalue=0.1234, alarm="too many skips")
    events: list[Event] = [
        Started("step", 0, 2, 1, ()),
        Advanced(1, 10, LOSSES),
        Recorded(make_epoch(0, health=Health(skip=0.0, pool=0.0, none=0.0))),
        Advanced(2, 10, LOSSES),
        Recorded(make_epoch(1, health=sick)),
        Recorded(make_epoch(2, health=sick)),  # nothing new
    ]
    log = shown(events)
    assert "skips 50 %, none 25 %, eigenvalue 0.12" in log
    assert log.count("warning") == 1
    assert "warning: epoch 2: too many skips" in log.splitlines()
    assert "warning: epoch 2: too many skips" in shown(events, terminal=True)
    assert "warning" not in shown(events, quiet=True)


def test_python_calls_show_progress_only_where_somebody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    def own(event: Event) -> None:
        pass

    with show_api_progress(None, [own]) as listening:
        assert listening == [own]  # standard error is no terminal here
    with show_api_progress(True, [own]) as listening:
        assert len(listening) == 2
        for listener in listening:
            listener(Deriving("racing 4 finalists"))
    with show_api_progress(False, [own]) as listening:
        assert listening == [own]
    assert capsys.readouterr().err == "racing 4 finalists\n"


def test_terminals_and_notebooks_are_watched() -> None:
    assert is_interactive(Console(file=io.StringIO(), force_terminal=True))
    assert is_interactive(Console(file=io.StringIO(), force_jupyter=True))
    assert not is_interactive(Console(file=io.StringIO()))


class Place:
    """A stand-in for the place of a cell's output that IPython returns."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, bundle: dict[str, str], **_: object) -> Place:
        self.update(bundle)
        return self

    def update(self, bundle: dict[str, str], **_: object) -> None:
        self.shown.append(bundle["text/plain"])


def test_a_notebook_has_one_place_that_is_replaced_and_empty_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    module = types.ModuleType("IPython.display")
    module.display = place.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    sys.modules["IPython"].display = module  # type: ignore[attr-defined]
    with show_progress(Console(file=io.StringIO(), force_jupyter=True)) as listener:
        listener(Started("step", 0, 4, 2, ()))
    assert "starting" in place.shown[0]
    assert "epoch 1/2" in place.shown[1]
    assert place.shown[-1] == ""


def test_perplexities_of_steps_have_a_geometric_mean_and_epochs_of_a_text_may_differ_in_length() -> None:
    pace = Pace(Clock())
    pace.update(Started("step", 0, 9, 5, ()))  # epochs of 5 and of 4 steps
    for position, perplexity in enumerate((100.0, 400.0), start=1):
        pace.update(Advanced(position, 10, {"train_perplexity": perplexity}))
    assert "perplexity train 200.0" in pace.figures and pace.place == "epoch 1/2"
    pace.update(Recorded(make_epoch()))
    pace.update(Advanced(9, 10, {}))
    assert pace.place == "epoch 2/2"


def test_trials_on_text_print_perplexities() -> None:
    pace = Pace(Clock())
    pace.update(Started("trial", 0, 3, 1, ()))
    pace.update(Advanced(1, 0, {"perplexity": 1234.5, "best_perplexity": 99.0}))
    assert pace.figures == "perplexity 1,234.50, best perplexity 99.00"
