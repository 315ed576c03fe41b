"""The contract of a one-shot strategy over budgets: a short search decides as a long one does."""

from __future__ import annotations

from typing import Any

from archloom.core.settings import Settings
from archloom.searches.loop import SearchLoop
from archloom.spaces import Scores
from archloom.strategies.base import OneShot
from archloom.testing.learnable import RIGHT, make_learnable_data
from archloom.testing.searches import make_search

STEPS_PER_EPOCH = 50  # of the learnable data
DECIDED = 0.8  # least probability of the right option


class BudgetContract:
    """What every one-shot strategy must do with its default settings in searches of any length, as tests.

    Each search has a known answer: `learned` for every row of `LearnableSpace`. The probability of each right option
    must end above 0.8. That of a strategy with a posterior is the share of its draws. A strategy without
    probabilities must find all right options but one.

    Attributes:
        strategy: the name of the strategy, as `module:Class`.
        settings: settings of the strategy.
        budgets: steps of the searches, multiples of 50.

    Examples:
        >>> from archloom.testing import BudgetContract
        >>> class TestMixture(BudgetContract):
        ...     strategy = "darts"
        ...     budgets = (200,)
        >>> TestMixture().test_searches_of_any_length_decide_for_the_right_options()
    """

    strategy: str
    settings: Settings = {}  # noqa: RUF012 - a subclass or an instance may set its own
    budgets: tuple[int, ...] = (200, 1000)

    def test_searches_of_any_length_decide_for_the_right_options(self) -> None:
        """The right option of every decision is more probable than 0.8, whatever the number of steps."""
        for steps in self.budgets:
            check_decision(make_learnable_search(self.strategy, steps, settings=self.settings))


def make_learnable_search(
    strategy: str, steps: int, /, *, seed: int = 0, settings: Settings | None = None
) -> SearchLoop[Any]:
    """Build a search of so many steps with a known answer.

    Args:
        strategy: the name of a one-shot strategy, or `module:Class`.
        steps: steps of the search, a multiple of 50.
        seed: the seed of the search.
        settings: settings of the strategy; the defaults if left out.

    Returns:
        The search, before its first step.

    Raises:
        SettingError: a name or a setting is wrong.

    Examples:
        >>> from archloom.testing import make_learnable_search
        >>> make_learnable_search("gdas", 200).total
        200
    """
    assert steps % STEPS_PER_EPOCH == 0, f"steps must be a multiple of {STEPS_PER_EPOCH}, got {steps}"
    return make_search(
        strategy,
        "archloom.testing.learnable:LearnableSpace",
        seed=seed,
        data=make_learnable_data(),
        strategy=settings or {},
        weights={"learning_rate": 0.1},  # 200 steps suffice for the weights, and only the strategy makes a difference
        search={
            "epochs": steps // STEPS_PER_EPOCH,
            "batch_size": 32,
            "evaluation_images": 320,
            "random_baseline_samples": 0,
        },
        monitor={"action": "off"},
    )


def check_decision(search: SearchLoop[Any]) -> None:
    """Assert that a search with a known answer decides for it."""
    outcome = search.run()
    strategy: OneShot = search.strategy  # type: ignore[attr-defined]  # a one-shot search has one
    right = list(outcome.architecture.values()).count(RIGHT)
    total, where = len(outcome.architecture), f"after {search.total} steps"
    assert right >= total - 1, f"{where} at least {total - 1} of {total} options must be '{RIGHT}', got {outcome.text}"
    certainty = measure_certainty(strategy)
    if certainty is None:
        return
    assert right == total, f"{where} all {total} options must be '{RIGHT}', got {outcome.text}"
    assert strategy.undecided() is None, f"{where} {strategy.undecided()}"
    found = {name: row[strategy.space.decision(name).index(RIGHT)] for name, row in certainty.items()}
    low = {name: round(value, 3) for name, value in found.items() if value <= DECIDED}
    assert not low, f"{where} the probability of '{RIGHT}' must be above {DECIDED}, got {low}"


def measure_certainty(strategy: OneShot) -> Scores | None:
    """Return how probable each option is the best: by the posterior if there is one, else by the probabilities."""
    posterior = strategy.findings().posterior
    if posterior is None:
        return strategy.probabilities()
    return {
        decision.name: [posterior.decisions[decision.name].best[option] for option in decision.options]
        for decision in strategy.space.decisions
    }
