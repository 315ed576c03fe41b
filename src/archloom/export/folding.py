"""Fold normalisations into the convolutions before them: the same logits with fewer passes over every image.

In evaluation mode a batch normalisation is a scale and a shift per channel. A convolution whose result nothing else
reads takes both into its weights and its bias. Running the network once shows which pairs these are, whatever Python
code is between them. Normalisations of sums, of pools and of joined images stay as they are.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_weights
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from archloom.export.deployed import TOLERANCE, Deployed

Pair = tuple[str, str]
"""The names of a convolution and of the normalisation that reads it."""


@torch.no_grad()
def fold_normalizations(model: Deployed) -> Deployed:
    """Return a copy of a model without the normalisations that convolutions can take over.

    A model that computes something else when folded, by tricks that the recorded run does not show, is returned as it
    is.
    """
    images = model.example(1)
    with _Recorder() as recorder:
        expected = model(images)
    folded = _fold_pairs(model, list(recorder.find_pairs(model)))
    difference = (folded(images) - expected).abs().max()
    return folded if difference <= TOLERANCE * expected.abs().max() else model  # the model also where both are NaN


def _fold_pairs(model: Deployed, pairs: Sequence[Pair]) -> Deployed:
    folded = copy.deepcopy(model)
    for convolution_name, normalization_name in pairs:
        convolution: Any = folded.get_submodule(convolution_name)
        normalization: Any = folded.get_submodule(normalization_name)
        convolution.weight, convolution.bias = fuse_conv_bn_weights(
            convolution.weight,
            convolution.bias,
            normalization.running_mean,
            normalization.running_var,
            normalization.eps,
            normalization.weight,
            normalization.bias,
        )
        parent, _, name = normalization_name.rpartition(".")
        setattr(folded.get_submodule(parent), name, nn.Identity())
    return folded


class _Recorder(TorchFunctionMode):
    """Record the convolutions and normalisations of a run, and how often each tensor is read."""

    def __init__(self) -> None:
        super().__init__()
        self._weights: dict[int, Tensor] = {}  # of convolutions, by the id of the result
        self._means: list[tuple[Tensor, Tensor]] = []  # image and running mean of each normalisation
        self._reads: Counter[int] = Counter()
        self._alive: list[object] = []  # an id stands for one tensor only as long as that exists

    def __torch_function__(
        self, function: Callable[..., Any], types: object, arguments: Sequence[Any] = (), keywords: Any = None
    ) -> Any:
        """Run a function of torch and record it."""
        result = function(*arguments, **(keywords or {}))
        if result is None or _list_tensors(result):  # a shape or a number reads no pixel
            self._reads.update(map(id, _list_tensors((arguments, keywords))))
        if function is F.conv2d and len(arguments) > 1:
            self._weights[id(result)] = arguments[1]
        elif function is F.batch_norm and len(arguments) > 1:
            self._means.append((arguments[0], arguments[1]))
        self._alive.append((arguments, keywords, result))
        return result

    def find_pairs(self, model: nn.Module) -> Iterator[Pair]:
        """Yield the pairs of a model: both run once, and only the normalisation reads the convolution."""
        convolutions, normalizations = _name_weights(model), _name_means(model)
        for image, mean in self._means:
            weight = self._weights.get(id(image))
            read_once = all(self._reads[id(tensor)] == 1 for tensor in (image, mean, weight))
            if read_once and id(weight) in convolutions and id(mean) in normalizations:
                yield convolutions[id(weight)], normalizations[id(mean)]


def _list_tensors(value: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _name_weights(model: nn.Module) -> dict[int, str]:
    """Return the names of convolutions by the ids of their weights."""
    modules = model.named_modules()
    return {id(module.weight): name for name, module in modules if isinstance(module, nn.Conv2d)}


def _name_means(model: nn.Module) -> dict[int, str]:
    """Return the names of plain normalisations by their running means; what a subclass adds would be lost."""
    modules = model.named_modules()
    return {id(module.running_mean): name for name, module in modules if type(module) is nn.BatchNorm2d}
