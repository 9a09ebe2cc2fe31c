"""The part of a training configuration that layer costs depend on, resolved to what the kernels really do.

Layer costs are memoised on this record, so whatever is not here cannot change them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.constants import TIME
from primus_mcp.inputs.hardware import Precision
from primus_mcp.inputs.training import Dispatcher, Fp8Recipe, GroupedGemm, TrainingConfig
from primus_mcp.projection.adapters import Adapters, adapters_of

_COPIED = (
    "tp",
    "ep",
    "etp",
    "cp",
    "mbs",
    "sequence_parallel",
    "overlap_tp_all_reduce",
    "cp_comm_type",
    "tp_comm_overlap",
    "main_grad_bytes",
    "gradient_accumulation_fusion",
    "fp8_param_gather",
    "flash_attention",
    "cross_entropy_loss_fusion",
    "cross_entropy_impl",
    "fused_swiglu",
    "fused_rope",
    "fused_norm",
    "bias_gradient_in_gemm",
    "turbo_gemm",
    "turbo_attention",
    "full_graph",
    "graphed",
    "fp8_attention",
    "dispatcher",
    "sync_free_stage",
    "grouped_gemm",
    "permute_fusion",
    "fused_router",
    "fused_expert_activation",
    "fused_expert_mlp",
    "shared_expert_overlap",
    "overlap_moe_a2a",
    "forced_balance",
    "expert_load_imbalance",
    "a2a_ep_size",
    "deepep_fused_permute",
)
_RESOLVED_FROM = ("fp8", "fp8_recipe", "fp4", "finetune", "lora_rank", "lora_targets", "lora_dropout")
_read = attrgetter(*_COPIED, *_RESOLVED_FROM)


Scaling = Literal["tensor", "blockwise", "mxfp8"]
"""How many elements share a scale: all of a tensor, blocks of 128, or 32 along the contraction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSettings:
    """See `TrainingConfig` for the copied fields. Resolved: the precision that linear and expert GEMMs really run in, the bytes an
    element that casting their inputs and output gradients moves, how their products are scaled, whether TP ranks must agree on the
    maximum of what each casts a shard of (scale of the whole tensor as it is: current scaling, NVFP4), whether weights have gradients (not
    under LoRA), and the adapters (None: no LoRA). `exchange_waits`: overlap of the expert exchange is on, but no task of another
    micro-batch runs beside this one (warm-up and cool-down of a pipeline).
    """

    tp: int
    ep: int
    etp: int
    cp: int
    mbs: int
    sequence_parallel: bool
    overlap_tp_all_reduce: bool
    cp_comm_type: str
    tp_comm_overlap: bool
    main_grad_bytes: int
    gradient_accumulation_fusion: bool
    fp8_param_gather: bool
    flash_attention: bool
    cross_entropy_loss_fusion: bool
    cross_entropy_impl: str
    fused_swiglu: bool
    fused_rope: bool
    fused_norm: bool
    bias_gradient_in_gemm: bool
    turbo_gemm: bool
    turbo_attention: bool
    full_graph: bool
    graphed: tuple[str, ...]
    fp8_attention: bool
    dispatcher: Dispatcher
    sync_free_stage: int
    grouped_gemm: GroupedGemm
    permute_fusion: bool
    fused_router: bool
    fused_expert_activation: bool
    fused_expert_mlp: bool
    shared_expert_overlap: bool
    overlap_moe_a2a: bool
    forced_balance: bool
    expert_load_imbalance: float
    a2a_ep_size: int | None
    deepep_fused_permute: bool
    linear_precision: Precision
    expert_precision: Precision
    linear_cast_bytes: float
    expert_cast_bytes: float
    linear_scaling: Scaling
    expert_scaling: Scaling
    agrees_on_scale: bool
    trains_weights: bool
    adapters: Adapters | None
    exchange_waits: bool = False

    def tokens(self, arch: Architecture) -> float:
        """Tokens of one micro-batch on a rank: MBS * seq / CP."""
        return self.mbs * arch.seq_length / self.cp

    def sharded_tokens(self, arch: Architecture) -> float:
        """Tokens that norms, residuals and the router see: divided by TP under sequence parallelism only."""
        return self.tokens(arch) / (self.tp if self.sequence_parallel else 1)


