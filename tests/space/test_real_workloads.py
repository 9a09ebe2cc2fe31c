"""Primus's own pretraining workloads: each baseline is legal on some number of nodes, or the trainer truly refuses it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from space_cases import nodes

from primus_mcp.errors import PrimusMcpError
from primus_mcp.inputs.workload import read_workload
from primus_mcp.space.knobs import TrialConfig
from primus_mcp.space.legality import check_legality
from primus_mcp.space.parsing import parse_trial
from primus_mcp.space.trainer_keys import trainer_keys

NODES = (1, 2, 3, 4, 5, 7, 8, 13, 16, 32)
UNEVEN = {"kimi_k2-BF16-pretrain": "61 decoder layers", "llama3.1_405B-BF16-pretrain": "126 ", "llama3.1_405B-FP8-pretrain": "126 "}
"""Shipped with PP 8 and no layout: `num_layers should be divisible by pipeline_model_parallel_size` (L3)."""


@pytest.mark.parametrize("gpu", ["MI300X", "MI355X"])
def test_every_shipped_baseline_is_legal_on_its_own_world_by_the_trainers_rules(gpu: str, shared: Path) -> None:
    refused = {}
    for path in sorted((shared / f"primus/examples/megatron/configs/{gpu}").glob("*.yaml")):
        try:
            workload = read_workload(path, environment={})
        except PrimusMcpError:
            continue
        verdicts = [check_legality(workload, TrialConfig(), nodes(count, gpu.lower()), allow_policy=True) for count in NODES]
        if not any(verdict.legal for verdict in verdicts):
            refused[workload.name] = str(verdicts[-1].reason)
    for name, reason in refused.items():
        assert UNEVEN[name] in reason


def test_every_key_that_a_trial_can_write_is_known_to_primus(shared: Path) -> None:
    known: set[str] = set()
    for path in (shared / "primus/primus/configs").rglob("*.yaml"):
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        known |= set(document) if isinstance(document, dict) else set()
    written: set[str] = set()
    for name in ("deepseek_v3-FP8", "mixtral_8x22B_v0.1-BF16", "qwen2.5_72B-BF16", "minimax_m2.5-BF16", "llama3.1_8B-MXFP4"):
        workload = read_workload(shared / f"primus/examples/megatron/configs/MI355X/{name}-pretrain.yaml", environment={})
        for proposal in (
            {"tp": 2, "pp": 3, "ep": 16, "cp": 2, "vpp": 2, "mbs": 3, "gbs": 7, "expert_tensor_parallel_size": 1},
            {"pp": 2, "pp_schedule": "zerobubble", "recompute_granularity": "full", "recompute_num_layers": 2, "fp8": "none"},
            {"pp": 1, "use_torch_fsdp2": True, "sync_free_stage": 3, "fp8": "mxfp8", "cross_entropy_loss_fusion": True},
            {"use_distributed_optimizer": False, "use_turbo_deepep": False, "overlap_grad_reduce": False, "pp_schedule": "auto"},
        ):
            written |= set(trainer_keys(parse_trial(proposal), workload))
    assert len(written) > 30
    assert written <= known | {"context_model_parallel_size"}
