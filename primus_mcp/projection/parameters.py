"""Parameter counts: what one TP / EP rank holds, and the totals that model cards publish. Elements, not bytes.

Sources: NVIDIA/Megatron-LM@d3528a21 core/transformer (attention.py, multi_latent_attention.py, mlp.py, moe/router.py, moe/experts.py,
multi_token_prediction.py). Known error: none; the totals equal the published exact counts of every catalogue model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from primus_mcp.inputs.architecture import (
    ATTENDING,
    FEEDING_FORWARD,
    MIXING,
    Architecture,
    GatedDeltaNet,
    LatentAttention,
    LayerKind,
    LayerShape,
    Mamba2,
    MixtureOfExperts,
    ShortConvolution,
    SparseIndexer,
)
from primus_mcp.inputs.layout import Chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class RankParameters:
    """Elements on one rank, by how they are distributed.

    `dense_sharded`: split over TP; `dense_replicated`: whole on each TP rank; both are replicated over DP x CP.
    `expert`: routed experts of this EP / ETP rank, replicated over expert DP.
    """

    dense_sharded: int = 0
    dense_replicated: int = 0
    expert: int = 0

    @property
    def dense(self) -> int:
        """Everything but routed experts."""
        return self.dense_sharded + self.dense_replicated

    @property
    def total(self) -> int:
        """All elements on the rank."""
        return self.dense_sharded + self.dense_replicated + self.expert

    def __add__(self, other: RankParameters) -> RankParameters:
        """Two modules on the same rank."""
        return RankParameters(
            dense_sharded=self.dense_sharded + other.dense_sharded,
            dense_replicated=self.dense_replicated + other.dense_replicated,
            expert=self.expert + other.expert,
        )

    def times(self, count: int) -> RankParameters:
        """`count` copies of the same module."""
        return RankParameters(
            dense_sharded=self.dense_sharded * count, dense_replicated=self.dense_replicated * count, expert=self.expert * count
        )


def _norm(arch: Architecture, width: int) -> int:
    """RMSNorm has a weight, LayerNorm a weight and a bias."""
    return width * (2 if arch.normalization == "LayerNorm" else 1)


def _query_attention(arch: Architecture, tp: int) -> RankParameters:
    """QKV and output projection of multi-head / grouped-query attention.

    QKV h * (a + 2 g) * d / TP and projection a * d * h / TP. Fewer query groups than TP ranks: Megatron still shards the fused QKV
    weight evenly and gathers its output (attention.py:292-317, the all-gather before `[idx * size : ...]`), so no weight is
    replicated. Biases follow their linear: QKV sharded, output projection replicated. QK-norm: one head wide, for Q and for K.
    """
    query = arch.num_attention_heads * arch.head_dim
    keys = arch.num_query_groups * arch.head_dim
    qkv = query * (2 if arch.attention_output_gate else 1) + 2 * keys
    sharded = arch.hidden_size * qkv // tp + query * arch.hidden_size // tp
    sharded += qkv // tp if arch.qkv_bias or arch.linear_bias else 0
    sharded += arch.num_attention_heads // tp if arch.attention_sinks else 0
    replicated = arch.hidden_size if arch.linear_bias else 0
    if arch.qk_norm and arch.qk_norm_scope == "head":
        replicated += 2 * _norm(arch, arch.head_dim)
    elif arch.qk_norm and arch.qk_norm_scope == "full":
        sharded += _norm(arch, query + keys) // tp
    return RankParameters(dense_sharded=sharded, dense_replicated=replicated)


def _latent_attention(arch: Architecture, mla: LatentAttention, tp: int) -> RankParameters:
    """MLA: down-projections and latent norms whole on every TP rank, up- and output projections over heads / TP."""
    heads, hidden = arch.num_attention_heads, arch.hidden_size
    query_in = hidden if mla.q_lora_rank is None else mla.q_lora_rank
    sharded = query_in * heads * mla.qk_head_dim + mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    sharded += heads * mla.v_head_dim * hidden
    replicated = hidden * (mla.kv_lora_rank + mla.qk_rope_head_dim)
    replicated += hidden if arch.linear_bias else 0
    replicated += _norm(arch, mla.kv_lora_rank) if arch.qk_norm else 0
    if mla.q_lora_rank is not None:
        replicated += hidden * mla.q_lora_rank + (_norm(arch, mla.q_lora_rank) if arch.qk_norm else 0)
    return RankParameters(dense_sharded=sharded // tp, dense_replicated=replicated)


def _indexer(arch: Architecture, indexer: SparseIndexer, query_rank: int) -> RankParameters:
    """Queries from the compressed query, one key and its LayerNorm, a weight a head; whole on every TP rank (DeepSeek sparse attention)."""
    width = indexer.heads * indexer.head_dim
    count = query_rank * width + arch.hidden_size * (indexer.head_dim + indexer.heads) + 2 * indexer.head_dim
    return RankParameters(dense_replicated=count)


def _short_convolution(arch: Architecture, mixer: ShortConvolution, tp: int) -> RankParameters:
    """Widths h -> 3h, a depthwise convolution of `kernel` taps over h channels, h -> h."""
    return RankParameters(dense_sharded=(4 * arch.hidden_size + mixer.kernel) * arch.hidden_size // tp)


def _gated_delta_net(arch: Architecture, mixer: GatedDeltaNet, tp: int) -> RankParameters:
    """Hidden -> queries, keys, values, output gate, and 2 scalars a value head; convolution; decay, bias a head; norm; -> hidden.

    Source: NVIDIA/Megatron-LM@d3528a21 core/ssm/gated_delta_net.py.
    """
    keys, values = mixer.key_width, mixer.value_width
    entry = arch.hidden_size * (2 * keys + 2 * values + 2 * mixer.value_heads)
    convolution = mixer.kernel * (2 * keys + values)
    sharded = entry + convolution + 2 * mixer.value_heads + values * arch.hidden_size
    return RankParameters(dense_sharded=sharded // tp, dense_replicated=mixer.value_head_dim)


def _mamba2(arch: Architecture, mixer: Mamba2, tp: int) -> RankParameters:
    """Hidden -> gate, values, B, C and a step a head; convolution with bias; decay, skip and step bias a head; norm; -> hidden.

    Source: NVIDIA/Megatron-LM@d3528a21 core/ssm/mamba_mixer.py. Groups are split over TP.
    """
    inner, states = mixer.inner_width, mixer.state_width
    entry = arch.hidden_size * (2 * inner + 2 * states + mixer.heads)
    convolution = (mixer.kernel + 1) * (inner + 2 * states)
    return RankParameters(dense_sharded=(entry + convolution + 3 * mixer.heads + inner + inner * arch.hidden_size) // tp)


def mixer_parameters(arch: Architecture, tp: int) -> RankParameters:
    """What runs instead of attention in a layer of the kind `mixer`, without the norm before it."""
    if isinstance(arch.mixer, ShortConvolution):
        return _short_convolution(arch, arch.mixer, tp)
    if isinstance(arch.mixer, Mamba2):
        return _mamba2(arch, arch.mixer, tp)
    assert isinstance(arch.mixer, GatedDeltaNet)
    return _gated_delta_net(arch, arch.mixer, tp)


def attention_parameters(arch: Architecture, tp: int) -> RankParameters:
    """Attention of one layer, without the norm before it."""
    if arch.latent_attention is None:
        return _query_attention(arch, tp)
    whole = _latent_attention(arch, arch.latent_attention, tp)
    if arch.sparse_indexer is not None:
        whole += _indexer(arch, arch.sparse_indexer, arch.latent_attention.q_lora_rank or arch.hidden_size)
    return whole


def _mlp(arch: Architecture, width: int, tp: int, bias: bool) -> tuple[int, int]:
    """(sharded, replicated) of fc1 h -> f (twice when gated) and fc2 f -> h; the bias of fc1 is sharded, that of fc2 is not."""
    first = width * (2 if arch.gated_mlp else 1)
    sharded = arch.hidden_size * (first + width) // tp + (first // tp if bias else 0)
    return sharded, arch.hidden_size if bias else 0


def _experts(arch: Architecture, experts: MixtureOfExperts, tp: int, ep: int, etp: int) -> RankParameters:
    """Router h * E (+ E bias) replicated, E / EP routed experts each split over ETP; shared expert and residual MLP split over TP.

    The gate of a shared expert is a column h. The auxiliary-loss-free router bias is a buffer in Megatron, not a parameter (moe/router.py).
    """
    sharded, replicated = _mlp(arch, experts.expert_ffn_hidden_size, etp, arch.linear_bias)
    beside = experts.shared_expert_ffn_hidden_size + experts.residual_ffn_hidden_size
    shared = _mlp(arch, beside, tp, bias=False)[0] if beside else 0
    router = experts.num_experts * (arch.hidden_size + (1 if arch.linear_bias else 0))
    router += arch.hidden_size if experts.shared_expert_gate else 0
    routed = experts.num_experts // ep * (sharded + replicated)
    return RankParameters(dense_sharded=shared, dense_replicated=router, expert=routed)


def mlp_parameters(arch: Architecture, moe: bool, tp: int, ep: int, etp: int) -> RankParameters:
    """Dense MLP, or router plus experts, of one layer, without the norm before it."""
    if moe:
        assert arch.experts is not None
        return _experts(arch, arch.experts, tp, ep, etp)
    sharded, replicated = _mlp(arch, arch.ffn_hidden_size, tp, arch.linear_bias)
    return RankParameters(dense_sharded=sharded, dense_replicated=replicated)


@lru_cache(maxsize=1024)
def layer_parameters(arch: Architecture, moe: bool, tp: int, ep: int, etp: int, kind: LayerKind = "attention") -> RankParameters:
    """One decoder layer: attention or mixer, MLP or experts (or one of them alone), and the norms before (and, with four, after) each."""
    total = RankParameters()
    if kind in ATTENDING:
        total += attention_parameters(arch, tp)
    elif kind in MIXING:
        total += mixer_parameters(arch, tp)
    if kind in FEEDING_FORWARD:
        total += mlp_parameters(arch, moe, tp, ep, etp)
    halves = 2 if kind in ("attention", "mixer") else 1
    return total + RankParameters(dense_replicated=arch.norms_per_layer * halves // 2 * _norm(arch, arch.hidden_size))


def embedding_parameters(arch: Architecture, tp: int) -> RankParameters:
    """Word embedding with padded rows / TP, and learned positions (replicated)."""
    positions = (arch.max_position_embeddings or arch.seq_length) * arch.hidden_size if arch.position_embedding == "learned" else 0
    return RankParameters(dense_sharded=arch.padded_vocab_size(tp) // tp * arch.hidden_size, dense_replicated=positions)


def head_parameters(arch: Architecture, tp: int) -> RankParameters:
    """The output matrix V' * h / TP. A tied model owns it only where the embedding is not on the same rank: the caller decides."""
    return RankParameters(dense_sharded=arch.padded_vocab_size(tp) // tp * arch.hidden_size)


def final_norm_parameters(arch: Architecture) -> RankParameters:
    """The norm before the output matrix."""
    return RankParameters(dense_replicated=_norm(arch, arch.hidden_size))


def mtp_parameters(arch: Architecture, tp: int, ep: int, etp: int) -> RankParameters:
    """One multi-token-prediction depth: norms of both inputs, projection 2h * h / TP, one whole layer of the last layer's kind, norm.

    Embedding and head are shared with the main model (a copy of the embedding lies on the MTP stage when PP > 1).
    """
    moe, kind = arch.layer_shape(arch.num_layers - 1)
    hidden = arch.hidden_size
    projection = RankParameters(dense_sharded=2 * hidden * hidden // tp, dense_replicated=3 * _norm(arch, hidden))
    return layer_parameters(arch, moe, tp, ep, etp, kind) + projection


def layer_shapes(arch: Architecture, chunks: Iterable[Chunk]) -> tuple[LayerShape, ...]:
    """The shape of each layer on a rank; MTP depths are layers of the last layer's shape."""
    shapes: list[LayerShape] = []
    for chunk in chunks:
        shapes += [arch.layer_shape(layer) for layer in chunk.layers]
        shapes += [arch.layer_shape(arch.num_layers - 1)] * chunk.mtp_layers
    return tuple(shapes)


def rank_parameters(arch: Architecture, tp: int, ep: int, etp: int, chunks: tuple[Chunk, ...]) -> RankParameters:
    """Parameters of a pipeline rank, padded vocabulary included.

    A tied output matrix is stored once where the embedding is on the same rank; with MTP the rank of the loss holds a second copy of the
    embedding unless it has the first. Both copies are trained like any weight.
    """
    total = RankParameters()
    has_embedding = any(chunk.embedding for chunk in chunks)
    for (moe, kind), count in Counter(arch.layer_shape(layer) for chunk in chunks for layer in chunk.layers).items():
        total += layer_parameters(arch, moe, tp, ep, etp, kind).times(count)
    for chunk in chunks:
        if chunk.mtp_layers:
            total += mtp_parameters(arch, tp, ep, etp).times(chunk.mtp_layers)
            total += RankParameters() if has_embedding else RankParameters(dense_sharded=embedding_parameters(arch, tp).dense_sharded)
        if chunk.embedding:
            total += embedding_parameters(arch, tp)
        if chunk.loss:
            total += final_norm_parameters(arch)
            total += RankParameters() if arch.tied_embeddings and has_embedding else head_parameters(arch, tp)
    return total


def total_parameters(arch: Architecture, *, include_mtp: bool = False) -> int:
    """All parameters with the unpadded vocabulary: the figure that a model card states."""
    kinds = Counter(arch.layer_shape(layer) for layer in range(arch.num_layers))
    layers = sum(layer_parameters(arch, moe, 1, 1, 1, kind).total * count for (moe, kind), count in kinds.items())
    matrices = 1 if arch.tied_embeddings else 2
    positions = embedding_parameters(arch, 1).dense_replicated
    total = layers + matrices * arch.vocab_size * arch.hidden_size + positions + final_norm_parameters(arch).total
    return total + (arch.mtp_num_layers * mtp_parameters(arch, 1, 1, 1).total if include_mtp else 0)


def active_parameters(arch: Architecture) -> int:
    """Parameters that touch one token: top-k of the routed experts, and not the input embedding unless it is also the head.

    This is the convention that matches most published "active" figures (Mixtral and Llama 4 cards add the embedding).
    """
    inactive = 0
    if arch.experts is not None:
        idle = arch.experts.num_experts - arch.experts.top_k
        inactive = sum(arch.moe_layers) * idle * _one_expert(arch, arch.experts)
    embedding = 0 if arch.tied_embeddings else arch.vocab_size * arch.hidden_size
    return total_parameters(arch) - inactive - embedding


def _one_expert(arch: Architecture, experts: MixtureOfExperts) -> int:
    return sum(_mlp(arch, experts.expert_ffn_hidden_size, 1, arch.linear_bias))
