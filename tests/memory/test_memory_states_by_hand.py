"""Weights, gradients and optimizer states against counts done by hand: 18 bytes a parameter, each share with its own divisor."""

from __future__ import annotations

from typing import Any

import pytest
from architecture_cases import decoder
from memory_cases import configured, deepseek_v3, llama_70b, mixtral_8x7b, run

from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.memory.activations.ends import embedding_operations, head_operations
from primus_mcp.projection.memory.activations.settings import activation_settings
from primus_mcp.projection.memory.projection import RankMemory


def test_dense_states_are_18_bytes_a_parameter_on_one_gpu() -> None:
    """2 layers, h 1024, f 4096, 8 heads of 128, 4 groups, vocabulary 1280 (a multiple of 128).

    layer = h (8 + 2*4) 128 + 8*128 h + 3 h f + 2 h = 2,097,152 + 1,048,576 + 12,582,912 + 2,048 = 15,730,688
    model = 2 * 15,730,688 + 2 * 1280 * 1024 + 1024 = 34,083,840
    """
    arch = decoder(2, 1024, 4096, 8, 4, 1280, 128)
    rank = run(arch, 1).worst
    assert rank.param_optimizer_bytes == 18 * 34_083_840
    assert (rank.components["weights"], rank.components["main_gradients"]) == (2 * 34_083_840, 4 * 34_083_840)


def test_the_distributed_optimizer_shards_states_over_dp_and_cp_but_not_gradients() -> None:
    """Same model on 8 GPUs, TP1 CP2 DP4: 2 + 4 + 12 / (4 * 2) = 7.5 bytes a parameter."""
    arch = decoder(2, 1024, 4096, 8, 4, 1280, 128)
    assert run(arch, 8, cp=2).worst.param_optimizer_bytes == 34_083_840 * 15 // 2
    assert run(arch, 8, cp=2, use_distributed_optimizer=False).worst.param_optimizer_bytes == 34_083_840 * 18


def test_fsdp2_divides_weights_gradients_and_states_alike() -> None:
    """34,083,840 parameters on 8 GPUs: (2 weight + 2 gradient in the parameters' dtype + 12) / 8 bytes each."""
    arch = decoder(2, 1024, 4096, 8, 4, 1280, 128)
    rank = run(arch, 8, use_torch_fsdp2=True, use_distributed_optimizer=False, gradient_accumulation_fusion=False).worst
    assert rank.param_optimizer_bytes == 34_083_840 * 16 // 8


def test_fsdp2_keeps_whole_fp8_copies_of_the_gathered_weights() -> None:
    """A module keeps its FP8 copies (row and column, 1 + 1 B) from the first micro-batch to the last, at full size on any number of GPUs:
    2 * (1024 * (1024 + 1024) + 1024 * 1024 + 3 * 1024 * 4096) elements. Layers gathered in FP8 keep none.
    """
    arch = decoder(2, 1024, 4096, 8, 4, 1280, 128)
    fsdp: dict[str, Any] = {"use_torch_fsdp2": True, "use_distributed_optimizer": False, "gradient_accumulation_fusion": False}
    copies = 2 * 2 * (1024 * (1024 + 1024) + 1024 * 1024 + 3 * 1024 * 4096)
    for world in (8, 64):
        assert run(arch, world, fp8="hybrid", **fsdp).worst.components["fp8_weight_copies"] == copies
    assert "fp8_weight_copies" not in run(arch, 8, fp8="hybrid", fp8_param_gather=True, **fsdp).worst.components
    assert "fp8_weight_copies" not in run(arch, 8, fp8="hybrid", fsdp_param_bytes=4, **fsdp).worst.components


def test_fsdp2_holds_a_gathered_layer_and_the_root_group() -> None:
    """A layer in BF16 (2 B) and weight and gradient of the final norm; where the ends are not wrapped (TorchTitan) also the embedding's
    weight and both of the output matrix.
    """
    arch = decoder(2, 1024, 4096, 8, 4, 1280, 128)
    layer, matrix = 15_730_688, 1280 * 1024
    fsdp: dict[str, Any] = {"use_torch_fsdp2": True, "use_distributed_optimizer": False, "gradient_accumulation_fusion": False}
    assert run(arch, 8, **fsdp).worst.components["unsharded_layers"] == layer * 2 + 1024 * 4
    root = run(arch, 8, fsdp_param_bytes=4, **fsdp).worst
    assert root.components["unsharded_layers"] == layer * 2 + matrix * 2 + (matrix + 1024) * 4


