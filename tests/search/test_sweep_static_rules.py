"""Rules on keys that no trial moves: the sweep's masks judge as the rules do where a workload sets such keys."""

from __future__ import annotations

from typing import Any

import pytest
from sweep_cases import ALL_AXES, evaluator

from primus_mcp.evaluation.evaluators import Rules
from primus_mcp.inputs.workload import workload_from_arguments
from primus_mcp.search.sweep_choices import choices_of
from primus_mcp.search.sweep_masks import Masks

ENDS = {"first_last_layers_bf16": True, "num_layers_at_start_in_bf16": 9, "num_layers_at_end_in_bf16": 4}
STEP = {"overlap_param_gather_with_optimizer_step": True, "overlap_p2p_comm_warmup_flush": True, "ckpt_format": "torch"}
VIRTUAL = {"pipeline_model_parallel_size": 2, "num_virtual_stages_per_pipeline_rank": 2}
SHARED = {"recompute_modules": ["shared_experts"], "moe_shared_expert_overlap": True}


@pytest.mark.parametrize(
    ("model", "written"),
    [
        ("llama3.1_8B", ENDS | {"tensor_model_parallel_size": 2, "tp_comm_overlap": True}),
        ("llama3.1_8B", STEP | VIRTUAL),
        ("llama3.1_8B", {"attention_backend": "unfused", "enable_cuda_graph": True, "cuda_graph_scope": "attn"}),
        ("gpt_oss_20B", {"activation_func_clamp_value": 7.0, "use_turbo_deepep": False}),
        ("mixtral_8x7B_v0.1", {"moe_enable_deepep": True, "moe_token_dispatcher_type": "flex", "moe_router_dtype": "fp32"}),
        ("deepseek_v2_lite", SHARED),
    ],
)
def test_random_configurations_are_judged_as_the_rules_judge_them_with_keys_of_the_workload(model: str, written: dict[str, Any]) -> None:
    own = evaluator(model, 2).rules
    workload = workload_from_arguments({**own.workload.arguments, **written}, f"{model}-static", document=own.workload.document)
    rules = Rules(workload=workload, cluster=own.cluster, axes=ALL_AXES, pins={})
    choices = choices_of(rules.workload, rules.cluster, axes=rules.axes, pins={})
    assert Masks(rules, choices).random_disagreements(150, seed=3) == []
