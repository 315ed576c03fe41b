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

    Args:
        index: the option that runs.
        weights: the weights of the options.
        offset: is added to the result.

    Examples:
        >>> import archloom, torch
        >>> archloom.Gate(index=2).weights is None
        True
        >>> archloom.Gate(weights=torch.ones(5).softmax(0)).index is None
        True
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
    """Return the gates of the single path that computes an architecture.

    Args:
        space: the space of the architecture.
        architecture: one option for each decision.

    Returns:
        A gate for each decision, by name.

    Raises:
        SettingError: an option is not among those of its decision.

    Examples:
        >>> import archloom
        >>> space = archloom.Nb201(nodes=3)
        >>> architecture = space.parse("|nor_conv_3x3~0|+|none~0|skip_connect~1|")
        >>> archloom.path_gates(space, architecture)["0->1"].index
        3
    """
    gates: dict[str, Gate] = {}
    for decision in space.decisions:
        option = architecture[decision.name]
        if option not in decision.options and option != NONE:
            raise SettingError(f"decision '{decision.name}' has no option '{option}'")
        gates[decision.name] = Gate(index=decision.index(option)) if option in decision.options else CLOSED
    return gates
