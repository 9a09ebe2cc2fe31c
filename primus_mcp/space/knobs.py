"""TrialConfig: the registry of knobs. Each knob is declared once, with its type, bounds, group, axis, trainer keys and legality in words.

CLI flags, the MCP schema, prompt text and docs/knobs.md are loops over `KNOBS`. `None` means "inherit from the workload".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field

from primus_mcp.inputs.training import TrainingConfig

KnobValue = int | bool | str | None
Group = Literal["parallelism", "batch", "schedule", "memory", "moe", "precision"]
PipelineSchedule = Literal[
    "auto",
    "zerobubble",
    "zerobubble-heuristic",
    "seaailab-ilp",
    "zbv-formatted",
    "zbv-greedy-half",
    "zbv-greedy-min",
    "dualpipe",
    "dualpipe-v",
]
Granularity = Literal["none", "selective", "full"]
Fp8Choice = Literal["none", "hybrid", "e4m3", "delayed", "mxfp8"]

MAX_DEGREE = 65_536
MAX_BATCH = 2**30

SCHEDULE_OF_KNOB: dict[str, str] = {
    "zerobubble": "zero-bubble",
    "zerobubble-heuristic": "zero-bubble-heuristic",
    "zbv-formatted": "zbv-formatted",
    "zbv-greedy-half": "v-half",
    "zbv-greedy-min": "v-min",
}
"""Value of the `pp_schedule` knob to the schedule (and Primus `pp_algorithm`) that it selects; `auto` is 1F1B or interleaved by VPP."""
KNOB_OF_SCHEDULE = {schedule: knob for knob, schedule in SCHEDULE_OF_KNOB.items()}
SHOWN_SCHEDULES = {**KNOB_OF_SCHEDULE, "interleaved": "interleaved_1f1b"}


def schedule_text(schedule: str) -> str:
    """A schedule as every text names it: by the knob's value that selects it, Megatron's own as 1f1b and interleaved_1f1b."""
    return SHOWN_SCHEDULES.get(schedule, schedule)


def knob_text(value: KnobValue) -> str:
    """A value as YAML spells it."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _knob(
    group: Group, legal: str, description: str, *, keys: tuple[str, ...], axis: str | None = None, moe_only: bool = False, **bounds: Any
) -> Any:
    extra: dict[str, Any] = {"group": group, "legal": legal, "trainer_keys": list(keys), "axis": axis, "moe_only": moe_only}
    return Field(default=None, description=description, json_schema_extra=extra, **bounds)


