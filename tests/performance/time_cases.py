"""Architectures, clusters and configurations that the time tests share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from primus_mcp.inputs.architecture import Architecture, MixtureOfExperts
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.hardware_files import gpu_profile
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.performance import PerformanceProjection, project_performance

DENSE = Architecture(
    name="dense-8b",
    num_layers=32,
    hidden_size=4096,
    ffn_hidden_size=14336,
    num_attention_heads=32,
    num_query_groups=8,
    head_dim=128,
    seq_length=8192,
    vocab_size=128256,
    vocab_source="tokenizer",
    moe_layers=(False,) * 32,
)
MOE = Architecture(
    name="moe-30b",
    num_layers=48,
    hidden_size=2048,
    ffn_hidden_size=6144,
    num_attention_heads=32,
    num_query_groups=4,
    head_dim=128,
    seq_length=4096,
    vocab_size=131072,
    vocab_source="mock_data",
    experts=MixtureOfExperts(num_experts=128, top_k=8, expert_ffn_hidden_size=768, shared_expert_ffn_hidden_size=768),
    moe_layers=(True,) * 48,
    qk_norm=True,
)


def cluster_of(nodes: int, gpu: str = "mi355x") -> Cluster:
    """Nodes of eight GPUs."""
    profile = gpu_profile(gpu)
    return Cluster(
        name=f"{nodes} x {gpu}",
        num_nodes=nodes,
        gpus_per_node=8,
        gpu=profile,
        network=profile.network,
        profile=profile.profiles[profile.default_profile],
        hbm_bytes=profile.hbm_bytes,
        memory_safety_margin=0.1,
    )


ONE_NODE, TWO_NODES, FOUR_NODES = cluster_of(1), cluster_of(2), cluster_of(4)
DENSE_CONFIG = TrainingConfig(mbs=1, gbs=64, overlap_grad_reduce=True, overlap_param_gather=True)
MOE_CONFIG = TrainingConfig(
    mbs=4,
    gbs=256,
    ep=8,
    overlap_grad_reduce=True,
    overlap_param_gather=True,
    forced_balance=True,
    cross_entropy_loss_fusion=True,
    cross_entropy_impl="te",
)


def dense(cluster: Cluster = ONE_NODE, /, **changes: Any) -> PerformanceProjection:
    """The dense model with changes."""
    return project_performance(DENSE, replace(DENSE_CONFIG, **changes), cluster, gemm_backend="roofline")


def moe(cluster: Cluster = ONE_NODE, /, **changes: Any) -> PerformanceProjection:
    """The MoE model with changes."""
    return project_performance(MOE, replace(MOE_CONFIG, **changes), cluster, gemm_backend="roofline")
