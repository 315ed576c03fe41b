"""Parameters and multiply-adds of networks: counted on a built one, or for any architecture without building it.

Both counts are sums over modules. Where every option of a decision has modules of its own, one supernet, built once
without memory for its weights, knows the cost of every architecture of its space. Where options share their weights, as
widths do, the network of an architecture is built without memory and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.hooks import RemovableHandle

from archloom.core.errors import SettingError
from archloom.families import build_network, select_deployed_settings
from archloom.fast import use_kernels
from archloom.spaces import Architecture, SearchSpace
from archloom.supernet import Choice, EveryOption, Gate, Only
from archloom.supernet.masked_width import SharedKernel
from archloom.tasks import ImageShape, NetworkShape, TextShape


@dataclass(frozen=True)
class Cost:
    """The cost of a network: trainable numbers, and multiply-adds of its layers per image, or per word."""

    parameters: int
    multiply_adds: int

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Cost:
        """Return the cost that a file holds."""
        return cls(parameters=int(value["parameters"]), multiply_adds=int(value["multiply_adds"]))

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.parameters + other.parameters, self.multiply_adds + other.multiply_adds)


FREE = Cost(0, 0)
COUNT = "count_multiply_adds"  # the method by which a module of a plug-in is counted
FREE_KINDS = frozenset(
    f"torch.nn.modules.{kind}"
    for kind in (
        "activation", "batchnorm", "channelshuffle", "dropout", "flatten", "instancenorm", "normalization",
        "padding", "pixelshuffle", "pooling", "upsampling",
    )
)  # fmt: skip
CACHED = 10_000  # architectures whose cost is remembered


def cost_of(network: nn.Module, image_shape: tuple[int, ...], *inputs: Any) -> Cost:
    """Return the cost of a built network for one image; for one word, where `image_shape` is empty."""
    return sum(_module_costs(network, image_shape, *inputs).values(), FREE)


class CostTable:
    """The cost of every architecture of a space, for one width and image size.

    Args:
        space: what can be chosen.
        classes: the number of classes.
        image_shape: channels, height and width of an image.
        words: instead of both, the number of words that a network of text knows.
        network_settings: settings of the network.

    Examples:
        >>> import archloom
        >>> space = archloom.Nb201(nodes=3, cells_per_stage=1)
        >>> table = archloom.CostTable(space, classes=2, image_shape=(3, 8, 8), channels=4)
        >>> pool = space.parse("|avg_pool_3x3~0|+|none~0|skip_connect~1|")
        >>> convolution = space.parse("|nor_conv_3x3~0|+|none~0|skip_connect~1|")
        >>> table.cost(pool).parameters < table.cost(convolution).parameters
        True
    """

    def __init__(
        self,
        space: SearchSpace,
        *,
        classes: int = 0,
        image_shape: tuple[int, ...] = (),
        words: int = 0,
        **network_settings: Any,
    ) -> None:
        self._space = space
        with torch.device("meta"):
            settings = select_deployed_settings(network_settings)
            supernet = build_network(space, _Counted(), _shape(classes, image_shape, words), **settings)
            gates = {d.name: Gate(weights=torch.ones(len(d.options))) for d in space.decisions}
        self._fixed = FREE
        self._options: dict[tuple[str, str], Cost] = {}
        self._count_alone: Callable[[Architecture], Cost] | None = None
        if any(isinstance(module, SharedKernel) for module in supernet.modules()):
            count = partial(count_alone, space, classes=classes, image_shape=image_shape, **settings)
            self._count_alone = lru_cache(CACHED)(count)
            return
        owners = dict(_owners(supernet))
        for name, cost in _module_costs(supernet, image_shape, gates).items():
            owner = next((owners[prefix] for prefix in _prefixes(name) if prefix in owners), None)
            if owner is None:
                self._fixed += cost
            else:
                self._options[owner] = self._options.get(owner, FREE) + cost

    @property
    def supernet_cost(self) -> Cost | None:
        """Return the cost of all options together; None where they share weights."""
        return None if self._count_alone is not None else sum(self._options.values(), self._fixed)

    def cost(self, architecture: Mapping[str, str] | Architecture) -> Cost:
        """Return the cost of one architecture."""
        if self._count_alone is not None:
            return self._count_alone(Architecture(architecture))
        return sum((self._options.get(choice, FREE) for choice in architecture.items()), self._fixed)


class _Counted(EveryOption):
    """Build a supernet for counting: its normalisations have parameters and compute nothing."""

    def normalize(self, channels: int, *, scaled: bool = True) -> nn.Module:
        return _Scale(channels) if scaled else nn.Identity()


class _CountedOnly(Only):
    """Build the network of one architecture for counting, in the same way."""

    def normalize(self, channels: int, *, scaled: bool = True) -> nn.Module:
        return _Scale(channels) if scaled else nn.Identity()


def count_alone(
    space: SearchSpace,
    architecture: Architecture,
    *,
    classes: int = 0,
    image_shape: tuple[int, ...] = (),
    words: int = 0,
    **settings: Any,
) -> Cost:
    """Return the cost of one architecture: its network is built without memory. For many, a `CostTable` is faster."""
    with torch.device("meta"):
        shape = _shape(classes, image_shape, words)
        network = build_network(space, _CountedOnly(architecture), shape, **settings)
    return cost_of(network, image_shape)


def _shape(classes: int, image_shape: tuple[int, ...], words: int) -> NetworkShape:
    return TextShape(words) if words else ImageShape(classes, image_shape[0])


class _Scale(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale_and_shift = nn.Parameter(torch.empty(2, channels))

    def forward(self, x: Tensor) -> Tensor:
        return x

    def count_multiply_adds(self, inputs: object, output: Tensor) -> int:
        return 0


def _owners(supernet: nn.Module) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the module name of every candidate, with its decision and option."""
    for name, module in supernet.named_modules():
        if isinstance(module, Choice):
            for option in module.candidates:
                yield f"{name}.candidates.{option}", (module.decision.name, option)


