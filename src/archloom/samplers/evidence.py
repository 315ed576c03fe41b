"""Laplace's approximation to the evidence of a model, by a diagonal of its curvature (MacKay, 1992)."""

from __future__ import annotations

import math

from torch import Tensor

from archloom.core.errors import require


def laplace_evidence(
    *, log_likelihood: float, weights: Tensor, curvature: Tensor, precision: float, log_determinant: float | None = None
) -> float:
    """ln p(data) = ln p(data | w) + ln p(w) + n/2 ln 2 pi - 1/2 ln |A|, at the most probable weights w.

    `curvature` is the diagonal of the Hessian of the SUMMED loss (N times that of the mean loss), without the prior;
    `precision` that of the Gaussian prior around zero. A = curvature + precision; where more than its diagonal is
    known, `log_determinant` is that of all of A. The 2 pi of prior and integral cancel.
    """
    require(
        {
            f"precision must be above 0, got {precision}": precision > 0,
            "curvature must be one value per weight, 0 or more": (
                curvature.shape == weights.shape and bool((curvature >= 0).all())
            ),
        }
    )
    count = weights.numel()
    energy = 0.5 * precision * float(weights.double().square().sum())
    volume = float((curvature.double() + precision).log().sum()) if log_determinant is None else log_determinant
    return log_likelihood - energy + 0.5 * count * math.log(precision) - 0.5 * volume
