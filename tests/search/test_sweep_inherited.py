"""A knob that a sweep does not move stays the workload's own, to the rules as to the price."""

from __future__ import annotations

from typing import Any

import pytest

from primus_mcp.evaluation.evaluators import Rules
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.inputs.workload import workload_from_arguments
from primus_mcp.search.sweep_choices import choices_of
from primus_mcp.search.sweep_masks import Masks
from primus_mcp.space.adapted import adapt_baseline

TURBO = {"enable_primus_turbo": True, "use_turbo_grouped_gemm": True, "moe_use_legacy_grouped_gemm": False, "use_turbo_gemm": True}
FP8 = {"fp8": "hybrid", "fp8_recipe": "tensorwise"}
BLOCKS = {"fp8": "e4m3", "fp8_recipe": "blockwise"}
CASES: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("deepseek_v2_lite", TURBO | FP8, ("tp", "ep", "mbs", "sync_free_stage", "use_turbo_deepep")),
    ("deepseek_v2_lite", TURBO | BLOCKS, ("tp", "pp", "ep", "mbs", "sync_free_stage")),
    ("llama3.1_8B", {"fp8": "e4m3", "fp8_recipe": "mxfp8"}, ("tp", "pp", "mbs", "pp_schedule", "vpp")),
    ("llama3.1_8B", {"recompute_granularity": "selective", "recompute_modules": ["core_attn"]}, ("tp", "pp", "vpp", "pp_schedule")),
    ("llama3.1_8B", {"use_torch_fsdp2": True, "use_distributed_optimizer": False}, ("tp", "pp", "mbs", "fp8")),
    ("qwen3_30B_A3B", TURBO | {"use_turbo_deepep": True, "moe_router_dtype": "fp32"}, ("tp", "pp", "ep", "cp", "fp8")),
]


@pytest.mark.parametrize(("model", "arguments", "only"), CASES)
def test_what_is_inherited_is_judged_as_the_rules_judge_it(model: str, arguments: dict[str, Any], only: tuple[str, ...]) -> None:
    cluster, plain = make_cluster("mi355x", num_nodes=1), workload_from_model(model)
    workload = adapt_baseline(workload_from_arguments({**plain.arguments, **arguments}, model), cluster).workload
    axes = {"overlap_grad_reduce": False, "gbs": False}
    rules = Rules(workload=workload, cluster=cluster, axes=axes, pins={})
    assert Masks(rules, choices_of(workload, cluster, axes=axes, pins={}, only=only)).random_disagreements(150, seed=5) == []
