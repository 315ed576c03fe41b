"""How a decision runs."""

from archloom.supernets.blend import Blend
from archloom.supernets.choice import Choice, Dag, Fixed
from archloom.supernets.curvature import Curvature, flat
from archloom.supernets.gate import CLOSED, Gate, Gates, path_gates
from archloom.supernets.masked_width import Extent, SharedConv2d, SharedLinear, Width, normalized
from archloom.supernets.resolve import EveryOption, Only, Resolve, inherit
from archloom.supernets.shared_weights import Outcome, Parameters, Prediction, SharedWeights, gradient_by

__all__ = [
    "CLOSED",
    "Blend",
    "Choice",
    "Curvature",
    "Dag",
    "EveryOption",
    "Extent",
    "Fixed",
    "Gate",
    "Gates",
    "Only",
    "Outcome",
    "Parameters",
    "Prediction",
    "Resolve",
    "SharedConv2d",
    "SharedLinear",
    "SharedWeights",
    "Width",
    "flat",
    "gradient_by",
    "inherit",
    "normalized",
    "path_gates",
]
