"""Mobile networks: a stem, a separable convolution, blocks of inverted bottlenecks, the head of MobileNetV2 or V3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import torch
from annotated_doc import Doc
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from archloom.core.errors import require
from archloom.families.base import Family, OperationKind
from archloom.families.regularization import flatten, rates
from archloom.operations.bottleneck import ACTIVATIONS, InvertedBottleneck, SeparableConv, SharedNorm
from archloom.spaces import Mobile
from archloom.spaces.mobile import ZERO
from archloom.supernet import Blend, Gates, Resolve, SharedConv2d, SharedLinear, Width


class MobileNetwork(nn.Module):
    """Called with (images, gates). Kernels are shared between widths; what a path needs is sliced out of them."""

    def __init__(
        self,
        space: Mobile,
        resolve: Resolve,
        classes: int,
        colours: int,
        /,
        *,
        dropout: Annotated[float, Doc("share of features dropped before the last layer, in training only")] = 0.0,
        rematerialize: Annotated[
            bool, Doc("where several options run, keep none of them and run again on the way back")
        ] = False,
        masked: Annotated[
            bool, Doc("compute all channels and put those too many to zero: slow, to compare with")
        ] = False,
    ) -> None:
        super().__init__()
        require(rates(0.0, dropout))
        plan = _Plan(space, resolve, masked, rematerialize)
        self._widths = [plan.width(name) for name in ("stem.width", *space.head_widths)]
        stem, *head = self._widths
        self._activation = ACTIVATIONS[space.activation]
        self.stem = plan.blend(
            "stem.kernel", lambda kernel: plan.convolution(colours, stem, int(kernel), stride=space.stem_stride)
        )
        self.stem_norm = SharedNorm(resolve.normalize(stem.largest), space.activation)
        self.layers = nn.ModuleList(plan.layers())
        last = plan.width(space.bottlenecks[-1].width)
        self.head = plan.convolution(last.largest, head[0], 1)
        self.head_norm = SharedNorm(resolve.normalize(head[0].largest), space.activation)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.widen = plan.convolution(head[0].largest, head[1], 1, bias=True) if len(head) > 1 else None
        self.flatten = flatten(dropout)
        self.classifier = SharedLinear(head[-1].largest, classes)

    def forward(self, images: Tensor, gates: Gates | None = None) -> Tensor:
        stem, *head = (width.extent(gates) for width in self._widths)
        x = stem.weigh(self.stem_norm(self.stem(images, gates, stem), stem))
        channels = stem.channels
        for layer in self.layers:
            x, channels = layer(x, gates, channels)
        x = head[0].weigh(self.head_norm(self.head(x, head[0]), head[0]))
        x = self.pool(x)
        if self.widen is not None:  # V3: the last widening comes behind the pool, where it costs little
            x = head[1].weigh(self._activation(self.widen(x, head[1])))
        logits: Tensor = self.classifier(self.flatten(x))
        return logits


class MobileLayer(nn.Module):
    """A bottleneck (or separable convolution) at its place: with a residual around it or not, there or left out."""

    def __init__(self, layer: Blend, width: Width, *, residual: bool, rematerialize: bool) -> None:
        super().__init__()
        self.layer = layer
        self._width, self._residual, self._rematerialize = width, residual, rematerialize

    def forward(self, x: Tensor, gates: Gates | None, channels: int) -> tuple[Tensor, int]:
        """The result, and how many of its channels there are."""
        extent = self._width.extent(gates)
        run = self._twice if self._rematerialize and torch.is_grad_enabled() and self._several(gates) else self.layer
        result = run(x, gates, gates, channels, extent)
        if self._residual:
            result = x if result is None else x + result
        assert result is not None, "only a layer with a residual may be left out"
        return result, extent.channels

    def _several(self, gates: Gates | None) -> bool:
        return self.layer.several(gates) or any(part.several(gates) for part in self.layer.candidates.values())  # type: ignore[operator]

    def _twice(self, x: Tensor, *arguments: Any) -> Tensor | None:
        """The layer, of which only the input is kept; the second time it has the same parameters, whosever they are."""
        parameters = dict(self.layer.named_parameters())

        def run(x: Tensor, *weights: Tensor) -> Tensor | None:
            named = dict(zip(parameters, weights, strict=True))
            result: Tensor | None = functional_call(self.layer, named, (x, *arguments))
            return result

        result: Tensor | None = checkpoint(run, x, *parameters.values(), use_reentrant=False, preserve_rng_state=False)
        return result


class _Plan:
    """Makes the parts of a network, each for the options that are built."""

    def __init__(self, space: Mobile, resolve: Resolve, masked: bool, rematerialize: bool) -> None:
        self._space, self._resolve = space, resolve
        self._masked, self._rematerialize = masked, rematerialize

    def width(self, name: str) -> Width:
        return Width.of(name, self._built(name))

    def _built(self, name: str) -> tuple[str, ...]:
        return self._resolve.options(self._space.place(name))

    def blend(self, name: str, make: Callable[[str], nn.Module]) -> Blend:
        return Blend(name, self._built(name), make)

    def convolution(
        self, channels_in: int, width: Width, kernel: int, *, stride: int = 1, bias: bool = False
    ) -> SharedConv2d:
        return SharedConv2d(channels_in, width.largest, kernel, stride, kernel // 2, bias=bias, masked=self._masked)

    def layers(self) -> list[MobileLayer]:
        bottlenecks = [self._bottleneck(number) for number in range(len(self._space.bottlenecks))]
        return [self._separable(), *bottlenecks]

    def _separable(self) -> MobileLayer:
        space = self._space
        width = self.width(space.separable_width)

        def make(_: str) -> nn.Module:
            return SeparableConv(
                self.width("stem.width"),
                width,
                blend=lambda part, make: self.blend(f"separable.{part}", make),
                normalize=self._resolve.normalize,
                masked=self._masked,
            )

        return self._layer("separable.layer", make, width, residual=not space.separable)

    def _bottleneck(self, number: int) -> MobileLayer:
        layer = self._space.bottlenecks[number]
        width = self.width(layer.width)

        def make(_: str) -> nn.Module:
            return InvertedBottleneck(
                self.width(layer.width_in),
                width,
                self.width(f"{layer.name}.expansion"),
                blend=lambda part, make: self.blend(f"{layer.name}.{part}", make),
                normalize=self._resolve.normalize,
                stride=layer.stride,
                activation=layer.activation,
                masked=self._masked,
            )

        return self._layer(f"{layer.name}.layer", make, width, residual=layer.residual)

    def _layer(self, name: str, make: Callable[[str], nn.Module], width: Width, *, residual: bool) -> MobileLayer:
        return MobileLayer(self.blend(name, make), width, residual=residual, rematerialize=self._rematerialize)


class MobileFamily(Family[Mobile]):
    """Stacks of inverted bottlenecks. Every layer has decisions of its own: the depth of a space is fixed."""

    network = MobileNetwork
    depth_settings = ("layers",)

    def has_fixed_depth(self, space: Mobile) -> bool:
        return True

    def kind_of(self, option: str) -> OperationKind:
        return OperationKind.NONE if option == ZERO else super().kind_of(option)