def test_fsdp2_gathers_the_ends_of_the_model_for_their_own_operations() -> None:
    """Forward the matrix in BF16, backward that and its BF16 gradient: what plain data parallelism has beside its own copy."""
    arch = decoder(2, 1024, 4096, 8, 4, 1280, 128)
    matrix = 1280 * 1024 * 2
    sharded = configured(8, use_torch_fsdp2=True, use_distributed_optimizer=False, gradient_accumulation_fusion=False)
    plain = configured(8, gradient_accumulation_fusion=False)
    for operations in (embedding_operations, head_operations):
        own, other = (operations(activation_settings(arch, config))[-1] for config in (sharded, plain))
        assert own.forward_transient_bytes - other.forward_transient_bytes == matrix
        assert own.backward_transient_bytes - other.backward_transient_bytes == matrix


def test_fsdp2_has_resharded_its_layers_when_the_optimizer_steps() -> None:
    """Forty layers on 2 GPUs: the fp32 copy of the owned gradients (4 B / 2) is more than any activation with the gathered layers."""
    arch = decoder(40, 1024, 4096, 8, 4, 1280, 128)
    rank = run(arch, 2, use_torch_fsdp2=True, use_distributed_optimizer=False, gradient_accumulation_fusion=False).worst
    parameters = 40 * 15_730_688 + 2 * 1280 * 1024 + 1024
    assert rank.peak_moment == "optimizer step" and "unsharded_layers" not in rank.components
    assert rank.components["optimizer_step"] == parameters * 4 // 2
    assert rank.allocated_bytes - rank.components["workspaces"] == parameters * (16 + 4) // 2


def test_mixtral_tp1_ep8() -> None:
    """Mixtral 8x7B on 8 GPUs: dense 1,605.6 M, experts 5,637.1 M a rank; expert DP 1, so experts cost 18 bytes unsharded.

    attention  4096 * (32 + 2*8) * 128 + 32*128 * 4096 = 41,943,040;  router 4096 * 8 = 32,768;  norms 8,192
    dense      32 * 41,984,000 + 2 * 32,000 * 4096 + 4096 = 1,605,636,096
    experts    32 * 3 * 4096 * 14336 * 8 / 8 = 5,637,144,576
    states     dense (2 + 4 + 12 / 8) + experts 18
    """
    rank = run(mixtral_8x7b(), 8, ep=8).worst
    assert rank.components["weights"] == 2 * (1_605_636_096 + 5_637_144_576)
    assert rank.param_optimizer_bytes == 1_605_636_096 * 15 // 2 + 5_637_144_576 * 18


def test_mixtral_tp2_ep4_etp1() -> None:
    """16 GPUs, TP2 EP4 ETP1: DP 8, expert DP 16 / 4 = 4. Vocabulary 32,000 pads to 32,000 at 256 rows.

    sharded by 2: 32 * 41,943,040 + 2 * 32,000 * 4096 = 1,604,321,280 -> 802,160,640;  replicated: 32 * (32,768 + 8,192) + 4096 = 1,314,816
    experts (not divided by TP): 32 * 3 * 4096 * 14336 * 2 = 11,274,289,152
    states: dense (2 + 4 + 12 / 8), experts (2 + 4 + 12 / 4)
    """
    rank = run(mixtral_8x7b(), 16, tp=2, ep=4, etp=1, sequence_parallel=True).worst
    dense_elements, experts = 802_160_640 + 1_314_816, 11_274_289_152
    assert rank.components["weights"] == 2 * (dense_elements + experts)
    assert rank.param_optimizer_bytes == dense_elements * 15 // 2 + experts * 9


