"""What single operations save, and how recomputation and worst-case buffers change it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from architecture_cases import decoder
from memory_cases import configured, deepseek_v2, deepseek_v2_lite, gpt, llama_70b, mixtral_8x7b, run

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.layout import Chunk
from primus_mcp.inputs.training import Recompute
from primus_mcp.projection.memory.activations.operation import Operation
from primus_mcp.projection.memory.activations.settings import ActivationSettings, activation_settings
from primus_mcp.projection.memory.chunks import chunk_profile, layer_operations, layer_profile
from primus_mcp.projection.memory.profile import of_operation, of_operations
from primus_mcp.projection.pipeline.live import states_by_gradients

TOKENS = 4096


def _settings(arch: Architecture, **settings: Any) -> ActivationSettings:
    return activation_settings(arch, configured(64, **settings))


def _saved(arch: Architecture, moe: bool, **settings: Any) -> dict[str, float]:
    return {operation.name: operation.saved_bytes for operation in layer_operations(_settings(arch, **settings), moe)}


def _selective(arch: Architecture, module: str, moe: bool = True, **settings: Any) -> float:
    """Bytes that recomputing one module takes off a layer."""
    recompute = Recompute(granularity="selective", modules=(module,))
    with_it = layer_profile(_settings(arch, recompute=recompute, **settings), moe)
    return layer_profile(_settings(arch, **settings), moe).saved_bytes - with_it.saved_bytes


def test_expert_parallelism_alone_does_not_change_any_activation() -> None:
    assert _saved(mixtral_8x7b(), True, ep=1) == _saved(mixtral_8x7b(), True, ep=8)


def test_dispatched_rows_are_tokens_times_top_k_times_etp_over_tp() -> None:
    """Mixtral, top 2: 4096 * 2 rows at TP1; TP2 with sequence parallelism 4096 at ETP1, 8192 at ETP2; none is hotter at EP1."""
    arch = mixtral_8x7b()
    rows = [
        _settings(arch, ep=4).dispatched_rows,
        _settings(arch, ep=4, tp=2, sequence_parallel=True).dispatched_rows,
        _settings(arch, ep=4, tp=2, etp=2, sequence_parallel=True).dispatched_rows,
        _settings(arch, ep=4, expert_load_imbalance=1.5).dispatched_rows,
        _settings(arch, ep=1, expert_load_imbalance=1.5).dispatched_rows,
    ]
    assert rows == [2 * TOKENS, TOKENS, 2 * TOKENS, 3 * TOKENS, 2 * TOKENS]


def test_expert_tensors_of_mixtral() -> None:
    """R = 8192 rows: fc1 input 4096 wide, fc1 output 2 * 14336, fc2 input 14336, BF16; one fp32 probability a row."""
    saved = _saved(mixtral_8x7b(), True)
    rows = 2 * TOKENS
    assert saved["expert_fc1"] == rows * 4096 * 2
    assert saved["expert_activation"] == rows * 2 * 14336 * 2 + rows * 4
    assert saved["expert_fc2"] == rows * 14336 * 2


def test_an_eager_expert_activation_keeps_ten_bytes_an_element_instead_of_six() -> None:
    arch, rows = mixtral_8x7b(), 2 * TOKENS
    fused, eager = _saved(arch, True), _saved(arch, True, fused_swiglu=False)
    assert eager["expert_activation"] - fused["expert_activation"] == 4 * rows * 14336
    assert _saved(arch, True, fused_swiglu=False, grouped_gemm="legacy") == _saved(arch, True, grouped_gemm="legacy")


def test_sync_free_stage_three_allocates_experts_for_the_worst_case() -> None:
    """EP 8: eight times the rows, saved for backward; stage 2 only receives into such a buffer."""
    arch = mixtral_8x7b()
    stage = {number: _saved(arch, True, ep=8, dispatcher="deepep", sync_free_stage=number) for number in (1, 2, 3)}
    assert stage[2] == stage[1]
    assert stage[3]["expert_fc1"] == 8 * stage[1]["expert_fc1"]
    transients = {
        number: next(
            operation.forward_transient_bytes
            for operation in layer_operations(_settings(arch, ep=8, dispatcher="deepep", sync_free_stage=number), True)
            if operation.name == "dispatch"
        )
        for number in (1, 2)
    }
    assert transients[2] - transients[1] == TOKENS * 4096 * 2 * (8 + 2) - 2 * (2 * TOKENS * 4096 * 2)


def test_the_all_gather_dispatcher_gathers_the_tokens_of_every_expert_rank() -> None:
    arch = mixtral_8x7b()

    def transient(ep: int) -> float:
        operations = layer_operations(_settings(arch, ep=ep, dispatcher="allgather"), True)
        return next(operation.forward_transient_bytes for operation in operations if operation.name == "dispatch")

    assert transient(8) - transient(4) == 4 * TOKENS * 4096 * 2
    assert _saved(arch, True, ep=8, dispatcher="allgather") == _saved(arch, True, ep=4)


def test_math_attention_keeps_every_score_and_flash_attention_only_one_sum_a_row() -> None:
    """64 heads, 4096^2 scores in BF16, against 4 bytes a row."""
    arch = llama_70b()
    flash, math = _saved(arch, False), _saved(arch, False, flash_attention=False)
    assert math["math_attention"] - flash["flash_attention"] == 64 * TOKENS**2 * 2 - 64 * TOKENS * 4


def test_sinks_keep_the_fp32_result_of_the_plain_softmax_too() -> None:
    plain, sinks = (_saved(replace(llama_70b(), attention_sinks=choice), False, flash_attention=False) for choice in (False, True))
    assert sinks["math_attention"] - plain["math_attention"] == 64 * TOKENS**2 * 4
    flash = [_saved(replace(llama_70b(), attention_sinks=choice), False) for choice in (False, True)]
    assert flash[0] == flash[1]


def test_context_parallel_all_to_all_keeps_one_more_attention_output() -> None:
    arch = llama_70b(seq=8192)
    exchanged, ring = _saved(arch, False, cp=2, cp_comm_type="a2a"), _saved(arch, False, cp=2, cp_comm_type="p2p")
    assert exchanged["flash_attention"] - ring["flash_attention"] == TOKENS * 8192 * 2


def test_query_and_key_norms_keep_the_tensors_before_them() -> None:
    """8 heads and 4 groups of 128: (1024 + 512) * 2 bytes and 12 fp32 statistics a token."""
    arch = decoder(1, 1024, 4096, 8, 4, 1280, 4096, qk_norm=True)
    assert _saved(arch, False)["qk_norm"] == TOKENS * ((1024 + 512) * 2 + 12 * 4)


def test_latent_attention_keeps_compressed_and_expanded_tensors() -> None:
    """DeepSeek-V2: K is expanded for all 128 heads; q 1536, kv 512 + 64 compressed."""
    saved = _saved(deepseek_v2(), True)
    assert saved["flash_attention"] == TOKENS * 128 * (192 + 192 + 128) * 2 + TOKENS * 128 * 4
    assert saved["q_up"] == TOKENS * (1536 * 4 + 4)
    assert saved["kv_up"] == TOKENS * ((512 + 64) * 2 + 512 * 2 + 4)


def test_fp8_keeps_linear_inputs_in_one_byte_and_its_own_copy_of_the_attention_output() -> None:
    bf16, fp8 = _saved(llama_70b(), False), _saved(llama_70b(), False, fp8="hybrid")
    assert fp8["qkv"] * 2 == bf16["qkv"]
    assert fp8["fc2"] * 2 == bf16["fc2"]
    assert fp8["attention_projection"] == bf16["attention_projection"] * 1.5
    assert fp8["activation"] == bf16["activation"]


def test_legacy_and_delayed_turbo_experts_stay_bf16_under_fp8_flags() -> None:
    arch = mixtral_8x7b()
    plain = _saved(arch, True)["expert_fc2"]
    assert _saved(arch, True, fp8="hybrid", grouped_gemm="legacy")["expert_fc2"] == plain
    assert _saved(arch, True, fp8="hybrid", grouped_gemm="turbo")["expert_fc2"] == plain
    assert _saved(arch, True, fp8="e4m3", fp8_recipe="tensorwise", grouped_gemm="turbo")["expert_fc2"] == plain / 2


def test_core_attention_recompute_frees_about_nothing_under_flash_and_all_scores_under_math_attention() -> None:
    assert _selective(llama_70b(), "core_attn", False) == 64 * TOKENS * 4
    arch = gpt(1, 6144, 64, 2048, 51200)
    assert _selective(arch, "core_attn", False, flash_attention=False) == 64 * 2048**2 * 5


def test_activation_recompute_frees_the_fc2_input_of_the_experts() -> None:
    assert _selective(deepseek_v2_lite(), "moe_act") == 6 * TOKENS * 1408 * 2


def test_up_projection_recompute_saves_about_as_much_as_the_activation() -> None:
    """Megatron-Bridge#5570 on Moonlight: 1.85% against 1.96% of memory, 1 : 1.06."""
    arch = deepseek_v2_lite()
    assert _selective(arch, "mla_up_proj") / _selective(arch, "moe_act") == pytest.approx(1.06, abs=0.03)


