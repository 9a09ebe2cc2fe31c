"""Legal values of each knob taken alone, for prompts, sweeps and seeds; a combination is judged by `check_legality`."""

from __future__ import annotations

from collections.abc import Mapping

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.built_model import turbo_sinks
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.workload import Workload
from primus_mcp.space.knobs import KNOBS, KnobValue, PipelineSchedule, TrialConfig, knob_values
from primus_mcp.space.legality import check_legality
from primus_mcp.space.rules.batch import GBS_FACTORS, MBS_LIMIT
from primus_mcp.space.rules.hybrid import is_stacked
from primus_mcp.space.rules.moe import DEEPEP_GROUPS, runs_turbo
from primus_mcp.space.rules.pipeline import VPP_LIMIT

RUNNABLE_SCHEDULES: tuple[PipelineSchedule, ...] = (
    "auto",
    "zerobubble",
    "zerobubble-heuristic",
    "zbv-formatted",
    "zbv-greedy-half",
    "zbv-greedy-min",
)
"""Values of `pp_schedule` that the trainer can run at some VPP (the others have no key, S1)."""


def divisors(number: int, limit: int) -> list[int]:
    """Divisors of a number up to a limit."""
    return [d for d in range(1, min(number, limit) + 1) if number % d == 0]


def tp_values(arch: Architecture, cluster: Cluster) -> list[int]:
    """TP within a node that divides heads and hidden size, with query groups that divide or are replicated (T1, T2)."""
    groups = arch.num_query_groups
    return [
        tp
        for tp in divisors(arch.num_attention_heads, cluster.tightly_linked_gpus)
        if arch.hidden_size % tp == 0 and (groups % tp == 0 or tp % groups == 0) and cluster.world_size % tp == 0
    ]


def pp_values(arch: Architecture, cluster: Cluster) -> list[int]:
    """Every depth that divides the world and leaves each stage a layer."""
    return divisors(cluster.world_size, arch.num_layers)


def ep_values(arch: Architecture, cluster: Cluster) -> list[int]:
    """Divisors of the experts and of the world; 1 on dense models (E1)."""
    if arch.experts is None or not arch.is_moe:
        return [1]
    return [ep for ep in divisors(arch.experts.num_experts, cluster.world_size) if cluster.world_size % ep == 0]


def etp_values(arch: Architecture, degrees: list[int]) -> list[int]:
    """1, and every TP that divides the experts' width (T7); 1 alone where experts have biases (T18)."""
    experts = arch.experts
    if experts is None or arch.linear_bias:
        return [1]
    return [1, *[tp for tp in degrees if tp > 1 and experts.expert_ffn_hidden_size % tp == 0]]


def cp_values(arch: Architecture, cluster: Cluster) -> list[int]:
    """CP with seq % (2 CP) == 0 (C1), 1 where attention cannot be split (C10, T19); dense within a node, MoE up to the largest EP."""
    limit = max(ep_values(arch, cluster)) if arch.is_moe else cluster.gpus_per_node
    alone = arch.sparse_indexer is not None or arch.mixer is not None
    whole = divisors(cluster.world_size, limit)
    return [cp for cp in whole if cp == 1 or (arch.seq_length % (2 * cp) == 0 and not alone)]


def vpp_values(arch: Architecture, pp: int) -> list[int]:
    """Virtual stages at a depth: PP x VPP <= layers, at most the policy's limit; 1 in a hybrid stack (L20)."""
    return [1] if pp == 1 or is_stacked(arch) else [vpp for vpp in range(1, VPP_LIMIT + 1) if pp * vpp <= arch.num_layers]


def schedule_values(arch: Architecture, depths: list[int]) -> list[PipelineSchedule]:
    """Schedules that some depth can run: split backward needs PP > 1 (Z1), the V orders an even split over 2 PP stages (S3, v-layout)."""
    deep = [pp for pp in depths if pp > 1]
    v_order = not is_stacked(arch) and any(arch.num_layers % (2 * pp) == 0 for pp in deep)
    return [name for name in RUNNABLE_SCHEDULES if name == "auto" or (v_order if name.startswith("zbv") else bool(deep))]


def mbs_values() -> list[int]:
    """Powers of two up to the policy's limit."""
    return [2**power for power in range(MBS_LIMIT.bit_length())]


