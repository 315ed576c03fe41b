"""A supernet of partial channels: operations see 1/K of an edge's channels, the rest passes by (Xu et al., 2020).

A path through such a supernet is not the standalone network, whose operations see all channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from archloom.core.errors import SettingError
from archloom.fast.partial import is_closed, join_parts, pool_by, share_of
from archloom.spaces import NONE, Decision
from archloom.supernet.choice import Choice, scale
from archloom.supernet.gate import Gate, Gates
from archloom.supernet.resolve import EveryOption, MakeOption, MakePlacedOption

if TYPE_CHECKING:
    from archloom.operations import Place


class PartialChoice(Choice):
    """Run the gate on the first channels, and pass the others by with the weight of the whole edge.

    That weight is the sum of the gate's weights: of a softmax times an edge weight, the edge weight. `none` chosen
    alone closes the edge.
    """

    def __init__(self, decision: Decision, candidates: Mapping[str, nn.Module], *, parts: int, stride: int) -> None:
        super().__init__(decision, candidates)
        self.parts, self.stride = parts, stride

    def forward(self, x: Tensor | None, gates: Gates, *arguments: Any) -> Tensor | None:
        """Return mixed and passed channels, concatenated and shuffled."""
        gate = gates[self.decision.name]
        if x is None or is_closed(self.decision, gate):
            return None
        width = x.shape[1] // self.parts
        passed = pool_by(x[:, width:], self.stride)
        share = self._share(gate)
        mixed = super().forward(x[:, :width], gates, *arguments)
        return join_parts(mixed, passed if share is None else scale(passed, share), self.parts)

    def _share(self, gate: Gate) -> Tensor | None:
        """Return the weight of what passes by: nothing for images that chose `none`."""
        share = share_of(gate)
        if not isinstance(gate.index, Tensor) or NONE not in self.decision.options:
            return share
        chosen = (gate.index != self.decision.index(NONE)).float()
        return chosen if share is None else chosen * share


@dataclass(frozen=True)
class PartialChannels(EveryOption):
    """Build a supernet whose edges run operations on one part of their channels.

    Args:
        parts: parts of the channels; the first one runs through the operations.

    Examples:
        >>> import archloom
        >>> from archloom.supernet import PartialChannels
        >>> space = archloom.Nb201(nodes=3, cells_per_stage=1)
        >>> sizes = []
        >>> for resolve in (archloom.EveryOption(), PartialChannels(parts=4)):
        ...     network = archloom.build_network(space, resolve, classes=2, colours=3, channels=8)
        ...     sizes.append(sum(weight.numel() for weight in network.blocks[0].parameters()))
        >>> sizes[0] // sizes[1]
        16
    """

    parts: int = 4

    def edge(self, decision: Decision, place: Place, make: MakePlacedOption) -> nn.Module:
        """Return a choice between all options, built for the first channels."""
        channels = place.channels_in
        if channels % self.parts or place.channels_out != channels:
            raise SettingError(
                f"the channels of an edge must be a multiple of {self.parts} (strategy.parts), got {channels}; "
                "change network.channels or strategy.parts"
            )
        narrow = replace(place, channels_in=channels // self.parts, channels_out=channels // self.parts)
        candidates = {option: make(option, narrow) for option in decision.options if option != NONE}
        return PartialChoice(decision, candidates, parts=self.parts, stride=place.stride)

    def operation(self, decision: Decision, make: MakeOption) -> nn.Module:
        """Refuse: the channels of this decision are not known."""
        raise SettingError(
            f"the network must build decision '{decision.name}' by resolve.edge for partial channels, got "
            "resolve.operation; use strategy.parts = 1"
        )
