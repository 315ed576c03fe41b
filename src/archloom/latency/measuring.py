"""What a network costs: numbers to store and to multiply, bytes on disk, and milliseconds on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from safetensors.torch import save

from archloom.core.errors import require
from archloom.core.json_object import JsonObject
from archloom.core.settings import Settings
from archloom.data import FACTS
from archloom.export import FORMATS
from archloom.export.deployed import Deployed
from archloom.export.onnx import Session, onnx_bytes
from archloom.families import family_of
from archloom.latency.prediction_timing import REPEATS, Latency, measure_latencies, use_torch_threads
from archloom.latency.step_timing import Clock, Step
from archloom.objectives import cost_of
from archloom.retrainings.best_model import find_best_model
from archloom.retrainings.model_file import BEST, LAST, ModelCard
from archloom.searches.architectures import find_architecture
from archloom.searches.short_training import seeded

CLASSES, SIZE, COLOURS = 10, 32, 3  # of images that nothing else is known of: CIFAR-10's
LEAST_REPEATS = 30  # below, a percentile of times says nothing


@dataclass(frozen=True)
class Measurement:
    """What was measured, and of what."""

    text: str
    trained: bool
    network: Settings
    classes: int
    image_shape: tuple[int, int, int]
    parameters: int
    multiply_adds: int  # of one image
    bytes_on_disk: int  # as safetensors
    batch: int
    threads: int
    latency: Mapping[str, Latency]  # of one batch, by what computed it

    def to_json(self) -> JsonObject:
        """Return the measurement as JSON values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Size:
    """Of a network that is built for measuring; what is not given follows from the run or from a default."""

    channels: int | None = None
    cells: int | None = None
    classes: int | None = None
    side: int | None = None  # pixels

    def __post_init__(self) -> None:
        require(
            {
                f"--{name} must be at least 1, got {value}": value is None or value >= 1
                for name, value in zip(("channels", "cells", "classes", "size"), self._values, strict=True)
            }
        )

    @property
    def _values(self) -> tuple[int | None, ...]:
        return self.channels, self.cells, self.classes, self.side

    @property
    def given(self) -> bool:
        """Return whether any size was given."""
        return any(value is not None for value in self._values)


def is_model(given: str) -> bool:
    """Return whether this names a trained model rather than an architecture."""
    path = Path(given)
    try:
        return path.suffix == ".safetensors" or any((path / name).is_file() for name in (BEST, LAST))
    except (OSError, ValueError):  # a genotype is too long for a file name
        return False


def load_trained(given: str, *, plugins: bool = False) -> Deployed:
    """Return a trained model."""
    return Deployed.load(find_best_model(Path(given)).path, plugins=plugins)


def build_untrained(given: str, *, space: str | None, size: Size, seed: int = 0) -> Deployed:
    """Return a new network of an architecture (a text form, a published name, a file, the run that found it)."""
    found = find_architecture(given, space_name=space)
    deep = found.space if size.cells is None else family_of(found.space).with_depth(found.space, size.cells)
    facts = FACTS.get(str(found.content.get("data")))
    known_classes, known_shape = (facts.classes, facts.image_shape) if facts else (CLASSES, (COLOURS, SIZE, SIZE))
    colours, height, width = known_shape
    shape = (colours, size.side or height, size.side or width)
    card = ModelCard(
        space={"name": found.space_name, **{f.name: getattr(deep, f.name) for f in fields(deep)}},
        architecture=dict(deep.check(found.architecture)),
        network={} if size.channels is None else {"channels": size.channels},
        classes=tuple(str(number) for number in range(size.classes or known_classes)),
        image_shape=shape,
        mean=(0.5,) * shape[0],
        std=(0.25,) * shape[0],
    )
    with seeded(seed):
        return Deployed(card, card.build()).eval().requires_grad_(False)


def measure(
    model: Deployed,
    *,
    is_trained: bool,
    batch: int = 1,
    threads: int | None = None,
    repeats: int = REPEATS,
    onnx: bool = True,
    clock: Clock = time.perf_counter,
    tell: Callable[[str], None] = lambda line: None,
) -> Measurement:
    """Return all costs of a model; calls of torch and of ONNX Runtime, if wanted and installed, alternate."""
    threads = torch.get_num_threads() if threads is None else threads
    require(
        {
            f"--batch must be at least 1, got {batch}": batch >= 1,
            f"--threads must be at least 1, got {threads}": threads >= 1,
            f"--repeats must be at least {LEAST_REPEATS}, got {repeats}": repeats >= LEAST_REPEATS,
        }
    )
    card = model.card
    cost = cost_of(model.network, card.image_shape)
    calls = _calls(model, batch=batch, threads=threads, onnx=onnx, tell=tell)
    tell(f"timing {repeats} rounds")
    with use_torch_threads(threads):
        taken = measure_latencies(calls, repeats=repeats, clock=clock)
    return Measurement(
        text=card.text,
        trained=is_trained,
        network=card.network,
        classes=len(card.classes),
        image_shape=card.image_shape,
        parameters=cost.parameters,
        multiply_adds=cost.multiply_adds,
        bytes_on_disk=len(save({name: tensor.contiguous() for name, tensor in model.network.state_dict().items()})),
        batch=batch,
        threads=threads,
        latency=taken,
    )


def _calls(model: Deployed, *, batch: int, threads: int, onnx: bool, tell: Callable[[str], None]) -> dict[str, Step]:
    images = model.example(batch)

    def in_torch() -> object:
        with torch.inference_mode():
            return model(images)

    calls: dict[str, Step] = {"torch": in_torch}
    if onnx:
        if FORMATS["onnx"].missing:
            tell("ONNX Runtime is left out: pip install 'archloom[onnx]'")
        else:
            tell("writing an ONNX graph")
            session = Session(onnx_bytes(model), threads=threads)
            calls["onnxruntime"] = lambda: session.logits(images)
    return calls
