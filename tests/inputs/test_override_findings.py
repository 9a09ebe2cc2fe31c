"""Keys that the engine does not read: silent, told, refused, or written as today's Primus has them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_mcp.errors import InputError, UnsupportedFeatureError
from primus_mcp.inputs.argument_values import default_arguments, start_arguments
from primus_mcp.inputs.catalogue import catalogue_text, catalogue_yaml
from primus_mcp.inputs.override_findings import REMOVED
from primus_mcp.inputs.workload import Workload, read_workload
from primus_mcp.space.knobs import TrialConfig
from primus_mcp.space.overlay import overlay_document

EXAMPLES = Path("primus/examples/megatron/configs/MI355X")
MISSPELT = {
    "HSA_NO_SCRATCH_RECLAIM", "NVTE_CK_USES_BWD_V3", "GPU_MAX_HW_QUEUES", "CLEAN_DOCKER_CONTAINER", "TURBO_DEEPEEP", "TURBO_GROUPED_MLP",
    "LEGACY_GG", "PRIMUS_DETERMINISTIC", "USING_AIC", "activation_func", "layernorm_epsilon", "moe_router_topk_limited_devices",
    "moe_token_dropping", "check_for_nan_in_loss",
}  # fmt: skip
"""What shipped examples write among the overrides and the trainer does not have: environment variables, fields of other classes."""


def resolve(folder: Path, model: str = "llama3.1_8B", **overrides: Any) -> Workload:
    module = {
        "framework": "megatron",
        "config": "pre_trainer.yaml",
        "model": f"{model}.yaml",
        "overrides": {"mock_data": True, **overrides},
    }
    path = folder / "workload.yaml"
    path.write_text(yaml.safe_dump({"modules": {"pre_trainer": module}}))
    return read_workload(path, environment={})


def told(workload: Workload, code: str) -> list[str]:
    return [finding.text for finding in workload.findings if finding.code == code]


def test_no_shipped_example_outside_a_checkout_is_asked_for_the_spelling_of_a_key_that_primus_has(shared: Path, tmp_path: Path) -> None:
    seen = 0
    shutil.copytree(shared / EXAMPLES, tmp_path / "examples")
    for path in sorted((tmp_path / "examples").glob("*.yaml")):
        try:
            workload = read_workload(path, environment={})
        except UnsupportedFeatureError:
            continue
        except InputError as error:
            assert "was not found" in str(error) or "has no `modules:`" in str(error), path.name
            continue
        words = {word.strip(",;") for text in told(workload, "unknown-override") for word in text.split()}
        unknown = {key for key in workload.document["modules"][workload.module]["overrides"] if key in words}
        assert unknown <= MISSPELT, path.name
        seen += 1
    assert seen > 80


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ({"torch_compile": {"enable": True}}, "torch_compile.enable: True"),
        ({"enable_turbo_attention_float8": True}, "attention is priced in BF16"),
        ({"turbo_grouped_gemm_backend": "triton"}, "triton"),
        ({"empty_unused_memory_level": 2}, "gives its cache back"),
        ({"zero_bubble_max_pending_backward": 8}, "planner"),
        ({"fp8": "hybrid", "fp8_wgrad": False}, "weight gradients"),
    ],
)
def test_a_key_that_changes_time_or_memory_and_is_not_read_is_told(tmp_path: Path, overrides: dict[str, Any], named: str) -> None:
    assert [text for text in told(resolve(tmp_path, **overrides), "key-not-priced") if named in text]
    assert not told(resolve(tmp_path), "key-not-priced")


def test_the_usual_values_are_not_told(tmp_path: Path) -> None:
    usual = {key: rule["plain"][0] for key, rule in catalogue_yaml("primus/told.yaml").items() if "." not in key}
    assert not told(resolve(tmp_path, **usual, torch_compile={"enable": False}), "key-not-priced")


@pytest.mark.parametrize(
    "overrides",
    [
        {"fp32_residual_connection": True},
        {"apply_residual_connection_post_layernorm": True},
        {"fused_ce_mode": 1},
        {"offload_chunk_num": 1},
        {"encoder_num_layers": 4},
        {"batch_size": 4},
    ],
)
def test_what_would_make_the_whole_answer_wrong_is_refused(tmp_path: Path, overrides: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedFeatureError, match=f"{next(iter(overrides))}.*cannot be priced"):
        resolve(tmp_path, **overrides)


def test_a_key_that_only_the_users_primus_has_is_told_where_its_value_is_not_the_presets(tmp_path: Path) -> None:
    folder = tmp_path / "primus" / "configs"
    (folder / "modules" / "megatron").mkdir(parents=True)
    (folder / "modules" / "megatron" / "pre_trainer.yaml").write_text("a_feature_of_tomorrow: 1\nmock_data: true\n")
    for value, lines in ((1, 0), (2, 1)):
        assert len(told(resolve(tmp_path, a_feature_of_tomorrow=value), "unknown-override")) == lines


def test_no_key_is_both_free_and_told_or_refused() -> None:
    free = set(yaml.safe_load(catalogue_text("primus/no_cost.yaml")))
    told_keys, refused = ({key.partition(".")[0] for key in catalogue_yaml(f"primus/{name}.yaml")} for name in ("told", "unsupported"))
    assert not free & (told_keys | refused | set(default_arguments()) | set(REMOVED))
    assert not told_keys & (refused | set(default_arguments()))
    assert not refused & set(start_arguments())


def test_turbo_experts_of_an_old_file_are_priced_and_exported_in_todays_keys(tmp_path: Path) -> None:
    """`use_turbo_grouped_mlp` with the legacy switch, which sync-free stage 2 asked for: MI300X examples before the rename."""
    old = {"enable_primus_turbo": True, "use_turbo_grouped_mlp": True, "moe_use_legacy_grouped_gemm": True, "turbo_sync_free_moe_stage": 2}
    workload = resolve(tmp_path, "qwen3_30B_A3B", moe_router_dtype="fp32", **old)
    assert workload.baseline.grouped_gemm == "turbo"
    assert "use_turbo_grouped_gemm: true, moe_use_legacy_grouped_gemm: false" in told(workload, "key-of-old-primus")[0]
    written = overlay_document(workload, TrialConfig())["modules"]["pre_trainer"]["overrides"]
    assert [written[key] for key in ("use_turbo_grouped_mlp", "use_turbo_grouped_gemm", "moe_use_legacy_grouped_gemm")] == [
        None,
        True,
        False,
    ]


def test_without_the_legacy_switch_the_old_key_swapped_nothing(tmp_path: Path) -> None:
    old = {"enable_primus_turbo": True, "use_turbo_grouped_mlp": True, "moe_use_legacy_grouped_gemm": False}
    assert resolve(tmp_path, "qwen3_30B_A3B", **old).baseline.grouped_gemm == "te"
    second = resolve(tmp_path, "qwen3_30B_A3B", **old, turbo_sync_free_moe_stage=2, moe_router_dtype="fp32")
    assert (second.baseline.grouped_gemm, second.corrections["use_turbo_grouped_gemm"]) == ("turbo", True)
    assert not told(resolve(tmp_path, "qwen3_30B_A3B", use_turbo_grouped_mlp=False), "key-of-old-primus")
