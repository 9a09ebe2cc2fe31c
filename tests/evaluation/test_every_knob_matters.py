"""Every knob of the registry has a configuration of a real workload where it changes memory or time, in the direction of its mechanism."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from primus_mcp.evaluation.evaluators import FullEvaluator, Rules
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.workload import read_workload
from primus_mcp.space.adapted import adapt_baseline
from primus_mcp.space.knobs import KNOBS, TrialConfig

WORKLOADS = Path(__file__).parents[2] / "examples/workloads"
LLAMA_8B, LLAMA_70B = "llama3.1_8B-FP8", "llama3.1_70B-BF16"
MIXTRAL, LITE = "mixtral_8x22B_v0.1-BF16", "deepseek_v2_lite-BF16"
ZERO = {"tp": 1, "use_distributed_optimizer": True, "use_torch_fsdp2": False}
DENSE_PIPELINE = {**ZERO, "pp": 8, "recompute_granularity": "none", "mbs": 1}
ALONE = {"expert_tensor_parallel_size": 1}
REDUCE, GATHER = {**ZERO, "overlap_param_gather": False}, {**ZERO, "overlap_grad_reduce": True}
BLOCK, V_SHAPE = {**DENSE_PIPELINE, "recompute_granularity": "full"}, {**DENSE_PIPELINE, "vpp": 2}
PLAIN, BF16 = {"use_torch_fsdp2": False, "overlap_param_gather": False}, {"fp8": "none"}
STAGE_0, LIBRARY = {"sync_free_stage": 0}, {"use_turbo_deepep": False, "pp": 4, **ALONE}


@dataclass(frozen=True)
class Effect:
    """Setting `knob` to `value` (from `before`) on top of `base` moves `figure`: `less` or more of it. `why`: the mechanism."""

    knob: str
    before: Any
    value: Any
    figure: str
    less: bool
    why: str
    model: str = LLAMA_70B
    nodes: int = 4
    base: Mapping[str, Any] = field(default_factory=dict)


EFFECTS = [
    Effect("tp", 1, 8, "memory:weights", True, "weights are split", base=ZERO),
    Effect("tp", 1, 8, "comm:tp", False, "each layer gathers and scatters its activations", base=ZERO),
    Effect("pp", 1, 4, "memory:weights", True, "stages hold fewer layers", base=ZERO),
    Effect("pp", 4, 8, "bubble_ratio", False, "more stages wait", base=ZERO),
    Effect("ep", 1, 8, "memory:weights", True, "experts are dealt to ranks", MIXTRAL, base={"pp": 4, **ALONE}),
    Effect("ep", 1, 8, "comm:a2a", False, "tokens travel to their experts", MIXTRAL, base={"pp": 4, **ALONE}),
    Effect(
        "expert_tensor_parallel_size", 1, 4, "comm:tp", False, "expert inputs are gathered over ETP", MIXTRAL,
        base={"tp": 4, "ep": 2, "pp": 4, "use_turbo_deepep": False, "sync_free_stage": 0},
    ),
    Effect("cp", 1, 4, "activation_gb", True, "a rank holds a part of each sequence", base=ZERO),
    Effect("cp", 1, 4, "comm:cp", False, "keys and values travel", base=ZERO),
    Effect("vpp", 1, 5, "bubble_ratio", True, "shorter warm-up", base=DENSE_PIPELINE),
    Effect("vpp", 1, 5, "comm:pp", False, "a micro-batch crosses more stage borders", base=DENSE_PIPELINE),
    Effect("mbs", 1, 4, "activation_gb", False, "more tokens at a time", LLAMA_8B, 1),
    Effect("mbs", 1, 4, "time:host", True, "fewer launches a token", LLAMA_8B, 1),
    Effect("gbs", 128, 256, "bubble_ratio", True, "more micro-batches fill the pipeline", base=DENSE_PIPELINE),
    Effect("overlap_grad_reduce", False, True, "time:gradient_exchange", True, "beside the last backward pass", base=REDUCE),
    Effect("overlap_param_gather", False, True, "time:parameter_exchange", True, "beside the first forward pass", base=GATHER),
    Effect("pp_schedule", "auto", "zerobubble", "bubble_ratio", True, "weight gradients fill the bubble", base=DENSE_PIPELINE),
    Effect("pp_schedule", "zbv-formatted", "zbv-greedy-half", "activation_gb", True, "half the micro-batches are alive", base=V_SHAPE),
    Effect("enable_zero_bubble", False, True, "bubble_ratio", True, "weight gradients fill the bubble", base=DENSE_PIPELINE),
    Effect("recompute_granularity", "none", "full", "activation_gb", True, "a layer keeps its input only", base=ZERO),
    Effect("recompute_granularity", "none", "full", "time:recompute", False, "layers run forward twice", base=ZERO),
    Effect("recompute_num_layers", 8, 4, "activation_gb", False, "fewer layers forget", base=BLOCK),
    Effect("recompute_num_layers", 8, 4, "time:recompute", True, "fewer layers run twice", base=BLOCK),
    Effect("cross_entropy_loss_fusion", False, True, "time:loss", True, "logits are walked once", LLAMA_8B, 1),
    Effect("cross_entropy_loss_fusion", False, True, "activation_gb", True, "no fp32 logits", LLAMA_8B, 1),
    Effect("use_distributed_optimizer", False, True, "memory:optimizer_states", True, "states are sharded", LLAMA_8B, 1, base=PLAIN),
    Effect("use_torch_fsdp2", False, True, "memory:main_gradients", True, "gradients are sharded", LLAMA_8B, 1, base=BF16),
    Effect("use_torch_fsdp2", False, True, "comm:parameters", False, "layers are gathered in every micro-batch", LLAMA_8B, 1, base=BF16),
    Effect("use_turbo_deepep", False, True, "comm:a2a", True, "one copy a destination, not one an expert", LITE, 1, base=STAGE_0),
    Effect("use_turbo_deepep", False, True, "memory:deepep_buffers", False, "channels of its own", LITE, 1, base=STAGE_0),
    Effect("sync_free_stage", 0, 1, "time:permute", True, "fused permutation", MIXTRAL, base=LIBRARY),
    Effect("sync_free_stage", 0, 3, "activation_gb", False, "buffers of the worst case", LITE, 1, base={"use_turbo_deepep": True}),
    Effect("target_ep_size", 8, 32, "comm:a2a", False, "the exchange is priced across nodes", LITE),
    Effect("fp8", "none", "hybrid", "time:mlp", True, "GEMMs at twice the rate", LLAMA_8B, 1),
    Effect("fp8", "none", "hybrid", "memory:fp8_weight_copies", False, "copies beside the BF16 weights", LLAMA_8B, 1),
    Effect("fp8", "none", "mxfp8", "time:mlp", True, "GEMMs at twice the rate", LLAMA_8B, 1),
    Effect("fp8", "none", "e4m3", "time:mlp", True, "GEMMs at twice the rate", LLAMA_8B, 1),
    Effect("fp8", "none", "delayed", "time:mlp", True, "GEMMs at twice the rate", LLAMA_8B, 1),
]  # fmt: skip


@lru_cache
def evaluator(model: str, nodes: int) -> FullEvaluator:
    """A bundled workload on MI355X nodes, by the trainer's rules."""
    cluster = make_cluster("mi355x", num_nodes=nodes)
    workload = adapt_baseline(read_workload(WORKLOADS / f"{model}-pretrain.yaml", environment={}), cluster).workload
    return FullEvaluator(Rules(workload=workload, cluster=cluster, axes={}, pins={}, allow_policy=True), gemm_backend="roofline")


