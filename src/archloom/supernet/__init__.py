"""The supernet: gates, choices, shared weights, and networks built from one definition."""

from archloom.supernet.choice import Choice, Dag, Fixed, LayerChoice
from archloom.supernet.curvature import Curvature, to_vector
from archloom.supernet.gate import CLOSED, Gate, Gates, path_gates
from archloom.supernet.gradients import gradients_of
from archloom.supernet.masked_width import Extent, SharedConv2d, SharedLinear, Width, normalize_first_channels
from archloom.supernet.outputs import Continuation, Prediction, StepResult
from archloom.supernet.partial_channels import PartialChannels, PartialChoice
from archloom.supernet.resolve import EveryOption, Only, Resolve, inherit
from archloom.supernet.shared_weights import Parameters, SharedWeights, clip_factor
from archloom.supernet.skip_dropout import DropSkips, SkipDropout
from archloom.supernet.weight_settings import WeightSettings

__all__ = [
    "CLOSED",
    "Choice",
    "Continuation",
    "Curvature",
    "Dag",
    "DropSkips",
    "EveryOption",
    "Extent",
    "Fixed",
    "Gate",
    "Gates",
    "LayerChoice",
    "Only",
    "Parameters",
    "PartialChannels",
    "PartialChoice",
    "Prediction",
    "Resolve",
    "SharedConv2d",
    "SharedLinear",
    "SharedWeights",
    "SkipDropout",
    "StepResult",
    "WeightSettings",
    "Width",
    "clip_factor",
    "gradients_of",
    "inherit",
    "normalize_first_channels",
    "path_gates",
    "to_vector",
]
