"""Hybrid models: which layer is what, from each way in which Primus writes it, and what that counts to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_mcp.errors import InputError, UnsupportedFeatureError
from primus_mcp.inputs.architecture import GatedDeltaNet, Mamba2, ShortConvolution
from primus_mcp.inputs.workload import Workload, read_workload
from primus_mcp.projection.parameters import total_parameters

GDN_SPEC = ["primus.backends.megatron.core.models.hybrid.hybrid_mamba_mla_layer_specs", "gdn_hybrid_stack_spec"]
MAMBA_SPEC = ["primus.backends.megatron.core.models.mamba.mamba_layer_specs", "mamba_stack_spec"]


def resolve(tmp_path: Path, model: str, **overrides: Any) -> Workload:
    content = {"framework": "megatron", "config": "pre_trainer.yaml", "model": model, "overrides": {"mock_data": True, **overrides}}
    path = tmp_path / "w.yaml"
    path.write_text(yaml.safe_dump({"modules": {"pre_trainer": content}}), encoding="utf-8")
    return read_workload(path, environment={})


def test_lfm2_names_the_kind_of_every_layer(tmp_path: Path) -> None:
    arch = resolve(tmp_path, "lfm2_8B_A1B").architecture
    assert arch.mixer == ShortConvolution(kernel=3)
    assert [layer for layer in range(24) if arch.layer_kind(layer) == "attention"] == [2, 6, 10, 14, 18, 21]
    for broken in (["conv"], ["conv"] * 23 + ["other"], "conv", ["conv"] * 23 + [[1]]):
        with pytest.raises(InputError, match="lfm_layer_types"):
            resolve(tmp_path, "lfm2_8B_A1B", lfm_layer_types=broken)


def test_a_bias_of_the_short_convolution_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeatureError, match="conv_bias"):
        resolve(tmp_path, "lfm2_8B_A1B", conv_bias=True)


def test_qwen35_attends_in_every_fourth_layer_or_where_a_list_says_so(tmp_path: Path) -> None:
    arch = resolve(tmp_path, "qwen3_5_35B_A3B").architecture
    assert arch.mixer == GatedDeltaNet(key_heads=16, key_head_dim=128, value_heads=32, value_head_dim=128, kernel=4)
    assert [layer for layer in range(40) if arch.layer_kind(layer) == "attention"] == list(range(3, 40, 4))
    assert arch.attending_layers == 10
    assert arch.attention_output_gate
    listed = resolve(tmp_path, "qwen3_5_35B_A3B", linear_attention_freq=[1] * 39 + [0]).architecture
    assert listed.layer_kinds == ("mixer",) * 39 + ("attention",)


def test_a_mamba_stack_is_mixers_alone_and_counts_what_was_found_for_it(tmp_path: Path) -> None:
    """368,363,008 with RMSNorm and no positions. Its file inherits nothing: LayerNorm biases and positions are added."""
    arch = resolve(tmp_path, "mamba_370M", spec=MAMBA_SPEC, seq_length=2048, max_position_embeddings=2048).architecture
    assert arch.layer_kinds == ("mixer_alone",) * 48
    assert arch.mixer == Mamba2(heads=32, head_dim=64, state_dim=16, groups=8, kernel=4)
    padding = (arch.padded_vocab_size(1) - arch.vocab_size) * 1024
    assert total_parameters(arch) + padding == 368_363_008 + 49 * 1024 + 2048 * 1024


def test_a_hybrid_stack_is_pairs_with_attention_spread_evenly_among_the_mixers(tmp_path: Path) -> None:
    """The published Zebra-Llama-1B has 4 MLA layers and 12 of Mamba-2 (amd/Zebra-Llama-1B-4MLA-12Mamba), each with its MLP."""
    spec = [GDN_SPEC[0], "hybrid_stack_spec"]
    arch = resolve(tmp_path, "zebra_llama_1B", spec=spec, seq_length=8192).architecture
    counted = [arch.layer_kinds.count(kind) for kind in ("attention_alone", "mixer_alone", "mlp_alone")]
    assert counted == [4, 12, 16]
    assert [layer for layer in range(32) if arch.layer_kind(layer) == "attention_alone"] == [0, 8, 16, 24]
    pure = resolve(tmp_path, "zebra_llama_1B_gdn_pure", spec=GDN_SPEC).architecture
    assert pure.layer_kinds == ("mixer_alone", "mlp_alone") * 16
    assert isinstance(pure.mixer, GatedDeltaNet)


def test_a_pattern_says_each_layer(tmp_path: Path) -> None:
    arch = resolve(tmp_path, "zebra_llama_300M_gdn_hybrid", spec=GDN_SPEC).architecture
    assert arch.layer_kinds[:4] == ("attention_alone", "mlp_alone", "mixer_alone", "mlp_alone")
    with pytest.raises(InputError, match="hybrid_override_pattern"):
        resolve(tmp_path, "zebra_llama_300M_gdn_hybrid", spec=GDN_SPEC, hybrid_override_pattern="M-M")


@pytest.mark.parametrize("spec", [None, "x", ["a", "kda_hybrid_stack_spec"], [], 3])
def test_a_stack_of_other_layers_is_refused_by_its_name(tmp_path: Path, spec: object) -> None:
    with pytest.raises(UnsupportedFeatureError, match="cannot be priced"):
        resolve(tmp_path, "zebra_llama_1B", spec=spec)


@pytest.mark.parametrize(
    "overrides",
    [{"num_layers": 31}, {"hybrid_attention_ratio": 2}, {"mamba_head_dim": 0}, {"mamba_head_dim": 10**6}, {"mamba_expand": "x"}],
)
def test_sizes_that_build_no_stack_are_named(tmp_path: Path, overrides: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(overrides))):
        resolve(tmp_path, "zebra_llama_8B", **{"spec": [GDN_SPEC[0], "hybrid_stack_spec"], **overrides})


def test_what_is_estimated_is_told(tmp_path: Path) -> None:
    told = [finding.text for finding in resolve(tmp_path, "qwen3_5_35B_A3B").findings if finding.code == "mixers-estimated"]
    assert len(told) == 1
    assert told[0].startswith("30 layers run a gated delta net")
    assert "mixers-estimated" not in {finding.code for finding in resolve(tmp_path, "qwen3_8B").findings}
