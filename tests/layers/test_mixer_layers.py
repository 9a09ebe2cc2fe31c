"""Time of hybrid layers: laws, and model FLOPs by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from primus_mcp.inputs.architecture import GatedDeltaNet, LayerKind, Mamba2, Mixer, ShortConvolution
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.published import published_models
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.layers.build import decoder_layer
from primus_mcp.projection.layers.settings import layer_settings
from primus_mcp.projection.mixers import core_flops, mixer_weights
from primus_mcp.projection.performance import project_performance
from primus_mcp.projection.performance.flops import model_flops_per_sequence
from primus_mcp.projection.performance.projection import rates_for

BASE = replace(published_models()["llama3_8B"].architecture, seq_length=4096)
CLUSTER = make_cluster("mi300x")
MIXERS: list[Mixer] = [
    ShortConvolution(kernel=3),
    GatedDeltaNet(key_heads=16, key_head_dim=128, value_heads=32, value_head_dim=128, kernel=4),
    Mamba2(heads=64, head_dim=128, state_dim=128, groups=8, kernel=4),
]


def seconds(mixer: Mixer, kind: LayerKind, **changes: Any) -> float:
    arch = replace(BASE, mixer=mixer)
    settings = layer_settings(TrainingConfig(**changes))
    part = decoder_layer(rates_for(CLUSTER, "roofline"), arch, settings, moe=False, windowed=False, kind=kind)
    return part.forward_s + part.backward_s + part.weight_s


@pytest.mark.parametrize("mixer", MIXERS, ids=lambda mixer: type(mixer).__name__)
def test_halves_alone_are_the_layer_together(mixer: Mixer) -> None:
    assert seconds(mixer, "mixer") == pytest.approx(seconds(mixer, "mixer_alone") + seconds(mixer, "mlp_alone"))
    assert seconds(mixer, "attention") == pytest.approx(seconds(mixer, "attention_alone") + seconds(mixer, "mlp_alone"))


@pytest.mark.parametrize("mixer", MIXERS, ids=lambda mixer: type(mixer).__name__)
def test_a_mixer_is_linear_in_the_sequence_where_attention_is_not(mixer: Mixer) -> None:
    short, long = (replace(BASE, mixer=mixer, seq_length=length) for length in (8192, 32_768))
    settings, rates = layer_settings(TrainingConfig()), rates_for(CLUSTER, "roofline")

    def ratio(kind: LayerKind) -> float:
        a, b = (decoder_layer(rates, arch, settings, moe=False, windowed=False, kind=kind) for arch in (short, long))
        return b.forward_s / a.forward_s

    assert ratio("mixer_alone") < 4.1
    assert ratio("attention_alone") > ratio("mixer_alone")


@pytest.mark.parametrize("mixer", MIXERS, ids=lambda mixer: type(mixer).__name__)
def test_a_model_of_mixers_runs_from_end_to_end_and_more_tp_is_less_work_a_rank(mixer: Mixer) -> None:
    arch = replace(BASE, mixer=mixer, layer_kinds=("mixer",) * 32)
    result = project_performance(arch, TrainingConfig(tp=2, gbs=8), CLUSTER, gemm_backend="roofline")
    assert 0 < result.mfu < 1
    assert seconds(mixer, "mixer_alone", tp=1) > seconds(mixer, "mixer_alone", tp=8)


def test_the_flops_of_a_delta_net_by_hand() -> None:
    """Qwen3.5: 2 x 32 heads x (64 x (3 x 128 + 2 x 128) + 3 x 128 x 128) a token; linears 2,048 x (2 x 2,048 + 2 x 4,096 + 64 + 4,096)."""
    arch = published_models()["qwen3_5_35B_A3B"].architecture
    assert core_flops(arch) == 2 * 32 * (64 * 640 + 3 * 128 * 128)
    assert mixer_weights(arch) == 2048 * (2 * 2048 + 2 * 4096 + 64 + 4096)


def test_model_flops_count_mixers_and_attention_each_where_they_run() -> None:
    arch = replace(BASE, mixer=MIXERS[0], layer_kinds=("mixer",) * 16 + ("attention",) * 16)
    every, none = replace(arch, layer_kinds=("attention",) * 32), replace(arch, layer_kinds=("mixer",) * 32)
    half = (model_flops_per_sequence(every, 1) + model_flops_per_sequence(none, 1)) / 2
    assert model_flops_per_sequence(arch, 1) == pytest.approx(half)
