"""Does it fit? The one vocabulary of every command, tool, table and report (docs/memory.md).

Two limits: the usable memory of the GPU, and the cap, which is that memory less the safety margin. Two figures: the estimate and its
upper bound.
"""

from __future__ import annotations

from typing import Literal

from primus_mcp.units import bytes_to_gb

Fit = Literal["fits", "at_risk", "does_not_fit"]
Word = Literal["fits", "at risk", "over cap", "too large"]
WORDS: tuple[Word, ...] = ("too large", "over cap", "at risk", "fits")
"""From the worst to the best."""
MEANINGS = {
    "fits": "the estimate is within the cap and its upper bound within the GPU",
    "at risk": "the estimate is within the cap, its upper bound beyond the GPU",
    "over cap": "the estimate is above the cap, but the GPU may hold it",
    "too large": "the estimate is beyond the GPU",
}
CACHE_NOTE = "the estimate is above the GPU's memory too; it runs only once the allocator has given back cache, which costs time"


def verdict(estimate_bytes: float, upper_bytes: float, usable_bytes: float) -> Fit:
    """Against the GPU alone, without margin. `fits`: even the upper bound is within usable memory; `does_not_fit`: the estimate is beyond
    it; `at_risk`: in between.
    """
    if estimate_bytes > usable_bytes:
        return "does_not_fit"
    return "fits" if upper_bytes <= usable_bytes else "at_risk"


def word(fit: Fit | None, *, within_cap: bool | None) -> Word | None:
    """GPU and cap in one word (MEANINGS). `fit` None: nothing is known of the GPU, so the cap alone decides. None: nothing is known."""
    if within_cap is None and fit is None:
        return None
    if fit == "does_not_fit":
        return "too large"
    if within_cap is False:
        return "over cap"
    return "at risk" if fit == "at_risk" else "fits"


def cache_note(fit: Fit | None, estimate_bytes: float, usable_bytes: float) -> str | None:
    """What must be said where the estimate exceeds the GPU and the verdict is not `too large`: only its cache is beyond."""
    return CACHE_NOTE if fit == "at_risk" and estimate_bytes > usable_bytes else None


def verdict_text(fit: Fit | None, estimate_bytes: float, upper_bytes: float | None, cap_bytes: float, usable_bytes: float) -> str:
    """The word with the figures that it compares, in GB of 2**30 bytes."""
    found = word(fit, within_cap=estimate_bytes <= cap_bytes)
    estimate, cap, usable = (f"{bytes_to_gb(size):.2f} GB" for size in (estimate_bytes, cap_bytes, usable_bytes))
    if found == "too large":
        return f"too large: {estimate} is beyond the {usable} of the GPU"
    inside = "within" if estimate_bytes <= cap_bytes else "above"
    text = f"{found}: {estimate} is {inside} the cap of {cap}"
    if upper_bytes is not None:
        held = "within" if upper_bytes <= usable_bytes else "beyond"
        text += f", at most {bytes_to_gb(upper_bytes):.2f} GB {held} the {usable} of the GPU"
    note = cache_note(fit, estimate_bytes, usable_bytes)
    return f"{text}; {note}" if note else text
