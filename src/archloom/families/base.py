"""Families: all that is known of a kind of network, in one object.

Searches, retrainings, exports and reports ask the family of a space instead of knowing its networks. So a new family is
one file and one row in `FAMILIES`; a plug-in names its own as `package.module:Class`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar

from torch import nn

from archloom.core.errors import SettingError, one_line
from archloom.core.registry import Catalogue, Entry
from archloom.core.settings import Settings
from archloom.spaces import NONE, Architecture, SearchSpace
from archloom.supernet import Resolve
from archloom.tasks import CLASSIFICATION, NetworkShape, Task

Space = TypeVar("Space", bound=SearchSpace)

SKIP = "skip_connect"  # the name that the field gives to an edge that passes its input on


class OperationKind(Enum):
    """What an option does, by its name.

    Examples:
        >>> import archloom
        >>> archloom.family_of(archloom.Nb201()).kind_of("skip_connect")
        <OperationKind.SKIP: 'skip'>
    """

    CONVOLUTION = "convolution"
    POOL = "pool"
    SKIP = "skip"
    NONE = "none"


@dataclass(frozen=True)
class Size:
    """One size of a network: the settings of space and network that make it.

    Attributes:
        space: settings of the space.
        network: settings of the network.

    Examples:
        >>> import archloom
        >>> archloom.Size({"cells_per_stage": 1}, {"channels": 8}).to_settings()
        {'space': {'cells_per_stage': 1}, 'network': {'channels': 8}}
    """

    space: Settings = field(default_factory=dict)
    network: Settings = field(default_factory=dict)

    def to_settings(self) -> dict[str, Settings]:
        """Return the size as sections of a configuration."""
        return {"space": self.space, "network": self.network}


@dataclass(frozen=True)
class Depth:
    """How deep a network is, and in what unit.

    Attributes:
        count: the number of units.
        unit: the name of the units, in the plural.

    Examples:
        >>> import archloom
        >>> print(archloom.Depth(5, "cells per stage"))
        5 cells per stage
        >>> print(archloom.Depth(1, "cells per stage"))
        1 cell per stage
    """

    count: int
    unit: str

    def __str__(self) -> str:
        noun, _, rest = self.unit.partition(" ")
        words = (noun.removesuffix("s") if self.count == 1 else noun, rest)
        return " ".join([str(self.count), *filter(None, words)])


@dataclass(frozen=True)
class Source:
    """A network of one architecture as plain PyTorch.

    Attributes:
        code: defines the class `Model`; CLASSES, MEAN and STD are defined above it.
        modules: names of the modules with weights, in `code` and in the network.
        imports: statements that import what `code` needs of the standard library.

    Examples:
        >>> import archloom
        >>> archloom.Source("class Model(nn.Module): ...", {"stem": "stem.0"}).imports
        ()
    """

    code: str  # defines the class `Model`; CLASSES, MEAN and STD are defined above it
    modules: Mapping[str, str]  # names of the modules with weights: in `code`, and in the network
    imports: tuple[str, ...] = ()  # statements that import what `code` needs of the standard library


class Family(ABC, Generic[Space]):
    """All that is known of a kind of network.

    A family must name its `network`. Everything else has a default that is right for a network of which nothing more is
    known: one size, a depth that cannot be changed, no standalone source.

    Examples:
        >>> from archloom.families import family_of
        >>> from archloom.spaces import Nb201
        >>> family = family_of(Nb201())
        >>> family.name, family.kind_of("avg_pool_3x3").value, str(family.depth_of(Nb201()))
        ('nb201', 'pool', '5 cells per stage')
    """

    task: ClassVar[Task] = CLASSIFICATION  # what its networks predict
    search_defaults: ClassVar[Mapping[str, Settings]] = {}  # by section, where a search of it needs others than usual
    trial_defaults: ClassVar[Mapping[str, Settings]] = {}  # likewise, where it trains single architectures
    costs_differ: ClassVar[bool] = True  # between architectures of one size
    sizes: ClassVar[Sequence[Size]] = ()  # from small to published, each larger than the one before; for `auto`
    depth_settings: ClassVar[tuple[str, ...]] = ()  # of the space; the first that is not 0 is in force

    @property
    @abstractmethod
    def network(self) -> Callable[..., nn.Module]:
        """Return the class of the network, called with (space, resolve, *shape, **settings).

        The shape of images is classes and colours.
        """

    @property
    def name(self) -> str:
        """Return the name that recipes use for the family, as in `[darts.network]`: that of its module."""
        return type(self).__module__.rpartition(".")[2]

    def build(self, space: Space, resolve: Resolve, shape: NetworkShape, **settings: Any) -> nn.Module:
        """Build the network of a space.

        Args:
            space: what can be chosen.
            resolve: `EveryOption()` for a supernet, `Only(architecture)` for one architecture.
            shape: what the data need: classes and colours of images, words of text.
            settings: the network's own keywords.

        Returns:
            The network, called with (inputs, gates); of text, with (words, gates, state).

        Raises:
            SettingError: a setting breaks a rule of the network.
        """
        return self.network(space, resolve, *shape, **settings)

    # --- size and depth

    def has_fixed_depth(self, space: Space) -> bool:
        """Return whether another depth would be another space, since every layer has decisions of its own."""
        return not self.depth_settings

    def sizes_of(self, space: Space) -> Sequence[Size]:
        """Return the sizes that `auto` chooses from; one that changes nothing where none is known."""
        if self.has_fixed_depth(space):
            return [replace(size, space={}) for size in self.sizes] or [Size()]
        return self.sizes or [Size()]

    def depth_of(self, space: Space) -> Depth | None:
        """Return the depth of a network of this space; None where it has no single number."""
        return None

    def depth_setting(self, space: Space) -> str | None:
        """Return the setting of the space that says how deep it is; None where depth is fixed."""
        return (
            None if self.has_fixed_depth(space) else next(name for name in self.depth_settings if getattr(space, name))
        )

    def with_depth(self, space: Space, count: int) -> Space:
        """Return the space with another depth, as its own setting counts it."""
        name = self.depth_setting(space)
        if name is None:
            raise SettingError(
                f"the depth of {type(space).__name__} must stay as it is, since its layers are decisions, got {count}; "
                "leave it out"
            )
        return replace(space, **{name: count})  # type: ignore[arg-type]  # a field by its name

    def at_full_depth(self, space: Space) -> Space:
        """Return the space with networks as deep as those that are retrained; unchanged where depth is fixed."""
        return space

    def final_size(self, space: Space) -> Size:
        """Return the size of the network that is trained after a search; by default, that of the search."""
        return Size()

    def select_space_settings(self, space: Space, wanted: Settings) -> Settings:
        """Return what a recipe says of a space, without its depth where that is fixed."""
        fixed = self.depth_settings if self.has_fixed_depth(space) else ()
        return {name: value for name, value in wanted.items() if name not in fixed}

    def describe_size(self, space: Space, settings: Settings) -> str:
        """Return depth and width in words: `5 cells per stage, 16 channels`."""
        depth, width = self.depth_of(space), settings.get("channels")
        parts = [str(depth)] if depth else []
        return ", ".join([*parts, f"{width} channels"] if width is not None else parts) or "the only size"

    def stem_for(self, space: Space, side: int) -> Settings | None:
        """Return the network settings that suit images of `side` pixels; None where no setting does."""
        return None

    # --- operations

    def kind_of(self, option: str) -> OperationKind:
        """Return what an option does, by the names that the field uses."""
        if option == NONE:
            return OperationKind.NONE
        if SKIP in option:
            return OperationKind.SKIP
        return OperationKind.POOL if "pool" in option else OperationKind.CONVOLUTION

    # --- export

    def source(self, space: Space, architecture: Architecture, network: nn.Module, settings: Settings) -> Source | None:
        """Return plain PyTorch for a network of one architecture and its settings; None where it cannot be written."""
        return None


class NetworkFamily(Family[SearchSpace]):
    """The family of a space that names a network class only."""

    def __init__(self, network: Callable[..., nn.Module]) -> None:
        self._network = network

    @property
    def network(self) -> Callable[..., nn.Module]:
        """Return the class that the family wraps."""
        return self._network

    @property
    def name(self) -> str:
        """Return the name of the module that defines the network."""
        return self._network.__module__.rpartition(".")[2]


FAMILIES = Catalogue(
    "family",
    {
        "darts": Entry("archloom.families.darts:DartsFamily"),
        "mobile": Entry("archloom.families.mobile:MobileFamily"),
        "nb201": Entry("archloom.families.nb201:Nb201Family"),
        "recurrent": Entry("archloom.families.recurrent:RecurrentFamily"),
        "widths": Entry("archloom.families.widths:WidthsFamily"),
    },
    makes="archloom.families.base:Family",
)


def family_of(space: SearchSpace | type[SearchSpace]) -> Family[Any]:
    """Return the family of a space: the one it names, or one made from the network class that it names.

    Args:
        space: a space or its class.

    Returns:
        The family.

    Raises:
        SettingError: the space names neither `family` nor `network`, or a family that does not exist.

    Examples:
        >>> from archloom.families import family_of
        >>> from archloom.spaces import Darts
        >>> family_of(Darts).name
        'darts'
    """
    kind = space if isinstance(space, type) else type(space)
    for base in kind.__mro__:  # a subclass that names another network leaves the family of its base
        if isinstance(named := vars(base).get("family"), str):
            return _load_family(named)
        if isinstance(named := vars(base).get("network"), str):
            return NetworkFamily(_load_network(kind, named))
    raise SettingError(f"{kind.__name__} must name its family (or its network): family = 'package.module:Class'")


def _load_network(space: type[SearchSpace], name: str) -> Callable[..., nn.Module]:
    """Return the network that a space names; a SettingError says what is wrong with the name."""
    try:
        network: Callable[..., nn.Module] = Entry(name).load()
    except ModuleNotFoundError as error:
        what = f"no module named '{error.name}'"
    except Exception as error:  # an import of foreign code may fail in any way
        what = one_line(error) if ":" in name else "expected package.module:Class"
    else:
        if callable(network):
            return network
        what = f"it is {one_line(repr(network))}"
    raise SettingError(f"{space.__name__}.network must name a class as package.module:Class, got '{name}': {what}")


@cache
def _load_family(name: str) -> Family[Any]:
    family: Family[Any] = FAMILIES.find_named_by_code(name).load()()
    return family
