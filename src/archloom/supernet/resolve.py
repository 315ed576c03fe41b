"""One network definition, two networks: with every option, or with those of one architecture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import Tensor, nn

from archloom.core.errors import CheckpointError
from archloom.spaces import NONE, Architecture, Decision
from archloom.supernet.choice import Choice, Fixed
from archloom.supernet.masked_width import SharedKernel
from archloom.supernet.normalization import BatchNorm

if TYPE_CHECKING:  # operations are built on the supernet
    from archloom.operations import Place

MakeOption = Callable[[str], nn.Module]
MakePlacedOption = Callable[[str, "Place"], nn.Module]


class Resolve(Protocol):
    """What a network needs to know while it is built.

    `EveryOption` and `Only` implement it.

    Examples:
        >>> import archloom
        >>> resolve: archloom.Resolve = archloom.EveryOption()
        >>> resolve.options(archloom.Decision("layer0", ("conv_1x1", "conv_3x3")))
        ('conv_1x1', 'conv_3x3')
    """

    def operation(self, decision: Decision, make: MakeOption) -> nn.Module:
        """Return the module of a decision, called with (x, gates)."""

    def edge(self, decision: Decision, place: Place, make: MakePlacedOption) -> nn.Module:
        """Return the module of a decision on an edge of a cell; operations may be built for fewer channels."""

    def options(self, decision: Decision) -> tuple[str, ...]:
        """Return the options of a decision that are built, for parts that share weights between options."""

    def normalize(self, channels: int, *, scaled: bool = True) -> nn.Module:
        """Return the normalisation after a convolution."""


@dataclass(frozen=True)
class EveryOption:
    """Build the supernet.

    Shared weights see activations of a different path at every step: running statistics would describe none of them.
    Normalisation therefore uses batch statistics. It has no scale, which one path could tune against another.

    Args:
        affine: give normalisations a scale and shift.
        running_statistics: keep running statistics.

    Examples:
        >>> import archloom, torch
        >>> space = archloom.Nb201(nodes=3, cells_per_stage=1)
        >>> supernet = archloom.build_network(space, archloom.EveryOption(), classes=2, colours=3, channels=4)
        >>> supernet(torch.rand(4, 3, 8, 8), archloom.path_gates(space, next(space.enumerate()))).shape
        torch.Size([4, 2])
    """

    affine: bool = False
    running_statistics: bool = False

    def operation(self, decision: Decision, make: MakeOption) -> nn.Module:
        """Return a choice between all options."""
        return Choice(decision, {option: make(option) for option in decision.options if option != NONE})

    def edge(self, decision: Decision, place: Place, make: MakePlacedOption) -> nn.Module:
        """Return a choice between all options, built for the whole place."""
        return self.operation(decision, lambda option: make(option, place))

    def options(self, decision: Decision) -> tuple[str, ...]:
        """Return all options."""
        return decision.options

    def normalize(self, channels: int, *, scaled: bool = True) -> nn.Module:
        """Return a batch normalisation for the supernet."""
        return BatchNorm(channels, affine=self.affine and scaled, track_running_stats=self.running_statistics)


@dataclass(frozen=True)
class Only:
    """Build the network of one architecture.

    Args:
        architecture: one option for each decision.
        affine: give normalisations a scale and shift.
        running_statistics: keep running statistics.

    Examples:
        >>> import archloom, torch
        >>> space = archloom.Nb201(nodes=3, cells_per_stage=1)
        >>> resolve = archloom.Only(space.parse("|nor_conv_3x3~0|+|none~0|skip_connect~1|"))
        >>> network = archloom.build_network(space, resolve, classes=2, colours=3, channels=4)
        >>> network(torch.rand(4, 3, 8, 8)).shape
        torch.Size([4, 2])
    """

    architecture: Architecture
    affine: bool = True
    running_statistics: bool = True

    def operation(self, decision: Decision, make: MakeOption) -> nn.Module:
        """Return the chosen operation alone."""
        option = self.architecture[decision.name]
        return Fixed(decision, option, {} if option == NONE else {option: make(option)})

    def edge(self, decision: Decision, place: Place, make: MakePlacedOption) -> nn.Module:
        """Return the chosen operation alone, built for the whole place."""
        return self.operation(decision, lambda option: make(option, place))

    def options(self, decision: Decision) -> tuple[str, ...]:
        """Return the chosen option alone."""
        return (
            self.architecture.get(decision.name, decision.options[0]),
        )  # a part with a single option is no decision

    def normalize(self, channels: int, *, scaled: bool = True) -> nn.Module:
        """Return a batch normalisation for a network of its own."""
        return nn.BatchNorm2d(channels, affine=self.affine and scaled, track_running_stats=self.running_statistics)


def inherit(standalone: nn.Module, supernet: nn.Module) -> None:
    """Copy the weights of an architecture out of the supernet that shares them.

    Scales of normalisations that the supernet does not have keep their initial value. Of kernels that widths share, the
    first channels are copied.

    Args:
        standalone: the network of one architecture; its weights are overwritten.
        supernet: the network that shares weights between architectures.

    Raises:
        SettingError: the networks do not fit each other.

    Examples:
        >>> import archloom, torch
        >>> space = archloom.Nb201(nodes=3, cells_per_stage=1)
        >>> supernet = archloom.build_network(space, archloom.EveryOption(), classes=2, colours=3, channels=4)
        >>> architecture = space.parse("|nor_conv_3x3~0|+|none~0|skip_connect~1|")
        >>> resolve = archloom.Only(architecture, affine=False, running_statistics=False)
        >>> alone = archloom.build_network(space, resolve, classes=2, colours=3, channels=4)
        >>> archloom.inherit(alone, supernet)
        >>> images = torch.rand(4, 3, 8, 8)
        >>> torch.allclose(alone(images), supernet(images, archloom.path_gates(space, architecture)), atol=1e-5)
        True
    """
    if any(isinstance(module, Choice) and module.parts > 1 for module in supernet.modules()):
        raise CheckpointError(
            "a supernet of partial channels must not be copied from: its operations have fewer channels than those of "
            "a standalone network; retrain the architecture from scratch"
        )
    shared = supernet.state_dict()
    wanted = standalone.state_dict()
    normalizations = {
        f"{name}.{key}"
        for name, module in standalone.named_modules()
        if isinstance(module, nn.BatchNorm2d)
        for key in module.state_dict()
    }
    kernels = {
        f"{name}.{key}"
        for name, module in standalone.named_modules()
        if isinstance(module, SharedKernel)
        for key in module.state_dict()
    }
    if kernels:
        for name in (kernels | normalizations) & shared.keys():
            shared[name] = _leading_slice(shared[name], wanted[name])
    unfit = [
        name
        for name, value in wanted.items()
        if (shared[name].shape != value.shape if name in shared else name not in normalizations)
    ]
    if unfit:
        raise CheckpointError(
            f"the supernet has no weights '{unfit[0]}' of shape {list(wanted[unfit[0]].shape)}: "
            "it was built for another space or width"
        )
    standalone.load_state_dict({name: shared[name] for name in wanted if name in shared}, strict=False)


def _leading_slice(value: Tensor, like: Tensor) -> Tensor:
    """Return the leading slice of a tensor that has the shape of another."""
    return value[tuple(slice(count) for count in like.shape)] if value.dim() == like.dim() else value