def test_norm_recompute_frees_outputs_of_norms_that_are_modules_of_their_own() -> None:
    """MLA input norm and the norm before experts; the norms that TE fuses into a dense layer's linears stay."""
    assert _selective(deepseek_v2_lite(), "layernorm") == 2 * TOKENS * 2048 * 2
    assert _selective(llama_70b(), "layernorm", False) == 0


def test_checkpointed_modules_keep_their_input_only() -> None:
    arch = deepseek_v2_lite()
    operations = layer_operations(_settings(arch), True)
    inside = sum(operation.saved_bytes for operation in operations if "moe" in operation.modules)
    assert _selective(arch, "moe") == inside - TOKENS * 2048 * 2
    assert _selective(arch, "shared_experts") == sum(op.saved_bytes for op in operations if "shared_experts" in op.modules)


def test_full_recompute_keeps_one_hidden_tensor_a_layer_and_replays_one_layer() -> None:
    arch = llama_70b(4)
    chunk = Chunk(layers=(0, 1, 2, 3))
    whole = Recompute(granularity="full", method="uniform", num_layers=1)
    profile = chunk_profile(_settings(arch, recompute=whole), chunk)
    hidden, layer = TOKENS * 8192 * 2, layer_profile(_settings(arch), False)
    assert profile.saved_bytes == 4 * hidden
    assert profile.backward.total_bytes == 3 * hidden + layer.backward.total_bytes
    assert profile.backward.operation.startswith("recomputed ")


