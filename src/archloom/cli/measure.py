"""`archloom measure`: what a network costs on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Annotated

import typer

from archloom.cli.console import make_fact_table, make_table, open_message_console, open_result_console, print_line
from archloom.core.errors import SettingError
from archloom.core.lazy_imports import lazy_imports

with lazy_imports():  # help needs no torch
    import archloom.latency.measuring as measuring


size_option = partial(typer.Option, rich_help_panel="Size, where it is not a trained model")
timing_option = partial(typer.Option, rich_help_panel="Timing")
SPREAD = 2  # of the 90th to the 10th percentile, from which on a median says little
NAMES = {"torch": "torch", "onnxruntime": "ONNX Runtime"}


def measure(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="A trained model (a run of `archloom retrain`, a .safetensors file); or an architecture: the run that "
            "found it, a text form in quotes, a JSON file, a published name.",
        ),
    ],
    *,
    space: Annotated[str | None, size_option(help="Space of a text form, if the form does not show it.")] = None,
    channels: Annotated[int | None, size_option(help="Width of the first cells. Default: 16.")] = None,
    cells: Annotated[int | None, size_option(help="Depth, as the space counts it. Default: that of the space.")] = None,
    classes: Annotated[int | None, size_option(help="Default: those of the run's data, or 10.")] = None,
    size: Annotated[int | None, size_option(help="Pixels on a side. Default: the run's data, or 32.")] = None,
    batch: Annotated[int, timing_option(help="Images per call.")] = 1,
    threads: Annotated[int | None, timing_option(help="Of torch and of ONNX Runtime. Default: torch's.")] = None,
    repeats: Annotated[int, timing_option(help="Calls that are timed, after some that are not.")] = 50,
    onnx: Annotated[bool, timing_option("--onnx/--no-onnx", help="Time ONNX Runtime too, if it is installed.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Print what a network costs: parameters, multiply-adds, bytes on disk, and latency on this machine.

    Calls of torch and ONNX Runtime alternate: a busy moment affects both.

        archloom measure runs/retrained --batch 8 --threads 1

        archloom measure "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|nor_conv_1x1~2|" --channels 16
    """
    wanted = measuring.Size(channels=channels, cells=cells, classes=classes, side=size)
    model_given = measuring.is_model(what)
    if model_given and (wanted.given or space is not None):
        raise SettingError(
            "a trained model has its own size: leave out --space, --channels, --cells, --classes, --size"
        )
    model = measuring.load_trained(what) if model_given else measuring.build_untrained(what, space=space, size=wanted)
    found = measuring.measure(
        model,
        is_trained=model_given,
        batch=batch,
        threads=threads,
        repeats=repeats,
        onnx=onnx,
        tell=lambda line: print_line(line, console=open_message_console()),
    )
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        _print(found)


def _print(found: measuring.Measurement) -> None:
    console = open_result_console()
    print_line(found.text, console=console)
    console.print(make_fact_table(_facts(found)))
    rows = (
        (NAMES[name], f"{taken.median:.2f} ms", f"{taken.tenth:.2f} ms", f"{taken.ninetieth:.2f} ms")
        for name, taken in found.latency.items()
    )
    console.print()
    console.print(make_table(("latency", "median", "10th percentile", "90th percentile"), rows))
    print_line(_how(found), console=console)


def _facts(found: measuring.Measurement) -> Iterator[tuple[str, str]]:
    yield "parameters", f"{found.parameters:,}"
    yield "multiply-adds of one image", f"{found.multiply_adds / 1e6:,.2f} million"
    yield "size on disk", f"{found.bytes_on_disk / 1e6:,.2f} MB (safetensors, 32 bits)"
    yield "images", f"{'x'.join(map(str, found.image_shape))}, {found.classes} classes"
    settings = ", ".join(f"{name} {value}" for name, value in found.network.items())
    yield "network", f"{settings or 'as the space has it'}{'' if found.trained else '; not trained'}"


def _how(found: measuring.Measurement) -> str:
    images = f"{found.batch} image{'s' if found.batch > 1 else ''}"
    threads = f"{found.threads} thread{'s' if found.threads > 1 else ''}"
    repeats = next(iter(found.latency.values())).repeats
    busy = any(taken.ninetieth > SPREAD * taken.tenth for taken in found.latency.values())
    advice = "; times vary widely: the machine is busy, measure again when it is idle" if busy else ""
    return f"(one call with {images}, {threads}, {repeats} calls after a warm-up{advice})"