class TrialConfig(BaseModel):
    """One proposal: the knobs that it changes. An unset (null) knob is inherited from the workload."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    tp: int | None = _knob(
        "parallelism",
        "divides attention heads; divides query groups or is a multiple of them; policy: divides hidden size, <= GPUs per node",
        "tensor-parallel size",
        keys=("tensor_model_parallel_size",), axis="tp", ge=1, le=MAX_DEGREE,
    )  # fmt: skip
    pp: int | None = _knob(
        "parallelism",
        "any depth for which every stage gets a layer; a depth that does not divide the layers gets a generated balanced layout",
        "pipeline-parallel size",
        keys=("pipeline_model_parallel_size",), axis="pp", ge=1, le=MAX_DEGREE,
    )  # fmt: skip
    ep: int | None = _knob(
        "parallelism",
        "divides the number of experts; 1 on dense models",
        "expert-parallel size",
        keys=("expert_model_parallel_size",), axis="ep", ge=1, le=MAX_DEGREE,
    )  # fmt: skip
    expert_tensor_parallel_size: int | None = _knob(
        "parallelism",
        "divides the expert FFN width; policy: 1 or TP",
        "tensor-parallel size of the routed experts; unset in the workload means TP",
        keys=("expert_tensor_parallel_size",), axis="ep", moe_only=True, ge=1, le=MAX_DEGREE,
    )  # fmt: skip
    cp: int | None = _knob(
        "parallelism",
        "sequence length is a multiple of 2 x CP; policy: dense CP <= GPUs per node, MoE CP <= EP and EP % CP == 0",
        "context-parallel size",
        keys=("context_parallel_size",), axis="cp", ge=1, le=MAX_DEGREE,
    )  # fmt: skip
    vpp: int | None = _knob(
        "schedule",
        "PP x VPP <= layers, PP > 1 unless 1; interleaving needs micro-batches >= PP that divide into groups of PP; policy: <= 8",
        "virtual pipeline stages on each pipeline rank (interleaving)",
        keys=("num_virtual_stages_per_pipeline_rank", "pipeline_model_parallel_layout"), axis="vpp", ge=1, le=MAX_DEGREE,
    )  # fmt: skip
    mbs: int | None = _knob(
        "batch",
        "policy: a power of two <= 16, or the workload's own",
        "micro batch size",
        keys=("micro_batch_size",), axis="mbs", ge=1, le=MAX_BATCH,
    )  # fmt: skip
    gbs: int | None = _knob(
        "batch",
        "a multiple of MBS x DP; policy: 1/2, 1, 2 or 4 x the workload's (other sizes train differently: not comparable)",
        "global batch size",
        keys=("global_batch_size",), axis="gbs", ge=1, le=MAX_BATCH,
    )  # fmt: skip
    overlap_grad_reduce: bool | None = _knob(
        "batch",
        "off under split-backward schedules",
        "overlap the data-parallel gradient reduction with the backward pass",
        keys=("overlap_grad_reduce",), axis="overlap_grad_reduce",
    )  # fmt: skip
    overlap_param_gather: bool | None = _knob(
        "batch",
        "needs overlap_grad_reduce and the distributed optimizer",
        "overlap the data-parallel parameter all-gather with the forward pass",
        keys=("overlap_param_gather",), axis="overlap_grad_reduce",
    )  # fmt: skip
    pp_schedule: PipelineSchedule | None = _knob(
        "schedule",
        "VPP 1: auto, zerobubble, zerobubble-heuristic; VPP 2: auto, zbv-*; else auto; seaailab-ilp and dualpipe* no trainer runs: refused",
        "pipeline schedule; auto is Megatron's own 1F1B, interleaved when VPP > 1",
        keys=("patch_primus_pipeline", "pp_algorithm", "patch_zero_bubble"), axis="pp_schedule",
    )  # fmt: skip
    enable_zero_bubble: bool | None = _knob(
        "schedule",
        "true: zerobubble at VPP 1, zbv-formatted at VPP 2; false: not with a split-backward pp_schedule",
        "split the backward pass into input and weight gradients to fill pipeline bubbles",
        keys=("patch_primus_pipeline", "pp_algorithm"), axis="pp_schedule",
    )  # fmt: skip
    recompute_granularity: Granularity | None = _knob(
        "memory",
        "policy: none under split-backward schedules",
        "activation recomputation; full inherits the workload's method and layer ids, else block over whole stages",
        keys=("recompute_granularity", "recompute_method", "recompute_layer_ids"), axis="recompute",
    )  # fmt: skip
    recompute_num_layers: int | None = _knob(
        "memory",
        "with full only; policy: <= layers of a virtual stage",
        "layers recomputed on each (virtual) pipeline stage",
        keys=("recompute_num_layers",), axis="recompute", ge=0, le=MAX_DEGREE,
    )  # fmt: skip
    cross_entropy_loss_fusion: bool | None = _knob(
        "memory",
        "off in deterministic mode",
        "fused cross-entropy over the vocabulary",
        keys=("cross_entropy_loss_fusion", "cross_entropy_fusion_impl"),
    )  # fmt: skip
    use_distributed_optimizer: bool | None = _knob(
        "memory",
        "excludes use_torch_fsdp2",
        "shard optimizer states over data-parallel ranks (ZeRO-1)",
        keys=("use_distributed_optimizer",),
    )  # fmt: skip
    use_torch_fsdp2: bool | None = _knob(
        "memory",
        "PP 1, EP 1, VPP 1, untied embeddings; excludes use_distributed_optimizer",
        "shard weights, gradients and optimizer states with PyTorch FSDP2",
        keys=("use_torch_fsdp2", "use_distributed_optimizer", "gradient_accumulation_fusion", "ckpt_format"),
    )  # fmt: skip
    use_turbo_deepep: bool | None = _knob(
        "moe",
        "TP 1 on AMD, ETP x EP > 1; false not with sync_free_stage >= 2",
        "DeepEP kernels for expert dispatch and combine; sets router dtype fp32 and no shared-expert overlap",
        keys=("use_turbo_deepep", "enable_primus_turbo", "moe_router_dtype", "moe_shared_expert_overlap"), moe_only=True,
    )  # fmt: skip
    sync_free_stage: int | None = _knob(
        "moe",
        "0 to 3; >= 2 turns DeepEP and Turbo grouped GEMM on and needs TP 1 and ETP 1",
        "how far host synchronisation is removed from the MoE layer",
        keys=("turbo_sync_free_moe_stage", "enable_primus_turbo", "use_turbo_grouped_gemm"), moe_only=True, ge=0, le=3,
    )  # fmt: skip
    target_ep_size: int | None = _knob(
        "moe",
        "divides the number of experts",
        "EP size assumed when all-to-all is priced; changes the estimate only, never the run",
        keys=(), moe_only=True, ge=1, le=MAX_DEGREE,
    )  # fmt: skip
    fp8: Fp8Choice | None = _knob(
        "precision",
        "mxfp8 on MI350 / MI355 only; MLA takes the tensorwise recipe; widths per TP rank are multiples of 16 (mxfp8: 32)",
        "FP8 linear layers: hybrid and e4m3 keep the workload's recipe, delayed is hybrid with delayed scaling",
        keys=("fp8", "fp8_recipe"),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One knob as the loops see it. `choices` is None for integers."""

    name: str
    kind: Literal["int", "bool", "choice"]
    choices: tuple[KnobValue, ...] | None
    minimum: int | None
    maximum: int | None
    group: Group
    axis: str | None
    trainer_keys: tuple[str, ...]
    moe_only: bool
    legal: str
    description: str

    @property
    def values_text(self) -> str:
        """Values that the type admits, for messages and docs."""
        if self.choices is not None:
            return ", ".join(map(knob_text, self.choices))
        high = "" if self.maximum in (MAX_DEGREE, MAX_BATCH) else f" and <= {self.maximum}"
        return f"an integer >= {self.minimum}{high}"