def test_uniform_recompute_in_groups_keeps_one_tensor_a_group_and_replays_a_whole_group() -> None:
    arch = llama_70b(4)
    pairs = Recompute(granularity="full", method="uniform", num_layers=2)
    profile = chunk_profile(_settings(arch, recompute=pairs), Chunk(layers=(0, 1, 2, 3)))
    hidden, layer = TOKENS * 8192 * 2, layer_profile(_settings(arch), False)
    assert profile.saved_bytes == 2 * hidden
    assert profile.backward.total_bytes == hidden + layer.saved_bytes + layer.backward.total_bytes


def test_block_recompute_counts_in_each_chunk_and_ids_are_global() -> None:
    arch = llama_70b(4)
    layer, hidden = layer_profile(_settings(arch), False).saved_bytes, TOKENS * 8192 * 2
    block = Recompute(granularity="full", method="block", num_layers=1)
    ids = Recompute(granularity="full", layer_ids=(2,))
    for chunk, block_saved, ids_saved in (((0, 1), layer + hidden, 2 * layer), ((2, 3), layer + hidden, layer + hidden)):
        assert chunk_profile(_settings(arch, recompute=block), Chunk(layers=chunk)).saved_bytes == pytest.approx(block_saved)
        assert chunk_profile(_settings(arch, recompute=ids), Chunk(layers=chunk)).saved_bytes == pytest.approx(ids_saved)


