"""What a search weighs besides accuracy."""

from archloom.objectives.cost import Cost, CostTable, cost_of

__all__ = ["Cost", "CostTable", "cost_of"]
