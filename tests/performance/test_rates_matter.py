"""Every figure of a hardware profile, and every constant of the engine, moves some prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

import pytest
from time_cases import DENSE, MOE, MOE_CONFIG, cluster_of

from primus_mcp.errors import PrimusMcpError
from primus_mcp.inputs.architecture import Architecture, LatentAttention
from primus_mcp.inputs.hardware import Cluster, Network, SoftwareProfile
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.performance import project_performance

LATENT = replace(
    MOE, latent_attention=LatentAttention(q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
)
NARROW = replace(DENSE, head_dim=64, num_attention_heads=64, qkv_bias=True)
WINDOWED = replace(NARROW, sliding_window=512, windowed_layers=(True,) * DENSE.num_layers)
PROBES: tuple[tuple[Architecture, TrainingConfig], ...] = (
    (DENSE, TrainingConfig(mbs=1, gbs=128, tp=8, pp=2, cp=2, sequence_parallel=True)),
    (DENSE, TrainingConfig(mbs=1, gbs=128, tp=2, pp=4, fp8="hybrid", flash_attention=False)),
    (DENSE, TrainingConfig(mbs=1, gbs=128, fp4=True)),
    (DENSE, TrainingConfig(mbs=1, gbs=128, fp8="e4m3", fp8_recipe="mxfp8")),
    (DENSE, TrainingConfig(mbs=1, gbs=128, fp8="e4m3", fp8_recipe="blockwise")),
    (DENSE, TrainingConfig(mbs=1, gbs=128, tp=2, cp=16, cp_comm_type="a2a")),
    (NARROW, TrainingConfig(mbs=1, gbs=128)),
    (WINDOWED, TrainingConfig(mbs=1, gbs=128)),
    (replace(NARROW, attention_sinks=True), TrainingConfig(mbs=1, gbs=128, turbo_attention=True)),
    (replace(NARROW, attention_sinks=True), TrainingConfig(mbs=1, gbs=128, flash_attention=False)),
    (LATENT, replace(MOE_CONFIG, mbs=1, gbs=128, ep=32, dispatcher="deepep", grouped_gemm="turbo", sync_free_stage=2)),
    (MOE, replace(MOE_CONFIG, mbs=1, gbs=128, ep=8, pp=4)),
)
BASE = cluster_of(4)
UNPRICED_NETWORK = {
    "node_topology": "a kind, not a rate",
    "switch_topology": "a kind, not a rate",
    "spans_nodes": "a kind, not a rate",
    "pod_size": "4 nodes lie inside one pod",
    "cluster_bandwidth_bytes_per_s": "4 nodes lie inside one pod",
    "cluster_latency_s": "4 nodes lie inside one pod",
}


def _times(cluster: Cluster) -> list[float]:
    return [project_performance(arch, config, cluster, gemm_backend="roofline").iteration_s for arch, config in PROBES]


REFERENCE = _times(BASE)


def _moves(change: Callable[[Cluster], Cluster]) -> bool:
    try:
        return _times(change(BASE)) != REFERENCE
    except PrimusMcpError:
        return True


@pytest.mark.parametrize("name", sorted(BASE.profile.figures))
def test_every_named_figure_of_the_software_profile_matters(name: str) -> None:
    figures = dict(BASE.profile.figures) | {name: 0.5 * BASE.profile.figures[name]}
    assert _moves(lambda cluster: replace(cluster, profile=replace(cluster.profile, figures=MappingProxyType(figures))))


RATES = [field.name for field in fields(SoftwareProfile) if isinstance(getattr(BASE.profile, field.name), float)]


@pytest.mark.parametrize("name", RATES)
def test_every_rate_of_the_software_profile_matters(name: str) -> None:
    changed: Any = {name: 0.7 * getattr(BASE.profile, name)}
    assert _moves(lambda cluster: replace(cluster, profile=replace(cluster.profile, **changed)))


@pytest.mark.parametrize("precision", sorted(BASE.profile.sustained_flops))
def test_every_sustained_rate_matters(precision: str) -> None:
    rates: Any = {name: rate * (0.7 if name == precision else 1) for name, rate in BASE.profile.sustained_flops.items()}
    assert _moves(lambda cluster: replace(cluster, profile=replace(cluster.profile, sustained_flops=rates)))


@pytest.mark.parametrize("name", sorted({field.name for field in fields(Network)} - set(UNPRICED_NETWORK)))
def test_every_rate_of_the_network_matters(name: str) -> None:
    value = getattr(BASE.network, name)
    changed: Any = {name: value // 2 if isinstance(value, int) else value / 2}
    assert _moves(lambda cluster: replace(cluster, network=replace(cluster.network, **changed)))


@pytest.mark.parametrize(("name", "factor"), [("hbm_bandwidth_bytes_per_s", 0.5), ("compute_units", 0.75)])
def test_hbm_bandwidth_and_compute_units_matter(name: str, factor: float) -> None:
    value = getattr(BASE.gpu, name) * factor
    changed: Any = {name: int(value) if name == "compute_units" else value}
    assert _moves(lambda cluster: replace(cluster, gpu=replace(cluster.gpu, **changed)))
