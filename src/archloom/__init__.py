"""Archloom: many architectures woven through one set of shared weights, and the one worth training returned."""

__version__ = "0.1.0"
