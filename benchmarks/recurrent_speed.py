"""Time a search step of a recurrent cell beside a straightforward one, in CPU seconds of one thread.

    python benchmarks/recurrent_speed.py --hidden 64 --words 2000

The straightforward step runs edge products node by node and a whole highway expression for every activation, as public
code does, and keeps log-probabilities for the backward pass. Both see the same weights and words. Rounds alternate, so
other work on the machine disturbs both alike; the smallest of each counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

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


class Straightforward(nn.Module):
    """The mixture of a cell, written down as in the papers."""

    def __init__(self, network: RecurrentNetwork) -> None:
        super().__init__()
        self.embedding = nn.Parameter(network.embedding.detach().clone())
        self.bias = nn.Parameter(network.decoder_bias.detach().clone())
        self.start = nn.Parameter(network.start.detach().clone())
        self.matrices = nn.ParameterList([nn.Parameter(one.detach().clone()) for one in network.nodes])
        self.norm = nn.BatchNorm1d(network.hidden, affine=False)

    def forward(self, words: Tensor, shares: Tensor) -> Tensor:
        hidden = self.start.shape[0] // 2
        embedded = F.embedding(words, self.embedding)
        state = embedded.new_zeros(words.shape[1], hidden)
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


def time_alternately(steps: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.process_time()
            step()
            best[name] = min(best[name], time.process_time() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--words", type=int, default=2000)
    parser.add_argument("--columns", type=int, default=32)
    parser.add_argument("--segment", type=int, default=35)
    parser.add_argument("--rounds", type=int, default=8)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dry = {f"dropout_{part}": 0.0 for part in ("output", "hidden", "input", "embedding", "words")}
    network = build_network(
        SPACE, EveryOption(), TextShape(given.words), hidden=given.hidden, **dry, change_penalty=0.0
    )
    assert isinstance(network, RecurrentNetwork)
    plain, policy = Straightforward(network), Logits(SPACE, torch.Generator().manual_seed(0))
    text = torch.randint(given.words, (given.segment + 1, given.columns))
    words, labels = text[:-1], text[1:].reshape(-1)
    generator = torch.Generator().manual_seed(1)

    def straightforward(*, weights: bool) -> None:
        shares = policy.values.view(36, 5).softmax(dim=1)
        loss = F.nll_loss(plain(words, shares if not weights else shares.detach()), labels)
        torch.autograd.grad(loss, list(plain.parameters()) if weights else [policy.values])

    def ours(gates: Callable[[], object], *, weights: bool) -> None:
        found = gates()
        if weights:
            found = {name: gate.detach() for name, gate in found.items()}  # type: ignore[attr-defined]
        loss = F.cross_entropy(network(words, found).logits, labels)
        torch.autograd.grad(loss, list(network.parameters()) if weights else [policy.values])

    def sample() -> object:
        return sample_gumbel_gates(policy, generator, temperature=1.0)

    with torch.no_grad():
        shares = policy.values.view(36, 5).softmax(dim=1)
        gap = (network(words, policy.mixture()).logits.log_softmax(1) - plain(words, shares)).abs().max()
    times = time_alternately(
        {
            "straightforward, weights": lambda: straightforward(weights=True),
            "straightforward, architecture": lambda: straightforward(weights=False),
            "mixture, weights": lambda: ours(policy.mixture, weights=True),
            "mixture, architecture": lambda: ours(policy.mixture, weights=False),
            "hard path, weights": lambda: ours(sample, weights=True),
            "hard path, architecture": lambda: ours(sample, weights=False),
        },
        given.rounds,
    )
    print(f"hidden {given.hidden}, {given.words:,} words, largest difference {float(gap):.1e}")
    for name, seconds in times.items():
        other = times[f"straightforward, {name.rpartition(' ')[2]}"]
        print(f"{name:30} {1000 * seconds:8.1f} ms {other / seconds:6.2f}x")


if __name__ == "__main__":
    main()
