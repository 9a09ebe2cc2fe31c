"""LoRA adapters: which linears of a layer get one, and how many elements it has. Shapes are those of one rank.

An adapter of rank r beside a linear of `inputs` x `outputs` is r * (inputs + outputs) elements. Known error: experts are taken to have one
adapter each. Primus finds linears by the names of modules (backends/megatron/peft): a grouped linear shares one adapter over a rank's
experts, and the legacy grouped GEMM, which is no such module, has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from primus_mcp.inputs.architecture import ATTENDING, FEEDING_FORWARD, Architecture, LayerShape
from primus_mcp.projection.parameters import RankParameters


@dataclass(frozen=True, slots=True)
class AdaptedLinear:
    """`count` linears of one shape; `expert`: of the routed experts. `target`: the module's name in Megatron."""

    target: str
    inputs: float
    outputs: float
    count: int = 1
    expert: bool = False


def _attention(arch: Architecture, tp: int) -> tuple[AdaptedLinear, ...]:
    hidden, latent, heads = arch.hidden_size, arch.latent_attention, arch.num_attention_heads / tp
    if latent is None:
        query, key = heads * arch.head_dim, arch.num_query_groups * arch.head_dim / tp
        return AdaptedLinear("linear_qkv", hidden, query + 2 * key), AdaptedLinear("linear_proj", query, hidden)
    query, rank = heads * latent.qk_head_dim, latent.q_lora_rank
    queries = (
        (AdaptedLinear("linear_q_proj", hidden, query),)
        if rank is None
        else (AdaptedLinear("linear_q_down_proj", hidden, rank), AdaptedLinear("linear_q_up_proj", rank, query))
    )
    return (
        *queries,
        AdaptedLinear("linear_kv_down_proj", hidden, latent.kv_lora_rank + latent.qk_rope_head_dim),
        AdaptedLinear("linear_kv_up_proj", latent.kv_lora_rank, heads * (latent.qk_nope_head_dim + latent.v_head_dim)),
        AdaptedLinear("linear_proj", heads * latent.v_head_dim, hidden),
    )


def _mlp(arch: Architecture, width: float, count: int = 1, *, expert: bool = False) -> tuple[AdaptedLinear, ...]:
    first = width * (2 if arch.gated_mlp else 1)
    return (
        AdaptedLinear("linear_fc1", arch.hidden_size, first, count, expert),
        AdaptedLinear("linear_fc2", width, arch.hidden_size, count, expert),
    )


@lru_cache(maxsize=1024)
def adapted_linears(
    arch: Architecture, shape: LayerShape, tp: int, ep: int, etp: int, targets: tuple[str, ...]
) -> tuple[AdaptedLinear, ...]:
    """The linears of one decoder layer whose module name is among the targets. Those of a mixer are never among Primus's."""
    moe, kind = shape
    linears = _attention(arch, tp) if kind in ATTENDING else ()
    if kind not in FEEDING_FORWARD:
        pass
    elif not moe:
        linears += _mlp(arch, arch.ffn_hidden_size / tp)
    elif arch.experts is not None:
        experts = arch.experts
        linears += _mlp(arch, experts.expert_ffn_hidden_size / etp, experts.num_experts // ep, expert=True)
        if experts.shared_expert_ffn_hidden_size:
            linears += _mlp(arch, experts.shared_expert_ffn_hidden_size / tp)
    return tuple(linear for linear in linears if linear.target in targets)


def adapter_parameters(
    arch: Architecture, layers: tuple[LayerShape, ...], tp: int, ep: int, etp: int, rank: int, targets: tuple[str, ...]
) -> RankParameters:
    """Adapter elements of the given layers on one rank."""
    dense = expert = 0.0
    for shape in layers:
        for linear in adapted_linears(arch, shape, tp, ep, etp, targets):
            size = rank * (linear.inputs + linear.outputs) * linear.count
            dense, expert = (dense, expert + size) if linear.expert else (dense + size, expert)
    return RankParameters(dense_replicated=round(dense), expert=round(expert))
