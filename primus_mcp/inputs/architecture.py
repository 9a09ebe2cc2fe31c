"""The architecture record: what is trained, independent of how it is laid out over GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal

Activation = Literal["silu", "gelu", "quick_gelu", "squared_relu"]
Normalization = Literal["RMSNorm", "LayerNorm"]
PositionEmbedding = Literal["rope", "learned", "none"]
VocabSource = Literal["mock_data", "tokenizer", "explicit"]
QkNormScope = Literal["head", "full", "unweighted"]
LayerKind = Literal["attention", "mixer", "attention_alone", "mixer_alone", "mlp_alone"]
"""What a decoder layer is: attention or a mixer followed by the MLP or experts, or one of the three alone (hybrid stacks)."""
LayerShape = tuple[bool, LayerKind]
"""Whether a layer is MoE, and its kind."""
ATTENDING: frozenset[LayerKind] = frozenset({"attention", "attention_alone"})
MIXING: frozenset[LayerKind] = frozenset({"mixer", "mixer_alone"})
FEEDING_FORWARD: frozenset[LayerKind] = frozenset({"attention", "mixer", "mlp_alone"})


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
class SparseIndexer:
    """The indexer of sparse latent attention (DSA): it scores positions with its own heads, and attention reads the `top_k` best."""

    heads: int
    head_dim: int
    top_k: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConvolution:
    """A gated depthwise convolution over `kernel` positions instead of attention (LFM2): h -> 3h, convolution over h, h -> h."""

    kernel: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDeltaNet:
    """Linear attention with a gated delta rule instead of softmax attention (Qwen3.5): a state of key width x value width a value head."""

    key_heads: int
    key_head_dim: int
    value_heads: int
    value_head_dim: int
    kernel: int

    @property
    def key_width(self) -> int:
        """Elements of all query (or key) heads of one token."""
        return self.key_heads * self.key_head_dim

    @property
    def value_width(self) -> int:
        """Elements of all value heads of one token."""
        return self.value_heads * self.value_head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """A selective state space instead of attention (Mamba-2): `state_dim` elements of state a channel, `groups` of B and C."""

    heads: int
    head_dim: int
    state_dim: int
    groups: int
    kernel: int

    @property
    def inner_width(self) -> int:
        """Channels of one token: all heads together."""
        return self.heads * self.head_dim

    @property
    def state_width(self) -> int:
        """Elements of B (or C) of one token."""
        return self.groups * self.state_dim


Mixer = ShortConvolution | GatedDeltaNet | Mamba2


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOfExperts:
    """Routed experts of an MoE layer. `shared_expert_ffn_hidden_size` is the total width of the shared experts (0: none).

    `shared_expert_gate`: a column of weights scales the shared expert's output. `residual_ffn_hidden_size`: a dense MLP of this width runs
    beside the experts of every MoE layer and is added to their output (Grok-2).
    """

    num_experts: int
    top_k: int
    expert_ffn_hidden_size: int
    shared_expert_ffn_hidden_size: int = 0
    router_num_groups: int | None = None
    router_group_topk: int | None = None
    router_expert_bias: bool = False
    shared_expert_gate: bool = False
    residual_ffn_hidden_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A decoder-only model as it would really be built by the trainer.

    Widths are in elements. `moe_layers[i]` says whether decoder layer i is MoE, `windowed_layers[i]` whether it attends over
    `sliding_window` positions only, or over its own chunk of `attention_chunk` positions. `vocab_size` is the number of tokens that the
    run's tokenizer reports, before padding. `layer_kinds[i]` says what decoder layer i is (empty: all are attention and MLP), `mixer` what
    runs instead of attention. `norms_per_layer` is 4 where the outputs of attention and MLP are normalised too. `qk_norm_scope`: the norm
    of queries and keys is one head wide, as wide as all heads together, or has no weight. `attention_output_gate`: as wide as the queries.
    `scaled_rope`: YaRN multiplies queries and keys by a concentration factor. `activation_clamp`: what both halves of the gated
    activation's input are clamped to first.
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
    attention_chunk: int | None = None
    sparse_indexer: SparseIndexer | None = None
    attention_output_gate: bool = False
    layer_kinds: tuple[LayerKind, ...] = ()
    mixer: Mixer | None = None
    attention_sinks: bool = False
    scaled_rope: bool = False
    activation_clamp: float | None = None
    gated_mlp: bool = True
    activation: Activation = "silu"
    normalization: Normalization = "RMSNorm"
    norms_per_layer: int = 2
    qk_norm: bool = False
    qk_norm_scope: QkNormScope = "head"
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

    def layer_kind(self, layer: int) -> LayerKind:
        """What decoder layer `layer` runs before its MLP."""
        return self.layer_kinds[layer] if self.layer_kinds else "attention"

    def layer_shape(self, layer: int) -> LayerShape:
        """Everything that layers of one cost share: whether it is MoE, and its kind."""
        return self.moe_layers[layer], self.layer_kind(layer)

    @property
    def layer_windows(self) -> tuple[bool, ...]:
        """Whether each decoder layer attends over a window (or its chunk) only."""
        return self.windowed_layers or (False,) * self.num_layers

    @property
    def attending_layers(self) -> int:
        """Decoder layers with attention."""
        return sum(self.layer_kind(layer) in ATTENDING for layer in range(self.num_layers))

    def padded_vocab_size(self, tp: int) -> int:
        """Rows of the embedding over all TP ranks: ceil(V / (divisor * TP)) * divisor * TP (Megatron-Core tokenizer builder)."""
        multiple = self.vocab_size_divisor * tp
        return ceil(self.vocab_size / multiple) * multiple