def test_multi_token_prediction_layers_are_recomputed_under_uniform_and_not_under_block() -> None:
    arch = decoder(2, 1024, 4096, 8, 4, 1280, 4096, mtp_num_layers=1)
    chunk = Chunk(layers=(1,), mtp_layers=1, loss=True)
    layer, hidden = layer_profile(_settings(arch), False).saved_bytes, TOKENS * 1024 * 2
    uniform = chunk_profile(_settings(arch, recompute=Recompute(granularity="full", method="uniform", num_layers=1)), chunk)
    block = chunk_profile(_settings(arch, recompute=Recompute(granularity="full", method="block", num_layers=1)), chunk)
    assert block.saved_bytes - uniform.saved_bytes == pytest.approx(layer - hidden)


def test_loss_fusion_halves_the_saved_logits() -> None:
    """L = tokens * vocabulary * 2 bytes; unfused keeps an fp32 softmax, 2 L."""
    arch = llama_70b(1)
    chunk = Chunk(layers=(0,), loss=True)
    fused = chunk_profile(_settings(arch, cross_entropy_loss_fusion=True, cross_entropy_impl="te"), chunk)
    plain = chunk_profile(_settings(arch), chunk)
    assert plain.saved_bytes - fused.saved_bytes == TOKENS * arch.padded_vocab_size(1) * 2


def test_gradients_that_are_not_accumulated_in_place_exist_for_a_moment() -> None:
    """fc2 of Llama 70B: 28672 * 8192 elements in BF16."""
    arch = llama_70b(1)
    transient = {
        fused: {op.name: op.backward_transient_bytes for op in layer_operations(_settings(arch, gradient_accumulation_fusion=fused), False)}
        for fused in (True, False)
    }
    assert transient[False]["fc2"] - transient[True]["fc2"] == 28672 * 8192 * 2


def test_profiles_join_associatively() -> None:
    operations = layer_operations(_settings(deepseek_v2_lite()), True)
    middle = len(operations) // 2
    left, right = of_operations(operations[:middle]), of_operations(operations[middle:])
    whole, joined = of_operations(operations), left.then(right)
    assert joined.saved_bytes == pytest.approx(whole.saved_bytes)
    for name in ("forward", "backward", "split"):
        assert getattr(joined, name).operation == getattr(whole, name).operation
        assert getattr(joined, name).total_bytes == pytest.approx(getattr(whole, name).total_bytes)


def test_a_split_backward_leaves_linear_inputs_and_output_gradients_pinned() -> None:
    """fc2 of Llama 70B: its input (28672 wide) and the gradient of its output (8192 wide) wait for W."""
    operations = {operation.name: operation for operation in layer_operations(_settings(llama_70b(1)), False)}
    assert operations["fc2"].pinned_bytes == TOKENS * (28672 + 8192) * 2
    norm: Operation = operations["attention_norm"]
    assert norm.pinned_bytes == 0
    assert of_operation(norm).split == of_operation(norm).backward


def test_deferred_weight_gradients_raise_the_peak_and_are_shown() -> None:
    settings: dict[str, Any] = {"tp": 8, "pp": 4, "sequence_parallel": True}
    plain = run(llama_70b(), 32, **settings)
    split = run(llama_70b(), 32, schedule="zero-bubble", **settings)
    assert split.ranks[-1].device_bytes > plain.ranks[-1].device_bytes
    assert any(rank.components.get("pinned_for_weight_gradients", 0) for rank in split.ranks)


def test_checkpointing_by_operation_keeps_every_second_matmul() -> None:
    """TorchTitan's default, Llama 70B: block input and w2 output (2 h), attention output and wq (2 q), wv (k), w1 (f)."""
    recompute = Recompute(granularity="selective", modules=("alternate_matmuls",))
    profile = layer_profile(_settings(llama_70b(), recompute=recompute), False)
    assert profile.saved_bytes == TOKENS * 2 * (2 * 8192 + 2 * 8192 + 1024 + 28672)
    assert profile.backward.total_bytes == layer_profile(_settings(llama_70b()), False).backward.total_bytes


