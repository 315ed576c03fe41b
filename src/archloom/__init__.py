"""Archloom: many architectures woven through one set of shared weights, and the one worth training returned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from archloom.api import SearchResult, compare, posterior, rank, resume, search, write_report

__version__ = "0.1.0"
__all__ = ["SearchResult", "__version__", "compare", "posterior", "rank", "resume", "search", "write_report"]


def __getattr__(name: str) -> Any:
    """Import torch only when a search is asked for: `archloom --version` answers at once."""
    if name in __all__:
        from archloom import api

        return getattr(api, name)
    raise AttributeError(f"module 'archloom' has no attribute '{name}'")
