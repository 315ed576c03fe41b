"""How one decision runs, as data: a mixture, a single option, or a hard sample whose weight has a gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from archloom.core.errors import SettingError
from archloom.spaces import NONE, Architecture, SearchSpace


@dataclass(frozen=True)
class Gate:
    """Say which options of a decision run, and with which weights.

    * `weights` alone: all options, mixed;
    * `index` alone: one option;
    * both: one option, times its weight;
    * neither: nothing, the edge is closed.

    `weights` is [options], or [images, options] for weights per image; `index` is one number, or a tensor [images].
    `offset` is added to the result.
    """

    index: int | Tensor | None = None
    weights: Tensor | None = None
    offset: Tensor | None = None

    def detach(self) -> Gate:
        """Return the same gate without gradients."""
        parts = (self.weights, self.offset)
        weights, offset = (None if part is None else part.detach() for part in parts)
        return Gate(self.index, weights, offset)


CLOSED = Gate()

Gates = Mapping[str, Gate]


def path_gates(space: SearchSpace, architecture: Architecture) -> Gates:
    """Return the gates of the single path that computes an architecture."""
    gates: dict[str, Gate] = {}
    for decision in space.decisions:
        option = architecture[decision.name]
        if option not in decision.options and option != NONE:
            raise SettingError(f"decision '{decision.name}' has no option '{option}'")
        gates[decision.name] = Gate(index=decision.index(option)) if option in decision.options else CLOSED
    return gates
