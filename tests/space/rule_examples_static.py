"""Examples of the rules on keys that no trial moves: routing, graphs, attention kernels, optimizer states, fp4."""

from __future__ import annotations

from rule_example import Example

TURBO = {"enable_primus_turbo": True}
SELECTIVE = {"recompute_granularity": "selective"}
GRAPHS = {"cuda_graph_impl": "transformer_engine"}
VIRTUAL = {"pipeline_model_parallel_size": 4, "num_virtual_stages_per_pipeline_rank": 2}

ROUTER = [
    Example("E2", ("1024", "0 experts"), arguments={"moe_ffn_hidden_size": 1024}, mended_arguments={"moe_ffn_hidden_size": None}),
    Example(
        "E4",
        ("EP 8",),
        "latent",
        {"moe_token_dispatcher_type": "flex", "moe_shared_expert_overlap": True},
        mended_arguments={"moe_shared_expert_overlap": False},
    ),
    Example("E5", ("EP 8", "alltoall"), "moe", {"moe_enable_deepep": True}, mended_arguments={"moe_token_dispatcher_type": "flex"}),
    Example(
        "E14",
        ("EP 8",),
        "moe",
        {"delay_wgrad_compute": True},
        mended_arguments={"overlap_moe_expert_parallel_comm": True},
    ),
    Example(
        "E18",
        ("1 keys", "write use_turbo_gemm"),
        arguments={"use_turbo_parallel_linear": True, "use_turbo_gemm": True},
        mended_arguments={"use_turbo_parallel_linear": False, "use_turbo_gemm": True},
    ),
    Example(
        "E21",
        ("1.5", "it is sinkhorn"),
        "moe",
        {"moe_expert_capacity_factor": 1.5, "moe_router_load_balancing_type": "sinkhorn"},
        mended_arguments={"moe_router_load_balancing_type": "aux_loss"},
    ),
    Example(
        "E21",
        ("needs moe_expert_capacity_factor",),
        "moe",
        {"moe_pad_expert_input_to_capacity": True},
        mended_arguments={"moe_expert_capacity_factor": 1.0},
    ),
    Example(
        "E22",
        ("2 kinds", "0"),
        "moe",
        {"moe_router_load_balancing_type": ["aux_loss", "seq_aux_loss"], "moe_aux_loss_coeff": 0.01},
        mended_arguments={"moe_aux_loss_coeff": [0.01, 0.01]},
    ),
    Example(
        "E22",
        ("0.01",),
        "moe",
        {"moe_router_load_balancing_type": "sinkhorn", "moe_aux_loss_coeff": 0.01},
        mended_arguments={"moe_aux_loss_coeff": 0.0},
    ),
    Example(
        "E23",
        ("topk 1",),
        "moe",
        {"moe_router_topk": 1, "moe_router_score_function": "softmax"},
        mended_arguments={"moe_router_pre_softmax": True},
    ),
    Example("E24", ("2 needs",), "moe", {"moe_router_group_topk": 2}, mended_arguments={"moe_router_num_groups": 4}),
    Example(
        "E24",
        ("8 experts", "3"),
        "moe",
        {"moe_router_group_topk": 2, "moe_router_num_groups": 3},
        mended_arguments={"moe_router_num_groups": 2},
    ),
    Example(
        "E24",
        ("5 exceeds", "4"),
        "moe",
        {"moe_router_group_topk": 5, "moe_router_num_groups": 4},
        mended_arguments={"moe_router_group_topk": 4},
    ),
    Example(
        "E26",
        ("8 experts", "softmax"),
        "moe",
        {"moe_router_enable_expert_bias": True, "moe_router_score_function": "softmax"},
        mended_arguments={"moe_router_score_function": "sigmoid"},
    ),
    Example(
        "E29",
        ("32 layers",),
        "moe",
        {"add_bias_linear": True, "bias_dropout_fusion": True},
        mended_arguments={"bias_dropout_fusion": False},
    ),
    Example(
        "E30",
        ("clamp_value 7.0", "stage 3"),
        "moe",
        {"activation_func_clamp_value": 7.0, "use_turbo_deepep": True, "moe_router_dtype": "fp32"},
        {"sync_free_stage": 3},
        mended_trial={"sync_free_stage": 2},
    ),
]
ATTENTION = [
    Example(
        "C3",
        ("3 entries at CP 2", "32 layers"),
        arguments={"cp_comm_type": ["p2p"] * 3, "context_parallel_size": 2},
        mended_arguments={"cp_comm_type": ["p2p"] * 32},
    ),
    Example(
        "C7",
        ("CP 2", "p2p"),
        arguments={"softmax_type": "off-by-one", "context_parallel_size": 2},
        mended_arguments={"cp_comm_type": "a2a"},
        gpu="h100",
    ),
    Example(
        "C7",
        ("CP 2", "unfused"),
        arguments={"softmax_type": "learnable", "context_parallel_size": 2, "cp_comm_type": "a2a"},
        mended_trial={"cp": 1},
    ),
    Example(
        "C7",
        ("no fused attention",),
        arguments={"softmax_type": "learnable", "attention_backend": "fused"},
        mended_arguments={"attention_backend": "auto"},
    ),
    Example(
        "C8", ("CP is 2",), arguments={"attention_backend": "unfused"}, trial={"cp": 2}, mended_arguments={"attention_backend": "flash"}
    ),
    Example(
        "C11",
        ("3 settings", "PP 2"),
        arguments={"hybrid_context_parallel": True, "pipeline_model_parallel_size": 2, "dataloader_type": "cyclic"},
        mended_arguments={"pipeline_model_parallel_size": 1, "dataloader_type": "single", "calculate_per_token_loss": True},
    ),
    Example(
        "C12",
        ("[127, 0]",),
        arguments=TURBO | {"use_turbo_attention": True, "window_size": [127, 0]},
        mended_arguments={"use_turbo_attention": False},
    ),
    Example("C16", ("64 rotary", "rope"), "latent", {"rope_type": "rope"}, mended_arguments={"rope_type": "yarn"}),
    Example(
        "T15",
        ("KV rank 512",),
        "latent",
        {"group_query_attention": True, "num_query_groups": 16},
        mended_arguments={"group_query_attention": False},
    ),
    Example("E33", ("bias_swiglu_fusion",), arguments={"use_te_activation_func": True}, mended_arguments={"bias_swiglu_fusion": False}),
    Example(
        "T13",
        ("TP 2",),
        arguments={"tp_comm_overlap": True, "tensor_model_parallel_size": 2, "sequence_parallel": False},
        mended_arguments={"sequence_parallel": True},
    ),
    Example("T13", ("TP 1",), arguments={"tp_comm_overlap": True}, mended_trial={"tp": 1}),
    Example(
        "W4",
        ("32 / (ETP 1 x EP 8 x PP) = 2", "(8)"),
        "moe",
        {
            "use_tp_pp_dp_mapping": True,
            "pipeline_model_parallel_size": 2,
            "tensor_model_parallel_size": 2,
            "expert_tensor_parallel_size": 1,
        },
        mended_arguments={"use_tp_pp_dp_mapping": False},
    ),
]
STAGES = [
    Example(
        "L8",
        ("8 excludes", "account_for_loss"),
        arguments={
            "pipeline_model_parallel_size": 4,
            "decoder_first_pipeline_num_layers": 8,
            "account_for_loss_in_pipeline_split": True,
        },
        mended_arguments={"account_for_loss_in_pipeline_split": False},
    ),
    Example(
        "L8",
        ("8 excludes", "stage 2"),
        arguments={
            "pipeline_model_parallel_size": 4,
            "decoder_first_pipeline_num_layers": 8,
            "num_layers_per_virtual_pipeline_stage": 2,
        },
        mended_arguments={"decoder_first_pipeline_num_layers": None},
    ),
    Example(
        "B7",
        ("VPP is 1",),
        arguments={"overlap_p2p_comm_warmup_flush": True},
        mended_arguments=VIRTUAL,
    ),
    Example(
        "B3", ("1000 excludes train_samples",), arguments={"train_iters": 1000, "train_samples": 64}, mended_arguments={"train_iters": None}
    ),
    Example(
        "B3",
        ("1000 excludes rampup_batch_size",),
        arguments={"train_iters": 1000, "rampup_batch_size": [64, 64, 1000]},
        mended_arguments={"rampup_batch_size": None},
    ),
]
RECOMPUTE = [
    Example(
        "R5",
        ("1 recompute_modules", "attn"),
        arguments=SELECTIVE | {"recompute_modules": ["attn"]},
        mended_arguments={"recompute_modules": ["mlp"]},
    ),
    Example(
        "R6",
        ("8 experts",),
        "moe",
        SELECTIVE | {"recompute_modules": ["moe_act"], "moe_grouped_gemm": False},
        mended_arguments={"moe_grouped_gemm": True},
    ),
    Example(
        "R6",
        ("32 layers",),
        arguments=SELECTIVE | {"recompute_modules": ["mla_up_proj"]},
        mended_arguments={"recompute_modules": ["layernorm"]},
    ),
    Example(
        "R6",
        ("2816",),
        "latent",
        SELECTIVE | {"recompute_modules": ["shared_experts"], "moe_shared_expert_overlap": True},
        mended_arguments={"moe_shared_expert_overlap": False},
    ),
    Example(
        "R10",
        ("[0, 1]", "it is none"),
        arguments={"recompute_layer_ids": [0, 1]},
        mended_arguments={"recompute_granularity": "full"},
    ),
]
STATES = [
    Example(
        "O2",
        ("VPP 1", "ckpt_format torch"),
        arguments={"overlap_param_gather_with_optimizer_step": True},
        mended_arguments=VIRTUAL | {"ckpt_format": "torch"},
    ),
    Example("O6", ("false, 1 and 1",), arguments={"ckpt_format": "torch_dcp"}, mended_arguments={"ckpt_format": "torch_dist"}),
    Example(
        "O8",
        ("1 of the 2",),
        arguments={"use_fsdp2_fp32_param_optimizer": True, "use_fsdp2_bf16_master_weight_optimizer": True},
        mended_arguments={"use_fsdp2_fp32_param_optimizer": False},
    ),
    Example(
        "O12",
        ("DP 32", "bf16"),
        arguments={"accumulate_allreduce_grads_in_fp32": True, "main_grads_dtype": "bf16", "use_precision_aware_optimizer": True},
        mended_arguments={"main_grads_dtype": "fp32"},
    ),
    Example(
        "O15",
        ("4 and ddp_bucket_size 1000",),
        arguments={"ddp_num_buckets": 4, "ddp_bucket_size": 1000},
        mended_arguments={"ddp_bucket_size": None},
    ),
    Example(
        "O15",
        ("DP 32",),
        arguments={"calculate_per_token_loss": True, "ddp_average_in_collective": True},
        mended_arguments={"ddp_average_in_collective": False},
    ),
    Example("G11", ("vocabulary",), arguments={"fp16_lm_cross_entropy": True}, mended_arguments={"fp16_lm_cross_entropy": False}),
]
GRAPHED = [
    Example("G1", ("2 switches",), arguments=GRAPHS | {"enable_cuda_graph": True}, mended_arguments={"cuda_graph_impl": "none"}),
    Example(
        "G2", ("1 of the 2",), arguments=GRAPHS | {"cuda_graph_scope": "full_iteration"}, mended_arguments={"cuda_graph_impl": "local"}
    ),
    Example(
        "G2", ("1 of the 2",), "moe", GRAPHS | {"cuda_graph_scope": ["moe", "moe_router"]}, mended_arguments={"cuda_graph_scope": ["attn"]}
    ),
    Example("G2", ("2 parts",), "moe", GRAPHS | {"cuda_graph_scope": "attn moe_preprocess"}, mended_arguments={"cuda_graph_scope": "attn"}),
    Example("G2", ("0",), arguments=GRAPHS | {"cuda_graph_scope": ["moe_router"]}, mended_arguments={"cuda_graph_scope": ["mlp"]}),
    Example("G2", ("32 layers",), "moe", GRAPHS | {"cuda_graph_scope": ["mlp"]}, mended_arguments={"cuda_graph_scope": ["moe_router"]}),
    Example(
        "G3",
        ("1.0 and false",),
        "moe",
        GRAPHS | {"cuda_graph_scope": ["moe"], "moe_expert_capacity_factor": 1.0},
        mended_arguments={"moe_pad_expert_input_to_capacity": True},
    ),
    Example(
        "G3",
        ("factor 1.0",),
        "moe",
        GRAPHS | {"cuda_graph_scope": ["moe_router", "moe_preprocess"], "moe_expert_capacity_factor": 1.0},
        mended_arguments={"moe_token_dispatcher_type": "allgather"},
    ),
    Example(
        "G4",
        ("1 graph",),
        arguments={"enable_cuda_graph": True, "cuda_graph_scope": "full_iteration"},
        mended_arguments={"check_for_nan_in_loss_and_grad": False},
    ),
    Example(
        "G4",
        ("EP 8",),
        "moe",
        {"cuda_graph_impl": "local"},
        mended_arguments={"moe_pad_experts_for_cuda_graph_inference": True},
    ),
    Example(
        "G5",
        ("it is 0.1",),
        arguments=GRAPHS | SELECTIVE | {"attention_dropout": 0.1},
        mended_arguments={"attention_dropout": 0.0},
    ),
    Example(
        "G5",
        ("hidden_dropout 0, it is 0.1",),
        arguments=GRAPHS | SELECTIVE | {"recompute_modules": ["mlp"], "hidden_dropout": 0.1},
        mended_arguments={"cuda_graph_scope": ["attn"]},
    ),
    Example(
        "G5",
        ("1 parts",),
        "moe",
        GRAPHS | SELECTIVE | {"recompute_modules": ["moe"], "cuda_graph_scope": ["moe_router"]},
        mended_arguments={"cuda_graph_scope": ["attn"]},
    ),
    Example(
        "G12", ("2 parts",), arguments=GRAPHS | {"cuda_graph_scope": ["full", "attn"]}, mended_arguments={"cuda_graph_scope": ["attn"]}
    ),
]
FP4 = [
    Example("F4", ("fp8 is None",), arguments={"fp4_param": True}, mended_trial={"fp8": "none"}, mended_arguments={"fp4_param": False}),
    Example("F5", ("2 that Primus", "e2m3"), arguments={"fp4": "e2m1", "fp4_recipe": "e2m3"}, mended_arguments={"fp4_recipe": "nvfp4"}),
    Example(
        "F6",
        ("hybrid",),
        arguments={"first_last_layers_bf16": True},
        trial={"fp8": "delayed"},
        mended_trial={"fp8": "mxfp8"},
    ),
    Example(
        "F6",
        ("9 exceeds the 8", "PP 4"),
        arguments={"first_last_layers_bf16": True, "num_layers_at_start_in_bf16": 9},
        trial={"fp8": "mxfp8", "pp": 4},
        mended_trial={"pp": 2},
    ),
    Example(
        "F9",
        ("TP 1", "it is nvfp4"),
        arguments=TURBO | {"fp4": "e2m1", "use_turbo_gemm": True},
        mended_arguments={"fp4_recipe": "mxfp4"},
    ),
    Example(
        "F9",
        ("fp4_use_native_te_autocast false",),
        arguments=TURBO | {"fp4": "e2m1", "fp4_recipe": "mxfp4", "use_turbo_gemm": True, "fp4_use_native_te_autocast": True},
        mended_trial={"tp": 2},
    ),
    Example(
        "F14",
        ("14344", "32"),
        "moe",
        TURBO | {"fp4": "e2m1", "fp4_recipe": "mxfp4", "use_turbo_grouped_gemm": True, "moe_ffn_hidden_size": 14344},
        mended_arguments={"moe_ffn_hidden_size": 14336},
    ),
    Example(
        "F20", ("fp8 is None",), arguments={"reuse_grad_buf_for_mxfp8_param_ag": True}, mended_trial={"use_distributed_optimizer": False}
    ),
]
EXAMPLES = ROUTER + ATTENTION + STAGES + RECOMPUTE + STATES + GRAPHED + FP4
