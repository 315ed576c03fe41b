"""Archloom: many architectures woven through one set of shared weights, and the one worth training returned."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from archloom.api import SearchResult, compare, posterior, rank, resume, search, write_report
    from archloom.pipeline import run
    from archloom.retraining import RetrainResult, retrain

__version__ = "0.1.0"
__all__ = [
    "RetrainResult",
    "SearchResult",
    "__version__",
    "compare",
    "posterior",
    "rank",
    "resume",
    "retrain",
    "run",
    "search",
    "write_report",
]
_ELSEWHERE = {"RetrainResult": "retraining", "retrain": "retraining", "run": "pipeline"}  # the others are in `api`


def __getattr__(name: str) -> Any:
    """Import torch only when a search is asked for: `archloom --version` answers at once."""
    if name in __all__:
        return getattr(importlib.import_module(f"archloom.{_ELSEWHERE.get(name, 'api')}"), name)
    raise AttributeError(f"module 'archloom' has no attribute '{name}'")
