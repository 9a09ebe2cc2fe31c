"""What an iteration would take in another shape, from the parts of a priced one: a rule of thumb for the order of trials, never a result.

The figures below are of the search, not of the engine: no answer holds one of them, a wrong one costs trials and never a number. So they
stand here, and not in the catalogue, whose every change makes a new engine.

Each part of the incumbent's iteration is scaled by what the shape changes in it; what has been priced since corrects the forecast around
it. So a step is expected to gain no more than the bottleneck that it relieves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from primus_mcp.driver.shapes import SELECTIVE, Column, Shapes

Parts = Mapping[str, float]
_DP = ("gradient_exchange", "parameter_exchange", "optimizer")
_HEAD = ("output_layer", "loss", "mtp_projection", "embedding")
"""On one stage only: the deeper the pipeline, the larger their share of that stage."""
_SCALED = {*_DP, *_HEAD, "tp", "cp", "a2a", "host", "pipeline_p2p", "bubble", "recompute"}
TP_SHARE, CP_SHARE, EP_SHARE = 0.06, 0.03, 0.05
"""Cost of a step of TP, CP, EP where the incumbent has none to scale, as a share of its work. Only used until a trial with that degree is
priced, which then scales instead; large enough that a degree is not tried for nothing, small enough that it is tried."""
RECOMPUTE_SHARE = 0.3
"""Of the work, where all layers run their forward pass twice: a third of its FLOPs, less the head, which does not."""
SELECTIVE_SHARE = 0.02
"""The same of attention's core alone, which is a few percent of a layer at usual sequence lengths."""
SPLIT_BUBBLE = (1.0, 0.4, 0.25, 0.6)
"""What is left of the bubble (F + B) (PP - 1) of 1F1B, by schedule (SCHEDULES): zero bubble leaves F + B - 2 W, about a third, and what its
optimizer step adds; the V order less; the V order with half the memory waits again."""
NARROW = 0.03
"""Loss of GEMM efficiency by a doubling of TP or a halving of the tokens of a micro-batch on a GPU: tiles of narrow GEMMs fill worse."""
REACH = {"tp": 1.5, "pp": 1.0, "ep": 1.5, "cp": 1.5, "mbs": 0.7, "vpp": 0.4, "recompute": 0.7, "schedule": 1.0}
"""How fast a correction fades with the distance, in doublings (recompute: shares, schedule: a change). Degrees that move traffic to other
links fade fastest; VPP, which changes the bubble alone, slowest."""
SELECTIVE_AT = 0.1
"""Where selective recompute stands among shares of layers, for distances: near none."""
DOUBT = 0.35
"""Weight of the uncorrected forecast beside trials, of which one of the shape itself has 1: a single near trial outweighs the forecast, a
far one does not."""


def flat_parts() -> Parts:
    """Before anything is priced: all work."""
    return {"work": 1.0}


def _scaled(now: float, unit: Column, then: float, default: Column) -> Column:
    """A part in proportion to `unit`, whose value in the incumbent is `then`; `default` where it has none."""
    return np.asarray(now * unit / then if then > 0 and now > 0 else default, dtype=np.float64)


def _beyond_node(ep: Column, node: int, gap: float) -> Column:
    """Exchange of a token's copies: (EP - 1) / EP of them leave the GPU; the share that leaves the node is `gap` times slower."""
    outside = np.maximum(0.0, 1 - node / ep)
    return (ep - 1) / ep * (1 + gap * outside)


def forecast(parts: Parts, base: Mapping[str, float], shapes: Shapes, *, gbs: int, node: int, gap: float) -> Column:
    """Iteration time of every shape in the unit of `parts`, which are those of the shape `base`. `gap`: node links over NICs."""
    work = sum(value for name, value in parts.items() if name not in _SCALED)
    now = {name: parts.get(name, 0.0) for name in _SCALED}
    tokens = np.log2(base["mbs"] / base["cp"]) - np.log2(shapes.mbs / shapes.cp)
    narrow = NARROW * (np.log2(shapes.tp / base["tp"]) + tokens)
    head = sum(now[name] for name in _HEAD) * shapes.pp / base["pp"]
    busy = (work + head) * np.exp(np.maximum(narrow, -NARROW * 2))
    busy = busy + _scaled(now["tp"], shapes.tp - 1, base["tp"] - 1, TP_SHARE * work * (shapes.tp - 1))
    busy = busy + _scaled(now["cp"], shapes.cp - 1, base["cp"] - 1, CP_SHARE * work * (shapes.cp - 1))
    base_ep = np.array([base["ep"]])
    exchange = _beyond_node(shapes.ep, node, gap)
    busy = busy + _scaled(now["a2a"], exchange, float(_beyond_node(base_ep, node, gap)[0]), EP_SHARE * work * exchange)
    calls = shapes.tp * shapes.cp / shapes.mbs
    busy = busy + now["host"] * calls / (base["tp"] * base["cp"] / base["mbs"])
    share = np.where(shapes.recompute == SELECTIVE, SELECTIVE_SHARE / RECOMPUTE_SHARE, shapes.recompute)
    held = SELECTIVE_SHARE / RECOMPUTE_SHARE if base["recompute"] == SELECTIVE else base["recompute"]
    busy = busy + _scaled(now["recompute"], share, held, RECOMPUTE_SHARE * work * share)
    micro_batches = np.maximum(1.0, gbs / (shapes.mbs * shapes.dp))
    bubble = busy * (shapes.pp - 1) / (micro_batches * shapes.vpp) * np.array(SPLIT_BUBBLE)[shapes.schedule.astype(int)]
    replicas = base["tp"] * base["pp"] / (shapes.tp * shapes.pp)
    once = sum(now[name] for name in _DP) * replicas
    hops = now["pipeline_p2p"] * (shapes.pp > 1) * shapes.vpp / base["vpp"]
    return np.asarray(busy + bubble + once + hops, dtype=np.float64)


def nearness(shapes: Shapes, point: Mapping[str, float]) -> Column:
    """How much a priced shape tells of each other one: 1 for itself, falling with the distance."""
    total = np.zeros(len(shapes))
    for name, reach in REACH.items():
        column = getattr(shapes, name)
        if name == "schedule":
            total += reach * (column != point[name])
        elif name == "recompute":
            share = np.where(column == SELECTIVE, SELECTIVE_AT, column)
            total += reach * np.abs(share - (SELECTIVE_AT if point[name] == SELECTIVE else point[name]))
        else:
            total += reach * np.abs(np.log2(column / point[name]))
    return np.asarray(np.exp(-total), dtype=np.float64)


def corrected(times: Column, seen: Sequence[tuple[Column, float]]) -> Column:
    """The forecast times what priced shapes came out at against their own forecast. `seen`: (nearness, measured / forecast) of each."""
    weights, logs = np.zeros(len(times)), np.zeros(len(times))
    for near, ratio in seen:
        weights += near
        logs += near * np.log(ratio)
    return np.asarray(times * np.exp(logs / (weights + DOUBT)), dtype=np.float64)