def _registry() -> dict[str, Knob]:
    knobs: dict[str, Knob] = {}
    for name, hint in get_type_hints(TrialConfig).items():
        field = TrialConfig.model_fields[name]
        inner = next(arg for arg in get_args(hint) if arg is not type(None))
        extra: dict[str, Any] = dict(field.json_schema_extra) if isinstance(field.json_schema_extra, dict) else {}
        literal = get_args(inner) if get_origin(inner) is Literal else None
        knobs[name] = Knob(
            name=name,
            kind="choice" if literal else "bool" if inner is bool else "int",
            choices=literal or ((True, False) if inner is bool else None),
            minimum=next((m.ge for m in field.metadata if hasattr(m, "ge")), None),
            maximum=next((m.le for m in field.metadata if hasattr(m, "le")), None),
            group=extra["group"],
            axis=extra["axis"],
            trainer_keys=tuple(extra["trainer_keys"]),
            moe_only=extra["moe_only"],
            legal=extra["legal"],
            description=field.description or "",
        )
    return knobs


KNOBS: dict[str, Knob] = _registry()
"""Every knob by name, in declaration order."""
MOE_KNOBS: tuple[str, ...] = tuple(name for name, knob in KNOBS.items() if knob.moe_only)


def set_knobs(trial: TrialConfig) -> dict[str, KnobValue]:
    """The knobs that a trial sets, in declaration order."""
    return {name: value for name in KNOBS if (value := getattr(trial, name)) is not None}


def _fp8_value(config: TrainingConfig) -> KnobValue:
    if config.fp8 is None:
        return "none"
    return "mxfp8" if config.fp8_recipe == "mxfp8" else config.fp8


def knob_values(config: TrainingConfig) -> dict[str, KnobValue]:
    """What every knob amounts to in a resolved configuration (`None`: not set, as with recompute_num_layers when nothing is recomputed)."""
    direct = ("tp", "pp", "ep", "cp", "vpp", "mbs", "gbs", "overlap_grad_reduce", "overlap_param_gather")
    values: dict[str, KnobValue] = {name: getattr(config, name) for name in direct}
    values |= {
        "expert_tensor_parallel_size": config.etp,
        "pp_schedule": KNOB_OF_SCHEDULE.get(config.schedule, "auto"),
        "enable_zero_bubble": config.splits_weight_gradient,
        "recompute_granularity": config.recompute.granularity,
        "recompute_num_layers": config.recompute.num_layers,
        "cross_entropy_loss_fusion": config.cross_entropy_loss_fusion,
        "use_distributed_optimizer": config.use_distributed_optimizer,
        "use_torch_fsdp2": config.use_torch_fsdp2,
        "use_turbo_deepep": config.dispatcher == "deepep",
        "sync_free_stage": config.sync_free_stage,
        "target_ep_size": config.a2a_ep_size,
        "fp8": _fp8_value(config),
    }
    return {name: values[name] for name in KNOBS}