def price(effect: Effect, value: Any) -> EvaluationResult:
    """The configuration of an effect with its knob at `value`, priced whether it fits or not."""
    found = evaluator(effect.model, effect.nodes)
    knobs = {**effect.base, effect.knob: value}
    if effect.knob == "use_torch_fsdp2":
        knobs["use_distributed_optimizer"] = not value
    trial = TrialConfig(**knobs)
    legality = found.rules.check(trial)
    assert legality.config is not None and legality.legal, legality.reason
    return found.price(trial, legality.config, even_if_over=True)


def figure(result: EvaluationResult, name: str) -> float:
    """A field of the result, or one entry of a breakdown (absent: zero)."""
    kind, _, entry = name.rpartition(":")
    if not kind:
        value = getattr(result, name)
        assert isinstance(value, float)
        return value
    breakdown = {"memory": result.memory_breakdown, "time": result.time_breakdown, "comm": result.comm_breakdown}[kind]
    assert breakdown is not None
    return breakdown.get(entry, 0.0)


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: f"{effect.knob}-{effect.value}-{effect.figure}")
def test_a_knob_moves_what_its_mechanism_says(effect: Effect) -> None:
    before, after = figure(price(effect, effect.before), effect.figure), figure(price(effect, effect.value), effect.figure)
    assert (after < 0.99 * before) if effect.less else (after > 1.01 * before), (before, after, effect.why)


def test_every_knob_stands_in_the_table() -> None:
    assert {effect.knob for effect in EFFECTS} == set(KNOBS)
    told = {(effect.knob, effect.value) for effect in EFFECTS} | {(effect.knob, effect.before) for effect in EFFECTS}
    for name in ("recompute_granularity", "fp8"):
        missing = [choice for choice in KNOBS[name].choices or () if (name, choice) not in told]
        assert missing in ([], ["selective"]), missing
