"""Architecture parameters, and how they become gates."""

from archloom.policies.chain import Chain, credible_set, mean_probabilities, mixing, posterior
from archloom.policies.gumbel import sample_gumbel_gates, sample_gumbel_noise
from archloom.policies.logits import Logits

__all__ = [
    "Chain",
    "Logits",
    "credible_set",
    "mean_probabilities",
    "mixing",
    "posterior",
    "sample_gumbel_gates",
    "sample_gumbel_noise",
]
