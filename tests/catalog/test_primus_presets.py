"""The bundled presets say what Primus's own say, and resolve to the same records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from primus_mcp.inputs.argument_values import complete_arguments, default_arguments
from primus_mcp.inputs.built_model import read_architecture
from primus_mcp.inputs.megatron_arguments import megatron_table
from primus_mcp.inputs.presets import ConfigRoot, PresetReader, bundled_root
from primus_mcp.inputs.published import published_models
from primus_mcp.projection.parameters import mtp_parameters, total_parameters

PRESETS = sorted(path.stem for path in (bundled_root().path / "models" / "megatron").glob("*.yaml"))
NO_PRESET = ("gemma", "gpt3", "megatron_", "nemotron", "olmo")


def flatten(root: ConfigRoot, name: str) -> dict[str, object]:
    return PresetReader(roots=(root,), environment={}).flatten(name, "models", "megatron", "model")


def test_every_published_model_that_primus_ships_has_a_bundled_preset() -> None:
    assert {name for name in published_models() if not name.startswith(NO_PRESET)} <= set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_flatten_to_primus_own_values_from_the_checkout_and_from_the_bundle(shared: Path, name: str) -> None:
    facts = json.loads((shared / "facts" / "primus_resolved.json").read_text())[name]
    checkout = flatten(ConfigRoot(path=shared / "primus" / "primus" / "configs", origin="checkout"), name)
    assert {key: value for key, value in checkout.items() if key != "bases"} == {k: v for k, v in facts.items() if k != "bases"}
    bundled = flatten(bundled_root(), name)
    assert bundled == {key: facts[key] for key in bundled}
    read = set(default_arguments()) & set(facts)
    assert read <= set(bundled)
    assert set(bundled) - read <= {flag.key for flag in megatron_table().flags.values() if not flag.priced}


@pytest.mark.parametrize("name", sorted(set(published_models()) & set(PRESETS)))
def test_a_published_models_preset_has_the_numbers_that_make_it_the_model(name: str) -> None:
    bundled = flatten(bundled_root(), name)
    assert {"rotary_base", "norm_epsilon", "init_method_std"} <= set(bundled)
    assert bundled.get("num_experts") is None or {"moe_router_score_function", "moe_router_pre_softmax"} <= set(bundled)


def test_presets_build_the_parameter_counts_that_were_found_for_primus(shared: Path) -> None:
    resolved = json.loads((shared / "facts" / "primus_resolved.json").read_text())
    compared = 0
    for facts in yaml.safe_load((shared / "facts" / "models.yaml").read_text())["models"].values():
        primus = facts.get("primus") or {}
        preset = Path(primus.get("yaml") or "").stem
        if not primus.get("params_hf_vocab"):
            continue
        arguments = complete_arguments({**resolved[preset], "mock_data": True, "seq_length": 4096})
        arch = replace(read_architecture(arguments, preset)[0], vocab_size=facts["vocab"]["hf_config"])
        assert total_parameters(arch) == primus["params_hf_vocab"], preset
        depth = mtp_parameters(arch, 1, 1, 1).total if arch.mtp_num_layers else 0
        assert depth * arch.mtp_num_layers == (primus["mtp_params"] or 0), preset
        if "params_mla_off" in primus:
            plain, _ = read_architecture({**arguments, "multi_latent_attention": False}, preset)
            assert total_parameters(replace(plain, vocab_size=facts["vocab"]["hf_config"])) == primus["params_mla_off"], preset
        compared += 1
    assert compared >= 35
