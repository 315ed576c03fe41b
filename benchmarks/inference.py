"""Time predictions of a network: as trained in torch, with normalisations folded, and in ONNX Runtime.

    python benchmarks/inference.py [--network NAME ...] [--images 1 64] [--threads 1] [--rounds 20] [--json FILE]

`eager` is the network as it is trained and then evaluated module by module with channels first, `channels last` the
same in the other layout. `torch` is what `archloom predict` runs in torch: one call of the native library for many
images, normalisations folded for few. `onnx` is what it runs beside an export. All take turns in one process; the
figure that counts is the median over rounds of the ratio within a round. On one thread times are of the processor,
which stops while others run; on more they are of the clock. Weights are random: they do not change the work. Printed
are also the seconds that folding, exporting and opening the export take once.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch is loaded: threads that wait must not spin

import argparse
import copy
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from archloom.core.files import write_atomically
from archloom.execution.survey import load_average
from archloom.export.deployed import Deployed
from archloom.export.onnx import Session, onnx_bytes
from archloom.export.prediction import prepare_torch
from archloom.fast import use_kernels
from archloom.latency.measuring import Size, build_untrained
from archloom.latency.network_timing import choose_clock
from archloom.latency.step_timing import Step, time_rounds
from speed import spread

EAGER = "eager"
WARM_UP = 3
NETWORKS: Mapping[str, tuple[str, Size]] = {
    "nb201": ("nb201_residual", Size(channels=16, cells=5)),
    "darts_v2": ("darts_v2", Size(channels=36, cells=20)),
    "mobilenet_v3": ("mobilenet_v3_large", Size(side=224)),
}


def main() -> None:
    options = _options()
    torch.set_num_threads(options.threads)
    console, report = Console(), {"threads": options.threads, "networks": {}}
    for name in options.network:
        model = build(name)
        report["networks"][name] = found = measure(model, options)
        console.print(as_table(name, found))
        if options.json is not None:
            write_atomically(options.json, json.dumps(report, indent=1).encode())


def _options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", nargs="+", metavar="NAME", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--images", nargs="+", type=int, default=[1, 64])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    if min(options.threads, options.rounds, *options.images) < 1:
        parser.error("--threads, --rounds and --images must be at least 1")
    return options


def build(name: str) -> Deployed:
    """Return a network with random weights, as a trained one is loaded."""
    architecture, size = NETWORKS[name]
    return build_untrained(architecture, space=None, size=size)


def measure(model: Deployed, options: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds to prepare each form, and the times of their calls by the number of images."""
    forms, prepared = prepare(model, threads=options.threads)
    calls = {}
    for count in options.images:
        before = load_average()
        images = model.example(count)
        steps = {name: _call(form, images) for name, form in forms.items()}
        times = time_rounds(steps, rounds=options.rounds, warm_up=WARM_UP, clock=choose_clock(options.threads))
        calls[count] = {"load": before, "seconds": times, "forms": figures(times)}
    return {"rounds": options.rounds, "prepare_seconds": prepared, "images": calls}


def prepare(model: Deployed, *, threads: int) -> tuple[dict[str, Callable[..., Any]], dict[str, float]]:
    """Return every form of a model, and the processor time that making it took."""
    seconds = {}

    def timed(what: str, make: Callable[[], Any]) -> Any:
        start = time.process_time()
        made = make()
        seconds[what] = time.process_time() - start
        return made

    last = copy.deepcopy(model).to(memory_format=torch.channels_last)
    forms = {
        EAGER: _by_modules(model),
        "channels last": _by_modules(last),
        "torch": timed("fold", lambda: prepare_torch(copy.deepcopy(model))),
    }
    content = timed("export", lambda: onnx_bytes(model))
    return {**forms, "onnx": timed("open", lambda: Session(content, threads=threads)).logits}, seconds


def _by_modules(model: Deployed) -> Callable[[torch.Tensor], torch.Tensor]:
    def run(images: torch.Tensor) -> torch.Tensor:
        with use_kernels("plain"):
            return model(images)

    return run


def _call(form: Callable[..., Any], images: torch.Tensor) -> Step:
    def call() -> object:
        with torch.inference_mode():
            return form(images)

    return call


def figures(times: Mapping[str, Sequence[float]]) -> dict[str, dict[str, Any]]:
    """Per form the median time with its quartiles, and how much longer eager torch took in the same rounds."""
    return {
        name: {
            "milliseconds": spread([1000 * value for value in seconds]),
            "gain": spread([eager / own for eager, own in zip(times[EAGER], seconds, strict=True)]),
        }
        for name, seconds in times.items()
    }


def as_table(name: str, found: Mapping[str, Any]) -> Table:
    table = Table("images", "form", "ms", f"{EAGER} / it", "quartiles")
    once = ", ".join(f"{what} {seconds:.2f} s" for what, seconds in found["prepare_seconds"].items())
    table.title = f"{name}: {found['rounds']} rounds; once: {once}"
    for count, measured in found["images"].items():
        for form, row in measured["forms"].items():
            gain = row["gain"]
            quartiles = f"{gain['low']:.2f}-{gain['high']:.2f}"
            table.add_row(str(count), form, f"{row['milliseconds']['median']:.2f}", f"{gain['median']:.2f}", quartiles)
    return table


if __name__ == "__main__":
    main()
