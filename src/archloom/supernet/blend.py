"""A choice between parts that need more than an image: how wide they are to be, or gates of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from archloom.core.errors import SettingError
from archloom.spaces import NONE
from archloom.supernet.gate import Gates

NOTHING = (NONE, "zero")  # options without a module


class Blend(nn.Module):
    """The options of a decision that are built; the decision's gate says which run. Returns None where none does.

    It is to masked widths what `Choice` is to cells: called with (x, gates, ...), its candidates with (x, ...).
    A single option needs no gate.
    """

    def __init__(self, name: str, built: Sequence[str], make: Callable[[str], nn.Module]) -> None:
        super().__init__()
        self.name, self._built = name, tuple(built)
        self.candidates = nn.ModuleDict({option: make(option) for option in built if option not in NOTHING})

    def forward(self, x: Tensor, gates: Gates | None, *arguments: Any) -> Tensor | None:
        if len(self._built) == 1:
            return self._run(0, x, arguments)
        gate = (gates or {})[self.name]
        if isinstance(gate.index, Tensor):
            raise SettingError(
                f"the images of a batch cannot take different ways at '{self.name}': take one path for all"
            )
        if gate.index is not None:
            result = self._run(
                gate.index, x, arguments, None if gate.weights is None else gate.weights[..., gate.index]
            )
        else:
            result = None if gate.weights is None else self._mixture(x, gate.weights, arguments)
        if gate.offset is None:
            return result
        return gate.offset if result is None else result + gate.offset

    def several(self, gates: Gates | None) -> bool:
        """Whether more than one option is to run."""
        return len(self._built) > 1 and (gates or {})[self.name].index is None

    def _run(self, number: int, x: Tensor, arguments: Sequence[Any], weight: Tensor | None = None) -> Tensor | None:
        if self._built[number] not in self.candidates:
            return None
        result: Tensor = self.candidates[self._built[number]](x, *arguments)
        if weight is None:
            return result
        return result * (weight if weight.dim() == 0 else weight.view(-1, *[1] * (result.dim() - 1)))

    def _mixture(self, x: Tensor, weights: Tensor, arguments: Sequence[Any]) -> Tensor | None:
        total: Tensor | None = None
        for number, weight in enumerate(weights.unbind(-1)):
            term = self._run(number, x, arguments, weight)
            if term is not None:
                total = term if total is None else total + term
        return total
