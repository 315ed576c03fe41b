"""`archloom doctor`: print what this machine is, how fast it is, and what to set."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import archloom
from archloom.cli.console import make_fact_table, make_table, open_message_console, open_result_console, print_line
from archloom.core.files import FOLDER_VARIABLE, write_atomically
from archloom.core.lazy_imports import lazy_imports

with lazy_imports():  # help needs no torch
    import archloom.execution.installation as installations
    import archloom.execution.survey as surveys
    import archloom.latency.doctor as checkups
    import archloom.latency.machine_speed as machine_speed


Rows = Iterator[tuple[str, str]]


def doctor(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Skip the speed check, which takes ten seconds.")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write everything to this file.")
    ] = None,
) -> None:
    """Print what this machine is, how fast it is, and what to set.

    Add its output to questions on speed and to bug reports.
    """
    with show_stage(open_message_console()) as announce:
        checkup = examine(quick=quick, announce=announce)
    print_checkup(checkup, open_result_console())
    if json_file is not None:
        write_atomically(json_file, to_json(checkup))


def examine(*, quick: bool, announce: Callable[[str], None]) -> checkups.Checkup:
    """Examine the machine and, unless `quick`, measure its speed."""
    announce("reading the system")

    seen, installed = surveys.survey(), installations.installation(archloom.__version__)
    if quick:
        return checkups.Checkup(seen, installed)
    devices = [device.name for device in seen.devices]
    return checkups.Checkup(
        seen, installed, machine_speed.check_speed(cores=seen.cores, devices=devices, announce=announce)
    )


@contextmanager
def show_stage(console: Console) -> Iterator[Callable[[str], None]]:
    """Show the current stage on one line of a terminal; a log gets nothing."""
    if not console.is_terminal:
        yield lambda what: None
        return
    with console.status("") as status:
        yield lambda what: status.update(f"{what} ...")


def to_json(checkup: checkups.Checkup) -> bytes:
    """Return every fact, every time and the advice as JSON."""
    return json.dumps({**asdict(checkup), "advice": checkup.advice()}, indent=1).encode()


# --- printing


def print_checkup(checkup: checkups.Checkup, console: Console) -> None:
    """Print the installation, the machine and its speed, as far as they were checked."""
    console.print(make_fact_table([*_list_installation(checkup.installation), *_list_machine(checkup.survey)]))
    if checkup.speed is not None:
        console.print()
        console.print(make_fact_table(_list_speed(checkup.speed)))
        console.print()
        console.print(_make_step_table(checkup.speed))
    console.print()
    advice = checkup.advice()
    for line in advice or ["nothing to change"]:
        print_line(f"* {line}" if advice else line, console=console)


def _list_installation(installed: installations.Installation) -> Rows:
    yield "versions", ", ".join(f"{name} {version}" for name, version in installed.versions.items())
    yield "compiled kernels", installed.kernels.line
    for extra, missing in installed.extras.items():
        yield f"extra '{extra}'", f"lacks {', '.join(missing)}" if missing else "installed"
    if installed.data_folder is None:
        yield "data folder", f"none ({FOLDER_VARIABLE} is not set)"
    else:
        yield "data folder", installed.data_folder + ("" if installed.data_folder_exists else " (does not exist)")


def _list_machine(survey: surveys.Survey) -> Rows:
    yield "system", survey.system
    yield "processor", survey.processor
    yield "instruction sets", f"{survey.capability} used by torch; {' '.join(survey.extensions) or 'others unknown'}"
    yield "cores", f"{survey.cores}, torch uses {survey.threads} threads"
    yield "environment", ", ".join(f"{name}={value}" for name, value in survey.environment.items()) or "nothing set"
    for device in survey.devices:
        memory = "" if device.memory_gb is None else f", {device.memory_gb:.1f} GB"
        yield device.name, device.description + memory
    if not survey.devices:
        yield "GPU", "none that torch can use"
    yield "load", "unknown" if survey.load is None else f"{survey.load:.2f}"
    yield "free memory", _format_memory(survey)


def _format_memory(survey: surveys.Survey) -> str:
    if survey.memory_free_gb is None or survey.memory_total_gb is None:
        return "unknown"
    return f"{survey.memory_free_gb:.1f} of {survey.memory_total_gb:.1f} GB"


def _list_speed(speed: machine_speed.Speed) -> Rows:
    for product in speed.products:
        yield f"matrix product, {_format_place(product.device, product.threads)}", f"{product.gigaflops:,.0f} GF/s"
    low = speed.low_precision
    yield "bf16 product", low.failure if low.ratio is None else f"{low.ratio:.2f}x the speed of fp32"


def _make_step_table(speed: machine_speed.Speed) -> Table:
    choices = list(dict.fromkeys(step.kernels for step in speed.steps))
    places = list(dict.fromkeys((step.device, step.threads) for step in speed.steps))
    rows = (
        [_format_place(*place), *(_format_milliseconds(speed.step(*place, choice)) for choice in choices)]
        for place in places
    )
    return make_table(["one small search step", *choices], rows)


def _format_place(device: str, threads: int) -> str:
    return f"{threads} thread{'s' if threads != 1 else ''}" if device == "cpu" else device


def _format_milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.0f} ms"
