"""What a software release changes moves the time the way its mechanism says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from time_cases import DENSE, DENSE_CONFIG, MOE, MOE_CONFIG, TWO_NODES, cluster_of, dense, moe

from primus_mcp.inputs.architecture import Architecture, LatentAttention
from primus_mcp.inputs.hardware_files import gpu_profile
from primus_mcp.projection.performance import project_performance
from primus_mcp.validation.resolve import profile_of

FSDP: dict[str, Any] = {"use_torch_fsdp2": True, "use_distributed_optimizer": False, "gradient_accumulation_fusion": False}
B200 = cluster_of(1, "b200")


def test_fully_sharding_without_prefetch_exposes_every_gather_and_scatter_of_the_backward_pass() -> None:
    ahead, behind = dense(**FSDP), dense(**FSDP, fsdp_backward_prefetch=False)
    assert behind.communication_s == pytest.approx(ahead.communication_s)
    assert behind.exposed_s["gradients"] == pytest.approx(behind.communication_s["gradients"])
    assert behind.exposed_s["parameters"] == pytest.approx(behind.communication_s["parameters"] * (0.5 + 0.2 * 0.5), rel=0.05)
    assert behind.iteration_s > ahead.iteration_s


def test_layers_traffic_beside_gemms_is_felt_more_where_collectives_hold_many_compute_units() -> None:
    """AMD 0.2 of a transfer that hides (kernels side by side on MI300X 0.55 and more, gradients of whole runs 0.1), NVIDIA 0.1."""
    config = replace(DENSE_CONFIG, **FSDP)
    for cluster, felt in ((None, 0.2), (B200, 0.1)):
        result = dense(**FSDP) if cluster is None else project_performance(DENSE, config, cluster, gemm_backend="roofline")
        for part in ("parameters", "gradients"):
            assert result.exposed_s[part] == pytest.approx(felt * result.communication_s[part], rel=0.05)


def test_scattering_pipeline_tensors_over_tp_shortens_a_hop_between_nodes() -> None:
    config = replace(DENSE_CONFIG, tp=8, pp=2, gbs=64)
    whole, scattered = (
        project_performance(DENSE, replace(config, scatter_p2p=scatter), TWO_NODES, gemm_backend="roofline") for scatter in (False, True)
    )
    assert scattered.communication_s["pp"] < 0.5 * whole.communication_s["pp"]
    assert scattered.iteration_s < whole.iteration_s


def test_graphs_of_parts_take_host_time_away_one_by_one() -> None:
    small = {"mbs": 1, "gbs": 64, "dispatcher": "deepep"}
    parts = [moe(**small, graphed=parts).iteration_s for parts in ((), ("moe_router",), ("attn", "moe_router"))]
    assert parts == sorted(parts, reverse=True) and len(set(parts)) == 3
    assert moe(**small, full_graph=True).iteration_s < parts[-1]


def test_a_fused_expert_mlp_drops_casts_padding_and_activation_traffic() -> None:
    fp8 = {"grouped_gemm": "te", "fp8": "e4m3", "fp8_recipe": "mxfp8", "forced_balance": False}
    apart, fused = moe(**fp8), moe(**fp8, fused_expert_mlp=True)
    for part in ("experts", "expert_activation", "permute"):
        assert fused.time_breakdown_s[part] < apart.time_breakdown_s[part]


def test_rows_are_padded_for_fp8_unless_their_counts_are_even() -> None:
    fp8 = {"grouped_gemm": "te", "fp8": "hybrid", "dispatcher": "alltoall"}
    even, uneven = moe(**fp8), moe(**fp8, forced_balance=False)
    assert uneven.time_breakdown_s["permute"] > even.time_breakdown_s["permute"]
    assert moe(grouped_gemm="te").time_breakdown_s["permute"] == moe(grouped_gemm="te", forced_balance=False).time_breakdown_s["permute"]


def test_deepep_before_2026_permutes_eagerly_unless_asked_to_fuse() -> None:
    old = {"dispatcher": "deepep", "deepep_fused_permute": False}
    eager, fused, new = moe(**old, permute_fusion=False), moe(**old, permute_fusion=True), moe(dispatcher="deepep")
    assert eager.time_breakdown_s["permute"] > 2 * fused.time_breakdown_s["permute"]
    assert fused.time_breakdown_s["permute"] == new.time_breakdown_s["permute"]


def test_fp8_attention_gains_in_latent_heads_and_loses_in_short_plain_ones() -> None:
    """cuDNN 9.22 and 9.24 on GB200, MXFP8 over BF16: 1.2 and 0.92 with heads of 128, 1.43 and 1.33 with latent ones; and the casts."""

    def gain(arch: Architecture) -> float:
        plain, fp8 = (
            project_performance(arch, replace(MOE_CONFIG, fp8_attention=on), B200, gemm_backend="roofline").time_breakdown_s[
                "attention_core"
            ]
            for on in (False, True)
        )
        return plain / fp8

    heads = LatentAttention(q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
    latent = replace(MOE, latent_attention=heads, seq_length=32_768)
    assert gain(MOE) < 1 < gain(latent) < 1.43
    assert gain(MOE) < gain(replace(MOE, seq_length=32_768))


def test_eager_norms_read_their_input_once_more_in_the_backward_pass() -> None:
    assert dense(fused_norm=False).time_breakdown_s["norm"] == pytest.approx(52 / 44 * dense().time_breakdown_s["norm"], rel=0.02)


@pytest.mark.parametrize(
    ("released", "name"), [("2021-06", "cuda-2023"), ("2023-09", "cuda-2023"), ("2024-06", "cuda-2026"), (None, "cuda-2026")]
)
def test_a_run_takes_the_profile_that_its_date_had_begun(released: str | None, name: str) -> None:
    assert profile_of(gpu_profile("h100"), released) == name


def test_attention_of_2023_is_slower_than_that_of_2024_on_the_same_gpu() -> None:
    profiles = gpu_profile("a100").profiles
    old, new = profiles["cuda-2023"], profiles["cuda-2024"]
    assert old.attention_backward_flops < old.attention_forward_flops < new.attention_forward_flops
    assert old.sustained_flops == new.sustained_flops
