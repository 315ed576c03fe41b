"""Posterior samplers as torch optimizers, for GibbsNAS and for any other loss."""

from archloom.samplers.base import NOISE_RULES, NoiseRule, PosteriorSampler
from archloom.samplers.batch_noise import BatchedClosure, BatchNoise
from archloom.samplers.bfgs import BfgsPosterior, InverseHessian
from archloom.samplers.closures import Classification, SelfLabelling, sample_labels
from archloom.samplers.diagonal_lbfgs import CompactInverse, DiagonalLbfgsPosterior
from archloom.samplers.precision import draw_precision

__all__ = [
    "NOISE_RULES",
    "BatchNoise",
    "BatchedClosure",
    "BfgsPosterior",
    "Classification",
    "CompactInverse",
    "DiagonalLbfgsPosterior",
    "InverseHessian",
    "NoiseRule",
    "PosteriorSampler",
    "SelfLabelling",
    "draw_precision",
    "sample_labels",
]
