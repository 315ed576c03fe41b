"""State that a checkpoint holds."""

from __future__ import annotations

from typing import Any

StateDict = dict[str, Any]
"""A tree that a checkpoint holds; its leaves are tensors and plain values."""
