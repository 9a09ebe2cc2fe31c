"""What backward keeps where base weights are frozen and adapters are trained, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest
from architecture_cases import decoder
from memory_cases import run

from primus_mcp.inputs.architecture import LatentAttention, MixtureOfExperts
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.memory.activations.attention import attention_operations
from primus_mcp.projection.memory.activations.ends import embedding_operations, head_operations
from primus_mcp.projection.memory.activations.mlp import dense_mlp_operations
from primus_mcp.projection.memory.activations.moe import moe_operations
from primus_mcp.projection.memory.activations.operation import Operation
from primus_mcp.projection.memory.activations.settings import ActivationSettings, activation_settings

EXPERTS = MixtureOfExperts(num_experts=16, top_k=2, expert_ffn_hidden_size=512, shared_expert_ffn_hidden_size=256)
ARCH = decoder(2, 1024, 4096, 8, 4, 1280, 128, moe_layers=(False, True), experts=EXPERTS)
LATENT = LatentAttention(q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
MLA = decoder(2, 1024, 4096, 8, 4, 1280, 128, latent_attention=LATENT)
"""128 tokens; h 1024, QKV 2048, FFN 4096, experts 512, shared expert 256."""

T, R, ROWS = 128, 16, 256
EVERY = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")


def settings(arch: Any = ARCH, **config: Any) -> ActivationSettings:
    return activation_settings(arch, TrainingConfig(**{"finetune": "lora", "lora_rank": R, "lora_targets": EVERY, **config}))


def every(found: ActivationSettings) -> dict[str, Operation]:
    operations = (*attention_operations(found), *dense_mlp_operations(found), *embedding_operations(found), *head_operations(found))
    moe = moe_operations(found) if found.arch.is_moe else ()
    return {operation.name: operation for operation in (*operations, *moe)}


def saved(**config: Any) -> dict[str, float]:
    return {name: operation.saved_bytes for name, operation in every(settings(**config)).items()}


def more(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    """What the second keeps beyond the first."""
    return {name: other[name] - one[name] for name in one if other[name] != one[name]}


def test_in_bf16_an_adapter_shares_the_input_with_its_linear_and_adds_its_own_narrow_tensor() -> None:
    """Frozen output matrix: it keeps no input. The default grouped GEMM adds one narrow tensor a row of the experts."""
    low, routed = T * R * 2, ROWS * R * 2
    adapted = {"qkv": low, "attention_projection": low, "fc1": low, "fc2": low, "shared_expert_fc1": low, "shared_expert_fc2": low}
    found = more(saved(finetune="full"), saved())
    assert found == {**adapted, "expert_fc1": routed, "expert_fc2": routed, "output_and_loss": -T * 1024 * 2}


def test_a_frozen_linear_without_adapter_keeps_no_input_but_the_norm_in_its_own_module() -> None:
    """fc2 and both expert linears keep nothing; fc1's norm output stays; attention output is core attention's."""
    found = more(saved(), saved(lora_targets=("linear_qkv", "linear_proj")))
    assert found["fc1"] == -T * R * 2
    assert found["fc2"] == -T * R * 2 - T * 4096 * 2
    assert found["shared_expert_fc2"] == -T * R * 2 - T * 256 * 2
    assert found["expert_fc1"] == -ROWS * R * 2 - ROWS * 1024 * 2
    assert found["expert_fc2"] == -ROWS * R * 2 - ROWS * 512 * 2


def test_the_legacy_grouped_gemm_keeps_its_inputs_and_has_no_adapter() -> None:
    full, lora = saved(finetune="full", grouped_gemm="legacy"), saved(grouped_gemm="legacy")
    assert full["expert_fc1"] == lora["expert_fc1"] == ROWS * 1024 * 2
    assert full["expert_fc2"] == lora["expert_fc2"] == ROWS * 512 * 2


def test_in_fp8_an_adapter_keeps_the_bf16_input_that_the_frozen_linear_does_not() -> None:
    """A byte an element without LoRA. With it: QKV keeps norm output in FP8 and BF16, fc2 BF16 alone, the projection no own copy."""
    full, lora = saved(finetune="full", fp8="hybrid"), saved(fp8="hybrid")
    low = T * R * 2
    assert (full["qkv"], lora["qkv"]) == (T * 1024, 3 * T * 1024 + low)
    assert (full["fc2"], lora["fc2"]) == (T * 4096, 2 * T * 4096 + low)
    assert lora["attention_projection"] - full["attention_projection"] == low - T * 1024
    assert (full["expert_fc1"], lora["expert_fc1"]) == (ROWS * 1024, 2 * ROWS * 1024 + ROWS * R * 2)


def test_turbo_linears_keep_their_input_whatever() -> None:
    assert saved(turbo_gemm=True, lora_targets=("linear_qkv",))["fc2"] == T * 4096 * 2


def test_dropout_keeps_a_copy_and_a_mask_of_every_adapted_input() -> None:
    found = more(saved(), saved(lora_dropout=0.05))
    assert (found["qkv"], found["attention_projection"], found["fc1"]) == (3 * T * 1024,) * 3
    assert found["fc2"] == (3 - 2) * T * 4096


def test_latent_attention_under_the_default_targets_keeps_no_input_of_its_down_projections() -> None:
    full, lora = saved(arch=MLA, finetune="full"), saved(arch=MLA)
    assert (full["q_proj"], lora["q_proj"]) == (T * 1024 * 2, 0)
    assert saved(arch=MLA, lora_targets=("linear_kv_down_proj",))["q_proj"] == T * 1024 * 2


@pytest.mark.parametrize(("dropout", "qkv", "shared"), [(0.0, 2 * 1024, 2 * 512), (0.1, 3 * 1024 + 2 * 512, 2 * 512 + 3 * 512)])
def test_under_sequence_parallelism_an_adapter_keeps_the_gathered_input(dropout: float, qkv: int, shared: int) -> None:
    """TP 2: the norm in QKV's module keeps its shard (2 x 512 a token), the adapter all (2 or 3 x 1024); fc1 of the shared expert shares
    the shard with the router and keeps the other half gathered, and with dropout the dropped-out shard and its mask."""
    config = {"tp": 2, "sequence_parallel": True, "lora_dropout": dropout}
    found = saved(**config)
    assert found["qkv"] == T * (qkv + 2 * 512 * (dropout == 0) + R * 2)
    assert found["shared_expert_fc1"] == T * (shared + R * 2)


def test_adapters_pass_two_outputs_forward_and_an_input_and_output_gradient_backward() -> None:
    plain, lora = every(settings(lora_targets=())), every(settings())
    fc1 = lora["fc1"].forward_transient_bytes - plain["fc1"].forward_transient_bytes
    assert fc1 == 2 * T * 8192 * 2
    assert lora["fc2"].backward_transient_bytes - plain["fc2"].backward_transient_bytes == T * (4096 + 1024) * 2
    assert lora["embedding"].backward_transient_bytes == 2 * T * 1024 * 2


def test_adapters_of_experts_are_sharded_like_experts_and_the_others_like_dense_weights() -> None:
    """16 GPUs, EP 4: 16 shards of dense adapters, 4 of the experts' (fc1 1024 + 1024, fc2 512 + 1024); 12 B a parameter."""
    worst = run(ARCH, 16, ep=4, finetune="lora", lora_rank=R, lora_targets=EVERY).worst
    attention = 2 * R * ((1024 + 2048) + (1024 + 1024))
    dense = attention + R * ((1024 + 8192) + (4096 + 1024)) + R * ((1024 + 512) + (256 + 1024))
    experts = R * (2048 + 1536)
    assert worst.components["main_gradients"] == 4 * (dense + experts)
    assert worst.components["optimizer_states"] == pytest.approx(12 * (dense / 16 + experts / 4), abs=1)
