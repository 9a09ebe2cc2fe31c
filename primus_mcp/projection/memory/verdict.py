"""Does it fit? The estimate and its upper bound against the usable memory of the GPU, without margin."""

from __future__ import annotations

from typing import Literal

Fit = Literal["fits", "at_risk", "does_not_fit"]


def verdict(estimate_bytes: float, upper_bytes: float, usable_bytes: float) -> Fit:
    """`fits`: even the upper bound is within usable memory; `does_not_fit`: the estimate is beyond it; `at_risk`: in between."""
    if estimate_bytes > usable_bytes:
        return "does_not_fit"
    return "fits" if upper_bytes <= usable_bytes else "at_risk"
