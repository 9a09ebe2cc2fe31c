"""What Primus's own projection prints, as data: the summary at the end, not the first line that looks like it.

Its text is untrusted: bounded, every number checked, and what it says about itself is held against what was asked.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

MAX_OUTPUT_CHARACTERS = 4_000_000
_NUMBER = r"([0-9][0-9,]{0,20}(?:\.[0-9]{1,12})?)"
_MEMORY_HEADER, _MEASURED_HEADER = "Memory Projection Summary on Rank", "Per-rank peak memory at"
_TARGET_HEADER = "Target Configuration ("
_STATES = re.compile(rf"Param\+Optimizer Memory:\s*{_NUMBER}\s*GB")
_ACTIVATION = re.compile(rf"Activation Memory[^:\n]{{0,80}}:\s*{_NUMBER}\s*GB")
_TOTAL = re.compile(rf"Projected Total Memory:\s*{_NUMBER}\s*GB")
_POINT = re.compile(rf"Point estimate \(per rank\):\s*{_NUMBER}\s*GB")
_UPPER = re.compile(rf"Upper bound\s+\(per rank\):\s*{_NUMBER}\s*GB")
_MEASURED_STATES = tuple(
    re.compile(rf"^\s+{name}\s*:\s*{_NUMBER}\s*GB", re.MULTILINE)
    for name in (r"Params \(bf16\)", r"Grads\s+\(bf16\)", r"Optimizer \(fp32, DP\)")
)
_MEASURED_ACTIVATION = re.compile(rf"^\s+Activations:\s*{_NUMBER}\s*GB", re.MULTILINE)
_ITERATION = re.compile(rf"Iteration Time:\s*{_NUMBER}\s*ms")
_TOKENS = re.compile(rf"Tokens/s/GPU:\s*{_NUMBER}[ \t\r]*\n")
_WORLD = re.compile(r"Nodes:\s*(\d{1,7}),\s*GPUs:\s*(\d{1,8})")
_DEGREES = re.compile(r"TP=(\d{1,6}),\s*PP=(\d{1,6}),\s*EP=(\d{1,6}),\s*CP=(\d{1,6}),\s*DP=(\d{1,8})")
_TRAFFIC = re.compile(rf"^\s+([a-z][a-z0-9_]{{0,40}}):\s*{_NUMBER}\s*ms\b", re.MULTILINE)
_FAULTS = (
    (
        "primus_deadlock",
        re.compile(r"max[ _]retry", re.IGNORECASE),
        "its schedule simulator gave up (Max retry): the time is that of a part",
    ),
    ("primus_traceback", re.compile(r"^Traceback \(most recent call last\)", re.MULTILINE), "it printed a Python traceback"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimusMemory:
    """Rank 0, GB of 2**30 bytes. `upper_gb`: of a measured projection only."""

    param_optimizer_gb: float
    activation_gb: float
    total_gb: float
    upper_gb: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimusTime:
    """The target configuration, as Primus understood it."""

    iteration_ms: float
    tokens_per_s_per_gpu: float
    nodes: int
    gpus: int
    tp: int
    pp: int
    ep: int
    cp: int
    dp: int
    traffic_ms: dict[str, float]


def _value(text: str | None) -> float | None:
    if text is None:
        return None
    found = float(text.replace(",", ""))
    return found if math.isfinite(found) else None


def _last(text: str, header: str) -> str | None:
    """What follows the last line that holds the header, up to the next rule of equal signs."""
    position = text.rfind(header)
    if position < 0:
        return None
    block, rule, _ = text[position:].partition("\n====")
    return f"{block}\n" if rule else block


def _figure(pattern: re.Pattern[str], text: str) -> float | None:
    found = pattern.search(text)
    return _value(found[1]) if found else None


def parse_memory(output: str) -> PrimusMemory | None:
    """The summary of rank 0, or the report of `--memory-mode benchmark`; None where it is missing or cut."""
    text = output[-MAX_OUTPUT_CHARACTERS:]
    block = _last(text, _MEMORY_HEADER)
    if block is None:
        return _measured_memory(text)
    states, activation, total = (_figure(pattern, block) for pattern in (_STATES, _ACTIVATION, _TOTAL))
    if states is None or activation is None or total is None:
        return None
    return PrimusMemory(param_optimizer_gb=states, activation_gb=activation, total_gb=total)


def _measured_memory(text: str) -> PrimusMemory | None:
    """Primus's memory_projection/reports.py@a9c76879: analytic parts, then point estimate and upper bound."""
    position = text.rfind(_MEASURED_HEADER)
    if position < 0:
        return None
    block = text[position:]  # a rule of equal signs follows its title at once
    states = [_figure(pattern, block) for pattern in _MEASURED_STATES]
    activation, point, upper = (_figure(pattern, block) for pattern in (_MEASURED_ACTIVATION, _POINT, _UPPER))
    if activation is None or point is None or upper is None or upper < point:
        return None
    known = [part for part in states if part is not None]
    if len(known) < len(states):
        return None
    return PrimusMemory(param_optimizer_gb=sum(known), activation_gb=activation, total_gb=point, upper_gb=upper)


def parse_time(output: str) -> PrimusTime | None:
    """The last target configuration; None where it is missing or cut."""
    text = output[-MAX_OUTPUT_CHARACTERS:]
    block = _last(text, _TARGET_HEADER)
    if block is None:
        return None
    iteration, tokens = _figure(_ITERATION, block), _figure(_TOKENS, block)
    world, degrees = _WORLD.search(block), _DEGREES.search(block)
    if not iteration or not tokens or world is None or degrees is None:
        return None
    tp, pp, ep, cp, dp = (int(part) for part in degrees.groups())
    return PrimusTime(
        iteration_ms=iteration,
        tokens_per_s_per_gpu=tokens,
        nodes=int(world[1]),
        gpus=int(world[2]),
        tp=tp,
        pp=pp,
        ep=ep,
        cp=cp,
        dp=dp,
        traffic_ms=_traffic(text),
    )


def _traffic(text: str) -> dict[str, float]:
    start = text.rfind("Communication Breakdown:")
    block = text[start:].split("Total Communication", 1)[0] if start >= 0 else ""
    found = {name: _value(value) for name, value in _TRAFFIC.findall(block)}
    return {name: value for name, value in found.items() if value is not None}


def faults(output: str) -> tuple[tuple[str, str], ...]:
    """(code, text) of what the output itself says went wrong, whatever the exit code."""
    text = output[-MAX_OUTPUT_CHARACTERS:]
    return tuple((code, told) for code, pattern, told in _FAULTS if pattern.search(text))
