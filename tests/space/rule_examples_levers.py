"""Examples of the rules on memory, experts and precision."""

from __future__ import annotations

from rule_example import Example

DEEPEP = {"use_turbo_deepep": True, "enable_primus_turbo": True, "moe_router_dtype": "fp32"}
FSDP2 = {"use_torch_fsdp2": True}


EXAMPLES = [
    # memory
    Example(
        "R7",
        ("layernorm", "hybrid"),
        arguments={"recompute_modules": ["layernorm"]},
        trial={"recompute_granularity": "selective", "fp8": "hybrid"},
        mended_trial={"fp8": "mxfp8"},
    ),
    Example(
        "R8",
        ("32 MoE layers",),
        "moe",
        {"moe_layer_recompute": True},
        {"pp": 4, "recompute_granularity": "full"},
        mended_trial={"recompute_granularity": "none"},
    ),
    Example(
        "R12",
        ("1 MTP", "it is 2"),
        arguments={"mtp_num_layers": 1, "recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 2},
        mended_trial={"recompute_num_layers": 1},
    ),
    Example(
        "R13",
        ("32 layers",),
        arguments={"enable_cuda_graph": True},
        trial={"recompute_granularity": "full"},
        mended_arguments={"cuda_graph_scope": "full_iteration"},
    ),
    Example(
        "O1",
        ("true and false", "DP 32"),
        trial={"use_distributed_optimizer": False, "overlap_param_gather": True},
        mended_trial={"overlap_param_gather": False},
    ),
    Example("O3-fsdp2", ("PP 1", "2, 1 and 1"), trial=FSDP2 | {"pp": 2}, mended_trial={"pp": 1}),
    Example(
        "O3-fsdp2",
        ("DP 32", "tied embeddings"),
        arguments={"untie_embeddings_and_output_weights": False},
        trial=FSDP2,
        mended_arguments={"untie_embeddings_and_output_weights": True},
    ),
    Example(
        "O3-fsdp2",
        ("excludes ckpt_format torch",),
        arguments=FSDP2
        | {
            "use_distributed_optimizer": False,
            "gradient_accumulation_fusion": False,
            "overlap_param_gather": False,
            "ckpt_format": "torch",
        },
        mended_arguments={"ckpt_format": "torch_dist"},
    ),
    Example(
        "O9",
        ("1 optimizer dtypes below fp32", "exp_avg_dtype"),
        arguments={"exp_avg_dtype": "bf16"},
        mended_arguments={"use_precision_aware_optimizer": True},
    ),
    Example(
        "O9",
        ("DP 32",),
        arguments={"use_precision_aware_optimizer": True, "use_distributed_optimizer": False, "overlap_param_gather": False},
        mended_trial={"use_distributed_optimizer": True},
    ),
    Example("O14", ("DP 32",), arguments={"optimizer": "muon"}, mended_arguments={"optimizer": "adam"}),
    Example(
        "O14",
        ("overlap_grad_reduce false, overlap_param_gather false",),
        arguments={"optimizer": "muon", "use_distributed_optimizer": False},
        mended_arguments={"optimizer": "dist_muon"},
    ),
    Example(
        "O14",
        ("dist_muon", "needs use_distributed_optimizer false"),
        arguments={"optimizer": "dist_muon"},
        mended_arguments={"use_distributed_optimizer": False},
    ),
    Example(
        "G8",
        ("deterministic_mode", "vocabulary 131"),
        arguments={"deterministic_mode": True},
        trial={"cross_entropy_loss_fusion": True},
        mended_trial={"cross_entropy_loss_fusion": False},
    ),
    Example(
        "G8",
        ("2 keys", "use_flash_attn, use_turbo_autotune"),
        arguments={"deterministic_mode": True, "use_flash_attn": True, "use_turbo_autotune": True},
        mended_arguments={"use_flash_attn": False, "use_turbo_autotune": False},
    ),
    # MoE
    Example("E1", ("8 experts", "EP 16"), "moe", trial={"ep": 16}, mended_trial={"ep": 4}),
    Example(
        "E6",
        ("EP 8",),
        "moe",
        {"moe_pad_expert_input_to_capacity": True},
        {"use_turbo_deepep": True},
        mended_trial={"use_turbo_deepep": False},
    ),
    Example(
        "E7",
        ("EP 8", "allgather"),
        "latent",
        {"moe_shared_expert_overlap": True, "moe_token_dispatcher_type": "allgather"},
        mended_arguments={"moe_token_dispatcher_type": "alltoall"},
    ),
    Example("E9", ("EP 8", "None"), "moe", DEEPEP | {"moe_router_dtype": None}, mended_trial={"use_turbo_deepep": True}),
    Example(
        "E10",
        ("EP 16", "it is 80"),
        "latent",
        DEEPEP | {"turbo_deepep_num_cu": 80, "expert_model_parallel_size": 16},
        mended_trial={"ep": 16},
    ),
    Example("E11", ("2, 4, 8,", "1 x 12 is 12"), "moe", {"num_experts": 24}, {"use_turbo_deepep": True, "ep": 12}, mended_trial={"ep": 8}),
    Example("E11", ("are 1 and 1",), "moe", trial={"use_turbo_deepep": True, "ep": 1}, mended_trial={"ep": 2}),
    Example(
        "E12", ("EP 8", "enable_primus_turbo"), "moe", DEEPEP | {"enable_primus_turbo": False}, mended_trial={"use_turbo_deepep": True}
    ),
    Example("E15", ("stage 1",), "moe", {"turbo_sync_free_moe_stage": 1}, mended_trial={"sync_free_stage": 1}),
    Example(
        "T17",
        ("ETP is 2", "TP 1"),
        "moe",
        trial={"expert_tensor_parallel_size": 2, "ep": 4, "sync_free_stage": 2},
        mended_trial={"expert_tensor_parallel_size": 1},
    ),
    Example(
        "E19",
        ("PP 4", "hybrid"),
        "moe",
        {"moe_use_legacy_grouped_gemm": True},
        {"pp": 4, "pp_schedule": "zerobubble", "fp8": "hybrid"},
        mended_trial={"fp8": "none"},
    ),
    Example(
        "F17",
        ("1", "hybrid"),
        "moe",
        {"moe_token_dispatcher_type": "allgather", "turbo_sync_free_moe_stage": 1, "enable_primus_turbo": True},
        {"fp8": "hybrid"},
        mended_trial={"sync_free_stage": 1},
    ),
    Example(
        "E27",
        ("stage 1", "8 experts"),
        "moe",
        {"moe_router_enable_expert_bias": True, "moe_router_force_load_balancing": False},
        {"sync_free_stage": 1},
        mended_trial={"sync_free_stage": 0},
    ),
    Example(
        "turbo-gpu",
        ("use_turbo_attention at TP 1", "gfx942 and gfx950", "mi250x is gfx90a"),
        arguments={"enable_primus_turbo": True, "use_turbo_attention": True},
        gpu="mi250x",
        mended_gpu="mi300x",
    ),
    # precision
    Example("F2", ("e4m3", "nvfp4", "1 is allowed"), arguments={"fp8": "e4m3", "fp4": "nvfp4"}, mended_trial={"fp8": "e4m3"}),
    Example("F3", ("DP 32", "None"), arguments={"fp8_param_gather": True}, mended_trial={"fp8": "delayed"}),
    Example(
        "F8",
        ("TP 1", "delayed"),
        arguments={"use_turbo_gemm": True, "enable_primus_turbo": True},
        trial={"fp8": "delayed"},
        mended_trial={"fp8": "hybrid"},
    ),
    Example("fp8-gpu", ("hybrid", "a100", "312"), gpu="a100", trial={"fp8": "hybrid"}, mended_gpu="h100"),
    Example(
        "F21",
        ("blockwise at TP 2 on mi355x needs TP 1",),
        arguments={"enable_primus_turbo": True, "use_turbo_gemm": True, "fp8": "e4m3", "fp8_recipe": "blockwise"},
        trial={"tp": 2},
        mended_trial={"tp": 1},
    ),
    Example(
        "F21",
        ("enable_primus_turbo true", "use_turbo_gemm true", "use_turbo_grouped_gemm true"),
        "moe",
        arguments={"fp8": "e4m3", "fp8_recipe": "blockwise"},
        mended_gpu="h100",
    ),
    Example("F11", ("32-element", "mi300x"), gpu="mi300x", trial={"fp8": "mxfp8"}, mended_gpu="mi355x"),
    Example(
        "F12", ("TP 8", "1793", "16"), arguments={"ffn_hidden_size": 14344}, trial={"tp": 8, "fp8": "hybrid"}, mended_trial={"fp8": "none"}
    ),
    Example("F13", ("14400", "128"), arguments={"ffn_hidden_size": 14400}, trial={"fp8": "mxfp8"}, mended_gpu="b200"),
    Example("F13", ("TP 1", "14352", "128"), arguments={"ffn_hidden_size": 14352}, trial={"fp8": "mxfp8"}, mended_trial={"fp8": "hybrid"}),
    Example(
        "F18",
        ("hybrid", "stage 1"),
        "moe",
        {"turbo_grouped_gemm_without_padding": True, "use_turbo_grouped_gemm": True},
        {"sync_free_stage": 1, "fp8": "hybrid"},
        mended_trial={"fp8": "none"},
    ),
    Example(
        "F18",
        ("EP 8", "use_turbo_grouped_gemm true"),
        "moe",
        {"turbo_grouped_gemm_without_padding": True, "enable_primus_turbo": True},
        mended_arguments={"use_turbo_grouped_gemm": True},
    ),
    Example("mla-tensorwise", ("delayed", "512"), "latent", trial={"fp8": "delayed"}, mended_trial={"fp8": "hybrid"}),
]