def _prefixes(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:end]) for end in range(len(parts), 0, -1))


def _module_costs(network: nn.Module, image_shape: tuple[int, ...], *inputs: Any) -> dict[str, Cost]:
    """Return each module's own cost by name, measured by one pass of an image, or of a word."""
    # two images: batch statistics of one 1x1 image are undefined
    like = next(network.parameters())
    examples = like.new_zeros(2, *image_shape) if image_shape else like.new_zeros(1, 2, dtype=torch.int64)
    buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}  # running statistics must not move
    _refuse_uncountable(network)
    with _count_calls(network) as multiply_adds, torch.no_grad(), use_kernels("plain"):  # fused cells call no module
        functional_call(network, buffers, (examples, *inputs))
    return {
        name: Cost(sum(p.numel() for p in module.parameters(recurse=False)), multiply_adds[name] // 2)
        for name, module in network.named_modules()
    }


@contextmanager
def _count_calls(network: nn.Module) -> Iterator[Counter[str]]:
    """Count the multiply-adds of every module while the network runs."""
    counts: Counter[str] = Counter()

    def listen(name: str, module: nn.Module, count: Callable[[Any, Any, Tensor], int]) -> RemovableHandle:
        def add(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            counts[name] += count(layer, inputs, output)

        return module.register_forward_hook(add)

    counted = ((name, module, _find_count(module)) for name, module in network.named_modules())
    handles = [listen(name, module, count) for name, module, count in counted if count is not None]
    try:
        yield counts
    finally:
        for handle in handles:
            handle.remove()


def _find_count(module: nn.Module) -> Callable[[Any, Any, Tensor], int] | None:
    """Return what counts the multiply-adds of one call; None for a module that needs none of its own."""
    if isinstance(module, nn.Conv2d | nn.Linear):
        return _count_layer
    return getattr(type(module), COUNT, None)


def _count_layer(layer: nn.Conv2d | nn.Linear, _: tuple[Tensor, ...], output: Tensor) -> int:
    # every output number takes one weight of its filter per multiply-add; a bias adds one more per channel
    return output.numel() * (layer.weight[0].numel() + (layer.bias is not None))


def _refuse_uncountable(network: nn.Module) -> None:
    """Raise a SettingError for a module whose multiply-adds are unknown: a sum without it would be wrong."""
    for name, module in network.named_modules():
        has_weights = next(module.parameters(recurse=False), None) is not None
        is_leaf = next(module.children(), None) is None
        if (has_weights or is_leaf) and _find_count(module) is None and not _is_free(module):
            raise SettingError(
                f"the cost of module '{name}' ({type(module).__name__}) must be known; only nn.Conv2d and nn.Linear "
                f"are counted; give its class a method {COUNT}(self, inputs, output) that returns its multiply-adds"
            )


def _is_free(module: nn.Module) -> bool:
    """Return whether a module is known to need no multiply-adds: normalisation, pooling, activation, dropout, ..."""
    if isinstance(module, nn.MultiheadAttention):  # torch keeps it among the activations
        return False
    if isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict):
        return next(module.parameters(recurse=False), None) is None
    return isinstance(module, nn.Identity) or any(kind.__module__ in FREE_KINDS for kind in type(module).__mro__)
