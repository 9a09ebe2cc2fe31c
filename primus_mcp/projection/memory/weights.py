"""Weight matrices of one rank by shape: TransformerEngine keeps a placeholder gradient a shape and FP8 copies a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from primus_mcp.inputs.architecture import ATTENDING, FEEDING_FORWARD, MIXING, Architecture, LayerKind
from primus_mcp.projection.mixers import entry_width, exit_width


@dataclass(frozen=True, slots=True)
class LinearWeight:
    """`count` matrices of rows x columns elements on one rank; `expert`: part of the grouped GEMM."""

    rows: float
    columns: float
    count: int = 1
    expert: bool = False

    @property
    def elements(self) -> float:
        """Elements of all of them."""
        return self.rows * self.columns * self.count


@lru_cache(maxsize=4096)
def layer_weights(arch: Architecture, moe: bool, tp: int, ep: int, etp: int, kind: LayerKind = "attention") -> tuple[LinearWeight, ...]:
    """Every linear of one layer but the router: attention, then dense MLP, or shared expert and routed experts."""
    first: tuple[LinearWeight, ...] = ()
    if kind in ATTENDING:
        first = _attention_weights(arch, tp)
    elif kind in MIXING:
        first = LinearWeight(entry_width(arch) / tp, arch.hidden_size), LinearWeight(arch.hidden_size, exit_width(arch) / tp)
    return (*first, *_feed_forward_weights(arch, moe, tp, ep, etp)) if kind in FEEDING_FORWARD else first


def _attention_weights(arch: Architecture, tp: int) -> tuple[LinearWeight, ...]:
    hidden, heads = arch.hidden_size, arch.num_attention_heads / tp
    latent = arch.latent_attention
    if latent is None:
        qkv = (arch.num_attention_heads + 2 * arch.num_query_groups) * arch.head_dim / tp
        return LinearWeight(qkv, hidden), LinearWeight(hidden, heads * arch.head_dim)
    query = heads * latent.qk_head_dim
    rank = latent.q_lora_rank
    queries = (LinearWeight(query, hidden),) if rank is None else (LinearWeight(rank, hidden), LinearWeight(query, rank))
    return (
        *queries,
        LinearWeight(latent.kv_lora_rank + latent.qk_rope_head_dim, hidden),
        LinearWeight(heads * (latent.qk_nope_head_dim + latent.v_head_dim), latent.kv_lora_rank),
        LinearWeight(hidden, heads * latent.v_head_dim),
    )


def _feed_forward_weights(arch: Architecture, moe: bool, tp: int, ep: int, etp: int) -> tuple[LinearWeight, ...]:
    hidden, gate = arch.hidden_size, 2 if arch.gated_mlp else 1
    if not moe:
        width = arch.ffn_hidden_size / tp
        return LinearWeight(gate * width, hidden), LinearWeight(hidden, width)
    assert arch.experts is not None
    experts = arch.experts
    width, local = experts.expert_ffn_hidden_size / etp, experts.num_experts // ep
    routed = (LinearWeight(gate * width, hidden, local, True), LinearWeight(hidden, width, local, True))
    if not experts.shared_expert_ffn_hidden_size:
        return routed
    shared = experts.shared_expert_ffn_hidden_size / tp
    return (*routed, LinearWeight(gate * shared, hidden), LinearWeight(hidden, shared))
