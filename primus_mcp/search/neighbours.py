"""One step away from a configuration: schedules, VPP and MBS, recompute, optimizer sharding, MoE and precision levers, each degree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.inputs.workload import Workload
from primus_mcp.space.axes import cp_values, ep_values, mbs_values, pp_values, tp_values, vpp_values
from primus_mcp.space.knobs import TrialConfig, set_knobs
from primus_mcp.space.pipeline_keys import largest_stage
from primus_mcp.space.rules.moe import turbo_left_out
from primus_mcp.space.trainer_keys import resolve

Step = tuple[str, dict[str, Any]]


def _beside(values: list[int], value: int) -> list[int]:
    """The next smaller and the next larger of the values."""
    return [max((v for v in values if v < value), default=value), min((v for v in values if v > value), default=value)]


def _virtual_stages(workload: Workload, config: TrainingConfig) -> list[int]:
    """The largest VPP that splits the layers evenly, the next ones, half as many and twice as many, the largest of all.

    The bubble falls with 1 / VPP while uneven layouts make the time of single steps jump, so a step may lose where a larger one wins.
    Rank 0 holds PP (1 + (PP - 1) / (PP VPP)) micro-batches: a large VPP may fit where the next one does not.
    """
    values, layers = vpp_values(workload.architecture, config.pp), workload.architecture.num_layers
    even = [vpp for vpp in values if layers % (config.pp * vpp) == 0]
    half, double = (max((vpp for vpp in values if vpp <= wanted), default=values[0]) for wanted in (config.vpp // 2, config.vpp * 2))
    return list(dict.fromkeys([*even[-1:], *_beside(values, config.vpp), half, double, values[-1]]))


def _as_interleaved(workload: Workload, config: TrainingConfig, pp: int) -> int:
    """VPP at another depth with as many layers in a virtual stage, or a few more: a step that also gave interleaving up would say nothing
    of the depth.
    """
    values = vpp_values(workload.architecture, pp)
    return max((vpp for vpp in values if vpp * pp <= config.vpp * config.pp), default=values[0]) if config.vpp > 1 else 1


def _schedules(config: TrainingConfig) -> Iterator[Step]:
    if config.pp == 1:
        return
    plain = {"recompute_granularity": "none", "recompute_num_layers": None}
    yield "schedule: zero bubble", {"vpp": 1, "pp_schedule": "zerobubble", **plain}
    yield "schedule: V", {"vpp": 2, "pp_schedule": "zbv-formatted", **plain}
    yield "schedule: V, half memory", {"vpp": 2, "pp_schedule": "zbv-greedy-half", **plain}
    yield "schedule: stock", {"pp_schedule": "auto"}


def _recompute(workload: Workload, centre: TrialConfig, config: TrainingConfig) -> Iterator[Step]:
    stage = largest_stage(centre, workload)
    if config.recompute.granularity == "full":
        layers = config.recompute.num_layers or stage
        for fewer in sorted({layers // 2, layers * 3 // 4, layers - 1} - {0, layers}):
            yield f"recompute {fewer} layers", {"recompute_granularity": "full", "recompute_num_layers": fewer}
        yield "recompute none", {"recompute_granularity": "none", "recompute_num_layers": None}
    elif stage > 1:
        yield (
            f"recompute {stage // 2} layers, larger micro-batch",
            {
                "recompute_granularity": "full",
                "recompute_num_layers": stage // 2,
                "mbs": config.mbs * 2,
            },
        )


def _model_degrees(workload: Workload, cluster: Cluster, config: TrainingConfig) -> Iterator[Step]:
    arch = workload.architecture
    for ep in _beside(ep_values(arch, cluster), config.ep) if arch.is_moe else []:
        yield f"EP {ep}", {"ep": ep}
    for pp in _beside(pp_values(arch, cluster), config.pp):
        yield f"PP {pp}", {"pp": pp, "vpp": _as_interleaved(workload, config, pp)}


def _split_degrees(workload: Workload, cluster: Cluster, config: TrainingConfig) -> Iterator[Step]:
    arch = workload.architecture
    for tp in _beside(tp_values(arch, cluster), config.tp):
        plain = arch.is_moe and config.dispatcher == "deepep" and turbo_left_out(cluster.gpu, tp)
        exchange = {"use_turbo_deepep": False, "sync_free_stage": min(1, config.sync_free_stage)} if plain else {}
        yield f"TP {tp}", {"tp": tp, **({"expert_tensor_parallel_size": 1} if arch.is_moe else {}), **exchange}
    for cp in _beside(cp_values(arch, cluster), config.cp):
        yield f"CP {cp}", {"cp": cp}


def _levers(workload: Workload, cluster: Cluster, config: TrainingConfig) -> Iterator[Step]:
    if config.use_torch_fsdp2 or not config.use_distributed_optimizer:
        yield "distributed optimizer", {"use_distributed_optimizer": True, "use_torch_fsdp2": False}
    if config.pp == config.ep == config.vpp == 1 and not config.use_torch_fsdp2:
        yield "FSDP2", {"use_torch_fsdp2": True, "use_distributed_optimizer": False}
    if workload.architecture.is_moe and config.ep > 1:
        plain = turbo_left_out(cluster.gpu, config.tp)
        for stage in (1,) if plain else (3, 2, 1):
            yield f"sync-free stage {stage}", {"use_turbo_deepep": not plain, "sync_free_stage": stage, "expert_tensor_parallel_size": 1}
    if not config.fp4:
        yield "FP8" if config.fp8 is None else "FP8 format hybrid", {"fp8": "hybrid"}
    if config.fp8 is not None and cluster.gpu.supports_mxfp8:
        yield "MXFP8", {"fp8": "mxfp8"}


def lever_neighbours(workload: Workload, cluster: Cluster, centre: TrialConfig) -> Iterator[Step]:
    """(label, knobs) of the levers alone: expert exchange, precision, optimizer sharding."""
    held = set_knobs(centre)
    for label, step in _levers(workload, cluster, resolve(workload, centre)):
        yield f"neighbour: {label}", {**held, **step}


def neighbours(workload: Workload, cluster: Cluster, centre: TrialConfig) -> Iterator[Step]:
    """(label, knobs) one step from `centre`, by expected gain. Steps may be illegal; equal ones are the caller's to drop."""
    config = resolve(workload, centre)
    held = set_knobs(centre)
    steps: list[Step] = [*_schedules(config)]
    steps += [(f"VPP {vpp}", {"vpp": vpp}) for vpp in _virtual_stages(workload, config)]
    steps += _model_degrees(workload, cluster, config)
    for mbs in _beside(sorted({*mbs_values(), workload.baseline.mbs}), config.mbs):
        steps.append((f"MBS {mbs}", {"mbs": mbs}))
        if config.pp > 1:
            steps += [(f"VPP {vpp} MBS {mbs}", {"vpp": vpp, "mbs": mbs}) for vpp in (1, 2, 4) if vpp != config.vpp]
    steps += _recompute(workload, centre, config)
    steps += _levers(workload, cluster, config)
    steps += _split_degrees(workload, cluster, config)
    for label, step in steps:
        yield f"neighbour: {label}", {**held, **step}
