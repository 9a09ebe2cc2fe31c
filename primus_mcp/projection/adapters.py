"""LoRA adapters: which linears of a layer get one, and how many elements it has. Shapes are those of one rank.

Primus wraps modules by their name. An adapter of rank r beside a linear of i x o is A [r, i] and B [o, r], each split over the TP (of
experts ETP) group of n ranks whatever the base linear does: r (i + o) / n elements. A column-parallel A is split along r and its output
gathered; the output of B beside a row-parallel or replicated linear is gathered, so that every rank adds whole rows.

Experts: a grouped linear is one module, with one adapter for all experts of a rank; the legacy grouped GEMM holds plain parameters and
has none; experts one by one have one each. Adapters of experts are reduced over expert DP, like experts: each EP rank trains its own.

Source: AMD-AGI/Primus backends/megatron/peft (lora.py transform, utils.py ParallelLinearAdapter, module_matcher.py),
core/extensions/transformer_engine_spec_provider.py (grouped_mlp_modules); NVIDIA/Megatron-LM core/tensor_parallel/layers.py (`allreduce`).
Known error: NVIDIA-NeMo/Megatron-Bridge since 2026 gives each expert of a grouped linear an adapter; no measured run has one on experts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from primus_mcp.inputs.architecture import ATTENDING, FEEDING_FORWARD, Architecture, LayerShape, MixtureOfExperts
from primus_mcp.inputs.training import GroupedGemm, TrainingConfig
from primus_mcp.projection.parameters import RankParameters

Form = Literal["normed", "column", "row", "replicated"]
"""How the base linear is split: along outputs (with the norm before it in one module, or not), along inputs, or not at all."""


@dataclass(frozen=True, slots=True)
class AdaptedLinear:
    """`inputs`, `outputs`: widths of the tensors on a rank that the adapter reads and adds to. `elements`: (i + o) / n, of each of
    `count` adapters, for each unit of rank. `split`: n. `expert`: of the routed experts. `target`: the module's name in Megatron.
    """

    target: str
    form: Form
    inputs: float
    outputs: float
    elements: float
    split: int
    count: int = 1
    expert: bool = False


@dataclass(frozen=True, slots=True)
class Adapters:
    """What adapters depend on beside the shapes."""

    rank: int
    targets: tuple[str, ...]
    dropout: bool
    grouped_gemm: GroupedGemm


def adapters_of(config: TrainingConfig) -> Adapters | None:
    """The adapters that a configuration trains; None: it trains every weight."""
    if config.finetune != "lora":
        return None
    return Adapters(config.lora_rank, config.lora_targets, config.lora_dropout > 0, config.grouped_gemm)


def _column(target: str, inputs: float, outputs: float, split: int, form: Form = "column") -> AdaptedLinear:
    """`outputs`: on a rank."""
    return AdaptedLinear(target, form, inputs, outputs, inputs / split + outputs, split)


def _row(target: str, inputs: float, outputs: float, split: int) -> AdaptedLinear:
    """`inputs`: on a rank."""
    return AdaptedLinear(target, "row", inputs, outputs, inputs + outputs / split, split)


def _replicated(target: str, inputs: float, outputs: float, split: int) -> AdaptedLinear:
    return AdaptedLinear(target, "replicated", inputs, outputs, (inputs + outputs) / split, split)


def _attention(arch: Architecture, tp: int) -> tuple[AdaptedLinear, ...]:
    hidden, latent, heads = arch.hidden_size, arch.latent_attention, arch.num_attention_heads / tp
    if latent is None:
        query, key = heads * arch.head_dim, arch.num_query_groups * arch.head_dim / tp
        gate = query if arch.attention_output_gate else 0.0
        return _column("linear_qkv", hidden, query + gate + 2 * key, tp, "normed"), _row("linear_proj", query, hidden, tp)
    query, rank = heads * latent.qk_head_dim, latent.q_lora_rank
    queries = (
        (_column("linear_q_proj", hidden, query, tp),)
        if rank is None
        else (_replicated("linear_q_down_proj", hidden, rank, tp), _column("linear_q_up_proj", rank, query, tp))
    )
    return (
        *queries,
        _replicated("linear_kv_down_proj", hidden, latent.kv_lora_rank + latent.qk_rope_head_dim, tp),
        _column("linear_kv_up_proj", latent.kv_lora_rank, heads * (latent.qk_nope_head_dim + latent.v_head_dim), tp),
        _row("linear_proj", heads * latent.v_head_dim, hidden, tp),
    )


def _mlp(arch: Architecture, width: int, split: int, form: Form) -> tuple[AdaptedLinear, ...]:
    first = width * (2 if arch.gated_mlp else 1) / split
    return _column("linear_fc1", arch.hidden_size, first, split, form), _row("linear_fc2", width / split, arch.hidden_size, split)


def _experts(arch: Architecture, experts: MixtureOfExperts, ep: int, etp: int, grouped_gemm: GroupedGemm) -> tuple[AdaptedLinear, ...]:
    if grouped_gemm == "legacy":
        return ()
    count = experts.num_experts // ep if grouped_gemm == "sequential" else 1
    return tuple(replace(linear, count=count, expert=True) for linear in _mlp(arch, experts.expert_ffn_hidden_size, etp, "column"))


@lru_cache(maxsize=1024)
def adapted_linears(arch: Architecture, shape: LayerShape, tp: int, ep: int, etp: int, adapters: Adapters) -> tuple[AdaptedLinear, ...]:
    """The linears of one decoder layer whose module name is among the targets. Those of a mixer are never among Primus's."""
    moe, kind = shape
    linears = _attention(arch, tp) if kind in ATTENDING else ()
    if kind not in FEEDING_FORWARD:
        pass
    elif not moe:
        linears += _mlp(arch, arch.ffn_hidden_size, tp, "normed")
    elif arch.experts is not None:
        linears += _experts(arch, arch.experts, ep, etp, adapters.grouped_gemm)
        if arch.experts.shared_expert_ffn_hidden_size:
            linears += _mlp(arch, arch.experts.shared_expert_ffn_hidden_size, tp, "column")
    return tuple(linear for linear in linears if linear.target in adapters.targets)


def adapter_parameters(
    arch: Architecture, layers: tuple[LayerShape, ...], tp: int, ep: int, etp: int, adapters: Adapters
) -> RankParameters:
    """Adapter elements of the given layers on one rank."""
    dense = expert = 0.0
    for shape in layers:
        for linear in adapted_linears(arch, shape, tp, ep, etp, adapters):
            size = adapters.rank * linear.elements * linear.count
            dense, expert = (dense, expert + size) if linear.expert else (dense + size, expert)
    return RankParameters(dense_sharded=round(dense), expert=round(expert))
