"""The training record: every trainer setting that changes memory or time, resolved to what would really run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Schedule = Literal["1f1b", "interleaved", "zero-bubble", "zero-bubble-heuristic", "zbv-formatted", "v-half", "v-min"]
WhatIfSchedule = Literal["seaailab-ilp", "dualpipe", "dualpipe-v"]
"""Schedules that no key of the trainer selects: priced to compare, never read from arguments."""
RecomputeGranularity = Literal["none", "selective", "full"]
RecomputeMethod = Literal["block", "uniform"]
Fp8Format = Literal["e4m3", "hybrid"]
Fp8Recipe = Literal["delayed", "tensorwise", "blockwise", "mxfp8"]
Dispatcher = Literal["allgather", "alltoall", "deepep"]
GroupedGemm = Literal["legacy", "te", "turbo", "sequential"]
Optimizer = Literal["adam", "muon", "sgd"]
FinetuneMethod = Literal["full", "lora"]

LORA_TARGETS = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
"""Primus's default targets (AMD-AGI/Primus@fd1eeabb primus/configs/modules/megatron/sft_trainer.yaml)."""
V_SCHEDULES: frozenset[str] = frozenset({"zbv-formatted", "v-half", "v-min", "dualpipe", "dualpipe-v"})
SPLIT_WGRAD_SCHEDULES: frozenset[str] = frozenset({"zero-bubble", "zero-bubble-heuristic", "seaailab-ilp"}) | V_SCHEDULES
TWO_COPY_SCHEDULES: frozenset[str] = frozenset({"dualpipe"})
"""Every rank holds a stage of each of two copies of the model, which run in opposite directions with half of the micro-batches each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompute:
    """Activation recomputation.

    `full` has a method (`block`: first `num_layers` of every pipeline stage, or of every virtual
    chunk; `uniform`: every layer, checkpointed in groups of `num_layers`) or explicit global 0-based `layer_ids`.
    `selective` names `modules` (Megatron's recompute_modules). `full` with nothing to recompute is normalised to `none`.
    """

    granularity: RecomputeGranularity = "none"
    method: RecomputeMethod | None = None
    num_layers: int | None = None
    layer_ids: tuple[int, ...] | None = None
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """One complete training configuration. Sizes are degrees or counts; `*_bytes` are bytes an element.

    Built by `inputs.trainer_arguments.read_training` from flattened trainer arguments only, so that a trial, its overlay YAML and
    the workload's own baseline all pass the same code.
    """

    # parallelism
    tp: int = 1
    pp: int = 1
    ep: int = 1
    etp: int = 1
    cp: int = 1
    vpp: int = 1
    sequence_parallel: bool = False
    overlap_tp_all_reduce: bool = True
    cp_comm_type: str = "p2p"
    pipeline_layout: str | None = None
    decoder_first_pipeline_num_layers: int | None = None
    decoder_last_pipeline_num_layers: int | None = None
    account_for_embedding_in_pipeline_split: bool = False
    account_for_loss_in_pipeline_split: bool = False
    microbatch_group_size: int | None = None
    # batch
    mbs: int = 1
    gbs: int = 1
    # schedule
    schedule: Schedule | WhatIfSchedule = "1f1b"
    pp_max_mem: tuple[float, ...] | None = None
    """What zero-bubble-heuristic plans with: most live micro-batches of each rank, and costs of F, B and W a rank; None: its defaults."""
    pp_cost_f: tuple[float, ...] | None = None
    pp_cost_b: tuple[float, ...] | None = None
    pp_cost_w: tuple[float, ...] | None = None
    overlap_p2p: bool = False
    # data parallel and optimizer
    use_distributed_optimizer: bool = True
    use_torch_fsdp2: bool = False
    fsdp_param_bytes: int = 2
    """What FSDP2 shards: 2 for Megatron's BF16 parameters beside a master copy, 4 for fp32 parameters that are their own master."""
    fsdp_reduce_bytes: int = 2
    """Gradients in FSDP2's reduce-scatter: in the dtype they are computed in, 4 where a mixed-precision policy reduces in fp32."""
    overlap_grad_reduce: bool = False
    overlap_param_gather: bool = False
    optimizer: Optimizer = "adam"
    main_grad_bytes: int = 4
    main_param_bytes: int = 4
    exp_avg_bytes: int = 4
    exp_avg_sq_bytes: int = 4
    gradient_accumulation_fusion: bool = True
    finetune: FinetuneMethod = "full"
    lora_rank: int = 0
    lora_targets: tuple[str, ...] = LORA_TARGETS
    lora_dropout: float = 0.0
    # recompute
    recompute: Recompute = Recompute()
    # precision
    fp8: Fp8Format | None = None
    fp8_recipe: Fp8Recipe = "delayed"
    fp8_param_gather: bool = False
    fp8_weight_transpose_cache: bool = True
    fp4: bool = False
    # kernels and fusions
    flash_attention: bool = True
    cross_entropy_loss_fusion: bool = False
    cross_entropy_impl: Literal["native", "te", "compiled"] = "native"
    fused_swiglu: bool = True
    fused_rope: bool = True
    fused_norm: bool = True
    bias_gradient_in_gemm: bool = True
    """TransformerEngine sums the gradient of a bias inside the weight-gradient GEMM, other linears in a pass of their own."""
    turbo_gemm: bool = False
    turbo_attention: bool = False
    tp_comm_overlap: bool = False
    fsdp_backward_prefetch: bool = True
    scatter_p2p: bool = False
    full_graph: bool = False
    graphed: tuple[str, ...] = ()
    """Parts of a layer that run as CUDA graphs of their own: attn, moe_router, moe_preprocess, mlp."""
    fp8_attention: bool = False
    # MoE
    dispatcher: Dispatcher = "alltoall"
    sync_free_stage: int = 0
    grouped_gemm: GroupedGemm = "te"
    permute_fusion: bool = False
    fused_router: bool = False
    fused_expert_activation: bool = False
    fused_expert_mlp: bool = False
    shared_expert_overlap: bool = False
    overlap_moe_a2a: bool = False
    forced_balance: bool = False
    deepep_num_cu: int = 32
    deepep_fused_permute: bool = True
    expert_load_imbalance: float = 1.0
    a2a_ep_size: int | None = None
    # host
    manual_gc: bool = False

    @property
    def splits_weight_gradient(self) -> bool:
        """Whether the schedule runs weight gradients (W) apart from input gradients (B)."""
        return self.schedule in SPLIT_WGRAD_SCHEDULES