def test_deepseek_v3_latent_attention_and_experts_on_one_rank() -> None:
    """TP2 EP8 ETP1, PP1, 16 GPUs: DP 8, expert DP 2.

    sharded by 2: q_up 1536 * 128*192 = 37,748,736; kv_up 512 * 128*256 = 16,777,216; o 128*128 * 7168 = 117,440,512: 171,966,464
    replicated:   q_down 7168*1536 + 1536 = 11,011,584; kv_down 7168*576 + 512 = 4,129,280; two norms 14,336: 15,155,200
    dense MLP 3 * 7168 * 18432 = 396,361,728 (3 layers); shared expert 3 * 7168 * 2048 = 44,040,192 and router 7168 * 256 (58 layers)
    embedding and head 2 * 129,280 * 7168; final norm 7168
    experts 58 * 3 * 7168 * 2048 * 256 / 8
    """
    sharded = 61 * 171_966_464 + 3 * 396_361_728 + 58 * 44_040_192 + 2 * 129_280 * 7168
    replicated = 61 * 15_155_200 + 58 * 7168 * 256 + 7168
    experts = 58 * 44_040_192 * 32
    held = sharded // 2 + replicated
    rank = run(deepseek_v3(), 16, tp=2, ep=8, etp=1, sequence_parallel=True).worst
    assert rank.components["weights"] == 2 * (held + experts)
    assert rank.components["optimizer_states"] == held * 12 // 8 + experts * 12 // 2


def test_multi_token_prediction_puts_a_second_embedding_on_the_last_rank() -> None:
    """PP2, layers 31 + 30. MTP depth: one MoE layer, projection 2 h h, three norms, and 129,280 * 7168 rows of embedding."""
    layout = "Et*31|t*30mL"
    with_mtp = run(deepseek_v3(1), 128, pp=2, ep=64, pipeline_layout=layout).ranks[1].components["weights"]
    without = run(deepseek_v3(0), 128, pp=2, ep=64, pipeline_layout="Et*31|t*30L").ranks[1].components["weights"]
    layer = 171_966_464 + 15_155_200 + 44_040_192 + 7168 * 256 + 44_040_192 * 4
    assert with_mtp - without == 2 * (layer + 2 * 7168 * 7168 + 3 * 7168 + 129_280 * 7168)


def test_tied_embeddings_are_stored_twice_only_when_the_ends_are_on_different_ranks() -> None:
    tied = decoder(2, 1024, 4096, 8, 4, 1280, 128, tied_embeddings=True)
    assert run(tied, 1).worst.components["weights"] == 2 * (34_083_840 - 1280 * 1024)
    assert sum(rank.components["weights"] for rank in run(tied, 2, pp=2).ranks) == 2 * 34_083_840


@pytest.mark.parametrize(
    ("settings", "bytes_per_parameter"),
    [
        ({}, 18),
        ({"main_grad_bytes": 2, "main_param_bytes": 2, "exp_avg_bytes": 2, "exp_avg_sq_bytes": 2}, 10),
        ({"main_grad_bytes": 2, "exp_avg_bytes": 2, "exp_avg_sq_bytes": 2}, 12),
        ({"optimizer": "sgd"}, 14),
    ],
)
def test_each_state_has_its_own_dtype(settings: dict[str, Any], bytes_per_parameter: int) -> None:
    arch = decoder(2, 1024, 4096, 8, 4, 1280, 128)
    assert run(arch, 1, **settings).worst.param_optimizer_bytes == bytes_per_parameter * 34_083_840


def test_muon_keeps_a_second_moment_for_embedding_head_and_norms_only() -> None:
    """Matrices of the layers 2 * 15,728,640 at 2 + 4 + 8 bytes; the other 2,626,560 parameters at 18."""
    arch = decoder(2, 1024, 4096, 8, 4, 1280, 128)
    matrices = 2 * 15_728_640
    assert run(arch, 1, optimizer="muon").worst.param_optimizer_bytes == matrices * 14 + (34_083_840 - matrices) * 18


def test_bf16_gradients_without_precision_aware_states_are_cast_for_the_step() -> None:
    """A model with hardly any activation: the fp32 copy of the gradients, 4 B a parameter, is the peak."""
    arch = decoder(2, 1024, 4096, 8, 4, 1280, 8)
    rank = run(arch, 1, main_grad_bytes=2).worst
    assert rank.peak_moment == "optimizer step"
    assert rank.components["optimizer_step"] == 4 * 34_083_840


