"""The architecture record: what is trained, independent of how it is laid out over GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal

Activation = Literal["silu", "gelu", "quick_gelu", "squared_relu"]
Normalization = Literal["RMSNorm", "LayerNorm"]
PositionEmbedding = Literal["rope", "learned", "none"]
VocabSource = Literal["mock_data", "tokenizer", "explicit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-latent attention (MLA) ranks and head dims. `q_lora_rank` None: the query projection is one full matrix."""

    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int

    @property
    def qk_head_dim(self) -> int:
        """Width of one query or key head: the part without rotary embedding and the part with it."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOfExperts:
    """Routed experts of an MoE layer. `shared_expert_ffn_hidden_size` is the total width of the shared experts (0: none)."""

    num_experts: int
    top_k: int
    expert_ffn_hidden_size: int
    shared_expert_ffn_hidden_size: int = 0
    router_num_groups: int | None = None
    router_group_topk: int | None = None
    router_expert_bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A decoder-only transformer as it would really be built by the trainer.

    Widths are in elements. `moe_layers[i]` says whether decoder layer i is MoE, `windowed_layers[i]` whether it attends over
    `sliding_window` positions only. `vocab_size` is the number of tokens that the run's tokenizer reports, before padding.
    """

    name: str
    num_layers: int
    hidden_size: int
    ffn_hidden_size: int
    num_attention_heads: int
    num_query_groups: int
    head_dim: int
    seq_length: int
    vocab_size: int
    vocab_source: VocabSource
    latent_attention: LatentAttention | None = None
    experts: MixtureOfExperts | None = None
    moe_layers: tuple[bool, ...]
    sliding_window: int | None = None
    windowed_layers: tuple[bool, ...] = ()
    attention_sinks: bool = False
    gated_mlp: bool = True
    activation: Activation = "silu"
    normalization: Normalization = "RMSNorm"
    qk_norm: bool = False
    qkv_bias: bool = False
    linear_bias: bool = False
    position_embedding: PositionEmbedding = "rope"
    max_position_embeddings: int | None = None
    tied_embeddings: bool = False
    mtp_num_layers: int = 0
    vocab_size_divisor: int = 128
    hidden_dropout: float = 0.0
    attention_dropout: float = 0.0

    @property
    def is_moe(self) -> bool:
        """Whether any decoder layer has routed experts."""
        return self.experts is not None and any(self.moe_layers)

    def padded_vocab_size(self, tp: int) -> int:
        """Rows of the embedding over all TP ranks: ceil(V / (divisor * TP)) * divisor * TP (Megatron-Core tokenizer builder)."""
        multiple = self.vocab_size_divisor * tp
        return ceil(self.vocab_size / multiple) * multiple
