"""Random search: architectures drawn uniformly and scored one by one; what every other strategy has to beat."""

from __future__ import annotations

from archloom.strategies.base import BlackBox, Trial


class RandomSearch(BlackBox):
    """Draw, score, forget."""

    def ask(self, number: int) -> Trial:
        return Trial(number, self.space.sample(self.python_random()))
