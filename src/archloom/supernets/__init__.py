"""How a decision runs."""

from archloom.supernets.choice import Choice, Dag, Fixed
from archloom.supernets.curvature import Curvature, flat
from archloom.supernets.gate import CLOSED, Gate, Gates, path_gates
from archloom.supernets.resolve import EveryOption, Only, Resolve, inherit
from archloom.supernets.shared_weights import Outcome, Parameters, SharedWeights, gradient_by

__all__ = [
    "CLOSED",
    "Choice",
    "Curvature",
    "Dag",
    "EveryOption",
    "Fixed",
    "Gate",
    "Gates",
    "Only",
    "Outcome",
    "Parameters",
    "Resolve",
    "SharedWeights",
    "flat",
    "gradient_by",
    "inherit",
    "path_gates",
]
