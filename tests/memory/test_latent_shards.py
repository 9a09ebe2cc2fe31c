"""Latent attention under sequence parallelism: what a rank keeps of its latents is of its shard, counted by hand."""

from __future__ import annotations

from typing import Any

from memory_cases import configured, deepseek_v2

from primus_mcp.projection.memory.activations.operation import Operation
from primus_mcp.projection.memory.activations.settings import activation_settings
from primus_mcp.projection.memory.chunks import layer_operations

TOKENS, TP, HIDDEN, HEADS = 4096, 8, 5120, 128
RANK_Q, RANK_KV, TURNED = 1536, 512, 64


def _operations(**config: Any) -> dict[str, Operation]:
    settings = activation_settings(deepseek_v2(), configured(64, tp=TP, **config))
    return {operation.name: operation for operation in layer_operations(settings, True)}


def test_latents_their_norms_and_statistics_are_kept_of_a_shard() -> None:
    kept = {name: operation.saved_bytes for name, operation in _operations(sequence_parallel=True).items()}
    shard = TOKENS / TP
    assert kept["q_down"] == shard * HIDDEN * 2
    assert kept["q_up"] == shard * (2 * RANK_Q * 2 + 4)
    assert kept["kv_up"] == shard * ((RANK_KV + TURNED) * 2 + RANK_KV * 2 + 4)
    whole = {name: operation.saved_bytes for name, operation in _operations(sequence_parallel=False).items()}
    assert all(whole[name] == TP * kept[name] for name in ("q_down", "q_up", "kv_up"))
    assert whole["flash_attention"] == kept["flash_attention"], "of all tokens and a rank's heads either way"


def test_up_projections_gather_their_latents_and_down_projections_nothing() -> None:
    with_, without = _operations(sequence_parallel=True), _operations(sequence_parallel=False)
    heads = HEADS / TP
    assert with_["q_up"].forward_transient_bytes == TOKENS * 2 * (heads * 192 + RANK_Q)
    assert with_["kv_up"].forward_transient_bytes == TOKENS * 2 * (heads * 256 + RANK_KV)
    assert without["q_up"].forward_transient_bytes == TOKENS * 2 * heads * 192
    hidden = TOKENS / TP * HIDDEN * 2
    again_and_gradient = 2 * TOKENS * RANK_Q * 2
    assert with_["q_up"].backward_transient_bytes == TOKENS * 2 * heads * 192 + 2 * TOKENS / TP * RANK_Q * 2 + hidden + again_and_gradient
    assert with_["q_down"].backward_transient_bytes == 2 * hidden + TOKENS / TP * RANK_Q * 2
