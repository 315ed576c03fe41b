"""Costs of architectures, and targets for them."""

from archloom.objectives.cost import Cost, CostTable, cost_of

__all__ = ["Cost", "CostTable", "cost_of"]
