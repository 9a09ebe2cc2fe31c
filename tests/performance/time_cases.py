"""Architectures, clusters and configurations that the time tests share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from architecture_cases import decoder

from primus_mcp.inputs.architecture import MixtureOfExperts
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.performance import PerformanceProjection, project_performance

DENSE = decoder(layers=32, hidden=4096, ffn=14336, heads=32, groups=8, vocab=128256, seq=8192, name="dense-8b", vocab_source="tokenizer")
MOE = decoder(
    layers=48,
    hidden=2048,
    ffn=6144,
    heads=32,
    groups=4,
    vocab=131072,
    seq=4096,
    name="moe-30b",
    head_dim=128,
    vocab_source="mock_data",
    experts=MixtureOfExperts(num_experts=128, top_k=8, expert_ffn_hidden_size=768, shared_expert_ffn_hidden_size=768),
    moe_layers=(True,) * 48,
    qk_norm=True,
)


def cluster_of(nodes: int, gpu: str = "mi355x") -> Cluster:
    """Nodes of eight GPUs."""
    return make_cluster(gpu, num_nodes=nodes)


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
