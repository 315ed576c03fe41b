"""Contract tests for a strategy, a space or a family of your own: what the package expects of it, as pytest classes.

The classes need no import of pytest: a subclass in a test file is collected by its name, and every failure is an
AssertionError that names the broken rule.
"""

from __future__ import annotations

from archloom.testing.budgets import BudgetContract, make_learnable_search
from archloom.testing.families import FamilyContract
from archloom.testing.learnable import LearnableSpace, make_learnable_data
from archloom.testing.searches import finish, make_search, make_tiny_data, save_interrupted
from archloom.testing.spaces import SpaceContract
from archloom.testing.states import find_differences
from archloom.testing.strategies import StrategyContract

__all__ = [
    "BudgetContract",
    "FamilyContract",
    "LearnableSpace",
    "SpaceContract",
    "StrategyContract",
    "find_differences",
    "finish",
    "make_learnable_data",
    "make_learnable_search",
    "make_search",
    "make_tiny_data",
    "save_interrupted",
]