def test_torch_pipelining_keeps_outputs_receive_buffers_and_all_logits() -> None:
    """PP2, 4 micro-batches, first rank: 2 live outputs and 4 gradient buffers; last: 1 live output, 4 activation buffers, 4 logits."""
    arch = llama_70b(4)
    fsdp: dict[str, Any] = {"use_torch_fsdp2": True, "use_distributed_optimizer": False, "gradient_accumulation_fusion": False}
    ranks = run(arch, 4, 4, pp=2, fsdp_param_bytes=4, **fsdp).ranks
    hidden, logits = TOKENS * 8192 * 2, TOKENS * arch.padded_vocab_size(1) * 2
    assert ranks[0].components["pipeline_buffers"] == 6 * hidden
    assert ranks[1].components["pipeline_buffers"] == 5 * hidden + 4 * logits


def test_a_pipelined_fsdp2_stage_stays_gathered_with_fp32_gradients() -> None:
    """Two layers and the embedding on rank 0: layers in BF16 (1 B when gathered in FP8), 4 B of gradient for all."""
    arch = llama_70b(4)
    fsdp: dict[str, Any] = {"use_torch_fsdp2": True, "use_distributed_optimizer": False, "gradient_accumulation_fusion": False}
    layer = 8192 * 10240 + 8192 * 8192 + 3 * 8192 * 28672 + 2 * 8192
    embedding = arch.padded_vocab_size(1) * 8192
    for gathered in (2, 1):
        rank = run(arch, 4, 4, pp=2, fsdp_param_bytes=4, fp8_param_gather=gathered == 1, **fsdp).ranks[0]
        expected = 2 * layer * gathered + embedding * 2 + (2 * layer + embedding) * 4
        assert rank.components["unsharded_layers"] == expected
        assert rank.param_optimizer_bytes == (2 * layer + embedding) * 16 // 2


def test_gradients_of_pipelined_fsdp2_appear_with_the_first_backward_of_a_chunk() -> None:
    """PP2 VPP2, two micro-batches. Rank 0 runs F F F F D D D D: all four chunk passes are alive without a gradient; the second chunk's
    first backward brings its gradients, the first chunk's come when two passes are left.
    """
    first, second = states_by_gradients("interleaved", pp=2, vpp=2, micro_batches=2)
    assert [(sorted(held), max(sum(s.forward_live) for s in states)) for held, states in first.items()] == [([], 4), ([1], 3), ([0, 1], 1)]
    assert [sorted(held) for held in second] == [[], [1], [0, 1]]


def test_fsdp2_gathers_the_next_layer_and_stages_gradients_while_a_layer_runs() -> None:
    """Forward: the next layer in BF16; backward: that, this layer's BF16 gradient and the copy of the one before that is reduced.

    Megatron gives torch no mixed-precision policy: the copy is BF16, 2 + 2 + 2 bytes; reduced in fp32 2 + 2 + 4.
    """
    fsdp: dict[str, Any] = {"use_torch_fsdp2": True, "use_distributed_optimizer": False, "gradient_accumulation_fusion": False}
    layer = 8192 * 10240 + 8192 * 8192 + 3 * 8192 * 28672 + 2 * 8192
    plain = layer_profile(_settings(llama_70b()), False)  # gradients go to main_grad, so that none is counted beside the layer's
    sharded = layer_profile(_settings(llama_70b(), **fsdp), False)
    assert sharded.forward.total_bytes - plain.forward.total_bytes == 2 * layer
    assert sharded.backward.total_bytes - plain.backward.total_bytes == 6 * layer
    whole = layer_profile(_settings(llama_70b(), fsdp_reduce_bytes=4, **fsdp), False)
    assert whole.backward.total_bytes - plain.backward.total_bytes == 8 * layer
    pipelined = layer_profile(_settings(llama_70b(), pp=2, **fsdp), False)
    assert pipelined.backward == layer_profile(_settings(llama_70b(), gradient_accumulation_fusion=False), False).backward
