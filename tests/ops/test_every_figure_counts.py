"""No rate of a GPU or of its software profile is carried without changing some result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.projection.ops.attention import flash_attention_s, math_attention_s
from primus_mcp.projection.ops.collectives import all_gather_s, all_to_all_s, expert_exchange_s
from primus_mcp.projection.ops.elementwise import hbm_pass_s
from primus_mcp.projection.ops.gemm import RooflineGemm, grouped_seconds

CLUSTER = make_cluster("mi355x", num_nodes=4)
RATES = (
    "attention_forward_flops",
    "attention_backward_flops",
    "elementwise_hbm_efficiency",
    "gemm_hbm_efficiency",
    "link_efficiency",
    "all_to_all_link_efficiency",
    "deepep_link_efficiency",
    "nic_efficiency",
    "grouped_gemm_efficiency",
)


def _outputs(cluster: Cluster) -> list[float]:
    gemm = RooflineGemm(cluster)
    shape: dict[str, Any] = {"mbs": 1, "seq_length": 4096, "heads": 16}
    outputs = [gemm.seconds(300, 1100, 700, precision) for precision in ("bf16", "fp8", "fp4")]
    outputs += [
        grouped_seconds(gemm, cluster, m=256, n=512, k=8192, groups=32, precision="bf16", kernel=kernel)
        for kernel in ("persistent", "loop", "sequential")
    ]
    outputs.append(grouped_seconds(gemm, cluster, m=8192, n=4096, k=8192, groups=4, precision="bf16", kernel="loop"))
    for dims, latent in (((128, 128), False), ((64, 64), False), ((192, 128), True)):
        outputs += flash_attention_s(cluster, **shape, qk_head_dim=dims[0], v_head_dim=dims[1], latent=latent)
    outputs += flash_attention_s(cluster, **shape, qk_head_dim=128, v_head_dim=128, window=512)
    outputs += flash_attention_s(cluster, **shape, qk_head_dim=128, v_head_dim=128, sinks=True)
    for sinks in (False, True):
        outputs += math_attention_s(cluster, gemm, **shape, qk_head_dim=128, v_head_dim=128, sinks=sinks)
    outputs.append(hbm_pass_s(cluster, 1e9))
    for size, stride in ((8, 1), (32, 1), (4, 8)):
        outputs += [all_gather_s(cluster, 2**26, size, stride), all_to_all_s(cluster, 2**26, size, stride)]
        outputs.append(
            expert_exchange_s(
                cluster, tokens=8192, token_bytes=8192, topk=8, num_experts=64, ep=size, stride=stride, deepep=True, forced_balance=False
            )
        )
    return outputs


@pytest.mark.parametrize("rate", RATES)
def test_every_rate_of_a_profile_changes_some_time(rate: str) -> None:
    profile = replace(CLUSTER.profile, **{rate: 0.9 * getattr(CLUSTER.profile, rate)})
    changed, base = _outputs(replace(CLUSTER, profile=profile)), _outputs(CLUSTER)
    assert changed != base
    assert all(after >= before * (1 - 1e-12) for after, before in zip(changed, base, strict=True)), "a lower rate made something faster"


# What the layers apply: tests/performance/test_rates_matter.py
OF_LAYERS = {
    "step_efficiency",
    "grouped_weight_gradient_efficiency",
    "gemm_unaligned_efficiency",
    "gemm_bias_gradient_efficiency",
    "permute_efficiency",
    "gemm_mxfp8_efficiency",
    "gemm_blockwise_efficiency",
    "attention_backward_operator",
}


@pytest.mark.parametrize("figure", sorted(set(CLUSTER.profile.figures) - OF_LAYERS))
def test_every_figure_of_a_profile_changes_some_time(figure: str) -> None:
    figures = dict(CLUSTER.profile.figures) | {figure: 2 * CLUSTER.profile.figures[figure]}
    assert _outputs(replace(CLUSTER, profile=replace(CLUSTER.profile, figures=figures))) != _outputs(CLUSTER)


@pytest.mark.parametrize("precision", ["bf16", "fp8", "fp4"])
def test_every_sustained_rate_changes_some_time(precision: str) -> None:
    rates = {key: (0.9 if key == precision else 1.0) * value for key, value in CLUSTER.profile.sustained_flops.items()}
    assert _outputs(replace(CLUSTER, profile=replace(CLUSTER.profile, sustained_flops=rates))) != _outputs(CLUSTER)


@pytest.mark.parametrize("field", ["compute_units", "hbm_bandwidth_bytes_per_s"])
def test_every_device_figure_that_ops_read_changes_some_time(field: str) -> None:
    gpu = replace(CLUSTER.gpu, **{field: getattr(CLUSTER.gpu, field) // 2})
    assert _outputs(replace(CLUSTER, gpu=gpu)) != _outputs(CLUSTER)
