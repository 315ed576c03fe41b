"""Architecture parameters, and how they become gates."""

from archloom.policies.chain import Chain, credible_set, mean_probabilities, measure_mixing, summarize_draws
from archloom.policies.gumbel import sample_gumbel_gates, sample_gumbel_noise
from archloom.policies.logits import Logits

__all__ = [
    "Chain",
    "Logits",
    "credible_set",
    "mean_probabilities",
    "measure_mixing",
    "sample_gumbel_gates",
    "sample_gumbel_noise",
    "summarize_draws",
]
