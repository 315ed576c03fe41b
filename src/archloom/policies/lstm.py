"""An LSTM that makes the decisions of a space one by one, each given those before (Pham et al., 2018)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archloom.core.errors import require
from archloom.policies.gumbel import sample_gumbel_noise
from archloom.spaces import Architecture, Scores, SearchSpace

SPREAD = 0.1  # of the parameters at the start: all options are then about equally likely

Choose = Callable[[int, Tensor], Tensor]
"""From the number of a decision and its log-probabilities [paths, options], one index per path."""


@dataclass(frozen=True)
class SampledPaths:
    """Paths sampled from a policy, with what learning and discretizing need."""

    paths: tuple[Architecture, ...]  # an option of every decision, also where a space keeps only some edges
    log_probabilities: Tensor  # [paths]
    entropies: Tensor  # [paths], of every decision given those before, summed: on average that of the whole policy
    scores: tuple[Scores, ...]  # noisy log-probabilities: the sampled option has the highest


class LstmPolicy(nn.Module):
    """A distribution over paths. Logits are squashed into a bounded range, so no option ever reaches probability 0."""

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        layers: int = 2,
        units: int = 32,
        temperature: float = 5.0,
        tanh_constant: float = 2.5,
    ) -> None:
        super().__init__()
        require(
            {
                f"strategy.layers must be at least 1, got {layers}": layers >= 1,
                f"strategy.units must be at least 1, got {units}": units >= 1,
                f"strategy.temperature must be above 0, got {temperature}": temperature > 0,
                f"strategy.tanh_constant must be above 0, got {tanh_constant}": tanh_constant > 0,
            }
        )
        self._decisions = space.decisions
        self._temperature, self._tanh_constant = temperature, tanh_constant
        ends = list(accumulate((len(decision.options) for decision in space.decisions), initial=0))
        self._spans = [slice(start, stop) for start, stop in pairwise(ends)]
        self.start = nn.Parameter(torch.empty(units))  # the input of the first decision
        self.embedding = nn.Parameter(torch.empty(ends[-1], units))  # of every option of every decision
        self.lstm = nn.LSTM(units, units, num_layers=layers, device="meta")  # not initialized from the global generator
        self.head = nn.Linear(units, ends[-1], device="meta")
        self.to_empty(device="cpu")
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -SPREAD, SPREAD, generator=generator)

    def sample(self, generator: torch.Generator, count: int = 1) -> SampledPaths:
        """Sample paths, with log-probabilities that pass gradient."""
        noisy: list[Tensor] = []

        def choose(_: int, row: Tensor) -> Tensor:
            noisy.append(row + sample_gumbel_noise(row.shape, generator).to(row))
            return noisy[-1].argmax(dim=-1)

        indices, rows = self._walk(count, choose)
        entropies = torch.stack([-(row.exp() * row).sum(dim=-1) for row in rows]).sum(dim=0)
        return SampledPaths(
            paths=tuple(map(self._path, indices.tolist())),
            log_probabilities=_sum_chosen(rows, indices),
            entropies=entropies,
            scores=tuple(self._by_name([row[path] for row in noisy]) for path in range(count)),
        )

    def log_probabilities(self, paths: Sequence[Mapping[str, str]]) -> Tensor:
        """Return the log-probabilities [paths] of given paths, with gradient."""
        chosen = [[decision.index(path[decision.name]) for decision in self._decisions] for path in paths]
        indices = torch.tensor(chosen, device=self.start.device)
        return _sum_chosen(self._walk(len(paths), lambda position, _: indices[:, position])[1], indices)

    def probabilities(self) -> Scores:
        """Return the probability of every option given the most probable ones before, which is the greedy path."""
        with torch.no_grad():
            _, rows = self._walk(1, lambda _, row: row.argmax(dim=-1))
        return self._by_name([row[0].exp() for row in rows])

    def _walk(self, count: int, choose: Choose) -> tuple[Tensor, list[Tensor]]:
        """Return indices [paths, decisions], and the log-probabilities [paths, options] of each decision."""
        indices: list[Tensor] = []
        rows: list[Tensor] = []
        before, state = self.start.expand(count, -1), None
        for position, span in enumerate(self._spans):
            output, state = self.lstm(before.unsqueeze(0), state)  # [1, paths, units]
            logits = F.linear(output[0], self.head.weight[span], self.head.bias[span])
            rows.append((self._tanh_constant * torch.tanh(logits / self._temperature)).log_softmax(dim=-1))
            indices.append(choose(position, rows[-1].detach()))
            before = self.embedding[span][indices[-1]]
        return torch.stack(indices, dim=1), rows

    def _path(self, indices: Sequence[int]) -> Architecture:
        return Architecture({d.name: d.options[index] for d, index in zip(self._decisions, indices, strict=True)})

    def _by_name(self, rows: Sequence[Tensor]) -> Scores:
        return {decision.name: row.tolist() for decision, row in zip(self._decisions, rows, strict=True)}


def _sum_chosen(rows: Sequence[Tensor], indices: Tensor) -> Tensor:
    """Return the log-probabilities of the chosen options, summed over decisions."""
    parts = zip(rows, indices.unbind(dim=1), strict=True)
    return torch.stack([row.gather(-1, index.unsqueeze(-1)).squeeze(-1) for row, index in parts]).sum(dim=0)