def _without_refused(workload: Workload, cluster: Cluster, name: str, values: list[KnobValue]) -> list[KnobValue]:
    """The values of a lever without those that break a rule even at TP, PP, CP and ETP 1 and the widest EP that DeepEP serves in a node."""
    arch = workload.architecture
    served = [ep for ep in ep_values(arch, cluster) if ep in DEEPEP_GROUPS and ep <= cluster.gpus_per_node]
    shape: dict[str, KnobValue] = {"tp": 1, "pp": 1, "cp": 1}
    shape |= {"ep": max(served, default=1), "expert_tensor_parallel_size": 1} if arch.is_moe else {}

    def broken(knobs: dict[str, KnobValue]) -> set[str]:
        return {found.rule for found in check_legality(workload, TrialConfig.model_validate(knobs), cluster).violations}

    rest = broken({**shape, name: values[0]})
    return [values[0], *[value for value in values[1:] if not broken({**shape, name: value}) - rest]]


def _free_values(workload: Workload, cluster: Cluster) -> dict[str, list[KnobValue]]:
    arch, baseline = workload.architecture, workload.baseline
    depths = pp_values(arch, cluster)
    deepest_free = min((pp for pp in depths if pp > 1), default=1)
    switch: list[KnobValue] = [False, True]
    fp8: list[KnobValue] = ["none", "hybrid", "e4m3"] if "fp8" in cluster.gpu.peak_flops else ["none"]
    if arch.latent_attention is None and len(fp8) > 1:
        fp8 += ["delayed", "mxfp8"] if cluster.gpu.supports_mxfp8 else ["delayed"]
    experts = ep_values(arch, cluster)
    turbo = runs_turbo(cluster.gpu)
    alone = turbo_sinks(workload.arguments)
    unfused = cluster.gpu.vendor == "amd" and workload.arguments.get("softmax_type") not in (None, "vanilla")
    degrees = [1] if alone else tp_values(arch, cluster)
    return {
        "tp": [*degrees],
        "pp": [*depths],
        "ep": [*experts],
        "expert_tensor_parallel_size": [*etp_values(arch, degrees)],
        "cp": [1] if alone or unfused else [*cp_values(arch, cluster)],
        "vpp": [*vpp_values(arch, deepest_free)],
        "mbs": [*mbs_values()],
        "gbs": [int(factor * baseline.gbs) for factor in GBS_FACTORS if factor * baseline.gbs % 1 == 0],
        "overlap_grad_reduce": switch,
        "overlap_param_gather": switch,
        "pp_schedule": [*schedule_values(arch, depths)],
        "enable_zero_bubble": switch if deepest_free > 1 else [False],
        "recompute_granularity": ["none", "selective", "full"],
        "recompute_num_layers": [*range(arch.num_layers + 1)],
        "cross_entropy_loss_fusion": switch,
        "use_distributed_optimizer": switch,
        "use_torch_fsdp2": [False] if arch.tied_embeddings else switch,
        "use_turbo_deepep": switch if turbo else [False],
        "sync_free_stage": [0, 1, 2, 3] if turbo else [0],
        "target_ep_size": [*experts],
        "fp8": fp8,
    }


def legal_axes(
    workload: Workload,
    cluster: Cluster,
    *,
    axes: Mapping[str, bool] | None = None,
    pins: Mapping[str, KnobValue] | None = None,
) -> dict[str, tuple[KnobValue, ...]]:
    """Values of every knob that some configuration on the cluster may take, always with the workload's own.

    An axis set to false holds its knobs at the baseline, a pin at its value, MoE knobs of a dense model at rest (ETP unset there).
    """
    toggles, held = axes or {}, pins or {}
    own = knob_values(workload.baseline)
    free = _free_values(workload, cluster)
    result: dict[str, tuple[KnobValue, ...]] = {}
    for name in ("fp8", "use_turbo_deepep", "sync_free_stage") if workload.architecture.is_moe else ("fp8",):
        free[name] = _without_refused(workload, cluster, name, free[name])
    for name, knob in KNOBS.items():
        resting = knob.moe_only and not workload.architecture.is_moe
        fixed = (knob.axis is not None and not toggles.get(knob.axis, True)) or resting
        if name in held:
            result[name] = (held[name],)
        elif resting and name == "expert_tensor_parallel_size":
            result[name] = (None,)
        elif fixed:
            result[name] = (own[name],)
        else:
            values = free[name] if own[name] is None or own[name] in free[name] else [*free[name], own[name]]
            result[name] = tuple(sorted(values, key=_order) if knob.kind == "int" else values)
    return result


def _order(value: KnobValue) -> int:
    return value if isinstance(value, int) else 0


def with_pins(trial: TrialConfig, pins: Mapping[str, KnobValue]) -> TrialConfig:
    """The trial with every pinned knob that it leaves unset (one that it moves is left for `check_legality` to refuse)."""
    unset = {name: value for name, value in pins.items() if getattr(trial, name) is None}
    return trial.model_copy(update=unset) if unset else trial
