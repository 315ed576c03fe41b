"""Time a step of a finalist, a network of one architecture: its modules, and the compiled executor.

    python benchmarks/finalist.py [--space nb201] [--channels 8] [--images 32] [--side 16] [--cells 5] [--rounds 12]

Both have channels last, the same seeds and one thread, and take turns in one process. A step is `SharedWeights.fit`:
forward pass, backward pass, clipping and SGD. Times are of the processor, and the figure that counts is the median over
rounds of the ratio within a round.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from archloom.data.loader import Batch
from archloom.execution.machine import keep_memory
from archloom.execution.survey import load_average
from archloom.fast import KernelChoice, use_kernels
from archloom.searches.short_training import build_standalone
from archloom.spaces import Darts, Nb201
from archloom.spaces.published import PUBLISHED
from archloom.supernet import SharedWeights, WeightSettings
from archloom.tasks import ImageShape

CLASSES, STEPS, WARM_UP = 10, 4, 2
VARIANTS: tuple[KernelChoice, ...] = ("plain", "auto")
ARCHITECTURES = (
    "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_1x1~2|",
    "|nor_conv_1x1~0|+|avg_pool_3x3~0|nor_conv_3x3~1|+|skip_connect~0|none~1|nor_conv_3x3~2|",
    "|skip_connect~0|+|avg_pool_3x3~0|avg_pool_3x3~1|+|skip_connect~0|nor_conv_1x1~1|avg_pool_3x3~2|",
)
PUBLISHED_CELLS = ("darts_v2", "pc_darts", "gdas")  # of the DARTS space, timed with `--space darts`


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    keep_memory()
    print(f"load {load_average()}")
    for architecture in ARCHITECTURES if options.space == "nb201" else PUBLISHED_CELLS:
        times = measure(architecture, options)
        ratios = [plain / auto for plain, auto in zip(*(times[name] for name in VARIANTS), strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        shown = ", ".join(f"{name} {1000 * statistics.median(times[name]):.1f} ms" for name in VARIANTS)
        print(f"{architecture}: {shown}, plain / auto {middle:.2f} ({low:.2f}-{high:.2f})")
    print(f"load {load_average()}")


def measure(architecture: str, options: argparse.Namespace) -> dict[KernelChoice, list[float]]:
    """Return the seconds of a step, round by round."""
    networks = {name: build(architecture, options) for name in VARIANTS}
    images = torch.randn(options.images, 3, options.side, options.side).contiguous(memory_format=torch.channels_last)
    batch = Batch(images, torch.randint(CLASSES, (options.images,)))
    times: dict[KernelChoice, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(WARM_UP + options.rounds):
        for name, weights in networks.items():
            with use_kernels(name):
                start = time.process_time()
                for _ in range(STEPS):
                    weights.fit(batch, {})
                times[name].append((time.process_time() - start) / STEPS)
    return {name: found[WARM_UP:] for name, found in times.items()}


def build(architecture: str, options: argparse.Namespace) -> SharedWeights:
    space = Darts(cells=options.cells) if options.space == "darts" else Nb201(cells_per_stage=options.cells)
    text = PUBLISHED[architecture][1] if options.space == "darts" else architecture
    return build_standalone(
        space,
        space.parse(text),
        seed=0,
        place=lambda network: network.to(memory_format=torch.channels_last),
        network={"channels": options.channels},
        weights=WeightSettings(),
        shape=ImageShape(CLASSES, 3),
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--space", choices=("nb201", "darts"), default="nb201")
    for name, default in (("channels", 8), ("images", 32), ("side", 16), ("cells", 5), ("rounds", 12)):
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


if __name__ == "__main__":
    main()
