"""How shared weights are trained: the section `weights` of a configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_doc import Doc

from archloom.core.errors import require


@dataclass(frozen=True, kw_only=True)
class WeightSettings:
    """How shared weights are trained.

    Args:
        learning_rate: learning rate of SGD at the start of the cosine.
        learning_rate_end: learning rate at the end of the cosine.
        momentum: momentum of SGD.
        weight_decay: weight decay of SGD.
        nesterov: use Nesterov momentum.
        clip: largest norm of the gradient; 0 for no clipping.
        mixed_precision: use bfloat16 where it is safe on a GPU, and for dense convolutions of fused cells on a CPU.
        auxiliary_weight: weight of the auxiliary head's loss.
        label_smoothing: label smoothing of every loss.

    Raises:
        SettingError: a setting is out of range.

    Examples:
        >>> import archloom
        >>> archloom.WeightSettings(learning_rate=0.1).momentum
        0.9
    """

    learning_rate: Annotated[float, Doc("learning rate of SGD at the start of the cosine")] = 0.025
    learning_rate_end: Annotated[float, Doc("learning rate at the end of the cosine")] = 0.001
    momentum: Annotated[float, Doc("momentum of SGD")] = 0.9
    weight_decay: Annotated[float, Doc("weight decay of SGD")] = 3e-4
    nesterov: Annotated[bool, Doc("use Nesterov momentum")] = False
    clip: Annotated[float, Doc("largest norm of the gradient; 0: no clipping")] = 5.0
    mixed_precision: Annotated[
        bool,
        Doc("bfloat16: on a GPU where it is safe, module by module; on a CPU for 3x3 convolutions of fused cells"),
    ] = False
    auxiliary_weight: Annotated[float, Doc("weight of the auxiliary head's loss, with network.auxiliary")] = 0.4
    label_smoothing: Annotated[float, Doc("label smoothing of every loss")] = 0.0

    def __post_init__(self) -> None:
        rate, end, decay = self.learning_rate, self.learning_rate_end, self.weight_decay
        auxiliary, smoothing = self.auxiliary_weight, self.label_smoothing
        require(
            {
                f"weights.learning_rate must be above 0, got {rate}": rate > 0,
                f"weights.learning_rate_end must be 0 or more, got {end}": end >= 0,
                f"weights.momentum must be in [0, 1), got {self.momentum}": 0 <= self.momentum < 1,
                f"weights.weight_decay must be 0 or more, got {decay}": decay >= 0,
                f"weights.clip must be 0 (off) or more, got {self.clip}": self.clip >= 0,
                f"weights.auxiliary_weight must be 0 or more, got {auxiliary}": auxiliary >= 0,
                f"weights.label_smoothing must lie in [0, 1), got {smoothing}": 0 <= smoothing < 1,
                f"weights.nesterov must be false where momentum is 0, got {self.nesterov}": (
                    self.momentum > 0 or not self.nesterov
                ),
            }
        )
