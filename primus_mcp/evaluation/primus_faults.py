"""Known faults of Primus's projection (AMD-AGI/Primus@fd1eeabb, read and run), as checks of a configuration and of an answer."""

from __future__ import annotations

from primus_mcp.evaluation.primus_output import PrimusTime
from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.units import MS_PER_S

TIME_TOLERANCE = 0.02
"""Its tokens/s are printed as whole numbers; a larger difference from GBS x S / iteration / GPUs is no rounding."""


def configuration_faults(arch: Architecture, config: TrainingConfig) -> tuple[tuple[str, str], ...]:
    """(code, text) of faults that make numbers of this configuration too high or too low, without making them absurd."""
    candidates = (
        (
            config.tp > 1,
            "primus_memory_ignores_tp",
            f"Primus does not divide weights and gradients by TP {config.tp}: its memory is too high",
        ),
        (config.use_torch_fsdp2, "primus_memory_ignores_fsdp2", "Primus shards the optimizer only under FSDP2: its memory is too high"),
        (config.fp8 is not None or config.fp4, "primus_fp8_is_bf16", "Primus prices FP8 and FP4 GEMMs as BF16: its time is too long"),
        (config.vpp > 1, "primus_vpp", "Primus reads virtual stages from another key than the trainer: its time may be that of VPP 1"),
        (config.pp > 1, "primus_no_p2p", "Primus prices no traffic between pipeline stages: its time is too short"),
        (config.tp > 1, "primus_tp_as_tokens", "Primus prices TP as fewer tokens, not as narrower weights"),
        (
            config.recompute.granularity == "selective",
            "primus_selective_once",
            "the saving of selective recompute is Primus's own and is counted once; its tuning agent takes it twice",
        ),
        (config.recompute.layer_ids is not None, "primus_layer_ids", "Primus ignores recompute_layer_ids in its memory: too high"),
        (arch.is_moe, "primus_balanced", "Primus prices perfectly balanced experts"),
    )
    return tuple((code, text) for applies, code, text in candidates if applies)


def time_faults(found: PrimusTime, config: TrainingConfig, cluster: Cluster, seq_length: int, mfu: float) -> tuple[tuple[str, str], ...]:
    """(code, text) of faults that make the time unusable: it is of another job, or impossible."""
    told: list[tuple[str, str]] = []
    asked = {"tp": config.tp, "pp": config.pp, "ep": config.ep, "cp": config.cp, "nodes": cluster.num_nodes, "gpus": cluster.world_size}
    other = [f"{name} {getattr(found, name)} instead of {value}" for name, value in asked.items() if getattr(found, name) != value]
    if other:
        told.append(("primus_other_job", f"Primus projected another job ({', '.join(other)}): its time is not used"))
    if config.cp > 1 and config.pp > 1:
        text = f"Primus runs CP {config.cp} times too few micro-batches under CP and PP together: its time is not used"
        told.append(("primus_free_cp", text))
    expected = config.gbs * seq_length / (found.iteration_ms / MS_PER_S) / max(found.gpus, 1)
    if abs(expected / found.tokens_per_s_per_gpu - 1) > TIME_TOLERANCE + 1 / found.tokens_per_s_per_gpu:
        text = f"Primus says {found.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, its iteration time means {expected:,.0f}: its time is not used"
        told.append(("primus_inconsistent", text))
    if mfu > 1:
        told.append(("primus_implausible", f"Primus's time means {mfu:.0%} of the GPU's peak: its time is not used"))
    return tuple(told)
