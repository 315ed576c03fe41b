"""The final network: the one that will be trained after a search, wider and deeper than the one that is searched.

Costs, limits and targets are about it. Its size is that of its family, unless the section `final` names another.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Self

from annotated_doc import Doc

from archloom.core.errors import SettingError, require
from archloom.core.settings import Settings
from archloom.data import DataSet, Facts
from archloom.families import family_of, select_deployed_settings
from archloom.objectives.cost import Cost, CostTable, count_alone
from archloom.spaces import Architecture, SearchSpace

if TYPE_CHECKING:  # the spec has these settings as a section
    from archloom.searches.spec import SearchSpec


@dataclass(frozen=True, kw_only=True)
class FinalSettings:
    """The network that will be trained after the search: costs, targets and limits count it."""

    channels: Annotated[int | None, Doc("its width; left out: the usual one of its family")] = None
    depth: Annotated[int | None, Doc("its depth, as the space counts it; left out: the usual one")] = None
    image_size: Annotated[int | None, Doc("side of its images; left out: that of the data")] = None

    def __post_init__(self) -> None:
        values = {"channels": self.channels, "depth": self.depth, "image_size": self.image_size}
        require({f"final.{name} must be at least 1, got {n}": n is None or n >= 1 for name, n in values.items()})


@dataclass(frozen=True)
class FinalNetwork:
    """The network that will be trained: a space of its depth, settings of its network, and its images."""

    space: SearchSpace
    network: Settings
    facts: Facts

    @classmethod
    def of(cls, spec: SearchSpec, facts: Facts) -> Self:
        """Return the final network of a search on data of this shape."""
        space, network = resize(spec.build_space(), spec.network.settings, spec.final)
        side = spec.final.image_size
        if side is not None and not facts.image_shape:
            raise SettingError(f"final.image_size must be left out for text, got {side}")
        shape = facts.image_shape if side is None else (facts.image_shape[0], side, side)
        return cls(space, network, replace(facts, image_shape=shape))

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Return C, H, W of the images; nothing for text."""
        return self.facts.image_shape

    @property
    def description(self) -> str:
        """Return `5 cells per stage, 16 channels, 32x32 images`."""
        family, shape = family_of(self.space), self.facts.image_shape
        images = f"{shape[1]}x{shape[2]} images" if shape else f"{self.facts.words:,} words"
        size = family.describe_size(self.space, self.network) if family.final_size(self.space).network else ""
        return ", ".join(part for part in (size, images) if part)

    def count(self, architecture: Architecture) -> Cost:
        """Return the cost of one architecture in this network; of many, by a table."""
        _COUNTED[self._key] += 1
        if self._key in _TABLES or _COUNTED[self._key] > FEW:
            return self.cost_table().cost(architecture)
        settings = select_deployed_settings(self.network)
        return count_alone(self.space, architecture, **vars(self.facts), **settings)

    def cost_table(self) -> CostTable:
        """Return the costs of all architectures in this network; the same table for the same network."""
        if self._key not in _TABLES:
            _TABLES[self._key] = CostTable(self.space, **vars(self.facts), **self.network)
        return _TABLES[self._key]

    @property
    def _key(self) -> str:
        return repr((self.space, sorted(self.network.items()), self.facts))


# many runs of one process may end in one network
_TABLES: dict[str, CostTable] = {}
_COUNTED: Counter[str] = Counter()
FEW = 3  # counts that take less time than a table


def resize(space: SearchSpace, network: Settings, final: FinalSettings) -> tuple[SearchSpace, Settings]:
    """Return the space and the network settings of the final network.

    Raises:
        SettingError: If the family has no setting for a width, or another depth would be another space.
    """
    family = family_of(space)
    size = family.final_size(space)
    full = replace(space, **dict(size.space))
    rule = (
        f"final.channels must be left out for the family '{family.name}', whose network has no setting 'channels', "
        f"got {final.channels}"
    )
    require({rule: final.channels is None or "channels" in network})
    width = {} if final.channels is None else {"channels": final.channels}
    deep = full if final.depth is None else family.with_depth(full, final.depth)
    return deep, {**network, **size.network, **width}


def facts_of(spec: SearchSpec, data: DataSet | None) -> Facts:
    """Return what the size of a network depends on; data are read only if nothing else says it."""
    known = spec.facts if data is None else None
    if known is not None:
        return known
    return (data or spec.load_data()).facts