@pytest.mark.parametrize(
    ("settings", "copies", "weights"),
    [
        ({}, 2, 2),
        ({"fp8_weight_transpose_cache": False}, 1, 2),
        ({"fp8_param_gather": True}, 1, 1),
        ({"turbo_gemm": True, "fp8_recipe": "tensorwise"}, 1, 2),
        ({"turbo_gemm": True, "fp8_recipe": "mxfp8"}, 2, 2),
        ({"turbo_gemm": True, "fp8_recipe": "delayed"}, 0, 2),
    ],
)
def test_fp8_copies_of_linear_weights(settings: dict[str, Any], copies: int, weights: int) -> None:
    """2 layers of linears, 2 * 15,728,640 elements; embedding, head and norms (2,626,560... rest) stay BF16."""
    arch = decoder(2, 1024, 4096, 8, 4, 1280, 128)
    linears = 2 * 15_728_640
    components = run(arch, 1, fp8="hybrid", **settings).worst.components
    assert components.get("fp8_weight_copies", 0) == copies * linears
    assert components["weights"] == weights * linears + 2 * (34_083_840 - linears)


def test_fp8_can_need_more_memory_than_bf16() -> None:
    """Weight copies outweigh the smaller saved inputs when a rank holds many parameters and few tokens."""
    arch = llama_70b(12, 1024)
    assert run(arch, 8, tp=8, sequence_parallel=True, fp8="hybrid").device_bytes > run(arch, 8, tp=8, sequence_parallel=True).device_bytes


def test_lora_has_gradients_and_states_for_adapters_only() -> None:
    """Rank 16 on QKV (1024 + 2048), projection (2 * 1024), fc1 (1024 + 8192), fc2 (4096 + 1024), 2 layers: 16 * 2 * 19,456 = 622,592."""
    arch = decoder(2, 1024, 4096, 8, 4, 1280, 128)
    rank = run(arch, 1, finetune="lora", lora_rank=16, lora_targets=("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")).worst
    assert rank.components["main_gradients"] == 4 * 622_592
    assert rank.param_optimizer_bytes == 2 * 34_083_840 + 18 * 622_592


def _weights(rank: RankMemory) -> int:
    return rank.components["weights"]


def test_tp8_divides_weights_by_eight_apart_from_norms_and_vocabulary_padding() -> None:
    arch = llama_70b()
    whole, eighth = _weights(run(arch, 8).worst), _weights(run(arch, 8, tp=8, sequence_parallel=True).worst)
    norms = 2 * (80 * 2 + 1) * 8192
    padding = 2 * 2 * 8192 * (arch.padded_vocab_size(8) - arch.padded_vocab_size(1))
    assert 8 * (eighth - norms) == whole - norms + padding


def test_twice_the_nodes_halve_distributed_optimizer_bytes() -> None:
    arch = mixtral_8x7b()
    once, twice = run(arch, 16, ep=8).worst, run(arch, 32, ep=8).worst
    assert once.components["optimizer_states"] == 2 * twice.components["optimizer_states"]
    assert once.components["main_gradients"] == twice.components["main_gradients"]


def test_the_shards_of_all_ranks_sum_to_the_whole_model() -> None:
    """PP4 x TP2 (sharded halves plus replicated parts) of a dense model, EP4 of a mixture."""
    arch = llama_70b(8)
    whole = _weights(run(arch, 1).worst)
    norms = 2 * (8 * 2 + 1) * 8192
    padding = 2 * 2 * 8192 * (arch.padded_vocab_size(2) - arch.padded_vocab_size(1))
    parts = sum(_weights(rank) for rank in run(arch, 8, tp=2, pp=4, sequence_parallel=True).ranks)
    assert 2 * (parts - norms) == whole - norms + padding
    mixture = mixtral_8x7b(4)
    experts = 2 * 4 * 3 * 4096 * 14336 * 8
    dense_bytes = _weights(run(mixture, 1).worst) - experts
    assert 4 * (_weights(run(mixture, 4, ep=4).worst) - dense_bytes) == experts


def test_query_groups_below_tp_are_replicated_in_activations_only() -> None:
    """8 groups at TP16: the fused QKV weight stays evenly sharded (its output is gathered), K and V of one whole group are saved."""
    arch = llama_70b(2)
    weights = _weights(run(arch, 16, tp=16, sequence_parallel=True).worst)
    layer = (8192 * 10240 + 8192 * 8192 + 3 * 8192 * 28672) // 16 + 2 * 8192
    assert weights == 2 * (2 * layer + 2 * arch.padded_vocab_size(16) // 16 * 8192 + 8192)


def test_a_default_configuration_is_bf16_adam_with_fp32_states() -> None:
    """The 18 bytes above rest on these defaults."""
    config = TrainingConfig()
    assert (config.main_grad_bytes, config.main_param_bytes, config.exp_avg_bytes, config.exp_avg_sq_bytes) == (4, 4, 4, 4)
