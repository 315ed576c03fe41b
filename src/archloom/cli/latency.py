"""`archloom latency`: measure and model how long networks of a space take on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.progress import Progress

from archloom.cli.console import make_fact_table, make_table, open_message_console, open_result_console, print_line
from archloom.cli.interactive import stop_on_signals
from archloom.cli.outputs import check_outputs
from archloom.core.errors import (
    SettingError,
)
from archloom.core.lazy_imports import (
    lazy_imports,
)
from archloom.core.settings import (
    Settings,
    parse_assignments,
    settings_of,
)
from archloom.core.settings import (
    check as check_settings,
)
from archloom.searches.architectures import (
    find_space,
    read_architecture,
)
from archloom.spaces import (
    SearchSpace,
)

with lazy_imports():  # help needs no torch
    import archloom.execution.machine as machine
    import archloom.execution.run_facts as run_facts
    import archloom.families as families
    import archloom.latency.network_timing as network_timing
    import archloom.latency.prediction_timing as prediction_timing
    import archloom.latency.timings as timing_files
    import archloom.objectives.cost_model_file as cost_model_file
    import archloom.objectives.linear_cost as linear_cost


app = typer.Typer(no_args_is_help=True)

Device = Literal["cpu", "onnxruntime"]

network_option = partial(typer.Option, rich_help_panel="The networks")
timing_option = partial(typer.Option, rich_help_panel="Timing")


@app.callback()
def latency() -> None:
    """Measure and model how long networks of a space take on this machine."""


@app.command()
def fit(
    *,
    space: Annotated[str, typer.Option(help="The space (archloom list spaces).")],
    device: Annotated[Device, typer.Option(help="What computes the networks: torch on the CPU, or ONNX Runtime.")] = (
        "cpu"
    ),
    networks: Annotated[
        int | None, typer.Option(min=10, help="Networks to time. Default: twice the choices, at least 50.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The model's file.")] = Path("latency.json"),
    size: Annotated[int, network_option(min=1, help="Pixels on a side.")] = 32,
    classes: Annotated[int, network_option(min=1, help="Classes.")] = 10,
    assignments: Annotated[
        list[str] | None,
        network_option(
            "--set", metavar="SECTION.NAME=VALUE", help="A setting of the space or the network, as often as needed."
        ),
    ] = None,
    batch: Annotated[int, timing_option(min=1, help="Images per call.")] = 1,
    threads: Annotated[int, timing_option(min=1, help="Threads.")] = 1,
    repeats: Annotated[int, timing_option(min=30, help="Calls of each network, after 5 for warm-up.")] = 30,
    seed: Annotated[int, timing_option(min=0, help="Of the sampled networks.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Write the model even if it predicts badly.")] = False,
) -> None:
    """Time random networks, and fit a model that predicts the latency of any network of the space.

    The model is linear in the joint choices of each layer. A fifth of the networks is held out to test it. A model that
    predicts these badly is refused. A search takes it as --latency-source.

        archloom latency fit --space nb201 --out here.json

        archloom search --space nb201 --strategy tunas --target latency=5 --latency-source here.json
    """
    check_outputs([out], (".json",))
    chosen, network = _resolve_space(space, assignments or [])
    setup = cost_model_file.TimingSetup(
        space=space,
        space_settings=settings_of(chosen),
        classes=classes,
        image_shape=(3, size, size),
        batch=batch,
        network=network,
        device=device,
        threads=threads,
        repeats=repeats,
        seed=seed,
        versions=run_facts.installed_versions(),
    )
    file, count = timing_files.timings_path(out), networks or network_timing.count_networks(chosen)
    timings = timing_files.read_timings(file, setup)
    earlier = f", {len(timings.ratios):,} of them earlier" if timings.ratios else ""
    print_line(
        f"timing {count:,} networks on {device}, {threads} thread{'s' * (threads > 1)}{earlier}",
        console=open_message_console(),
    )
    machine.keep_memory()  # else the time of a call depends on what was returned to the system before it
    with prediction_timing.use_torch_threads(threads), stop_on_signals() as stop, _show_progress(count) as update:

        def after_group(timings: timing_files.Timings) -> None:
            timing_files.write_timings(file, timings, setup)
            update(len(timings.ratios))
            if stop():
                done = f"{len(timings.ratios):,} networks"
                print_line(f"stopped; the same command resumes after {done}", console=open_message_console())
                raise typer.Exit(stop.exit_code)

        architectures, timings = network_timing.time_networks(
            chosen,
            network_timing.choose_preparation(chosen, setup),
            networks=count,
            repeats=repeats,
            seed=seed,
            clock=network_timing.choose_clock(threads),
            earlier=timings,
            after_group=after_group,
        )
    found = linear_cost.fit_linear_cost(chosen, architectures, timings.milliseconds, timings.slowness)
    problem = network_timing.explain_bad_fit(found)
    _print_fit(found, timings.milliseconds)
    if problem and not force:
        raise SettingError(f"the model was not written, the timings are kept: {problem}")
    cost_model_file.CostModelFile.from_fit(
        found, setup, constant_ms=timings.constant_ms, forced=problem is not None
    ).write(out)
    if problem:
        print_line(f"forced, as the file says: {problem.split(';')[0]}", console=open_message_console())
    print_line(str(out), console=open_result_console())


@app.command()
def check(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model that `archloom latency fit` wrote.")],
    what: Annotated[
        list[str], typer.Argument(metavar="WHAT...", help="Architectures: runs that found one, text forms, JSON files.")
    ],
    *,
    repeats: Annotated[int, typer.Option(min=30, help="Calls of each network, after 5 for warm-up.")] = 100,
) -> None:
    """Time the networks of architectures, and print the error of a model.

    They are built and timed as the networks that the model was fitted on. It shows whether a search met its target.

        archloom latency check here.json runs/mine
    """
    content = cost_model_file.CostModelFile.read(model)
    setup = content.setup
    space = find_space(setup.space, **setup.space_settings)
    source = content.to_source(space, model)
    architectures = [read_architecture(each, space=space)[1] for each in what]
    machine.keep_memory()
    with prediction_timing.use_torch_threads(setup.threads):
        prepare = network_timing.choose_preparation(space, setup)
        reference = prepare(network_timing.choose_reference(space, setup.seed))
        calls, clock = [prepare(one) for one in architectures], network_timing.choose_clock(setup.threads)
        timings = network_timing.time_against_reference(reference, calls, repeats=repeats, clock=clock)
    rows = []
    for each, architecture, ratio in zip(what, architectures, timings.ratios, strict=True):
        predicted, measured = source.measure(architecture), content.constant_ms * ratio
        error = f"{100 * (measured / predicted - 1):+.1f} %"
        rows.append((each, f"{predicted:.3f} ms", f"{measured:.3f} ms", error))
    open_result_console().print(make_table(("architecture", "by the model", "measured", ""), rows))


def _resolve_space(name: str, assignments: list[str]) -> tuple[SearchSpace, Settings]:
    """Return the space and the settings of its network."""
    given, problems = parse_assignments(assignments)
    unknown = [section for section in given if section not in ("space", "network")]
    problems += [f"--set takes settings of the space and the network, got '{section}'" for section in unknown]
    space = find_space(name, **given.get("space", {}))
    network, others = check_settings("network", families.family_of(space).network, given.get("network", {}))
    if problems + others:
        raise SettingError(problems + others)
    return space, network


@contextmanager
def _show_progress(count: int) -> Iterator[Callable[[int], None]]:
    """Show how many networks are timed: a bar in a terminal, a line for every tenth of them in a log."""
    console = open_message_console()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task, printed = bar.add_task("networks", total=count), 0

        def update(done: int) -> None:
            nonlocal printed
            bar.update(task, completed=done)
            if not console.is_terminal and 10 * done // count > printed:
                printed = 10 * done // count
                print_line(f"{done:,} of {count:,}", console=console)

        yield update


def _print_fit(fit: linear_cost.Fit, costs: list[float]) -> None:
    features = len(fit.model.weights)
    rows = [
        ("Networks", f"{fit.networks:,}, {min(costs):.2f} to {max(costs):.2f} ms"),
        ("Choices", f"{features:,}, {fit.uncovered:,} of them in no training network"),
        ("Held out", f"R2 {fit.r2:.4f}, mean error {100 * fit.error:.2f} %"),
    ]
    open_result_console().print(make_fact_table(iter(rows)))
