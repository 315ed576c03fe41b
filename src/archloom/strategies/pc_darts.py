"""PC-DARTS: DARTS on a quarter of the channels, with learned weights of edges (Xu et al., 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import torch
from annotated_doc import Doc

from archloom.core.errors import require
from archloom.policies.edges import EdgeLogits
from archloom.policies.logits import Logits
from archloom.spaces import Scores, SearchSpace
from archloom.strategies.base import Preset, StrategyFindings
from archloom.strategies.warm_darts import WarmDarts
from archloom.supernet import EveryOption, PartialChannels, Resolve


class PcDarts(WarmDarts):
    """DARTS whose edges mix one part of their channels and pass the others by; nodes learn weights of their inputs.

    Sampling channels regularizes the search and takes less memory, so batches can be larger. Edge weights steady the
    choice of inputs, which would otherwise depend on the channels that are mixed.
    """

    policy_type: ClassVar[type[Logits]] = EdgeLogits
    policy: EdgeLogits
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": {
            "strategy": {"parts": 4, "learning_rate": 6e-4, "weight_decay": 1e-3, "warmup": 0.3},
            "weights": {
                "learning_rate": 0.1,
                "learning_rate_end": 0.0,
                "momentum": 0.9,
                "weight_decay": 3e-4,
                "clip": 5.0,
            },
            "search": {"epochs": 50, "batch_size": 256},
        },
        "imagenet": {  # without the linear rise of the learning rate in the first five epochs
            "strategy": {"parts": 2, "learning_rate": 6e-3, "weight_decay": 1e-3, "warmup": 0.7, "clip": 5.0},
            "weights": {"learning_rate": 0.5, "learning_rate_end": 0.0, "weight_decay": 3e-4, "clip": 5.0},
            "search": {"epochs": 50, "batch_size": 1024},
        },
    }

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        parts: Annotated[int, Doc("of the channels; one of them runs through the operations; 1: all channels")] = 4,
        warmup: Annotated[float, Doc("share of the epochs that trains the weights alone")] = 0.3,
        **common: Any,
    ) -> None:
        require(
            {
                f"strategy.parts must be at least 1, got {parts}": parts >= 1,
            }
        )
        super().__init__(space, generator, warmup=warmup, **common)
        self._parts = parts

    def resolve(self) -> Resolve:
        """Return a supernet of partial channels."""
        return PartialChannels(parts=self._parts) if self._parts > 1 else EveryOption()

    def scores(self) -> Scores:
        """Return probabilities times edge weights: the latter count where a node keeps its best inputs."""
        return self.policy.scores()

    def remark(self) -> str:
        """Return what partial channels mean for the accuracies of paths."""
        return PATHS_DIFFER if self._parts > 1 else ""

    def findings(self) -> StrategyFindings:
        """Return the weight of every edge."""
        weights = {name: float(weight.detach()) for name, weight in self.policy.edge_weights().items()}
        return StrategyFindings(others={"edge_weights": weights})


PATHS_DIFFER = (
    "The supernet had partial channels: its paths differ from standalone networks, so these accuracies rank even more "
    "roughly."
)
