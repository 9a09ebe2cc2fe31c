"""What speed, memory, money and time cost each other: the configurations that nothing else beats in every respect."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from primus_mcp.errors import InputError
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.inputs.cluster_file import MAX_NODES
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.search.prices import Price, usd_per_million_tokens
from primus_mcp.search.sweep_result import SweptTrial
from primus_mcp.units import MTOKEN, S_PER_DAY, bytes_to_gb

MOST = 1e18
"""Tokens or days beyond which an amount is a typing error."""
WIDER = 1.25
"""Of an extrapolated number of nodes: the larger one that is worth sweeping too."""
_TOKENS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_DAYS = {"d": 1.0, "h": 1 / 24, "w": 7.0, "m": 30.0}


class FrontPoint(BaseModel):
    """One configuration on one cluster. null: unknown or not asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    cluster: str
    gpu: str
    nodes: int
    gpus: int
    trial: dict[str, Any]
    result: EvaluationResult
    tokens_per_s_per_gpu: float
    tokens_per_s: float = Field(description="of the whole cluster")
    headroom_gb: float = Field(description="usable HBM minus the memory estimate")
    mfu: float | None
    usd_per_million_tokens: float | None
    price_source: str | None
    days: float | None = Field(description="to train the target number of tokens, without interruptions")
    usd: float | None = Field(description="for the target number of tokens")


def front_point(one: SweptTrial, cluster: Cluster, price: Price | None, target_tokens: float | None) -> FrontPoint:
    """$ / Mtoken = price / 3600 / (tokens/s/GPU) x 1e6; days = tokens / (tokens/s/GPU x GPUs) / 86400."""
    result = one.result
    rate = result.tokens_per_s_per_gpu
    assert rate is not None and result.memory_per_gpu_gb is not None
    per_million = None if price is None else usd_per_million_tokens(price, rate)
    days = None if target_tokens is None else target_tokens / (rate * cluster.world_size) / S_PER_DAY
    return FrontPoint(
        cluster=cluster.name,
        gpu=cluster.gpu.name,
        nodes=cluster.num_nodes,
        gpus=cluster.world_size,
        trial=one.trial,
        result=result,
        tokens_per_s_per_gpu=rate,
        tokens_per_s=rate * cluster.world_size,
        headroom_gb=bytes_to_gb(cluster.hbm_bytes) - result.memory_per_gpu_gb,
        mfu=result.mfu,
        usd_per_million_tokens=per_million,
        price_source=price.source if price is not None else None,
        days=days,
        usd=None if per_million is None or target_tokens is None else per_million * target_tokens / MTOKEN,
    )


def _objectives(point: FrontPoint) -> tuple[float, ...]:
    """Larger is better in each. An unknown price is compared with nothing: it counts as the worst and as no better than another unknown."""
    price = math.inf if point.usd_per_million_tokens is None else point.usd_per_million_tokens
    return (point.tokens_per_s_per_gpu, point.headroom_gb, point.mfu or 0.0, -price, -point.gpus, point.tokens_per_s)


def dominates(one: FrontPoint, other: FrontPoint) -> bool:
    """At least as good in every respect and better in one."""
    first, second = _objectives(one), _objectives(other)
    return all(a >= b for a, b in zip(first, second, strict=True)) and first != second


def pareto_front(points: Sequence[FrontPoint]) -> list[FrontPoint]:
    """The points that none other dominates: tokens/s/GPU, memory headroom, MFU, $/Mtoken, GPUs needed, tokens/s. Fastest a GPU first."""
    front = [point for point in points if not any(dominates(other, point) for other in points)]
    return sorted(front, key=lambda point: (-point.tokens_per_s_per_gpu, -point.headroom_gb))


def smallest_in_time(points: Sequence[FrontPoint], deadline_days: float) -> FrontPoint | None:
    """The fewest GPUs that train the target in time; among equals the fastest. None: no swept cluster does."""
    in_time = [point for point in points if point.days is not None and point.days <= deadline_days]
    return min(in_time, key=lambda point: (point.gpus, point.days or 0.0), default=None)


def deadline_text(points: Sequence[FrontPoint], target_tokens: float, deadline_days: float) -> str:
    """The answer to "how many nodes"."""
    found = smallest_in_time(points, deadline_days)
    wanted = f"{target_tokens:,.0f} tokens in {deadline_days:g} days"
    if found is not None:
        cost = "price unknown" if found.usd is None else f"about ${found.usd:,.0f} ({found.price_source})"
        return f"{wanted}: {found.nodes} nodes ({found.gpus} {found.gpu}) take {found.days:.1f} days without interruptions; {cost}"
    fastest = min((point for point in points if point.days is not None), key=lambda point: point.days or 0.0, default=None)
    if fastest is None:
        return f"{wanted}: no swept cluster holds this workload"
    none = f"{wanted}: none of the swept clusters; the fastest, {fastest.nodes} nodes of {fastest.gpu}, takes {fastest.days:.1f} days"
    nodes = nodes_for(fastest, deadline_days)
    if nodes > MAX_NODES:
        return f"{none}; extrapolated at its tokens/s/GPU it would take more than {MAX_NODES:,} nodes"
    wider = ",".join(str(count) for count in dict.fromkeys((nodes, min(MAX_NODES, math.ceil(nodes * WIDER)))))
    return (
        f"{none}; extrapolated at its tokens/s/GPU, which more nodes may lower, about {nodes:,} nodes would do: "
        f"sweep them (--gpu {fastest.gpu} --nodes {wider}) before you count on it"
    )


def nodes_for(point: FrontPoint, deadline_days: float) -> int:
    """Nodes that train the target in time at this point's tokens/s/GPU: ceil(nodes x days / deadline). An extrapolation, nothing priced."""
    return math.ceil(point.nodes * (point.days or 0.0) / deadline_days)


def parse_tokens(text: str) -> float:
    """`1T`, `300B`, `5e11`. Raises InputError."""
    return _amount(text, _TOKENS, "--target-tokens", "write for example 1T or 300B")


def parse_days(text: str) -> float:
    """`30d`, `36h`, `2w`. Raises InputError."""
    return _amount(text, _DAYS | {"": 1.0}, "--deadline", "write for example 30d or 2w")


def _amount(text: str, units: dict[str, float], where: str, remedy: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d+)?)([a-z]?)", text.strip().lower())
    amount = float(match[1]) * units.get(match[2], math.nan) if match is not None else math.nan
    if not 0 < amount <= MOST:
        raise InputError(f"{text!r} is not an amount above 0 and up to {MOST:g}", where=where, remedy=remedy)
    return amount
