"""The part of a training configuration that activations depend on, and the sizes that every operation list is built from.

Operation lists are memoised on this record, so whatever is not here cannot change them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.constants import MEMORY
from primus_mcp.inputs.hardware import Precision
from primus_mcp.inputs.training import Fp8Recipe, Recompute, TrainingConfig
from primus_mcp.projection.adapters import Adapters, adapters_of
from primus_mcp.projection.layers.settings import expert_precision, linear_precision
from primus_mcp.units import BF16_BYTES, FP8_BYTES, FP32_BYTES

_COPIED = (
    "tp",
    "etp",
    "cp",
    "mbs",
    "sequence_parallel",
    "cp_comm_type",
    "fp8_recipe",
    "flash_attention",
    "cross_entropy_loss_fusion",
    "cross_entropy_impl",
    "fused_swiglu",
    "fused_router",
    "fused_expert_activation",
    "gradient_accumulation_fusion",
    "turbo_gemm",
    "grouped_gemm",
    "dispatcher",
    "sync_free_stage",
    "expert_load_imbalance",
    "use_torch_fsdp2",
    "fsdp_reduce_bytes",
    "recompute",
)
_read = attrgetter(*_COPIED)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActivationSettings:
    """See `TrainingConfig` for the copied fields. `dispatch_ranks` is EP where buffers depend on it (all-gather dispatcher,
    sync-free stage 2 and 3) and 1 elsewhere: EP alone must not change the rows that a rank processes. `gathered_parameter_bytes`: of a
    layer that FSDP2 gathers for its own time alone (PP 1), else 0. `gathers_ends`: so are embedding and output matrix.

    Compared by identity: `activation_settings` returns one object for equal settings, so that look-ups need not hash every field.
    """

    arch: Architecture
    tp: int
    etp: int
    cp: int
    mbs: int
    sequence_parallel: bool
    cp_comm_type: str
    fp8_recipe: Fp8Recipe
    flash_attention: bool
    cross_entropy_loss_fusion: bool
    cross_entropy_impl: str
    fused_swiglu: bool
    fused_router: bool
    fused_expert_activation: bool
    gradient_accumulation_fusion: bool
    turbo_gemm: bool
    grouped_gemm: str
    dispatcher: str
    sync_free_stage: int
    expert_load_imbalance: float
    use_torch_fsdp2: bool
    fsdp_reduce_bytes: int
    recompute: Recompute
    linear_precision: Precision
    expert_precision: Precision
    adapters: Adapters | None
    expert_weights_per_rank: int
    dispatch_ranks: int
    gathered_parameter_bytes: int
    gathers_ends: bool

    @property
    def tokens(self) -> float:
        """Tokens of one micro-batch on a rank: MBS * seq / CP."""
        return self.mbs * self.arch.seq_length / self.cp

    @property
    def shards_sequence(self) -> bool:
        """Whether norms and residuals are divided over TP (sequence parallelism)."""
        return self.sequence_parallel and self.tp > 1

    @property
    def local_tokens(self) -> float:
        """Tokens that norms, residuals and the router see: divided by TP under sequence parallelism."""
        return self.tokens / self.tp if self.shards_sequence else self.tokens

    @property
    def hidden_bytes(self) -> float:
        """One residual-stream tensor of a micro-batch: local tokens * h in BF16."""
        return self.local_tokens * self.arch.hidden_size * BF16_BYTES

    @property
    def full_hidden_bytes(self) -> float:
        """The same over all tokens of the rank's TP group: what a sequence-parallel linear gathers."""
        return self.tokens * self.arch.hidden_size * BF16_BYTES

    @property
    def gathered_bytes(self) -> float:
        """The gathered input of a column-parallel linear; nothing is gathered without sequence parallelism."""
        return self.full_hidden_bytes if self.shards_sequence else 0.0

    @property
    def norm_statistics_bytes(self) -> float:
        """fp32 reciprocal deviation a token, and the mean for LayerNorm."""
        return self.local_tokens * FP32_BYTES * (2 if self.arch.normalization == "LayerNorm" else 1)

    @property
    def trains_weights(self) -> bool:
        """Whether every weight has a gradient (not under LoRA)."""
        return self.adapters is None

    def adapts(self, target: str, *, expert: bool = False) -> bool:
        """Whether a linear of this name has a LoRA adapter; the legacy grouped GEMM never has."""
        return self.adapters is not None and target in self.adapters.targets and not (expert and self.grouped_gemm == "legacy")

    def own_input_bytes(self, target: str, *, normed: bool = False, expert: bool = False) -> float:
        """Bytes an element kept of a linear's input beside the BF16 tensor: an FP8 copy; what an adapter drops out, with its mask."""
        precision = self.expert_precision if expert else self.linear_precision
        copy = 0.0 if precision == "bf16" or not self._base_keeps_input(normed, expert) else _kept_input_bytes(precision, self.fp8_recipe)
        dropped = self.adapters is not None and self.adapters.dropout and self.adapts(target, expert=expert)
        return copy + (BF16_BYTES + 1 if dropped else 0)

    def kept_input_bytes(self, target: str, *, normed: bool = False, expert: bool = False) -> float:
        """Bytes an element that a linear keeps of its input: BF16, or the FP8 copy (column-wise only) with its block scales.

        LoRA: TransformerEngine keeps no input for a frozen weight, but the output of a norm in the same module (`normed`); Turbo and the
        legacy grouped GEMM keep it whatever. An adapter keeps the BF16 input, with dropout its own copy of it and a mask of a byte.
        Source: TransformerEngine module/linear.py (backward_needs_input), layernorm_linear.py, grouped_linear.py (weight_requires_grad);
        tgale96/grouped_gemm ops.py. Known error: counted, no run with adapters in FP8 has a memory figure.
        """
        precision = self.expert_precision if expert else self.linear_precision
        shared = precision == "bf16" and self._base_keeps_input(normed, expert)
        adapted = self.adapters is not None and not self.adapters.dropout and self.adapts(target, expert=expert)
        return self.own_input_bytes(target, normed=normed, expert=expert) + (BF16_BYTES if shared or adapted else 0)

    def _base_keeps_input(self, normed: bool, expert: bool) -> bool:
        kernel_keeps = self.grouped_gemm in ("legacy", "turbo") if expert else self.turbo_gemm
        return self.trains_weights or normed or kernel_keeps

    @property
    def dispatched_rows(self) -> float:
        """Token copies that a rank's experts process: local tokens * top-k * ETP * imbalance; EP cancels out.

        EP ranks send 1/EP of their copies to each other, so a rank receives as many as it sends. Source: Megatron-LM#1784.
        """
        assert self.arch.experts is not None
        return self.local_tokens * self.arch.experts.top_k * self.etp * self.expert_load_imbalance

    @property
    def expert_rows(self) -> float:
        """Rows that expert tensors are allocated for: sync-free stage 3 sizes them for the worst case, EP times the balanced share.

        Source: AMD-AGI/Primus@fd1eeabb core/extensions/primus_turbo.py:2332-2342 (permute_max_token_num = tokens * EP * top-k).
        """
        assert self.arch.experts is not None
        if self.sync_free_stage < 3:
            return self.dispatched_rows
        return self.local_tokens * self.arch.experts.top_k * self.etp * self.dispatch_ranks

    def accumulates_in_place(self, *, expert: bool) -> bool:
        """Whether weight-gradient GEMMs add into main_grad. Turbo linears and the legacy grouped GEMM never do, and LoRA has none.

        Source: AMD-AGI/Primus@fd1eeabb (grouped_gemm gmm has beta 0; Turbo before August 2026 has no fusion).
        """
        fuses = self.grouped_gemm in ("te", "sequential") if expert else not self.turbo_gemm
        return fuses and self.gradient_accumulation_fusion and self.trains_weights

    def wgrad_bytes(self, rows: float, columns: float, *, expert: bool = False) -> float:
        """A BF16 weight gradient that lives until it is added to main_grad; none when the GEMM accumulates in place.

        Gradients of a layer that FSDP2 gathers live longer and are counted with the layer (`gathered`).
        """
        if not self.trains_weights or self.gathered_parameter_bytes or self.accumulates_in_place(expert=expert):
            return 0.0
        return rows * columns * BF16_BYTES * (self.expert_weights_per_rank if expert else 1)


