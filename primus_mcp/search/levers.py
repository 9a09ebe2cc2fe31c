"""Settings that help at most shapes, by impact: recompute, virtual stages, expert exchange, FP8, fused loss, data-parallel overlap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.workload import Workload
from primus_mcp.space.axes import ep_values, vpp_values
from primus_mcp.space.knobs import TrialConfig
from primus_mcp.space.legality import check_legality
from primus_mcp.space.rules.moe import DEEPEP_GROUPS

Shape = Callable[[Mapping[str, Any]], TrialConfig]
"""Knobs as a trial with its pins."""


def _refused(workload: Workload, cluster: Cluster, shape: Shape, knobs: Mapping[str, Any]) -> bool:
    """Whether exchange knobs break a rule at the widest EP within a node that DeepEP serves, which that EP alone does not break."""
    served = [ep for ep in ep_values(workload.architecture, cluster) if ep in DEEPEP_GROUPS and ep <= cluster.tightly_linked_gpus]
    alone = {"ep": max(served), "expert_tensor_parallel_size": 1} if served else {}

    def broken(trial: TrialConfig) -> set[str]:
        return {found.rule for found in check_legality(workload, trial, cluster).violations}

    return bool(broken(shape({**alone, **knobs})) - broken(shape(alone)))


def exchange_levers(workload: Workload, cluster: Cluster, shape: Shape) -> list[dict[str, Any]]:
    """DeepEP and sync-free settings that the model may have, strongest first; stage >= 2 needs ETP 1."""
    arch, own = workload.architecture, workload.baseline
    if not arch.is_moe:
        return []
    alone: dict[str, Any] = {"expert_tensor_parallel_size": 1} if own.etp > 1 else {}
    levers = [{"use_turbo_deepep": True, "sync_free_stage": stage, **alone} for stage in (2, 1)]
    return [lever for lever in [*levers, {"use_turbo_deepep": True}] if not _refused(workload, cluster, shape, lever)]


def _virtual_stages(workload: Workload) -> list[int]:
    """VPP values worth trying at the workload's depth: those that split layers evenly first."""
    own, layers = workload.baseline, workload.architecture.num_layers
    if own.pp == 1:
        return []
    choices = [vpp for vpp in vpp_values(workload.architecture, own.pp) if vpp != own.vpp]
    return sorted(choices, key=lambda vpp: (layers % (own.pp * vpp) != 0, abs(vpp - 2), vpp))[:2]


def single_levers(workload: Workload, cluster: Cluster, shape: Shape) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Levers by impact: a label, and alternatives of which the first that helps is kept."""
    own = workload.baseline
    lighter = {"full": ("none", "selective"), "selective": ("none",), "none": ()}[own.recompute.granularity]
    yield "recompute", [{"recompute_granularity": granularity} for granularity in lighter]
    yield "VPP", [{"vpp": vpp} for vpp in _virtual_stages(workload)]
    yield "expert exchange", exchange_levers(workload, cluster, shape)
    yield "FP8", [{"fp8": "hybrid"}] if own.fp8 is None and not own.fp4 else []
    yield "fused loss", [{"cross_entropy_loss_fusion": True}]
    yield "data-parallel overlap", [{"overlap_grad_reduce": True, "overlap_param_gather": True}]
