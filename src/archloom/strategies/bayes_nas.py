"""BayesNAS: gates under a sparse prior learn with the weights, and the evidence prunes them (Zhou et al., 2019).

The paper keeps several operations on an edge, or none. Here a cell is discretized to one operation per edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import torch
from annotated_doc import Doc

from archloom.core.errors import SettingError, require
from archloom.policies.sparse_gates import NO_INFORMATION, SparseGates, option_scores
from archloom.spaces import NONE, Architecture, CellGraph, Scores, SearchSpace
from archloom.strategies.base import (
    Evaluate,
    Metrics,
    OneShot,
    Plan,
    Preset,
    SearchBatch,
    StrategyFindings,
    Validation,
    metrics,
)
from archloom.supernet import Gates, SharedWeights, path_gates

Prune = Literal["noise", "entropy", "none"]


class BayesNas(OneShot):
    """Train weights and gates on one loss; after every epoch, update the prior by the curvature of the gates.

    There is one level: validation images only evaluate the derived architecture. Every cell has gates of its own, where
    the space allows it; gates of the same edge and operation share a variance.
    """

    stateful: ClassVar[tuple[str, ...]] = ("policy", "steps")
    validation = Validation(batches=0)
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": {  # 1 / lambda of the row with 2.81 % error
            "strategy": {"observations": 200.0},
            "weights": {"learning_rate": 0.025, "momentum": 0.9, "weight_decay": 3e-4},
            "search": {"epochs": 6, "batch_size": 64},
        },
        "public": {  # one update after one epoch, from equal variances instead of random ones
            "strategy": {"observations": 200.0, "warmup": 0.5, "prune": "entropy"},
            "weights": {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 1e-4},
            "search": {"epochs": 2, "batch_size": 18},
        },
    }

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        observations: Annotated[
            float, Doc("observations that the evidence counts, 1 / lambda of the paper; fewer prune more")
        ] = 200.0,
        warmup: Annotated[float, Doc("share of the epochs that trains the weights alone, with all gates at 1")] = 0.16,
        draws: Annotated[int, Doc("passes per step on sampled labels, which the curvature is averaged from")] = 1,
        prune: Annotated[
            Prune, Doc("noise: below what useless operations reach; entropy: as published; none: only rank")
        ] = "noise",
    ) -> None:
        super().__init__(space, generator)
        require(
            {
                f"strategy.observations must be above 0, got {observations}": observations > 0,
                f"strategy.warmup must lie in [0, 1), got {warmup}": 0 <= warmup < 1,
                f"strategy.draws must be at least 1, got {draws}": draws >= 1,
            }
        )
        if not space.cell_nodes:
            raise SettingError(
                f"the space must be made of cells, whose edges have gates, got {type(space).__name__}; "
                "use the space darts or nb201, or another strategy"
            )
        self._observations, self._warmup, self._draws, self._prune = observations, warmup, draws, prune
        self._supernet_space, self._shared = space.unshare()
        self.policy = SparseGates(self._supernet_space, self._shared, without=(NONE,))
        self.steps = 0
        self._plan: Plan | None = None

    # --- the supernet

    @property
    def supernet_space(self) -> SearchSpace:
        """Return the space in which every cell has gates of its own."""
        return self._supernet_space

    @property
    def path_space(self) -> SearchSpace:
        """Return the space that is searched: its cells make the same choice wherever they are."""
        return self.space

    def path_gates(self, architecture: Architecture) -> Gates:
        """Return the path that makes the choices of an architecture in every cell."""
        choices = {own: architecture[shared] for own, shared in self._shared.items()}
        return path_gates(self._supernet_space, Architecture(choices))

    # --- the search

    def begin(self, weights: SharedWeights, plan: Plan) -> None:
        """Remember the number of steps: variances are updated at the end of each epoch."""
        self._plan = plan

    def step(self, weights: SharedWeights, batch: SearchBatch) -> Metrics:
        """Update weights and gates on one training loss; at the end of an epoch, update the prior."""
        self.steps += 1
        if batch.epoch < self._warmup * batch.epochs:
            return metrics(weights.fit(batch.train, self.policy.gates()))
        trained = weights.fit(batch.train, self.policy.gates(), also=self.policy.values)
        assert self.policy.values.grad is not None
        self.policy.descend(self.policy.values.grad, rate=weights.learning_rate, observations=self._observations)
        self.policy.values.grad = None
        for _ in range(self._draws):
            gradient = weights.gradient_on_sampled_labels(
                batch.train, self.policy.gates(), of=self.policy.values, generator=self.generator
            )
            self.policy.observe(gradient, len(batch.train))
        if self._ends_epoch(batch):
            self.policy.update(observations=self._observations)
        return metrics(trained, zero_gates=float((self.policy.norms() == 0).float().mean()))

    def _ends_epoch(self, batch: SearchBatch) -> bool:
        assert self._plan is not None, "`begin` comes first"
        return self.steps % max(1, self._plan.steps // batch.epochs) == 0

    # --- the result

    def scores(self) -> Scores:
        """Return the evidence of every option in units of the limit below which it is pruned; `none` has 1."""
        return option_scores(self.space, self.policy.by_option(self._evidence()), none=1.0)

    def _evidence(self) -> torch.Tensor:
        if self._prune == "entropy":
            return self.policy.variance / NO_INFORMATION
        return self.policy.signal() / self.policy.noise_limits()

    def best(self, evaluate: Evaluate, *, final: bool = True) -> Architecture:
        """Return the operation with the most evidence on every edge; edges without any are left out."""
        kept = self.space.decode(self.scores(), keep_none=self._prune != "none")
        return self._fill(kept) if self._cut_cells(kept) else kept

    def _cut_cells(self, architecture: Architecture) -> list[str]:
        """Return the cells without a way from input to output."""
        return [graph.name for graph in self.space.graphs(architecture) if not has_way_through(graph)]

    def _fill(self, pruned: Architecture) -> Architecture:
        """Return the pruned architecture with cut cells as they rank without pruning: a network needs its cells."""
        ranked, cut = self.space.decode(self.scores(), keep_none=False), set(self._cut_cells(pruned))
        names = {name for node in self.space.cell_nodes if node.cell in cut for name in node.inputs}
        return self.space.check({name: (ranked if name in names else pruned)[name] for name in pruned})

    def remark(self) -> str:
        """Return a sentence on cells that pruning cut."""
        kept = self.space.decode(self.scores(), keep_none=self._prune != "none")
        cut = self._cut_cells(kept)
        if not cut:
            return ""
        return (
            f"Pruning left no way through {', '.join(cut)}; the result has the best operation of every edge there. "
            f"Raise strategy.observations, now {self._observations:g}."
        )

    def findings(self) -> StrategyFindings:
        """Return the variance of every group, its signal, and how many groups survive."""
        evidence = self._evidence()
        return StrategyFindings(
            others={
                "prior_variance": self.policy.by_option(self.policy.variance),
                "signal": self.policy.by_option(self.policy.signal()),
                "evidence": self.policy.by_option(evidence),
                "surviving_operations": int((evidence > 1).sum()),
                "operations": len(evidence),
            }
        )


def has_way_through(graph: CellGraph) -> bool:
    """Return whether some output of a cell depends on some input."""
    reached = set(range(len(graph.inputs)))
    for source, target, _ in sorted(graph.edges, key=lambda edge: edge[1]):
        if source in reached:
            reached.add(target)
    return any(output in reached for output in graph.outputs)
