"""Architecture parameters, and how they become gates."""

from archloom.policies.chain import Chain, credible_set, mean_scores, mixing, posterior
from archloom.policies.gumbel import gumbel_gates, gumbel_noise
from archloom.policies.logits import Logits

__all__ = [
    "Chain",
    "Logits",
    "credible_set",
    "gumbel_gates",
    "gumbel_noise",
    "mean_scores",
    "mixing",
    "posterior",
]