def _kept_input_bytes(precision: Precision, recipe: Fp8Recipe) -> float:
    if precision == "bf16":
        return BF16_BYTES
    scales = MEMORY["fp8_block_scale_bytes_per_element"].value if recipe in ("mxfp8", "blockwise") else 0.0
    return (0.5 if precision == "fp4" else 1.0) + scales


def wraps_ends(config: TrainingConfig) -> bool:
    """Whether embedding and output matrix are FSDP2 units of their own, gathered for their own time alone: Megatron's wrapper and Primus's.

    TorchTitan (fp32 shards) leaves them to the root, which stays gathered. Source: Megatron-LM
    core/distributed/torch_fully_sharded_data_parallel.py, AMD-AGI/Primus backends/megatron/core/distributed (sub_modules_to_wrap).
    """
    return config.use_torch_fsdp2 and config.pp == 1 and config.fsdp_param_bytes < FP32_BYTES


def activation_settings(arch: Architecture, config: TrainingConfig) -> ActivationSettings:
    """The record for a configuration, one object for all configurations that activations cannot tell apart.

    At EP 1 every rank holds all experts, so none has more rows than another.
    """
    if config.ep == 1 and config.expert_load_imbalance != 1.0:
        config = replace(config, expert_load_imbalance=1.0)
    local_experts = arch.experts.num_experts // config.ep if arch.experts else 0
    worst_case = config.ep if config.sync_free_stage >= 2 or config.dispatcher == "allgather" else 1
    gathered = FP8_BYTES if config.fp8_param_gather else BF16_BYTES
    resolved = (
        linear_precision(config),
        expert_precision(config),
        adapters_of(config),
        local_experts,
        worst_case,
        gathered if config.use_torch_fsdp2 and config.pp == 1 else 0,
        wraps_ends(config),
    )
    return _settings(arch, _read(config), resolved)


@lru_cache(maxsize=16384)
def _settings(
    arch: Architecture, values: tuple[Any, ...], resolved: tuple[Precision, Precision, Adapters | None, int, int, int, bool]
) -> ActivationSettings:
    linear, expert, adapters, local_experts, dispatch_ranks, gathered, ends = resolved
    return ActivationSettings(
        arch=arch,
        linear_precision=linear,
        expert_precision=expert,
        adapters=adapters,
        expert_weights_per_rank=local_experts,
        dispatch_ranks=dispatch_ranks,
        gathered_parameter_bytes=gathered,
        gathers_ends=ends,
        **dict(zip(_COPIED, values, strict=True)),
    )
