"""P-DARTS: DARTS in stages, each deeper and with fewer options, and with dropout on skips (Chen et al., 2019)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_doc import Doc
from torch import Tensor

from archloom.core.errors import SettingError, require
from archloom.core.state import StateDict
from archloom.families import family_of
from archloom.spaces import Architecture, Decision, Scores, SearchSpace
from archloom.strategies.base import Evaluate, Metrics, Preset, SearchBatch, Stage, StrategyFindings
from archloom.strategies.skip_limit import limit_skips
from archloom.strategies.warm_darts import WarmDarts
from archloom.supernet import DropSkips, EveryOption, Resolve, SharedWeights

Schedule = Literal["public", "monotone"]

LEAST_OPTIONS = 2  # that a decision keeps, so that there is something to search
PUBLISHED_EPOCHS = 25  # of a stage: the dropout of skips falls by exp(-0.2) in an epoch of these
MOST_SKIPS = 8  # of a published cell; the result lists its cells for every limit from here to 0

_WEIGHTS = {"learning_rate": 0.025, "learning_rate_end": 0.0, "momentum": 0.9, "weight_decay": 3e-4, "clip": 5.0}
_SEARCH = {"epochs": 75, "batch_size": 96}
_STAGES = {"depths": (5, 11, 17), "drops": (3, 2), "learning_rate": 6e-4, "weight_decay": 1e-3, "warmup": 0.4}


class PDarts(WarmDarts):
    """A first-order DARTS search per stage. Each edge drops its least probable options before the next stage.

    Every stage starts anew: weights, logits and optimizers. Only the options that are left go on. The normal cell keeps
    at most `skip_limit` skips.
    """

    stateful: ClassVar[tuple[str, ...]] = ("policy", "optimizer", "stage", "kept")
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": {
            "strategy": {**_STAGES, "skip_dropout": (0.0, 0.4, 0.7), "skip_limit": 2, "clip": 5.0},
            "weights": _WEIGHTS,
            "search": _SEARCH,
        },
        "public": {  # as the command line of the public code
            "strategy": {**_STAGES, "skip_dropout": (0.1, 0.4, 0.7), "skip_limit": 2, "clip": 5.0},
            "weights": _WEIGHTS,
            "search": _SEARCH,
        },
    }

    def __init__(
        self,
        space: SearchSpace,
        generator: torch.Generator,
        *,
        depths: Annotated[
            tuple[int, ...],
            Doc("depth of the supernet in each stage, as the space counts; left out: rising to its own"),
        ] = (),
        drops: Annotated[tuple[int, ...], Doc("options that every decision drops after each stage but the last")] = (
            3,
            2,
        ),
        skip_dropout: Annotated[tuple[float, ...], Doc("dropout on skips at the start of each stage")] = (
            0.0,
            0.4,
            0.7,
        ),
        skip_dropout_schedule: Annotated[
            Schedule, Doc("public: falls, rises where the logits begin, falls faster; monotone: falls linearly")
        ] = "public",
        skip_limit: Annotated[int, Doc("skips that a cell may keep where it keeps the resolution")] = 2,
        warmup: Annotated[float, Doc("share of every stage that trains the weights alone")] = 0.4,
        clip: Annotated[float, Doc("largest norm of the logits' gradient; 0: no clipping")] = 5.0,
        **common: Any,
    ) -> None:
        depths, drops, skip_dropout = tuple(depths), tuple(drops), tuple(skip_dropout)
        count = len(drops) + 1
        require(
            {
                f"strategy.drops must be 0 or more each, got {list(drops)}": all(drop >= 0 for drop in drops),
                f"strategy.skip_dropout must have one rate in [0, 1) for each of {count} stages, got "
                f"{list(skip_dropout)}": len(skip_dropout) == count and all(0 <= rate < 1 for rate in skip_dropout),
                f"strategy.depths must have one depth of at least 1 for each of {count} stages, got {list(depths)}": (
                    not depths or (len(depths) == count and min(depths) >= 1)
                ),
                f"strategy.skip_limit must be 0 or more, got {skip_limit}": skip_limit >= 0,
            }
        )
        super().__init__(space, generator, warmup=warmup, clip=clip, **common)
        self._drops, self._rates, self._schedule, self._skip_limit = (
            drops,
            skip_dropout,
            skip_dropout_schedule,
            skip_limit,
        )
        self._spaces = stage_spaces(space, depths, count)
        self.stage = 0
        self.kept: list[dict[str, list[str]]] = []  # the options of every decision, from the second stage on
        self._supernet_space = self._spaces[0]

    # --- stages

    def stages(self, epochs: int) -> tuple[Stage, ...]:
        """Return the stages, of equal length."""
        count = len(self._spaces)
        if epochs < count:
            raise SettingError(f"search.epochs must be at least {count}, one for each stage of p_darts, got {epochs}")
        return tuple(
            Stage(epochs * (number + 1) // count - epochs * number // count, self._describe(number))
            for number in range(count)
        )

    def _describe(self, number: int) -> str:
        space, dropped = self._spaces[number], sum(self._drops[:number])
        left = max(max(LEAST_OPTIONS, len(d.options) - dropped) for d in self.space.decisions)
        depth = family_of(space).depth_of(space)
        return f"{f'{depth}, ' if depth else ''}{left} options"

    def begin_stage(self, number: int) -> None:
        """Drop the least probable options of every decision, and start anew with the rest."""
        present = self.policy.probabilities()
        drops = self._drops[number - 1]
        self.kept.append({d.name: keep_options(d, present[d.name], drops) for d in self.supernet_space.decisions})
        self._enter(number)

    def restore_stage(self, state: StateDict) -> None:
        """Prepare for the options that a saved stage had."""
        self.kept = [dict(kept) for kept in state["kept"]]
        self._enter(int(state["stage"]))

    def _enter(self, number: int) -> None:
        self.stage = number
        deep = self._spaces[number]
        self._supernet_space = deep.restrict(self.kept[number - 1]) if number else deep
        self.begin_policy(self._supernet_space)

    @property
    def supernet_space(self) -> SearchSpace:
        """Return the space of the present stage: its depth, and the options that are left."""
        return self._supernet_space

    def resolve(self) -> Resolve:
        """Return a supernet with dropout on its skips, in stages that have any."""
        rate = self._rates[self.stage]
        return DropSkips(rate=rate) if rate else EveryOption()

    # --- the search

    def step(self, weights: SharedWeights, batch: SearchBatch) -> Metrics:
        """Take a step of DARTS with the dropout of the epoch."""
        weights.set_skip_dropout(self.skip_rate(batch))
        return super().step(weights, batch)

    def skip_rate(self, batch: SearchBatch) -> float:
        """Return the dropout of skips in an epoch of a stage."""
        start, warm = self._rates[self.stage], self._warmup * batch.epochs
        if self._schedule == "monotone" or batch.epoch < warm:
            return start * (batch.epochs - batch.epoch - 1) / batch.epochs
        return start * math.exp(-0.2 * (batch.epoch - warm) * PUBLISHED_EPOCHS / batch.epochs)

    def expected_choice(self) -> dict[str, Tensor]:
        """Return the probability of every option of the whole space; dropped options have none."""
        shares = self.policy.shares()
        return {d.name: self._widen(d, shares[d.name]) for d in self.space.decisions}

    def _widen(self, decision: Decision, row: Tensor) -> Tensor:
        """Return a row over the options that are left as one over all options."""
        left = self.supernet_space.decision(decision.name).options
        places = torch.tensor([decision.index(option) for option in left], device=row.device)
        return row.new_zeros(len(decision.options)).index_add(0, places, row)

    # --- the result

    def probabilities(self) -> Scores:
        """Return the probability of every option of the whole space; 0 for those that were dropped."""
        present = {name: torch.tensor(row, dtype=torch.float64) for name, row in self.policy.probabilities().items()}
        return {d.name: self._widen(d, present[d.name]).tolist() for d in self.space.decisions}

    def scores(self) -> Scores:
        """Return the probabilities, without the skips that are above the limit."""
        return limit_skips(self.space, self._present_scores(), self._skip_limit)

    def _present_scores(self) -> Scores:
        """Return the probabilities of the options that are left; others are worse than any."""
        left = {d.name: d.options for d in self.supernet_space.decisions}
        return {
            d.name: [
                value if option in left[d.name] else -math.inf for option, value in zip(d.options, row, strict=True)
            ]
            for d, row in zip(self.space.decisions, self.probabilities().values(), strict=True)
        }

    def best(self, evaluate: Evaluate, *, final: bool = True) -> Architecture:
        """Return the most probable cells with few enough skips; `none` takes no part."""
        return self.space.decode(self.scores(), keep_none=False)

    def findings(self) -> StrategyFindings:
        """Return what every stage dropped, and the cells of every limit of skips."""
        cells = {
            str(limit): self.space.format(
                self.space.decode(limit_skips(self.space, self._present_scores(), limit), keep_none=False)
            )
            for limit in range(MOST_SKIPS, -1, -1)
        }
        stages = [
            {"stage": number + 1, "network": self._describe(number), "dropped": self._dropped_after(number)}
            for number in range(len(self._spaces))
        ]
        return StrategyFindings(others={"stages": stages, "cells_by_skip_limit": cells})

    def _dropped_after(self, number: int) -> dict[str, list[str]]:
        """Return the options that each decision dropped after a stage."""
        if number >= len(self.kept):
            return {}
        before = self.kept[number - 1] if number else {d.name: d.options for d in self.space.decisions}
        return {
            name: [option for option in before[name] if option not in left] for name, left in self.kept[number].items()
        }


def keep_options(decision: Decision, probabilities: Sequence[float], drops: int) -> list[str]:
    """Return the options without the least probable ones; of equal ones the earlier goes."""
    count = min(drops, max(0, len(decision.options) - LEAST_OPTIONS))
    order = sorted(range(len(decision.options)), key=lambda place: probabilities[place])  # stable
    gone = set(order[:count])
    return [option for place, option in enumerate(decision.options) if place not in gone]


def stage_spaces(space: SearchSpace, depths: Sequence[int], count: int) -> list[SearchSpace]:
    """Return the space at the depth of each stage; all have the same decisions."""
    family = family_of(space)
    own = family.depth_setting(space)
    if own is None and not depths:
        return [space] * count
    full = 1 if own is None else int(getattr(space, own))
    wanted = depths or [math.ceil(full * (number + 1) / count) for number in range(count)]
    return [_at_depth(space, depth, full=max(full, *wanted)) for depth in wanted]


def _at_depth(space: SearchSpace, depth: int, *, full: int) -> SearchSpace:
    """Return the space at a depth, or at the next one that has all its decisions: two cells have no reduction."""
    names = [decision.name for decision in space.decisions]
    for count in range(depth, full + 1):
        deep: SearchSpace = family_of(space).with_depth(space, count)
        if [decision.name for decision in deep.decisions] == names:
            return deep
    raise SettingError(f"strategy.depths must leave the space its decisions, got {depth}; use a larger depth")
