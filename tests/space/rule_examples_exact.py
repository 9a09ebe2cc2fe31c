"""Examples of where a rule ends: what the trainer's own check asks, and what it lets pass."""

from __future__ import annotations

from typing import Any

from rule_example import Example

TURBO: dict[str, Any] = {"enable_primus_turbo": True}
FULL: dict[str, Any] = {"recompute_granularity": "full", "recompute_method": "block"}
ENTRIES: dict[str, Any] = {"cp_comm_type": ["p2p"] * 3, "context_parallel_size": 2}
OVERLAPPED: dict[str, Any] = {"overlap_moe_expert_parallel_comm": True}
VIRTUAL: dict[str, Any] = {"pipeline_model_parallel_size": 4, "num_virtual_stages_per_pipeline_rank": 2}
ZERO_BUBBLE: dict[str, Any] = {"patch_zero_bubble": True, "enable_zero_bubble": False, "interleave_group_size": 4}
SPREAD: dict[str, Any] = {"tp": 2, "expert_tensor_parallel_size": 1}

EXAMPLES = [
    # a list of one is its entry, and nothing reads it at CP 1
    Example("C3", ("3 entries",), arguments=ENTRIES, mended_arguments={"cp_comm_type": ["p2p"]}),
    Example("C3", ("3 entries",), arguments=ENTRIES, mended_trial={"cp": 1}),
    # one grouped GEMM
    Example(
        "E18",
        ("1 of the 2",),
        arguments={"use_turbo_grouped_gemm": True, "moe_use_legacy_grouped_gemm": True},
        mended_arguments={"moe_use_legacy_grouped_gemm": False},
    ),
    # groups of experts
    Example(
        "E25",
        ("topk 2", "group_topk 4"),
        "moe",
        {"moe_router_group_topk": 4, "moe_router_num_groups": 4},
        mended_arguments={"moe_router_group_topk": 2},
    ),
    Example(
        "E25",
        ("topk 6", "1 x 4 experts"),
        "moe",
        {"moe_router_group_topk": 1, "moe_router_num_groups": 2, "moe_router_topk": 6},
        mended_arguments={"moe_router_group_topk": 2},
    ),
    Example(
        "E21",
        ("it is -1.0",),
        "moe",
        {"moe_pad_expert_input_to_capacity": True, "moe_expert_capacity_factor": -1.0},
        mended_arguments={"moe_expert_capacity_factor": 1.0},
    ),
    # Primus-Turbo above TP 1, and its checks of the arguments alone
    Example(
        "turbo-tp", ("use_turbo_deepep", "TP 2"), "moe", trial=SPREAD | {"use_turbo_deepep": True}, mended_trial={"use_turbo_deepep": False}
    ),
    Example("turbo-tp", ("sync_free_stage 2", "TP 2"), "moe", trial=SPREAD | {"sync_free_stage": 2}, mended_trial={"tp": 1}),
    Example(
        "E15",
        ("stage 2", "use_turbo_grouped_gemm true"),
        "moe",
        TURBO | {"turbo_sync_free_moe_stage": 2},
        mended_arguments={"use_turbo_grouped_gemm": True},
    ),
    Example("E9", ("moe_router_dtype fp32",), arguments=TURBO | {"use_turbo_deepep": True}, mended_arguments={"moe_router_dtype": "fp32"}),
    Example("E5", ("EP 8", "alltoall"), "moe", {"moe_enable_deepep": True}, mended_arguments=TURBO | {"use_turbo_deepep": True}),
    Example("F17", ("needs fp8 or fp4",), "moe", {"moe_router_padding_for_quantization": True}, mended_trial={"fp8": "hybrid"}),
    Example(
        "F8",
        ("fp8_recipe delayed",),
        arguments={"use_turbo_gemm": True, "fp8": "hybrid", "fp8_recipe": "delayed"},
        mended_arguments={"fp8_recipe": "tensorwise"},
    ),
    Example("F3", ("fp8 (it is None)",), arguments={"fp8_param_gather": True}, mended_trial={"use_torch_fsdp2": True}),
    Example(
        "E17",
        ("stage 2", "set it to true"),
        "moe",
        TURBO | {"turbo_sync_free_moe_stage": 2, "use_turbo_grouped_gemm": True, "moe_router_dtype": "fp32"},
        mended_arguments={"use_turbo_deepep": True},
    ),
    Example(
        "P1-mtp",
        ("1", "learned_absolute"),
        arguments={"mtp_num_layers": 1, "position_embedding_type": "learned_absolute"},
        mended_arguments={"position_embedding_type": "rope"},
    ),
    # Turbo attention reads no cp_comm_type
    Example(
        "C4",
        ("'allgather' at CP 2",),
        arguments={"cp_comm_type": "allgather", "context_parallel_size": 2},
        mended_arguments=TURBO | {"use_turbo_attention": True},
    ),
    Example(
        "S2",
        ("schedule 1f1b", "VPP is 2"),
        arguments=VIRTUAL | {"patch_primus_pipeline": True, "pp_algorithm": "1f1b"},
        mended_arguments={"pp_algorithm": "1f1b-interleaved"},
    ),
    # shared experts
    Example(
        "R6",
        ("shared_experts", "2816"),
        "latent",
        {"recompute_granularity": "selective", "recompute_modules": ["shared_experts"], "moe_shared_expert_overlap": True},
        mended_trial={"use_turbo_deepep": True},
    ),
    Example(
        "T18",
        ("2816", "add_bias_linear false"),
        "latent",
        {"add_bias_linear": True},
        mended_arguments={"moe_shared_expert_intermediate_size": None},
    ),
    # the overlapped expert exchange
    Example(
        "E13",
        ("no full recompute",),
        "moe",
        OVERLAPPED | FULL | {"recompute_num_layers": 0},
        mended_trial={"recompute_granularity": "none"},
    ),
    Example(
        "E13",
        ("alltoall or DeepEP", "moe_shared_expert_overlap false"),
        "moe",
        OVERLAPPED | {"moe_token_dispatcher_type": "allgather", "moe_shared_expert_overlap": True},
        mended_trial={"use_turbo_deepep": True},
    ),
    Example("E13", ("PP > 1 with an MTP layer",), "moe", OVERLAPPED | {"mtp_num_layers": 1}, mended_arguments={"mtp_num_layers": None}),
    Example(
        "E14",
        ("patch_moe_overlap false",),
        "moe",
        OVERLAPPED | {"delay_wgrad_compute": True, "patch_moe_overlap": True},
        mended_arguments={"patch_moe_overlap": False},
    ),
    # graphs
    Example(
        "R13",
        ("0 layers",),
        arguments={"cuda_graph_impl": "transformer_engine", "recompute_num_layers": 0} | FULL,
        mended_trial={"recompute_granularity": "none"},
    ),
    Example(
        "G2",
        ("moe and moe_router",),
        "moe",
        {"cuda_graph_impl": "local", "cuda_graph_scope": "moe,moe_preprocess"},
        mended_arguments={"cuda_graph_scope": "moe_preprocess"},
    ),
    Example(
        "E13-graphs",
        ("EP 8", "cuda_graph_impl transformer_engine", "no moe"),
        "moe",
        OVERLAPPED | {"cuda_graph_impl": "local", "cuda_graph_scope": "moe"},
        mended_arguments={"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": "attn"},
    ),
    Example("W2", ("ETP 8 x EP 1 x PP 8 = 64",), arguments={"expert_tensor_parallel_size": 8}, trial={"pp": 8}, mended_trial={"pp": 4}),
    Example(
        "L3",
        ("has 32 decoder layers", "model has 4"),
        arguments={"num_layers": 4, "pipeline_model_parallel_size": 8, "pipeline_model_parallel_layout": "Et*4|" + "t*4|" * 6 + "t*4L"},
        mended_arguments={"num_layers": 32},
    ),
    # schedules of the patched pipelines at PP 1, and their interleaving
    Example("Z1-runtime", ("PP is 1",), arguments={"patch_zero_bubble": True}, mended_trial={"pp": 1}),
    Example(
        "Z9",
        ("VPP 2",),
        arguments=VIRTUAL | ZERO_BUBBLE | FULL | {"recompute_num_layers": 1},
        mended_trial={"recompute_granularity": "selective"},
    ),
    Example("S4", ("VPP is 1",), arguments={"patch_primus_pipeline": True, "pp_algorithm": "1f1b-interleaved"}, mended_trial={"pp": 1}),
    Example(
        "L15",
        ("stage 2", "4 and later"),
        "latent",
        {"pipeline_model_parallel_size": 4, "pipeline_model_parallel_layout": "Et*13|t*14|m|||||L", "mtp_num_layers": 1},
        mended_arguments={"pipeline_model_parallel_layout": "Et*13|t*14|||m|||L"},
    ),
    Example(
        "O9",
        ("optimizer adam (it is sgd)",),
        arguments={"use_precision_aware_optimizer": True, "optimizer": "sgd"},
        mended_arguments={"optimizer": "adam"},
    ),
    Example("O15", ("ddp_num_buckets 0",), arguments={"ddp_num_buckets": 0}, mended_arguments={"ddp_num_buckets": 4}),
]
