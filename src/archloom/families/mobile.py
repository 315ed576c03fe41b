"""Mobile networks: a stem, a separable convolution, blocks of inverted bottlenecks, the head of MobileNetV2 or V3."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

import torch
from annotated_doc import Doc
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from archloom.core.errors import require
from archloom.core.settings import Settings
from archloom.families.base import Family, OperationKind, Size, Source
from archloom.families.cell_source import Modules, find_convolution, render
from archloom.families.regularization import DropoutRate, check_rates, flatten
from archloom.families.width_multiplier import Masked, WidthMultiplier, check_multiplier, scale_width
from archloom.operations.bottleneck import ACTIVATIONS, InvertedBottleneck, SeparableConv, SharedNorm
from archloom.spaces import Architecture, Mobile
from archloom.spaces.mobile import BOTTLENECK, ON, ZERO, Layer
from archloom.supernet import Gates, LayerChoice, Resolve, SharedConv2d, SharedLinear, Width

SHRINKS_LARGE = 16  # from which factor between image and last layer a space is made for large images


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
        dropout: DropoutRate = 0.0,
        rematerialize: Annotated[
            bool, Doc("where several options run, keep none of them and run again on the way back")
        ] = False,
        masked: Masked = False,
        width_multiplier: WidthMultiplier = 1.0,
    ) -> None:
        super().__init__()
        require({**check_rates(0.0, dropout), **check_multiplier(width_multiplier)})
        plan = _Plan(space, resolve, masked, rematerialize, width_multiplier)
        self._widths = [plan.width(name) for name in ("stem.width", *space.head_widths)]
        stem, *head = self._widths
        self._activation = ACTIVATIONS[space.activation]
        self.stem = plan.layer_choice(
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
        """Return the logits along the paths that the gates open."""
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

    def __init__(self, layer: LayerChoice, width: Width, *, residual: bool, rematerialize: bool) -> None:
        super().__init__()
        self.layer = layer
        self._width, self._residual, self._rematerialize = width, residual, rematerialize

    def forward(self, x: Tensor, gates: Gates | None, channels: int) -> tuple[Tensor, int]:
        """Return the result and the number of its channels in use."""
        extent = self._width.extent(gates)
        run = self._twice if self._rematerialize and torch.is_grad_enabled() and self._several(gates) else self.layer
        result = run(x, gates, gates, channels, extent)
        if self._residual:
            result = x if result is None else x + result
        assert result is not None, "only a layer with a residual may be left out"
        return result, extent.channels

    def _several(self, gates: Gates | None) -> bool:
        parts = self.layer.candidates.values()
        return self.layer.runs_several(gates) or any(part.runs_several(gates) for part in parts)  # type: ignore[operator]

    def _twice(self, x: Tensor, *arguments: Any) -> Tensor | None:
        """Run the layer and keep only its input; the backward pass runs it again with the same parameters."""
        parameters = dict(self.layer.named_parameters())

        def run(x: Tensor, *weights: Tensor) -> Tensor | None:
            named = dict(zip(parameters, weights, strict=True))
            result: Tensor | None = functional_call(self.layer, named, (x, *arguments))
            return result

        result: Tensor | None = checkpoint(run, x, *parameters.values(), use_reentrant=False, preserve_rng_state=False)
        return result


class _Plan:
    """Makes the parts of a network, each for the options that are built."""

    def __init__(
        self, space: Mobile, resolve: Resolve, masked: bool, rematerialize: bool, width_multiplier: float
    ) -> None:
        self._space, self._resolve, self._width_multiplier = space, resolve, width_multiplier
        self._masked, self._rematerialize = masked, rematerialize

    def width(self, name: str) -> Width:
        return scale_width(Width.from_options(name, self._built(name)), self._width_multiplier)

    def _built(self, name: str) -> tuple[str, ...]:
        return self._resolve.options(self._space.place(name))

    def layer_choice(self, name: str, make: Callable[[str], nn.Module]) -> LayerChoice:
        return LayerChoice(name, self._built(name), make)

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
                layer_choice=lambda part, make: self.layer_choice(f"separable.{part}", make),
                normalize=self._resolve.normalize,
                masked=self._masked,
            )

        return self._layer("separable.layer", make, width, residual=not space.separable)

    def _bottleneck(self, number: int) -> MobileLayer:
        layer = self._space.bottlenecks[number]
        width, expansion = self.width(layer.width), f"{layer.name}.expansion"

        def make(_: str) -> nn.Module:
            return InvertedBottleneck(
                self.width(layer.width_in),
                width,
                Width.from_options(expansion, self._built(expansion)),
                layer_choice=lambda part, make: self.layer_choice(f"{layer.name}.{part}", make),
                normalize=self._resolve.normalize,
                stride=layer.stride,
                activation=layer.activation,
                masked=self._masked,
            )

        return self._layer(f"{layer.name}.layer", make, width, residual=layer.residual)

    def _layer(self, name: str, make: Callable[[str], nn.Module], width: Width, *, residual: bool) -> MobileLayer:
        return MobileLayer(self.layer_choice(name, make), width, residual=residual, rematerialize=self._rematerialize)


class MobileFamily(Family[Mobile]):
    """Stacks of inverted bottlenecks. Every layer has decisions of its own: the depth of a space is fixed."""

    network = MobileNetwork
    sizes: ClassVar = [Size({}, {"width_multiplier": times}) for times in (0.25, 0.35, 0.5, 0.75, 1.0, 1.2, 1.4)]
    depth_settings = ("layers",)

    def has_fixed_depth(self, space: Mobile) -> bool:
        return True

    def final_size(self, space: Mobile) -> Size:
        return Size({}, {"width_multiplier": 1.0})

    def describe_size(self, space: Mobile, settings: Settings) -> str:
        return f"widths times {settings['width_multiplier']:g}"

    def stem_for(self, space: Mobile, side: int) -> Settings | None:
        shrinks = space.stem_stride * math.prod(space.strides)
        return {} if shrinks >= SHRINKS_LARGE else None  # the space itself decides by how much images shrink

    def kind_of(self, option: str) -> OperationKind:
        return OperationKind.NONE if option == ZERO else super().kind_of(option)

    def source(self, space: Mobile, architecture: Architecture, network: nn.Module, settings: Settings) -> Source:
        assert isinstance(network, MobileNetwork)
        writer = _Writer(space, architecture, network)
        return Source(
            render("mobile.jinja", writer.context()), writer.modules(), ("from collections.abc import Callable",)
        )


class _Writer:
    """Writes the network of one architecture; sizes are read from its modules."""

    def __init__(self, space: Mobile, architecture: Architecture, network: MobileNetwork) -> None:
        self._space, self._architecture, self._network = space, architecture, network
        layers = [(number, layer) for number, layer in enumerate(space.bottlenecks, start=1)]
        self._layers = [(number, layer) for number, layer in layers if self._has(layer.name)]

    def _has(self, layer: str) -> bool:
        return self._space.option(self._architecture, f"{layer}.layer") != ZERO

    def _option(self, name: str) -> str:
        return self._space.option(self._architecture, name)

    def context(self) -> dict[str, object]:
        activation = _ACTIVATION_SOURCES[self._space.activation]
        squeeze = any(self._option(f"{layer.name}.squeeze") == ON for _, layer in self._layers)
        stem = self._convolution(f"stem.candidates.{self._option('stem.kernel')}")
        head = self._convolution("head")
        widen = self._network.widen
        return {
            "squeeze": squeeze,
            "separable": self._write_separable() if self._has("separable") else "",
            "residual": not self._space.separable,
            "layers": [self._write_layer(number, layer, squeeze) for number, layer in self._layers],
            "activation": activation,
            "stem": f"{stem.in_channels}, {stem.out_channels}, {stem.kernel_size[0]}, {stem.stride[0]}",
            "head": f"{head.in_channels}, {head.out_channels}, 1",
            "widen": "" if widen is None else f"{widen.in_channels}, {widen.out_channels}",
            "last": self._network.classifier.in_features,
        }

    def _convolution(self, name: str) -> nn.Conv2d:
        return find_convolution(self._network, name)

    def _write_separable(self) -> str:
        inside = _candidate(0)
        project = self._convolution(f"{inside}.project")
        return f"{project.in_channels}, {project.out_channels}, {self._option('separable.kernel')}"

    def _write_layer(self, number: int, layer: Layer, squeeze: bool) -> str:
        inside = _candidate(number)
        expand, project = self._convolution(f"{inside}.expand"), self._convolution(f"{inside}.project")
        row = [expand.in_channels, expand.out_channels, project.out_channels, self._option(f"{layer.name}.kernel")]
        row += [layer.stride, *([self._squeeze_width(number, layer)] if squeeze else [])]
        return ", ".join(map(str, [*row, _ACTIVATION_SOURCES[layer.activation], layer.residual]))

    def _squeeze_width(self, number: int, layer: Layer) -> int:
        if self._option(f"{layer.name}.squeeze") != ON:
            return 0
        return self._convolution(f"{_candidate(number)}.squeeze.candidates.{ON}.squeeze").out_channels

    def modules(self) -> Modules:
        modules = {"stem.conv": f"stem.candidates.{self._option('stem.kernel')}", "stem.norm": "stem_norm.normalize"}
        if self._has("separable"):
            modules |= self._list_layer("separable", 0, "separable", ("project",))
        for place, (number, layer) in enumerate(self._layers):
            modules |= self._list_layer(f"layers.{place}", number, layer.name, ("expand", "project"))
        modules |= {"head.conv": "head", "head.norm": "head_norm.normalize", "classifier": "classifier"}
        return modules | ({} if self._network.widen is None else {"widen": "widen"})

    def _list_layer(self, own: str, number: int, name: str, pointwise: Sequence[str]) -> Modules:
        inside = _candidate(number)
        kernel = f"{inside}.kernel.candidates.{self._option(f'{name}.kernel')}"
        modules = {f"{own}.depthwise.conv": kernel, f"{own}.depthwise.norm": f"{inside}.kernel_norm.normalize"}
        for part in pointwise:
            modules |= {
                f"{own}.{part}.conv": f"{inside}.{part}",
                f"{own}.{part}.norm": f"{inside}.{part}_norm.normalize",
            }
        if name != "separable" and self._option(f"{name}.squeeze") == ON:
            modules[f"{own}.squeeze"] = f"{inside}.squeeze.candidates.{ON}"
        return modules


_ACTIVATION_SOURCES = {"relu": "F.relu", "relu6": "F.relu6", "swish": "F.silu", "hard_swish": "F.hardswish"}


def _candidate(number: int) -> str:
    """Return the name of a layer's module; number 0 is the separable convolution."""
    return f"layers.{number}.layer.candidates.{BOTTLENECK}"