def linear_precision(config: TrainingConfig) -> Precision:
    """TransformerEngine linears run FP8 under every recipe; Turbo has no delayed path and falls back to BF16.

    Source: AMD-AGI/Primus@fd1eeabb backends/megatron/core/fp8_utils.py:148-151,210-218.
    """
    if config.fp4:
        return "fp4"
    if config.fp8 is None or (config.turbo_gemm and config.fp8_recipe == "delayed"):
        return "bf16"
    return "fp8"


def expert_precision(config: TrainingConfig) -> Precision:
    """The legacy grouped GEMM is BF16 under any flag, Turbo grouped is BF16 under the delayed recipe, TE follows the linears.

    Source: AMD-AGI/Primus@fd1eeabb core/extensions/transformer_engine_spec_provider.py:265-272, core/fp8_utils.py:148-151.
    """
    if config.grouped_gemm == "legacy":
        return "bf16"
    if config.grouped_gemm == "turbo" and (config.fp8 is None or config.fp8_recipe == "delayed"):
        return "bf16"
    if config.fp4:
        return "fp4"
    return "bf16" if config.fp8 is None else "fp8"


def _cast_bytes(precision: Precision, recipe: Fp8Recipe, *, turbo: bool) -> float:
    if precision == "bf16":
        return 0.0
    if precision == "fp4":
        return TIME["cast.fp4"]
    return TIME["cast.tensorwise_turbo" if recipe == "tensorwise" and turbo else f"cast.{recipe}"]


def _scaling(precision: Precision, recipe: Fp8Recipe) -> Scaling:
    """Delayed and current scaling differ in their casts alone, E4M3 and E5M2 gradients in nothing."""
    return recipe if precision == "fp8" and (recipe == "blockwise" or recipe == "mxfp8") else "tensor"


def layer_settings(config: TrainingConfig) -> LayerSettings:
    """The record for a configuration, one object for all configurations that layers cannot tell apart.

    Under a split backward no weight gradient runs beside the all-reduce, or the reduce-scatter, of the input gradient, and BF16 linears of
    Turbo leave theirs to Megatron's fused kernel (AMD-AGI/Primus core/extensions/zbpp_gemm.py, LinearWithWeightGradientStore). At EP 1
    every rank holds all experts, so none has more rows than another.
    """
    if config.ep == 1 and config.expert_load_imbalance != 1.0:
        config = replace(config, expert_load_imbalance=1.0)
    if config.splits_weight_gradient:
        if config.tp > 1 and config.overlap_tp_all_reduce:
            config = replace(config, overlap_tp_all_reduce=False)
        if config.turbo_gemm and not (config.fp8 or config.fp4):
            config = replace(config, turbo_gemm=False)
    return _settings(_read(config))


@lru_cache(maxsize=16384)
def _settings(values: tuple[Any, ...]) -> LayerSettings:
    fields = dict(zip((*_COPIED, *_RESOLVED_FROM), values, strict=True))
    probe = TrainingConfig(**fields)
    linear, expert = linear_precision(probe), expert_precision(probe)
    for name in _RESOLVED_FROM:
        del fields[name]
    return LayerSettings(
        **fields,
        linear_precision=linear,
        expert_precision=expert,
        linear_cast_bytes=_cast_bytes(linear, probe.fp8_recipe, turbo=probe.turbo_gemm),
        expert_cast_bytes=_cast_bytes(expert, probe.fp8_recipe, turbo=probe.grouped_gemm == "turbo"),
        linear_scaling=_scaling(linear, probe.fp8_recipe),
        expert_scaling=_scaling(expert, probe.fp8_recipe),
        agrees_on_scale=linear == "fp4" or (linear == "fp8" and probe.fp8_recipe == "tensorwise"),
        trains_weights=probe.finetune != "lora",
        adapters=adapters_of(probe),
    )
