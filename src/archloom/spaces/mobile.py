"""Mobile networks: kernels, expansions, widths and depth of inverted bottlenecks (TuNAS; Bender et al., 2020)."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Literal

from annotated_doc import Doc

from archloom.core.errors import ParseError, require
from archloom.spaces.base import MOST_CELLS, WIDEST, Architecture, CellGraph, Decision, Feature, Scores, SearchSpace

BOTTLENECK, ZERO = "bottleneck", "zero"  # a layer that a residual bridges is there, or is not
SKIP = "skip_connect"
OFF, ON = "off", "on"  # squeeze-and-excite
DIVISOR = 8  # widths are multiples of it
LONGEST_TEXT = 10_000

Activation = Literal["relu", "relu6", "swish", "hard_swish"]

REFERENCES: Mapping[str, tuple[str, str]] = {
    # a published network: the space of the catalogue that it is in, and its text there
    "mobilenet_v2": (
        "proxylessnas_enlarged",
        "32:k3 | 16:k3 | 24:k3e6,k3e6,zero,zero | 32:k3e6,k3e6,k3e6,zero | 64:k3e6,k3e6,k3e6,k3e6 | "
        "96:k3e6,k3e6,k3e6,zero | 160:k3e6,k3e6,k3e6,zero | 320:k3e6 | 1280",
    ),
    "mnasnet_b1": (
        "proxylessnas_enlarged",
        "32:k3 | 16:k3 | 24:k3e3,k3e3,k3e3,zero | 40:k5e3,k5e3,k5e3,zero | 80:k5e6,k5e6,k5e6,zero | "
        "96:k3e6,k3e6,zero,zero | 192:k5e6,k5e6,k5e6,k5e6 | 320:k3e6 | 1280",
    ),
    "proxylessnas_mobile": (
        "proxylessnas",
        "32:k3 | 16:k3 | 32:k5e3,k3e3,zero,zero | 40:k7e3,k3e3,k5e3,k5e3 | 80:k7e6,k5e3,k5e3,k5e3 | "
        "96:k5e6,k5e3,k5e3,k5e3 | 192:k7e6,k7e6,k7e3,k7e3 | 320:k7e6 | 1280",
    ),
    "mobilenet_v3_large": (
        "mobilenet_v3_widths",
        "16:k3 | 16:k3 | 24:k3e4,k3e3,zero,zero | 40:k5e3s,k5e3s,k5e3s,zero | 80:k3e6,k3e2.5,k3e2.3,k3e2.3 | "
        "112:k3e6s,k3e6s,zero,zero | 160:k5e6s,k5e6s,k5e6s,zero | 960 | 1280",
    ),
}


def rounded(channels: float) -> int:
    """Return the nearest multiple of 8, but at least nine tenths of the given width, as in MobileNetV3."""
    nearest = max(DIVISOR, int(channels + DIVISOR / 2) // DIVISOR * DIVISOR)
    return nearest if nearest >= 0.9 * channels else nearest + DIVISOR


@dataclass(frozen=True)
class Layer:
    """Where an inverted bottleneck stands."""

    name: str  # its decisions are called after it
    width_in: str  # the decision on the width that it gets
    width: str  # the decision on the width that it gives
    stride: int
    residual: bool  # whether its input is added to its result; only then may it be left out
    activation: Activation


@dataclass(frozen=True, kw_only=True)
class Mobile(SearchSpace):
    """A stem, a separable convolution, blocks of inverted bottlenecks, a head; the layers of a block share a width.

    Only what leaves a choice is a decision: a width with one multiplier is none.
    """

    stem: Annotated[int, Doc("base width of the first convolution")] = 32
    stem_stride: Annotated[int, Doc("1 for small images")] = 2
    stem_kernels: Annotated[tuple[int, ...], Doc("its kernels")] = (3,)
    separable: Annotated[
        int, Doc("base width of the separable convolution behind; 0: the stem's, and it may be left out")
    ] = 16
    blocks: Annotated[tuple[int, ...], Doc("base width of every block")] = (32, 40, 80, 96, 192, 320)
    layers: Annotated[tuple[int, ...], Doc("inverted bottlenecks of every block, at most")] = (4, 4, 4, 4, 4, 1)
    strides: Annotated[tuple[int, ...], Doc("of the first layer of every block")] = (2, 2, 2, 1, 2, 1)
    head: Annotated[
        tuple[int, ...], Doc("base width before the pool, as in MobileNetV2; a second one behind it, as in V3")
    ] = (1280,)
    expansions: Annotated[tuple[float, ...], Doc("inner width of a bottleneck, in multiples of the width it gets")] = (
        3,
        6,
    )
    kernels: Annotated[tuple[int, ...], Doc("of depthwise convolutions")] = (3, 5, 7)
    width_multipliers: Annotated[
        tuple[float, ...], Doc("base widths times these, rounded to 8, are the widths to choose from")
    ] = (1.0,)
    squeeze: Annotated[tuple[Literal["off", "on"], ...], Doc("squeeze-and-excite in a bottleneck")] = ("off",)
    activation: Annotated[Activation, Doc("of stem, head and blocks")] = "relu"
    relu_blocks: Annotated[
        int, Doc("so many blocks in front, and the separable convolution, have ReLU all the same")
    ] = 0

    family: ClassVar[str] = "mobile"

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(value))
        widths = (self.stem, *self.blocks, *self.head)
        odd = all(kernel > 0 and kernel % 2 for kernel in (*self.kernels, *self.stem_kernels))
        require(
            {
                f"space.blocks, layers and strides must be as many as each other, got {len(self.blocks)}, "
                f"{len(self.layers)} and {len(self.strides)}": len(self.blocks)
                == len(self.layers)
                == len(self.strides),
                f"space.blocks must be one or more, got {list(self.blocks)}": len(self.blocks) > 0,
                f"space.layers must lie in 1..{MOST_CELLS} each, got {list(self.layers)}": all(
                    1 <= count <= MOST_CELLS for count in self.layers
                ),
                f"space.strides must be 1 or 2 each, got {list(self.strides)}": set(self.strides) <= {1, 2},
                f"space.stem_stride must be 1 or 2, got {self.stem_stride}": self.stem_stride in (1, 2),
                f"space.stem, blocks and head must lie in 1..{WIDEST}, got {list(widths)}": all(
                    0 < width <= WIDEST for width in widths
                ),
                f"space.separable must be 0 or more, got {self.separable}": self.separable >= 0,
                f"space.head must be one width or two, got {list(self.head)}": len(self.head) in (1, 2),
                f"space.kernels and stem_kernels must be odd, got {list(self.kernels)}, {list(self.stem_kernels)}": odd,
                f"space.relu_blocks must be 0 or more, got {self.relu_blocks}": self.relu_blocks >= 0,
                **{
                    f"space.{name} must be one or more distinct values above 0, got {list(values)}": (
                        0 < len(values) == len(set(values)) and min(values) > 0
                    )
                    for name, values in {
                        "kernels": self.kernels,
                        "stem_kernels": self.stem_kernels,
                        "expansions": self.expansions,
                        "width_multipliers": self.width_multipliers,
                    }.items()
                },
                f"space.squeeze must be off, on or both, got {list(self.squeeze)}": (
                    0 < len(self.squeeze) == len(set(self.squeeze)) and set(self.squeeze) <= {OFF, ON}
                ),
            }
        )

    # --- what there is to choose

    @cached_property
    def bottlenecks(self) -> tuple[Layer, ...]:
        """Return all inverted bottlenecks, in the order of the network."""
        return tuple(self._bottlenecks())

    def _bottlenecks(self) -> Iterator[Layer]:
        width_in = self.separable_width
        for block, (count, stride) in enumerate(zip(self.layers, self.strides, strict=True), start=1):
            width = f"block{block}.width"
            activation: Activation = "relu" if block <= self.relu_blocks else self.activation
            for layer in range(1, count + 1):
                first = layer == 1
                name = f"block{block}.layer{layer}"
                yield Layer(name, width_in, width, stride if first else 1, not first, activation)
                width_in = width

    @property
    def separable_width(self) -> str:
        """Return the decision on the width behind the separable convolution."""
        return "separable.width" if self.separable else "stem.width"

    @property
    def head_widths(self) -> tuple[str, ...]:
        """Return the names of the width decisions of the head."""
        return tuple(f"head{number}.width" for number in range(1, len(self.head) + 1))

    @cached_property
    def _places(self) -> dict[str, Decision]:
        """Return every decision, and the places with a single option."""
        return {name: Decision(name, options) for name, options in self._options()}

    def _options(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        kernels, expansions = _texts(self.kernels), _texts(self.expansions)
        squeeze = tuple(option for option in (OFF, ON) if option in self.squeeze)
        yield "stem.width", self._widths(self.stem)
        yield "stem.kernel", _texts(self.stem_kernels)
        if self.separable:
            yield "separable.width", self._widths(self.separable)
        yield "separable.layer", (BOTTLENECK,) if self.separable else (BOTTLENECK, ZERO)
        yield "separable.kernel", kernels
        for layer in self.bottlenecks:
            if not layer.residual:
                yield layer.width, self._widths(self._base_widths[layer.width])
            yield f"{layer.name}.layer", (BOTTLENECK, ZERO) if layer.residual else (BOTTLENECK,)
            yield f"{layer.name}.kernel", kernels
            yield f"{layer.name}.expansion", expansions
            yield f"{layer.name}.squeeze", squeeze
        for name in self.head_widths:
            yield name, self._widths(self._base_widths[name])

    def _widths(self, base: int) -> tuple[str, ...]:
        if len(self.width_multipliers) == 1:  # nothing is searched: a published width need not be a multiple of 8
            return (str(max(1, round(base * self.width_multipliers[0]))),)
        return _texts({rounded(base * multiplier) for multiplier in self.width_multipliers})

    def full_decisions(self) -> tuple[Decision, ...]:
        """Return every decision with all options."""
        return tuple(place for place in self._places.values() if len(place.options) > 1)

    def place(self, name: str) -> Decision:
        """Return a decision, or the place with a single option of this name."""
        return self._by_name.get(name) or self._places[name]

    def option(self, architecture: Mapping[str, str], name: str) -> str:
        """Return the option of an architecture at a place."""
        return architecture[name] if name in self._by_name else self._places[name].options[0]

    @property
    def widths(self) -> frozenset[str]:
        """Return the names of decisions on widths and expansions."""
        return frozenset(name for name in self._by_name if name.endswith((".width", ".expansion")))

    @cached_property
    def _within(self) -> dict[str, tuple[str, ...]]:
        """Return, for every decision that may leave out a layer, the decisions within that layer."""
        return {
            name: tuple(other for other in self._by_name if other != name and _of(other) == _of(name))
            for name, decision in self._by_name.items()
            if ZERO in decision.options
        }

    def active(self, architecture: Architecture) -> frozenset[str]:
        """Return the decisions that are not inside a layer that is left out."""
        left_out = (name for name in self._within if architecture[name] == ZERO)
        return frozenset(architecture).difference(*(self._within[name] for name in left_out))

    def operations_of(self, architecture: Mapping[str, str]) -> tuple[str, ...]:
        """Return the operations; a layer that is left out only keeps the residual around it."""
        return tuple(self._operation(architecture, layer.name) or SKIP for layer in self.bottlenecks)

    def cost_features(self, architecture: Architecture) -> tuple[Feature, ...]:
        """Return one feature per layer in use: its options and the widths before and behind it."""
        groups = (group for name, group in self._groups.items() if architecture.get(f"{name}.layer") != ZERO)
        features = (tuple((name, architecture[name]) for name in group) for group in groups)
        return tuple(feature for feature in features if feature)

    @cached_property
    def _groups(self) -> dict[str, tuple[str, ...]]:
        """Return, for every layer, the decisions that its cost depends on."""
        groups = {"stem": ["stem.width", "stem.kernel"]}
        groups["separable"] = ["stem.width", "separable.width", "separable.layer", "separable.kernel"]
        for layer in self.bottlenecks:
            own = (f"{layer.name}.{part}" for part in ("layer", "kernel", "expansion", "squeeze"))
            groups[layer.name] = [layer.width_in, layer.width, *own]
        before = self.bottlenecks[-1].width
        for name in self.head_widths:
            groups[_of(name)] = [before, name]
            before = name
        return {key: tuple(dict.fromkeys(n for n in names if n in self._by_name)) for key, names in groups.items()}

    def references(self) -> Mapping[str, Architecture]:
        """Return a network like MobileNetV2: every layer, kernel 3, expansion 6, base widths, no squeeze."""
        return {"MobileNetV2-like": Architecture({d.name: self._choose_usual(d) for d in self.decisions})}

    def _choose_usual(self, decision: Decision) -> str:
        part = decision.name.rpartition(".")[2]
        if part == "layer":
            return BOTTLENECK if BOTTLENECK in decision.options else decision.options[0]
        if part == "squeeze":
            return OFF if OFF in decision.options else decision.options[0]
        wanted = {"kernel": 3.0, "expansion": 6.0}.get(part) or float(rounded(self._base_widths[decision.name]))
        return min(decision.options, key=lambda option: abs(float(option) - wanted))

    @cached_property
    def _base_widths(self) -> dict[str, int]:
        """Return the base width of every place that has one."""
        blocks = {f"block{number}.width": base for number, base in enumerate(self.blocks, start=1)}
        heads = dict(zip(self.head_widths, self.head, strict=True))
        return {"stem.width": self.stem, "separable.width": self.separable, **blocks, **heads}

    # --- choosing

    def mutate(self, parent: Architecture, rng: random.Random) -> Architecture:
        """Return the parent with one of its active decisions changed."""
        active = self.active(parent)
        undecided = [d for d in self.decisions if d.name in active and len(d.options) > 1]
        if not undecided:
            return parent
        decision = rng.choice(undecided)
        others = [option for option in decision.options if option != parent[decision.name]]
        return parent.with_option(decision.name, rng.choice(others))

    def neighbours(self, scores: Scores, count: int, *, keep_none: bool | None = None) -> list[Architecture]:
        """Return neighbours, without changes inside a layer that is left out: these are the same network."""
        everything = sum(len(decision.options) for decision in self.decisions)
        derived, *others = super().neighbours(scores, everything, keep_none=keep_none)
        idle = set(derived) - self.active(derived)
        return [derived, *(near for near in others if all(near[name] == derived[name] for name in idle))][:count]

    # --- reading and writing

    def format(self, architecture: Architecture) -> str:
        """Return `32:k3 | 16:k3 | 24:k3e6,k5e3s,zero | ... | 1280`: the width of every part, and its layers.

        A layer is its kernel, its expansion and an s for squeeze-and-excite. Of a layer left out, what it would be is
        written behind it, unless it is the first option throughout.
        """
        parts = []
        for width, layers in self._parts():
            written = ",".join(self._written(architecture, layer) for layer in layers)
            parts.append(self.option(architecture, width) + (f":{written}" if written else ""))
        return " | ".join(parts)

    def _parts(self) -> Iterator[tuple[str, list[str]]]:
        """Return the parts of the text: the decision on their width, and their layers."""
        yield "stem.width", ["stem"]
        yield self.separable_width, ["separable"]
        for number in range(1, len(self.blocks) + 1):
            width = f"block{number}.width"
            yield width, [layer.name for layer in self.bottlenecks if layer.width == width]
        for name in self.head_widths:
            yield name, []

    def _written(self, architecture: Architecture, layer: str) -> str:
        inner = {part: f"{layer}.{part}" for part in _SIGNS if f"{layer}.{part}" in self._places}
        text = "".join(_SIGNS[part](self.option(architecture, name)) for part, name in inner.items())
        if f"{layer}.layer" not in self._by_name or architecture[f"{layer}.layer"] != ZERO:
            return text
        usual = all(self.option(architecture, name) == self.place(name).options[0] for name in inner.values())
        return ZERO if usual else f"{ZERO}({text})"

    def parse(self, text: str) -> Architecture:
        """Read what `format` writes, or the name of a published network."""
        text = REFERENCES[text.strip()][1] if text.strip() in REFERENCES else text
        if len(text) > LONGEST_TEXT:
            raise ParseError(f"the text of a mobile network has at most {LONGEST_TEXT} characters, got {len(text)}")
        wanted, given = list(self._parts()), text.split("|")
        if len(given) != len(wanted):
            raise ParseError(
                f"a network of this space has {len(wanted)} parts joined by '|', got {len(given)}: {text[:100]!r}"
            )
        choices: dict[str, str] = {}
        for (width, layers), part in zip(wanted, given, strict=True):
            said, _, rest = part.strip().partition(":")
            tokens = [token.strip() for token in rest.split(",")] if rest else []
            if len(tokens) != len(layers):
                raise ParseError(
                    f"'{part.strip()[:100]}' must list {len(layers)} layers for {width}, got {len(tokens)}"
                )
            self._take(choices, width, said.strip())
            for layer, token in zip(layers, tokens, strict=True):
                self._read(choices, layer, token)
        return self.check({name: option for name, option in choices.items() if name in self._by_name})

    def _read(self, choices: dict[str, str], layer: str, token: str) -> None:
        left_out = re.fullmatch(r"zero(?:\((.+)\))?", token)
        if left_out and f"{layer}.layer" not in self._places:
            raise ParseError(f"{layer} cannot be left out, got {token[:60]!r}")
        if f"{layer}.layer" in self._places:
            self._take(choices, f"{layer}.layer", ZERO if left_out else BOTTLENECK)
        inner = {part: f"{layer}.{part}" for part in _SIGNS if f"{layer}.{part}" in self._places}
        if token == ZERO:
            choices.update({name: self.place(name).options[0] for name in inner.values()})
            return
        found = re.fullmatch(_LAYER if "expansion" in inner else _SEPARABLE, left_out[1] if left_out else token)
        if found is None:
            example = "k3e6, k5e3s" if "expansion" in inner else "k3"
            raise ParseError(f"{layer} reads like {example} or zero, got {token[:60]!r}")
        for part, name in inner.items():
            self._take(choices, name, (ON if found[part] else OFF) if part == "squeeze" else found[part])

    def _take(self, choices: dict[str, str], name: str, option: str) -> None:
        """Note an option; what is settled, or said twice, must agree."""
        options = (choices[name],) if name in choices else self.place(name).options
        if option not in options:
            raise ParseError(f"{name} must be {' or '.join(options)} in this space, got '{option[:60]}'")
        choices[name] = option

    def graphs(self, architecture: Architecture) -> tuple[CellGraph, ...]:
        """Return a chain of layers for each part; layers left out are not drawn."""
        return tuple(
            _chain(f"{_of(width)}, {self.option(architecture, width)} channels", operations)
            for width, layers in [*self._parts()][1 : -len(self.head)]
            if (operations := [text for layer in layers if (text := self._operation(architecture, layer))])
        )

    def _operation(self, architecture: Mapping[str, str], layer: str) -> str:
        if architecture.get(f"{layer}.layer") == ZERO:
            return ""
        kernel = self.option(architecture, f"{layer}.kernel")
        if layer == "separable":
            return f"sep_conv_{kernel}x{kernel}"
        squeeze = " se" if self.option(architecture, f"{layer}.squeeze") == ON else ""
        return f"mbconv_{kernel}x{kernel} e{self.option(architecture, f'{layer}.expansion')}{squeeze}"


_SEPARABLE = r"k(?P<kernel>\d+)"
_LAYER = _SEPARABLE + r"e(?P<expansion>\d+(?:\.\d+)?)(?P<squeeze>s?)"
_SIGNS: Mapping[str, Callable[[str], str]] = {  # how the parts of a layer are written
    "kernel": "k{}".format,
    "expansion": "e{}".format,
    "squeeze": lambda option: "s" if option == ON else "",
}


def _texts(numbers: Sequence[float] | set[int]) -> tuple[str, ...]:
    """Return numbers as options, the smallest first."""
    return tuple(f"{number:g}" for number in sorted(numbers))


def _of(name: str) -> str:
    """Return the layer or part that a decision belongs to."""
    return name.rpartition(".")[0]


def _chain(name: str, operations: Sequence[str]) -> CellGraph:
    edges = tuple((number, number + 1, operation) for number, operation in enumerate(operations))
    return CellGraph(name, ("input",), len(operations) + 1, edges, (len(operations),))


__all__: Sequence[str] = ["REFERENCES", "Layer", "Mobile", "rounded"]
