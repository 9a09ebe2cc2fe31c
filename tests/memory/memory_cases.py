"""Architectures and runs of published memory figures, built from records so that no catalogue file can change them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from architecture_cases import decoder

from primus_mcp.inputs.architecture import Architecture, LatentAttention, MixtureOfExperts
from primus_mcp.inputs.hardware import Vendor
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.memory.projection import MemoryProjection, RankMemory, project_placed
from primus_mcp.projection.placement import place
from primus_mcp.units import GIB

MI355X_USABLE_BYTES = 287.98 * GIB


def llama_70b(layers: int = 80, seq: int = 4096) -> Architecture:
    """128,257 rows: the tokenizer of the runs reports one more than its vocabulary."""
    return decoder(layers, 8192, 28672, 64, 8, 128257, seq)


def llama_405b(layers: int = 126, seq: int = 4096) -> Architecture:
    """16 query groups, as the checkpoint was first released and as the measured slices were built."""
    return decoder(layers, 16384, 53248, 128, 16, 128257, seq)


def gpt(layers: int, hidden: int, heads: int, seq: int, vocab: int) -> Architecture:
    """GPT-2 / GPT-3: LayerNorm, GELU, biases, dropout, learned positions, tied embeddings."""
    return decoder(
        layers,
        hidden,
        4 * hidden,
        heads,
        heads,
        vocab,
        seq,
        gated_mlp=False,
        activation="gelu",
        normalization="LayerNorm",
        linear_bias=True,
        qkv_bias=True,
        hidden_dropout=0.1,
        attention_dropout=0.1,
        position_embedding="learned",
        tied_embeddings=True,
    )


def deepseek_v2(layers: int = 60) -> Architecture:
    """First layer dense."""
    return decoder(
        layers,
        5120,
        12288,
        128,
        128,
        102400,
        4096,
        head_dim=128,
        qk_norm=True,
        latent_attention=LatentAttention(q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128),
        experts=MixtureOfExperts(num_experts=160, top_k=6, expert_ffn_hidden_size=1536, shared_expert_ffn_hidden_size=3072),
        moe_layers=(False,) + (True,) * (layers - 1),
    )


def deepseek_v2_lite() -> Architecture:
    """27 layers, the first dense; queries without low rank."""
    return decoder(
        27,
        2048,
        10944,
        16,
        16,
        102400,
        4096,
        head_dim=128,
        qk_norm=True,
        latent_attention=LatentAttention(q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128),
        experts=MixtureOfExperts(num_experts=64, top_k=6, expert_ffn_hidden_size=1408, shared_expert_ffn_hidden_size=2816),
        moe_layers=(False,) + (True,) * 26,
    )


def deepseek_v3(mtp: int = 0) -> Architecture:
    """61 layers, three dense."""
    return decoder(
        61,
        7168,
        18432,
        128,
        128,
        129280,
        4096,
        head_dim=128,
        qk_norm=True,
        latent_attention=LatentAttention(q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128),
        experts=MixtureOfExperts(num_experts=256, top_k=8, expert_ffn_hidden_size=2048, shared_expert_ffn_hidden_size=2048),
        moe_layers=(False,) * 3 + (True,) * 58,
        mtp_num_layers=mtp,
    )


def mixtral_8x7b(layers: int = 32, seq: int = 4096) -> Architecture:
    """8 experts, 2 active."""
    return decoder(
        layers,
        4096,
        14336,
        32,
        8,
        32000,
        seq,
        experts=MixtureOfExperts(num_experts=8, top_k=2, expert_ffn_hidden_size=14336),
        moe_layers=(True,) * layers,
    )


def qwen3_30b_a3b() -> Architecture:
    """128 experts, 8 active, QK-norm."""
    return decoder(
        48,
        2048,
        6144,
        32,
        4,
        151669,
        4096,
        head_dim=128,
        qk_norm=True,
        experts=MixtureOfExperts(num_experts=128, top_k=8, expert_ffn_hidden_size=768),
        moe_layers=(True,) * 48,
    )


def configured(world: int, micro_batches: int = 8, **settings: Any) -> TrainingConfig:
    """A configuration with the global batch that gives this many micro-batches."""
    config = TrainingConfig(**settings)
    return replace(config, gbs=config.mbs * micro_batches * (world // (config.tp * config.pp * config.cp)))


def run(arch: Architecture, world: int, micro_batches: int = 8, vendor: Vendor = "nvidia", **settings: Any) -> MemoryProjection:
    """Projects a configuration given as keyword arguments."""
    config = configured(world, micro_batches, **settings)
    return project_placed(arch, config, place(arch, config, world), vendor)


def most_allocated(projection: MemoryProjection) -> RankMemory:
    """The rank that torch's counter would report as the maximum."""
    return max(projection.ranks, key=lambda rank: rank.allocated_bytes)
