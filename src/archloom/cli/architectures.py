"""Architectures as people have them at hand, for the commands that take one."""

from __future__ import annotations

from archloom.runs.architectures import find_space, read_architecture

__all__ = ["find_space", "read_architecture"]
