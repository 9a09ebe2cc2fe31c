"""Multi-latent attention around its core: projections through latents, their norms, rotary embedding, and what TP gathers of them."""

from __future__ import annotations

from functools import partial

from primus_mcp.inputs.architecture import Architecture, LatentAttention
from primus_mcp.inputs.constants import TIME
from primus_mcp.projection.layers.linear import model_linear
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.record import Piece
from primus_mcp.projection.layers.settings import LayerSettings
from primus_mcp.projection.layers.tensor_parallel import shard_gathered, tensor_parallel
from primus_mcp.units import BF16_BYTES

REPLAYED = "mla_up_proj"
"""The recompute module of everything from the latent norms to rotated Q, K and V."""


def rope_is_fused(arch: Architecture, settings: LayerSettings) -> bool:
    """The fused kernel cannot scale: YaRN with a concentration factor runs unfused, asked or not (Megatron-LM rope_utils.py, `mscale`).

    That of latent attention can, its tables hold the factor (`scaled_rope` is of plain attention alone).
    """
    return settings.fused_rope and not arch.scaled_rope


def rotary_bytes(arch: Architecture, settings: LayerSettings) -> tuple[float, float]:
    """Bytes (forward, backward) an element that is rotated."""
    if rope_is_fused(arch, settings):
        return TIME["rope.fused"], TIME["rope.fused"]
    return TIME["rope.unfused.forward"], TIME["rope.unfused.backward"]


def _rotary(rates: Rates, arch: Architecture, mla: LatentAttention, settings: LayerSettings) -> Piece:
    """Rotation of the p rotary columns of Q and of the one rotary key that all heads share, and assembly of Q, K (n + p) and V (v).

    Elements a token and local head that are read or written, each direction (backward is the same way round):
    - fused: Q in place 2 p; K and V out of the up-projection, read n + v, written n + p + v;
    - otherwise: Q joined 2 (n + p), K joined n + (n + p), its shared part broadcast, V made contiguous 2 v; beside them the rotation of
      Q's p columns a head and of K's p columns once, even and odd columns apart.
    Source: NVIDIA/Megatron-LM core/fusions/fused_mla_yarn_rope_apply.py, core/transformer/multi_latent_attention.py
    (`qkv_up_proj_and_rope_apply`). TransformerEngine, CK and Turbo take d_qk != d_v: V is not padded.
    """
    heads = arch.num_attention_heads / settings.tp
    plain, turned, value = mla.qk_nope_head_dim, mla.qk_rope_head_dim, mla.v_head_dim
    if rope_is_fused(arch, settings):
        sizes_bytes = [heads * (2 * (plain + value) + 3 * turned) * BF16_BYTES] * 2
    else:
        joined_bytes = heads * (4 * plain + 3 * turned + 2 * value) * BF16_BYTES
        apart = TIME["rope.deinterleaved.forward"], TIME["rope.deinterleaved.backward"]
        turns = (sum(both) for both in zip(rotary_bytes(arch, settings), apart, strict=True))
        sizes_bytes = [joined_bytes + (heads + 1) * turned * turn for turn in turns]
    forward_s, backward_s = (rates.pass_s(settings.tokens(arch) * size_bytes) for size_bytes in sizes_bytes)
    return Piece(name="rope", module=REPLAYED, forward_s=forward_s, backward_s=backward_s)


def _norms(rates: Rates, arch: Architecture, mla: LatentAttention, settings: LayerSettings) -> list[Piece]:
    """In one module with the up-projections, before their all-gather: on a rank's shard of the sequence. A QK norm is that of latents."""
    if not arch.qk_norm:
        return []
    elements = settings.sharded_tokens(arch) * (mla.kv_lora_rank + (mla.q_lora_rank or 0))
    forward_s, backward_s = (rates.pass_s(elements * TIME[f"latent_norm.{direction}"]) for direction in ("forward", "backward"))
    return [Piece(name="norm", module=REPLAYED, forward_s=forward_s, backward_s=backward_s)]


def latent_projections(rates: Rates, arch: Architecture, mla: LatentAttention, settings: LayerSettings) -> list[Piece]:
    """Rows x outputs x inputs, a heads on a rank, T tokens, Ts of them in a rank's shard under sequence parallelism (else all):

    - Ts x (r_kv + p) x h and Ts x r_q x h: down, the same weight on every TP rank, without communication; their weight gradients are
      summed over TP once an iteration (`replicated_gradients_s`);
    - T x a (n + v) x r_kv and T x a (n + p) x r_q: up, which gather latents T r in place of T h, and reduce-scatter their gradients
      (without sequence parallelism all-reduce these alone); the rotary key T p is gathered beside them;
    - without r_q: T x a (n + p) x h out of the gathered hidden state;
    - T x h x a v: output, which reduce-scatters T h.
    Source: NVIDIA/Megatron-LM core/models/gpt/gpt_layer_specs.py (`backend.linear()` for both down-projections since Core 0.14) and
    core/transformer/multi_latent_attention.py. Core 0.13 and before split them over columns: two all-gathers of T h a layer and latents
    gathered twice, not priced. Known error: of 16 runs with latents two have TP 2 and none more, no AMD run has TP.
    """
    tokens, shard, hidden = settings.tokens(arch), settings.sharded_tokens(arch), arch.hidden_size
    heads = arch.num_attention_heads / settings.tp

    project = partial(model_linear, rates, settings, "attention_linear")
    query_width = mla.q_lora_rank or hidden
    keys = project(tokens, heads * (mla.qk_nope_head_dim + mla.v_head_dim), mla.kv_lora_rank, REPLAYED, gathered="input")
    queries = project(tokens, heads * mla.qk_head_dim, query_width, REPLAYED, gathered="input")
    output = project(tokens, hidden, heads * mla.v_head_dim, gathered="gradient")
    down = [project(shard, mla.kv_lora_rank + mla.qk_rope_head_dim, hidden)]
    if mla.q_lora_rank is not None:
        down.append(project(shard, mla.q_lora_rank, hidden))
    return [
        *down,
        keys,
        queries,
        output,
        *_norms(rates, arch, mla, settings),
        _rotary(rates, arch, mla, settings),
        *shard_gathered(rates, arch, settings, mla.qk_rope_head_dim),
        *tensor_parallel(rates, arch, settings, (keys,), width=mla.kv_lora_rank, module=REPLAYED),
        *tensor_parallel(rates, arch, settings, (queries,), width=query_width, module=REPLAYED),
        *tensor_parallel(rates, arch, settings, (), output),
    ]
