"""Time a search step of a recurrent cell beside a straightforward one, in CPU seconds of one thread.

    python benchmarks/recurrent_speed.py --hidden 64 --words 2000
    python benchmarks/recurrent_speed.py --hidden 64 --words 2000 --public adapter:make

The straightforward step runs edge products node by node and a whole highway expression for every activation, as public
code does, and keeps log-probabilities for the backward pass. All see the same weights and words. Rounds alternate, so
other work on the machine disturbs all alike; the smallest of each counts.

`--public module:function` adds public code, which you fetch yourself; docs/results/recurrent.md says how. The function
takes a `Start` and returns a `PublicSearch`. Before anything is timed, log-probabilities without dropout are compared.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archloom.families import build_network
from archloom.families.recurrent import RecurrentNetwork
from archloom.policies import Logits, sample_gumbel_gates
from archloom.spaces import Recurrent
from archloom.supernet import EveryOption
from archloom.tasks import TextShape

SPACE = Recurrent()
ACTIVATIONS = (torch.tanh, torch.relu, torch.sigmoid, lambda value: value)
EDGES, OPTIONS = 36, 5
PARTS = ("output", "hidden", "input", "embedding", "words")
DRY = dict.fromkeys(PARTS, 0.0)
SEARCH = {**DRY, "output": 0.2, "hidden": 0.1, "input": 0.2, "embedding": 0.1}  # as benchmarks/recurrent.py searches
LARGEST_GAP = 1e-3  # between log-probabilities of the same function
STRAIGHTFORWARD, PUBLIC = "straightforward", "public"

Step = Callable[[], object]
Times = dict[str, list[float]]  # of steps by name, a number per round


@dataclass(frozen=True)
class Start:
    """What public code begins with; columns of `start` and `nodes` are the gate first, then the candidate.

    Attributes:
        embedding: [words, hidden]; the decoder has the same.
        bias: of the decoder, [words].
        start: the first matrix, [2 hidden, 2 hidden]; its rows are the word first, then the state.
        nodes: the matrix of each node, [nodes, hidden, 2 hidden].
        logits: [36, 5]: of none, tanh, relu, sigmoid and identity, by edge, as `Recurrent` orders them.
        dropout: rates by part: output, hidden, input, embedding, words.
    """

    embedding: Tensor
    bias: Tensor
    start: Tensor
    nodes: Tensor
    logits: Tensor
    dropout: Mapping[str, float]


class PublicSearch(Protocol):
    """A public search with the weights of a `Start`, in training mode."""

    def log_probabilities(self, words: Tensor) -> Tensor:
        """Return those of the next words, [T * B, words], from a state of zeros; `words` are [T, B]."""

    def step(self, words: Tensor, labels: Tensor, *, weights: bool) -> object:
        """Compute the loss and its gradient: by the weights, or by the architecture."""


class Straightforward(nn.Module):
    """The mixture of a cell, written down as in the papers."""

    def __init__(self, given: Start) -> None:
        super().__init__()
        self.embedding, self.bias = nn.Parameter(given.embedding.clone()), nn.Parameter(given.bias.clone())
        self.start = nn.Parameter(given.start.clone())
        self.matrices = nn.ParameterList([nn.Parameter(one.clone()) for one in given.nodes])
        self.norm = nn.BatchNorm1d(given.embedding.shape[1], affine=False)
        self.logits = nn.Parameter(given.logits.clone())

    def log_probabilities(self, words: Tensor) -> Tensor:
        return self(words, self.logits.softmax(dim=1))

    def step(self, words: Tensor, labels: Tensor, *, weights: bool) -> object:
        shares = self.logits.softmax(dim=1)
        loss = F.nll_loss(self(words, shares.detach() if weights else shares), labels)
        wanted = [one for one in self.parameters() if one is not self.logits]
        return torch.autograd.grad(loss, wanted if weights else [self.logits])

    def forward(self, words: Tensor, shares: Tensor) -> Tensor:
        embedded = F.embedding(words, self.embedding)
        state = embedded.new_zeros(words.shape[1], self.embedding.shape[1])
        outputs = []
        for word in embedded:
            state = self._step(word, state, shares)
            outputs.append(state)
        logits = torch.stack(outputs).flatten(0, 1) @ self.embedding.t() + self.bias
        return F.log_softmax(logits, dim=1)

    def _step(self, word: Tensor, state: Tensor, shares: Tensor) -> Tensor:
        gate, candidate = (torch.cat([word, state], dim=-1) @ self.start).chunk(2, dim=-1)
        first = self.norm(state + gate.sigmoid() * (candidate.tanh() - state))
        states, edge = first.unsqueeze(0), 0
        for matrix in self.matrices:
            count = states.shape[0]
            gate, candidate = (states.reshape(-1, states.shape[-1]) @ matrix).view(count, len(state), -1).chunk(2, -1)
            gate = gate.sigmoid()
            total = torch.zeros_like(first)
            for place, activation in enumerate(ACTIVATIONS, start=1):
                moved = states + gate * (activation(candidate) - states)
                total = total + (shares[edge : edge + count, place].view(-1, 1, 1) * moved).sum(dim=0)
            states = torch.cat([states, self.norm(total).unsqueeze(0)])
            edge += count
        return states[1:].mean(dim=0)


def build_supernet(
    words: int, hidden: int, dropout: Mapping[str, float], *, like: nn.Module | None = None
) -> nn.Module:
    rates = {f"dropout_{part}": dropout[part] for part in PARTS}
    network = build_network(SPACE, EveryOption(), TextShape(words), hidden=hidden, **rates, change_penalty=0.0)
    if like is not None:
        network.load_state_dict(like.state_dict())
    return network


def describe_start(network: nn.Module, logits: Tensor, dropout: Mapping[str, float]) -> Start:
    assert isinstance(network, RecurrentNetwork)
    weights = (network.embedding, network.decoder_bias, network.start, network.nodes)
    return Start(*(one.detach().clone() for one in weights), logits.detach().clone(), dropout)


def load_public(name: str) -> Callable[[Start], PublicSearch]:
    """Return the function `module:function`; the module may lie in the current folder."""
    module, _, function = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        make: Callable[[Start], PublicSearch] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise SystemExit(f"--public {name}: {error}") from None
    return make


def check_same(name: str, search: PublicSearch, words: Tensor, expected: Tensor) -> None:
    """Print how far the log-probabilities of an implementation are from ours; end if it computes something else."""
    with torch.no_grad():
        gap = float((search.log_probabilities(words).reshape_as(expected) - expected).abs().max())
    print(f"largest difference of log-probabilities without dropout, {name}: {gap:.1e}")
    if not gap <= LARGEST_GAP:
        raise SystemExit(f"{name} computes another function: expected a difference of at most {LARGEST_GAP:g}")


def list_ours(network: nn.Module, policy: Logits, words: Tensor, labels: Tensor) -> dict[str, Step]:
    """Return our steps by name."""
    generator = torch.Generator().manual_seed(1)

    def step(gates: Callable[[], Mapping[str, Tensor]], *, weights: bool) -> object:
        found = gates()
        if weights:
            found = {name: gate.detach() for name, gate in found.items()}
        loss = F.cross_entropy(network(words, found).logits, labels)
        return torch.autograd.grad(loss, list(network.parameters()) if weights else [policy.values])

    def sample() -> Mapping[str, Tensor]:
        return sample_gumbel_gates(policy, generator, temperature=1.0)  # type: ignore[return-value]

    kinds: dict[str, Callable[[], Mapping[str, Tensor]]] = {"mixture": policy.mixture, "hard path": sample}  # type: ignore[dict-item]
    return {
        f"{kind}, {part}": lambda gates=gates, part=part: step(gates, weights=part == "weights")
        for kind, gates in kinds.items()
        for part in ("weights", "architecture")
    }


def list_steps(name: str, search: PublicSearch, words: Tensor, labels: Tensor) -> dict[str, Step]:
    """Return both steps of an implementation by name."""
    return {
        f"{name}, weights": lambda: search.step(words, labels, weights=True),
        f"{name}, architecture": lambda: search.step(words, labels, weights=False),
    }


def time_alternately(steps: Mapping[str, Step], rounds: int) -> Times:
    times: Times = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.process_time()
            step()
            times[name].append(time.process_time() - start)
    return times


def write_rows(times: Times) -> list[str]:
    """Return a line per implementation: both steps, and how much faster both together are, by least and by median."""
    kinds = list(dict.fromkeys(name.partition(", ")[0] for name in times))
    lines = []
    for kind in kinds:
        weights, architecture = (1000 * min(times[f"{kind}, {part}"]) for part in ("weights", "architecture"))
        line = f"{kind:16} weights {weights:8.1f} ms, architecture {architecture:8.1f} ms"
        slower = [name for name in (STRAIGHTFORWARD, PUBLIC) if name in kinds and kind not in (STRAIGHTFORWARD, PUBLIC)]
        for name in slower:
            least, median = (_sum(times, name, best) / _sum(times, kind, best) for best in (min, statistics.median))
            line += f"; {least:.2f}x {name} (median {median:.2f}x)"
        lines.append(line)
    return lines


def _sum(times: Times, kind: str, best: Callable[[Sequence[float]], float]) -> float:
    return best(times[f"{kind}, weights"]) + best(times[f"{kind}, architecture"])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--words", type=int, default=2000)
    parser.add_argument("--columns", type=int, default=32)
    parser.add_argument("--segment", type=int, default=35)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument(
        "--public", metavar="MODULE:FUNCTION", help="an adapter of public code to time in the same rounds"
    )
    given = parser.parse_args(arguments)
    make_public = load_public(given.public) if given.public else None
    torch.set_num_threads(1)
    torch.manual_seed(0)
    policy = Logits(SPACE, torch.Generator().manual_seed(0))
    dry = build_supernet(given.words, given.hidden, DRY)
    network = build_supernet(given.words, given.hidden, SEARCH, like=dry)
    logits = policy.values.view(EDGES, OPTIONS)
    text = torch.randint(given.words, (given.segment + 1, given.columns))
    words, labels = text[:-1], text[1:].reshape(-1)
    with torch.no_grad():
        expected = dry(words, policy.mixture()).logits.log_softmax(1)
    plain = Straightforward(describe_start(dry, logits, DRY))
    check_same(STRAIGHTFORWARD, plain, words, expected)
    steps = list_steps(STRAIGHTFORWARD, plain, words, labels)
    if make_public is not None:
        check_same(PUBLIC, make_public(describe_start(dry, logits, DRY)), words, expected)
        steps |= list_steps(PUBLIC, make_public(describe_start(dry, logits, SEARCH)), words, labels)
    steps |= list_ours(network, policy, words, labels)
    before = os.getloadavg()[0]
    times = time_alternately(steps, given.rounds)
    print(
        f"hidden {given.hidden}, {given.words:,} words, {given.columns} columns of {given.segment}; least of "
        f"{given.rounds} rounds, CPU time of one thread; load {before:.1f} to {os.getloadavg()[0]:.1f}"
    )
    print(*write_rows(times), sep="\n")


if __name__ == "__main__":
    main()
