"""Architecture parameters, and how they become gates."""

from archloom.policies.gumbel import gumbel_gates, gumbel_noise
from archloom.policies.logits import Logits

__all__ = ["Logits", "gumbel_gates", "gumbel_noise"]
