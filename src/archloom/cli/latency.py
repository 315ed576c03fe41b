"""`archloom latency`: what networks of a space take on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.progress import Progress

from archloom.cli.attend import stop_on_signals
from archloom.cli.console import facts_of, messages, results, say, table_of
from archloom.cli.outputs import check_outputs
from archloom.core.errors import SettingError
from archloom.searches.architectures import find_space
from archloom.spaces import SearchSpace

if TYPE_CHECKING:  # torch is imported when something is measured, not to print help
    from archloom.latency.fit import Prepare, Timings
    from archloom.objectives.linear_cost import Fit

app = typer.Typer(no_args_is_help=True)

Device = Literal["cpu", "onnxruntime"]

NETWORK, TIMING = "The networks", "Timing"


@app.callback()
def latency() -> None:
    """What networks of a space take on this machine."""


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
    size: Annotated[int, typer.Option(min=1, help="Pixels on a side.", rich_help_panel=NETWORK)] = 32,
    classes: Annotated[int, typer.Option(min=1, help="Classes.", rich_help_panel=NETWORK)] = 10,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.NAME=VALUE",
            help="A setting of the space or the network, as often as needed.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Images per call.", rich_help_panel=TIMING)] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Threads.", rich_help_panel=TIMING)] = 1,
    repeats: Annotated[
        int, typer.Option(min=30, help="Calls of each network, after 5 that warm up.", rich_help_panel=TIMING)
    ] = 30,
    seed: Annotated[int, typer.Option(min=0, help="Of the networks drawn.", rich_help_panel=TIMING)] = 0,
    force: Annotated[bool, typer.Option("--force", help="Write a model that tells latencies badly, too.")] = False,
) -> None:
    """Time random networks, and fit a model that tells what any network of the space takes.

    The model is linear in the joint choices of each layer. A fifth of the networks is held out to judge it by; one that
    does not tell these well is refused. A search takes it as --latency-source.

        archloom latency fit --space nb201 --out here.json

        archloom search --space nb201 --strategy tunas --target latency=5 --latency-source here.json
    """
    from archloom.core.settings import settings_of
    from archloom.execution.machine import keep_memory
    from archloom.latency.fit import clock_for, enough, timed, unfit
    from archloom.latency.prediction_timing import threads_of_torch
    from archloom.latency.timings_file import read_timings, timings_path, write_timings
    from archloom.objectives.linear_cost import fit_linear_cost
    from archloom.searches.run import versions

    check_outputs([out], (".json",))
    chosen, network = _settings(space, assignments or [])
    made = {"classes": classes, "image_shape": (3, size, size), "batch": batch, "network": network}
    about = {
        "space": space,
        "space_settings": settings_of(chosen),
        **made,
        "device": device,
        "threads": threads,
        "repeats": repeats,
        "seed": seed,
        "versions": versions(),
    }
    file, count = timings_path(out), networks or enough(chosen)
    timings = read_timings(file, about)
    earlier = f", {len(timings.ratios):,} of them earlier" if timings.ratios else ""
    say(f"timing {count:,} networks on {device}, {threads} thread{'s' * (threads > 1)}{earlier}", console=messages())
    keep_memory()  # else what a call takes depends on what the system was given back before it
    with threads_of_torch(threads), stop_on_signals() as stop, _progress(count) as tell:

        def after_turn(timings: Timings) -> None:
            write_timings(file, timings, about)
            tell(len(timings.ratios))
            if stop():
                say(f"stopped; the same command goes on after {len(timings.ratios):,} networks", console=messages())
                raise typer.Exit(stop.exit_code)

        drawn, timings = timed(
            chosen,
            _prepare(device, space, chosen, threads=threads, **made),
            networks=count,
            repeats=repeats,
            seed=seed,
            clock=clock_for(threads),
            so_far=timings,
            after_turn=after_turn,
        )
    found = fit_linear_cost(chosen, drawn, timings.milliseconds, timings.slowness)
    refused = unfit(found)
    _print(found, timings.milliseconds)
    if refused and not force:
        raise SettingError(f"the model was not written, but what was timed is kept: {refused}")
    _write(out, found, chosen, {**about, "constant_ms": timings.constant_ms})
    if refused:
        say(f"forced, and the file says so: {refused.split(';')[0]}", console=messages())
    say(str(out), console=results())


@app.command()
def check(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model that `archloom latency fit` wrote.")],
    what: Annotated[
        list[str], typer.Argument(metavar="WHAT...", help="Architectures: runs that found one, text forms, JSON files.")
    ],
    *,
    repeats: Annotated[int, typer.Option(min=30, help="Calls of each network, after 5 that warm up.")] = 100,
) -> None:
    """Time the networks of architectures, and say how far a model is off.

    They are made and timed as those that the model was fitted on: is the target met that a search aimed at by it?

        archloom latency check here.json runs/mine
    """
    from archloom.execution.machine import keep_memory
    from archloom.latency.fit import beside, clock_for, constant_of
    from archloom.latency.prediction_timing import threads_of_torch
    from archloom.searches.architectures import read_architecture
    from archloom.searches.targets import read_timed_model

    source, timed = read_timed_model(model)
    found = [read_architecture(each, space=timed.space)[1] for each in what]
    keep_memory()
    with threads_of_torch(timed.threads):
        prepare = _prepare(timed.device, timed.space_name, timed.space, threads=timed.threads, **timed.made)
        constant, calls = prepare(constant_of(timed.space, timed.seed)), [prepare(one) for one in found]
        timings = beside(constant, calls, repeats=repeats, clock=clock_for(timed.threads))
    told = [source.measure(one) for one in found]
    measured = [timed.constant_ms * ratio for ratio in timings.ratios]
    rows = [
        (each, f"{model_ms:.3f} ms", f"{ms:.3f} ms", f"{100 * (ms / model_ms - 1):+.1f} %")
        for each, model_ms, ms in zip(what, told, measured, strict=True)
    ]
    results().print(table_of(("architecture", "by the model", "measured", ""), rows))


def _settings(name: str, assignments: list[str]) -> tuple[SearchSpace, dict[str, Any]]:
    """The space, and the settings of its network."""
    from archloom.core.settings import check, parse_assignments
    from archloom.families import family_of

    given, problems = parse_assignments(assignments)
    unknown = [section for section in given if section not in ("space", "network")]
    problems += [f"--set takes settings of the space and the network, got '{section}'" for section in unknown]
    space = find_space(name, **given.get("space", {}))
    network, others = check("network", family_of(space).network, given.get("network", {}))
    if problems + others:
        raise SettingError(problems + others)
    return space, network


def _prepare(device: str, name: str, space: SearchSpace, *, threads: int, **about: Any) -> Prepare:
    from archloom.latency.fit import in_torch

    return in_torch(space, **about) if device == "cpu" else _in_onnxruntime(name, space, threads=threads, **about)


def _in_onnxruntime(
    name: str,
    space: SearchSpace,
    *,
    threads: int,
    classes: int,
    image_shape: tuple[int, int, int],
    batch: int,
    network: Mapping[str, Any],
) -> Prepare:
    """As torch, with every network turned into an ONNX graph first."""
    from archloom.core.settings import settings_of
    from archloom.export import FORMATS
    from archloom.export.deployed import Deployed
    from archloom.export.onnx import Session, onnx_bytes
    from archloom.retrainings.model_file import ModelCard
    from archloom.searches.short_training import seeded

    if FORMATS["onnx"].missing:
        raise SettingError("--device onnxruntime needs an extra: pip install 'archloom[onnx]'")

    def prepare(architecture: Any) -> Any:
        card = ModelCard(
            space={"name": name, **settings_of(space)},
            architecture=dict(architecture),
            network=network,
            classes=tuple(map(str, range(classes))),
            image_shape=image_shape,
            mean=(0.5,) * image_shape[0],
            std=(0.25,) * image_shape[0],
        )
        with seeded(0):
            model = Deployed(card, card.build()).eval().requires_grad_(False)
        session, images = Session(onnx_bytes(model), threads=threads), model.example(batch)
        return lambda: session.logits(images)

    return prepare


@contextmanager
def _progress(count: int) -> Iterator[Callable[[int], None]]:
    """Shows how many networks are timed: a bar in a terminal, a line for every tenth of them in a log."""
    console = messages()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task, told = bar.add_task("networks", total=count), 0

        def tell(done: int) -> None:
            nonlocal told
            bar.update(task, completed=done)
            if not console.is_terminal and 10 * done // count > told:
                told = 10 * done // count
                say(f"{done:,} of {count:,}", console=console)

        yield tell


def _print(fit: Fit, costs: list[float]) -> None:
    features = len(fit.model.weights)
    rows = [
        ("Networks", f"{fit.networks:,}, {min(costs):.2f} to {max(costs):.2f} ms"),
        ("Choices", f"{features:,}, {fit.uncovered:,} of them in no network it learnt from"),
        ("Held out", f"R2 {fit.r2:.4f}, mean error {100 * fit.error:.2f} %"),
    ]
    results().print(facts_of(iter(rows)))


def _write(out: Path, fit: Fit, space: SearchSpace, about: Mapping[str, Any]) -> None:
    from archloom.latency.fit import unfit
    from archloom.searches.targets import decisions_of, write_model

    more = {
        "decisions": decisions_of(space),
        "dtype": "float32",
        "clock": "of the process" if about["threads"] == 1 else "of the wall",
        "forced": unfit(fit) is not None,
    }
    write_model(out, fit, {**about, **more})
