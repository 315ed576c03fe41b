"""Did the search beat chance? By the table where one knows the space, else by the shared weights themselves."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from archloom.spaces import Architecture, SearchSpace


def against_chance(
    space: SearchSpace,
    architecture: Architecture,
    evaluate: Callable[[Architecture], float],
    *,
    standing: Mapping[str, Any] | None,
    samples: int,
    rng: random.Random,
) -> dict[str, Any]:
    """A verdict in plain words, and the figures behind it."""
    own = evaluate(architecture)
    drawn = [evaluate(space.sample(rng)) for _ in range(samples)]
    sentences = [sentence for sentence in (table_verdict(standing), _by_shared_weights(own, drawn)) if sentence]
    return {"verdict": " ".join(sentences), "shared_accuracy": own, "chance": sorted(drawn)}


def table_verdict(standing: Mapping[str, Any] | None) -> str:
    """The table holds every architecture, so that the share beaten is exact."""
    if standing is None:
        return ""
    beaten = (standing["count"] - standing["rank"]) / standing["count"]
    instead = f" (instead of {standing['instead_of']})" if standing.get("instead_of") else ""
    return (
        f"The {standing['dataset']} table{instead} knows it: {standing['test']:.2f} % test accuracy, "
        f"rank {standing['rank']:,} of {standing['count']:,}, {standing['regret']:.2f} points below the best; "
        f"{_odds(beaten)} an architecture drawn by chance would do worse."
    )


def _odds(beaten: float) -> str:
    return f"{100 * beaten:.1f} times in 100"


def _by_shared_weights(own: float, drawn: list[float]) -> str:
    if not drawn:
        return ""
    beaten = sum(value < own for value in drawn)
    return (
        f"Under the shared weights its validation accuracy is {100 * own:.1f} %, higher than {beaten} of {len(drawn)} "
        f"architectures drawn by chance (their median {100 * statistics.median(drawn):.1f} %); shared weights rank "
        f"architectures only roughly, retraining decides."
    )
