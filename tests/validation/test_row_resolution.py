"""Rows to configurations: from their fields alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from primus_mcp.errors import PrimusMcpError
from primus_mcp.inputs.hardware_files import gpu_profile
from primus_mcp.validation.errors import NotScoredError
from primus_mcp.validation.models import bare_name, find_architecture, qualifiers
from primus_mcp.validation.resolve import Case, Ladders, profile_of, resolve
from primus_mcp.validation.rows import Row, parse_rows, shipped_rows

PRIMUS: dict[str, Any] = {
    "id": "x",
    "model": "Qwen3-30B-A3B",
    "gpu": "MI355X",
    "n_gpus": 8,
    "precision": "BF16",
    "seq": 4096,
    "mbs": 4,
    "gbs": 256,
    "tp": 1,
    "pp": 1,
    "ep": 8,
    "cp": 1,
    "vpp": 1,
    "framework": "Primus/Megatron-LM",
    "tokens_s_gpu": 20000.0,
}
BRIDGE = PRIMUS | {
    "model": "DeepSeekV3",
    "gpu": "GB200",
    "n_gpus": 256,
    "precision": "MXFP8",
    "mbs": 1,
    "gbs": 4096,
    "pp": 4,
    "ep": 64,
    "vpp": 4,
}
BRIDGE |= {"framework": "Megatron-Bridge", "released": "2026-04"}


def row(base: dict[str, Any] = PRIMUS, **changes: Any) -> Row:
    return parse_rows(json.dumps({**base, **changes}), "row")[0]


def case(base: dict[str, Any] = PRIMUS, **changes: Any) -> Case:
    own = row(base, **changes)
    return resolve(own, own.flags or "")


def test_degrees_batch_and_sequence_are_the_rows() -> None:
    found = case(tp=2, ep=4, cp=1, mbs=2, gbs=64)
    config = found.config
    assert (config.tp, config.ep, config.cp, config.mbs, config.gbs) == (2, 4, 1, 2, 64)
    assert found.arch.seq_length == 4096 and found.cluster.world_size == 8


def test_neither_id_nor_source_nor_measured_numbers_change_what_is_predicted() -> None:
    plain = case()
    other = case(id="another", source="somewhere else", tokens_s_gpu=1.0, trust="text", suite=["amd-headline"], notes="slow")
    assert (plain.arch, plain.config) == (other.arch, other.config)


def test_an_unoptimised_ladder_starts_from_the_unoptimised_example() -> None:
    common: dict[str, Any] = {"model": "DeepSeek-V2-Lite 16B"}
    base, best = case(**common, flags="baseline; manual GC").config, case(**common, flags="sync_free 1").config
    assert base.dispatcher == "alltoall" and not base.cross_entropy_loss_fusion and base.manual_gc
    assert best.dispatcher == "deepep" and best.sync_free_stage == 1


def test_rungs_inherit_the_rungs_before_them() -> None:
    ladders = Ladders()
    flags = ["baseline (cumulative)", "+loss fusion (cumulative)", "+DeepEP (cumulative)"]
    last = [ladders.flags(row(flags=text)) for text in flags][-1]
    assert "loss fusion" in last and "DeepEP" in last
    assert "loss fusion" not in ladders.flags(row(flags="+DeepEP (cumulative)", n_gpus=16))


def test_what_the_row_states_wins_over_the_example() -> None:
    assert case().config.recompute.num_layers == 5
    assert case(recompute="none").config.recompute.granularity == "none"
    assert case(recompute="full block 21 layers").config.recompute.num_layers == 21


def test_a_recipe_gives_features_and_the_row_the_layout() -> None:
    found = case(BRIDGE)
    assert found.config.dispatcher == "deepep" and found.config.etp == 1
    assert (found.config.pp, found.config.vpp, found.config.ep) == (4, 4, 64)
    assert any(text.startswith("recipe of") for text in found.assumptions)


def test_words_in_brackets_and_behind_a_comma_are_no_part_of_the_name() -> None:
    assert bare_name("DeepSeekV3 (w/o MTP)") == "DeepSeekV3"
    assert bare_name("Llama 3 70B, 12 layers") == "Llama 3 70B"
    assert qualifiers("DeepSeekV3 (w/o MTP)") == ("w/o mtp",)
    assert case(BRIDGE, model="DeepSeekV3 (w/o MTP)", pp=16, vpp=1, ep=8).arch.mtp_num_layers == 0


@pytest.mark.parametrize(
    ("written", "catalogue"),
    [
        ("DeepSeek-V3 671B", "deepseek_v3"),
        ("DeepSeek-V2-Lite 16B", "deepseek_v2_lite"),
        ("LLAMA3.1_405B", "llama3.1_405B"),
        ("Qwen3_30B_a3B", "qwen3_30B_A3B"),
        ("GPT OSS 120B", "gpt_oss_120B"),
        ("gpt3-175B", "gpt3_175b"),
    ],
)
def test_models_are_found_however_they_are_written(written: str, catalogue: str) -> None:
    assert find_architecture(row(model=written), 4096).name == catalogue


def test_a_size_that_is_not_the_models_is_another_model() -> None:
    with pytest.raises(NotScoredError, match="not in the catalogue"):
        find_architecture(row(model="GPT3-5B"), 2048)


def test_a_slice_keeps_its_first_layers() -> None:
    arch = find_architecture(row(model="DeepSeek-V2, 4 layers", arch={"num_layers": 4}), 4096).architecture
    assert arch.num_layers == 4 and arch.moe_layers == (False, True, True, True)


def test_a_shape_in_the_row_is_an_architecture_of_its_own() -> None:
    shape = {"num_layers": 40, "hidden": 6144, "heads": 48, "ffn": 24576}
    found = find_architecture(row(model="GPT 18.4B", arch=shape), 2048)
    assert (found.architecture.hidden_size, found.architecture.head_dim, found.architecture.vocab_size) == (6144, 128, 51200)
    assert found.assumptions


def test_parameter_counts_of_models_outside_the_catalogue_are_the_published_ones() -> None:
    from primus_mcp.projection.parameters import total_parameters

    counted = 0
    for own in shipped_rows():
        published = (own.arch or {}).get("params")
        if published is None or own.seq is None:
            continue
        assert total_parameters(find_architecture(own, own.seq).architecture) == pytest.approx(published, rel=2e-3), own.id
        counted += 1
    assert counted > 90


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu": "H800"}, "GPU H800 is not in the catalogue"),
        ({"model": "Nobody-7B"}, "model is not in the catalogue"),
        ({"n_gpus": None}, "number of GPUs not stated"),
        ({"framework": "MaxText"}, "has no settings"),
        ({"n_gpus": 12}, "no whole number of nodes"),
        ({"precision": "INT4"}, "not in the vocabulary"),
        ({"tp": 3}, ""),
    ],
)
def test_a_row_that_cannot_be_priced_says_why(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(PrimusMcpError, match=reason or "."):
        found = case(**changes)
        from primus_mcp.projection.memory import project_memory

        project_memory(found.arch, found.config, found.cluster)


def test_layers_that_do_not_divide_are_split_and_said() -> None:
    found = case(model="Qwen3-235B-A22B", n_gpus=32, pp=4, ep=8, gbs=None, mbs=None, precision=None, seq=None, flags="pp_algorithm=1f1b")
    from primus_mcp.projection.placement import place

    layers = [sum(len(chunk.layers) for chunk in place(found.arch, found.config, 32).of_rank(rank)) for rank in range(4)]
    assert sum(layers) == 94 and max(layers) - min(layers) <= 2
    assert any(text.startswith("uneven split") for text in found.assumptions)
    assert any(text.startswith("micro-batch") for text in found.assumptions)


def test_the_profile_is_the_newest_that_is_not_newer_than_the_run() -> None:
    gpu = gpu_profile("a100")
    dates = sorted(profile.date for profile in gpu.profiles.values())
    assert gpu.profiles[profile_of(gpu, "2099-01")].date == dates[-1]
    assert gpu.profiles[profile_of(gpu, "2000-01")].date == dates[0]
    assert profile_of(gpu, None) == profile_of(gpu, "2099-01")


def test_recomputation_that_only_the_example_states_keeps_the_layers_of_a_rank_and_is_off_under_a_split_backward() -> None:
    """The example recomputes 3 layers in each of 4 virtual stages at PP 4; Primus combines no split backward with recomputation."""
    base = PRIMUS | {"model": "Qwen3-235B-A22B", "n_gpus": 256, "pp": 4, "mbs": 1, "gbs": 8192}
    layers = {vpp: case(base, vpp=vpp).config.recompute.num_layers for vpp in (4, 3, 2, 1)}
    assert layers == {4: 3, 3: 4, 2: 6, 1: 12}
    split = case(base, vpp=2, flags="pp_algorithm=v-half").config
    assert split.schedule == "v-half" and split.recompute.granularity == "none"
    assert case(base, vpp=2, recompute="full block 2 layers").config.recompute.num_layers == 2


PIPELINE: dict[str, Any] = {key: PRIMUS[key] for key in ("id", "gpu", "precision")}
PIPELINE |= {"model": "Qwen3-235B-A22B", "n_gpus": 32, "pp": 4, "ep": 8, "dp": 8, "vpp": 1, "config_completeness": "C"}
PIPELINE |= {"framework": "Primus/Megatron-LM (Primus-pipeline)", "flags": "pp_algorithm=1f1b", "mem_gb": 200.0, "mem_kind": "device"}


def test_an_example_is_read_as_it_was_at_the_date_of_the_run() -> None:
    old, new = case(PIPELINE).config, case(PIPELINE, released="2026-08").config
    assert (old.main_grad_bytes, old.main_param_bytes, old.exp_avg_bytes, old.exp_avg_sq_bytes) == (4, 4, 4, 4)
    assert (old.recompute.granularity, old.dispatcher, old.grouped_gemm, old.cross_entropy_loss_fusion) == ("none", "alltoall", "te", True)
    assert (new.main_grad_bytes, new.exp_avg_bytes, new.recompute.granularity) == (2, 2, "full")
    assert (new.dispatcher, new.grouped_gemm, new.cross_entropy_loss_fusion) == ("deepep", "legacy", True)


def test_a_guessed_micro_batch_is_halved_until_the_run_fits() -> None:
    assert case(PIPELINE).config.mbs == 1
    assert case(PIPELINE, released="2026-08").config.mbs == 4


def test_a_recipe_of_another_year_gives_way_to_one_near_the_release_whatever_its_layout() -> None:
    late: dict[str, Any] = {"gpu": "GB300", "pp": 2, "ep": 32, "vpp": 8}
    assert case(BRIDGE, **late, released="2026-06").config.fused_expert_mlp
    assert not case(BRIDGE, **late, released="2025-11").config.fused_expert_mlp


def test_a_framework_that_ran_on_another_part_of_a_gpus_name_is_not_timed_as_the_catalogues() -> None:
    titan = PRIMUS | {"model": "Llama 3.1 405B", "n_gpus": 128, "ep": 1, "tp": 8, "fsdp": True, "framework": "TorchTitan FSDP2"}
    assert case(titan, gpu="H100").other_part
    assert not case(titan, gpu="A100").other_part
