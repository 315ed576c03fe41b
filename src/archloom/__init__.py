"""Archloom: many architectures woven through one set of shared weights, and the one worth training returned."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from archloom.api import resume, write_report
    from archloom.comparisons.run import compare
    from archloom.pipelines.run import run
    from archloom.retrainings.result import RetrainResult
    from archloom.retrainings.run import retrain
    from archloom.searches.posterior import posterior
    from archloom.searches.ranking import rank
    from archloom.searches.result import SearchResult
    from archloom.searches.run import search

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
_MODULES = {
    "RetrainResult": "retrainings.result",
    "SearchResult": "searches.result",
    "compare": "comparisons.run",
    "posterior": "searches.posterior",
    "rank": "searches.ranking",
    "resume": "api",
    "retrain": "retrainings.run",
    "run": "pipelines.run",
    "search": "searches.run",
    "write_report": "api",
}


def __getattr__(name: str) -> Any:
    """Import torch only when a search is asked for: `archloom --version` answers at once."""
    if name in _MODULES:
        return getattr(importlib.import_module(f"archloom.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'archloom' has no attribute '{name}'")
