"""Examples of the rules on degrees, layer splits, schedules and batches."""

from __future__ import annotations

from rule_example import Example

from primus_mcp.inputs.architecture import GatedDeltaNet, Mamba2, ShortConvolution, SparseIndexer

TURBO_SINKS = {"enable_primus_turbo": True, "use_turbo_attention": True, "use_sink_attention": True}
DELTA_NET = GatedDeltaNet(key_heads=4, key_head_dim=128, value_heads=8, value_head_dim=128, kernel=4)
PATCHED = {
    "patch_primus_pipeline": True,
    "pp_algorithm": "1f1b",
    "overlap_grad_reduce": False,
    "overlap_param_gather": False,
    "pipeline_model_parallel_size": 4,
}
ZB = PATCHED | {
    "patch_primus_pipeline": False,
    "patch_zero_bubble": True,
    "create_attention_mask_in_dataloader": False,
    "enable_zero_bubble": True,
}

EXAMPLES = [
    # what a trial asks for
    Example("S1", ("seaailab-ilp", "7 values"), trial={"pp": 4, "pp_schedule": "seaailab-ilp"}, mended_trial={"pp_schedule": "zerobubble"}),
    Example("S1", ("dualpipe", "second copy"), trial={"pp": 4, "pp_schedule": "dualpipe"}, mended_trial={"pp_schedule": "zerobubble"}),
    Example("Z1", ("PP > 1", "PP is 1"), trial={"pp_schedule": "zerobubble"}, mended_trial={"pp": 4}),
    Example(
        "zero-bubble-agrees",
        ("zerobubble", "1 of the 2"),
        trial={"pp": 4, "pp_schedule": "zerobubble", "enable_zero_bubble": False},
        mended_trial={"enable_zero_bubble": True},
    ),
    Example("R2", ("recompute_num_layers 3", "none"), trial={"recompute_num_layers": 3}, mended_trial={"recompute_granularity": "full"}),
    Example(
        "recompute-within-stage",
        ("9", "8 layers"),
        trial={"pp": 4, "recompute_granularity": "full", "recompute_num_layers": 9},
        mended_trial={"recompute_num_layers": 8},
    ),
    Example(
        "O3", ("1 of the 2",), trial={"use_torch_fsdp2": True, "use_distributed_optimizer": True}, mended_trial={"use_torch_fsdp2": False}
    ),
    Example(
        "E16", ("sync_free_stage 2",), "moe", trial={"use_turbo_deepep": False, "sync_free_stage": 2}, mended_trial={"sync_free_stage": 1}
    ),
    Example("moe-only", ("use_turbo_deepep true", "0 experts"), trial={"use_turbo_deepep": True}, mended_trial={"use_turbo_deepep": False}),
    Example("target-ep-divides", ("3", "8 experts"), "moe", trial={"target_ep_size": 3}, mended_trial={"target_ep_size": 4}),
    # degrees
    Example("W1", ("32 GPUs", "TP 4 x PP 3 x CP 1 = 12"), trial={"tp": 4, "pp": 3}, mended_trial={"pp": 2}),
    Example("W2", ("32 GPUs", "ETP 1 x EP 8 x PP 8 = 64"), "moe", trial={"pp": 8}, mended_trial={"pp": 4}),
    Example("T1", ("32 attention heads", "TP 3"), nodes=3, trial={"tp": 3}, mended_trial={"tp": 2}),
    Example(
        "T2",
        ("12 query groups", "TP 8"),
        arguments={"num_attention_heads": 48, "hidden_size": 6144, "num_query_groups": 12},
        trial={"tp": 8},
        mended_trial={"tp": 4},
    ),
    Example("T6", ("FFN width 14340", "TP 8"), arguments={"ffn_hidden_size": 14340}, trial={"tp": 8}, mended_trial={"tp": 4}),
    Example(
        "T7", ("1412", "ETP 8"), "moe", {"moe_ffn_hidden_size": 1412}, {"tp": 8, "ep": 1}, mended_trial={"expert_tensor_parallel_size": 4}
    ),
    Example(
        "T11", ("TP 2", "sequence_parallel"), "moe", {"tensor_model_parallel_size": 2, "sequence_parallel": False}, mended_trial={"tp": 2}
    ),
    Example("T12", ("4100", "1025", "TP 2"), arguments={"seq_length": 4100}, trial={"tp": 2, "cp": 4}, mended_trial={"tp": 1, "cp": 2}),
    Example(
        "T16",
        ("TP is 2",),
        arguments={"use_turbo_gemm": True, "enable_primus_turbo": True, "tensor_model_parallel_size": 2},
        mended_trial={"tp": 2},
    ),
    Example("T18", ("it is 2",), "moe", {"add_bias_linear": True}, {"tp": 2, "ep": 4}, mended_trial={"expert_tensor_parallel_size": 1}),
    Example("C1", ("8192", "CP 3 = 6"), nodes=3, trial={"cp": 3}, mended_trial={"cp": 2}, arguments={"global_batch_size": 768}),
    Example(
        "C2",
        ("product CP 4", "[2]"),
        arguments={"context_parallel_size": 4, "cp_comm_type": "a2a+p2p", "hierarchical_context_parallel_sizes": [2]},
        mended_arguments={"hierarchical_context_parallel_sizes": [2, 2]},
    ),
    Example("C4", ("'allgather'", "CP 2"), arguments={"context_parallel_size": 2, "cp_comm_type": "allgather"}, mended_trial={"cp": 1}),
    Example(
        "C5",
        ("4 heads and 1 query groups", "CP 2"),
        arguments={"context_parallel_size": 2, "cp_comm_type": "a2a"},
        trial={"tp": 8},
        mended_trial={"tp": 4},
    ),
    Example(
        "C6",
        ("window 128", "CP 2", "p2p"),
        arguments={"window_size": [128, 0], "context_parallel_size": 2},
        mended_arguments={"cp_comm_type": "all_gather"},
    ),
    Example(
        "C13",
        ("8 query groups", "CP 16"),
        arguments={"enable_primus_turbo": True, "use_turbo_attention": True, "context_parallel_size": 16},
        nodes=8,
        mended_trial={"cp": 1},
    ),
    Example("C15", ("CP 2", "TP 1"), arguments=TURBO_SINKS | {"context_parallel_size": 2}, mended_trial={"cp": 1}),
    Example("C15", ("CP 1", "TP 2"), arguments=TURBO_SINKS, trial={"tp": 2}, mended_trial={"tp": 1}),
    Example(
        "C10",
        ("top 2048", "CP is 2"),
        "latent",
        trial={"cp": 2},
        mended_trial={"cp": 1},
        architecture={"sparse_indexer": SparseIndexer(heads=32, head_dim=128, top_k=2048)},
    ),
    Example("T19", ("4 key and 8 value heads", "TP 8"), trial={"tp": 8}, mended_trial={"tp": 4}, architecture={"mixer": DELTA_NET}),
    Example(
        "L20",
        ("VPP is 2",),
        trial={"pp": 4, "vpp": 2},
        mended_trial={"vpp": 1},
        architecture={"mixer": ShortConvolution(kernel=3), "layer_kinds": ("mixer_alone", "mlp_alone") * 16},
    ),
    Example(
        "mamba-tp",
        ("4 groups", "TP 8"),
        trial={"tp": 8},
        mended_trial={"tp": 4},
        architecture={"mixer": Mamba2(heads=32, head_dim=64, state_dim=64, groups=4, kernel=4)},
    ),
    Example(
        "lora-fsdp2",
        ("use_torch_fsdp2 false",),
        arguments={"stage": "sft", "lora": {"enabled": True}},
        trial={"use_torch_fsdp2": True, "use_distributed_optimizer": False},
        mended_trial={"use_torch_fsdp2": False},
    ),
    Example(
        "LR1",
        ("lora.dim 4", "TP 8"),
        arguments={"stage": "sft", "lora": {"enabled": True, "dim": 4}},
        trial={"tp": 8},
        mended_trial={"tp": 4},
    ),
    Example(
        "LR2",
        ("linear_fc1 and linear_fc2",),
        "moe",
        arguments={"stage": "sft", "enable_primus_turbo": True, "use_turbo_grouped_gemm": True, "lora": {"enabled": True}},
        trial={"ep": 8},
        mended_arguments={"lora": {"enabled": True, "target_modules": ["linear_qkv", "linear_proj"]}},
    ),
    Example("mixer-cp", ("not 2",), trial={"cp": 2}, mended_trial={"cp": 1}, architecture={"mixer": ShortConvolution(kernel=3)}),
    Example("T19", ("CP is 2",), trial={"cp": 2}, mended_trial={"cp": 1}, architecture={"mixer": DELTA_NET}),
    Example(
        "tp-divides-hidden", ("4100", "TP 8"), arguments={"hidden_size": 4100, "kv_channels": 128}, trial={"tp": 8}, mended_trial={"tp": 4}
    ),
    Example("tp-within-node", ("TP 16", "8 GPUs"), trial={"tp": 16}, mended_trial={"tp": 8}),
    Example(
        "etp-one-or-tp",
        ("4", "TP 2"),
        "moe",
        trial={"tp": 2, "ep": 1, "expert_tensor_parallel_size": 4},
        mended_trial={"expert_tensor_parallel_size": 2},
    ),
    Example("cp-within-node", ("CP 8", "EP 4"), "moe", trial={"cp": 8, "ep": 4}, mended_trial={"cp": 4}),
    # layer splits
    Example("P1", ("32 stages", "30 layers"), arguments={"num_layers": 30}, trial={"pp": 32}, mended_trial={"pp": 16}),
    Example("L3", ("30 decoder layers", "4"), arguments={"num_layers": 30, "pipeline_model_parallel_size": 4}, mended_trial={"pp": 4}),
    Example("L6", ("VPP 2", "PP is 1"), trial={"vpp": 2}, mended_trial={"pp": 2}),
    Example(
        "L6", ("PP 2 needs overlap_p2p_comm",), arguments={"overlap_p2p_comm": False}, trial={"pp": 2, "vpp": 2}, mended_trial={"pp": 4}
    ),
    Example(
        "L12",
        ("1 keys",),
        arguments={
            "pipeline_model_parallel_size": 2,
            "pipeline_model_parallel_layout": "Et*16|t*16L",
            "account_for_loss_in_pipeline_split": True,
        },
        mended_trial={"pp": 1},
    ),
    Example(
        "L15",
        ("has 1 MTP layers", "mtp_num_layers is 2"),
        arguments={"pipeline_model_parallel_size": 2, "mtp_num_layers": 2, "pipeline_model_parallel_layout": "Et*16|t*16mL"},
        mended_arguments={"pipeline_model_parallel_layout": "Et*16|t*16mmL"},
    ),
    Example(
        "L15",
        ("2 MTP layers", "2 stages"),
        arguments={"pipeline_model_parallel_size": 4, "mtp_num_layers": 2, "pipeline_model_parallel_layout": "Et*16|t*16|m|mL"},
        mended_trial={"pp": 4},
    ),
    Example("L22", ("PP > 1 (it is 1)",), arguments={"defer_embedding_wgrad_compute": True}, mended_trial={"pp": 2}),
    Example(
        "L22",
        ("PP 2", "gradient_accumulation_fusion true", "it is -1"),
        arguments={"defer_embedding_wgrad_compute": True, "gradient_accumulation_fusion": False, "wgrad_deferral_limit": -1},
        trial={"pp": 2},
        mended_arguments={"gradient_accumulation_fusion": True, "wgrad_deferral_limit": 0},
    ),
    Example("vpp-limit", ("VPP 16", "8"), trial={"pp": 2, "vpp": 16}, mended_trial={"vpp": 8}),
    Example(
        "v-layout",
        ("PP 4 x VPP 2", "30 layers"),
        arguments={"num_layers": 30},
        trial={"pp": 4, "vpp": 2, "pp_schedule": "zbv-formatted"},
        mended_arguments={"num_layers": 32},
    ),
    # schedules
    Example("B4", ("PP 8", "micro-batches 4"), trial={"pp": 8, "vpp": 2, "mbs": 16}, mended_trial={"mbs": 8}),
    Example(
        "B5",
        ("micro-batches 12", "groups of 8", "4 are left"),
        arguments={"global_batch_size": 96},
        trial={"pp": 8, "vpp": 2, "mbs": 2},
        mended_trial={"mbs": 1},
    ),
    Example(
        "interleave-groups",
        ("micro-batches 12", "PP 8"),
        arguments={"global_batch_size": 96},
        trial={"pp": 8, "vpp": 2, "mbs": 2},
        mended_trial={"mbs": 1},
    ),
    Example("S2", ("VPP 1", "VPP is 2"), trial={"pp": 4, "vpp": 2, "pp_schedule": "zerobubble"}, mended_trial={"vpp": 1}),
    Example("S3", ("VPP 2", "VPP is 1"), trial={"pp": 4, "pp_schedule": "zbv-formatted"}, mended_trial={"vpp": 2}),
    Example("S4", ("VPP is 1",), arguments=PATCHED | {"pp_algorithm": "1f1b-interleaved"}, mended_trial={"vpp": 1}),
    Example("S5", (">= PP - 1 = 7", "there are 4"), arguments=PATCHED, trial={"pp": 8, "mbs": 16}, mended_trial={"mbs": 8}),
    Example("S6", ("PP 4", ">= 8", "there are 4"), arguments=PATCHED, trial={"vpp": 2, "mbs": 8}, mended_trial={"mbs": 4}),
    Example(
        "S7",
        ("2 x PP - 1 = 15", "there are 8"),
        trial={"pp": 8, "vpp": 2, "pp_schedule": "zbv-formatted", "mbs": 8},
        mended_trial={"mbs": 4},
    ),
    Example("S9", ("eval_iters 0", "it is 32"), arguments=PATCHED | {"eval_iters": 32}, mended_trial={"pp_schedule": "zerobubble"}),
    Example(
        "S10",
        ("PP 4", "true"),
        trial={"pp": 4, "pp_schedule": "zerobubble", "overlap_grad_reduce": True},
        mended_trial={"overlap_grad_reduce": False},
    ),
    Example(
        "S12",
        ("PP 4", "gradient_accumulation_fusion"),
        arguments=PATCHED | {"gradient_accumulation_fusion": False},
        mended_trial={"pp_schedule": "zerobubble"},
    ),
    Example(
        "S11",
        ("PP 4", "hybrid"),
        arguments={"use_turbo_gemm": True, "enable_primus_turbo": True},
        trial={"pp": 4, "pp_schedule": "zerobubble", "fp8": "hybrid"},
        mended_trial={"fp8": "none"},
    ),
    Example(
        "S13",
        ("PP 4",),
        arguments=PATCHED | {"tp_comm_overlap": True, "tensor_model_parallel_size": 2},
        mended_trial={"pp_schedule": "zerobubble"},
    ),
    Example("Z2", ("PP 4",), arguments=ZB | {"overlap_grad_reduce": True}, mended_trial={"overlap_grad_reduce": False}),
    Example("Z4", ("CP is 2",), arguments=ZB, trial={"cp": 2}, mended_trial={"cp": 1}),
    Example("Z5", ("VPP 2",), arguments=ZB, trial={"vpp": 2}, mended_trial={"pp_schedule": "auto"}),
    Example(
        "Z5",
        ("VPP 2", "interleave_group_size >= 1"),
        arguments=ZB | {"enable_zero_bubble": False},
        trial={"vpp": 2},
        mended_arguments={"interleave_group_size": 4},
    ),
    Example("Z10", ("PP 4",), arguments=ZB | {"create_attention_mask_in_dataloader": True}, mended_trial={"pp_schedule": "zerobubble"}),
    Example("E13", ("EP 8", "PP 4", "VPP 1"), "moe", {"overlap_moe_expert_parallel_comm": True}, {"pp": 4}, mended_trial={"vpp": 2}),
    Example("E13", ("EP 8", "PP 2", "VPP 1"), "moe", {"overlap_moe_expert_parallel_comm": True}, {"pp": 2}, mended_trial={"pp": 1}),
    Example("E13", ("EP 1", "PP 1"), "moe", {"overlap_moe_expert_parallel_comm": True}, {"ep": 1}, mended_trial={"ep": 2}),
    Example(
        "E13",
        ("full",),
        "moe",
        {"overlap_moe_expert_parallel_comm": True},
        {"recompute_granularity": "full"},
        mended_trial={"recompute_granularity": "none"},
    ),
    Example(
        "split-fp8",
        ("PP 4", "hybrid"),
        trial={"pp": 4, "pp_schedule": "zerobubble", "fp8": "hybrid"},
        mended_trial={"pp_schedule": "auto"},
    ),
    Example(
        "S17",
        ("PP 4", "full"),
        trial={"pp": 4, "pp_schedule": "zerobubble", "recompute_granularity": "full"},
        mended_trial={"recompute_granularity": "none"},
    ),
    # batch
    Example("B1", ("256", "MBS 16 x DP 32 = 512"), trial={"mbs": 16}, mended_trial={"mbs": 8}),
    Example(
        "B2",
        ("from 16 by 16", "64"),
        arguments={"rampup_batch_size": [16, 16, 1000]},
        mended_arguments={"rampup_batch_size": [64, 64, 1000]},
    ),
    Example("B8", ("4096", "8192"), arguments={"max_position_embeddings": 4096}, mended_arguments={"max_position_embeddings": 8192}),
    Example("mbs-power-of-two", ("MBS 3", "2"), arguments={"global_batch_size": 96}, trial={"mbs": 3}, mended_trial={"mbs": 1}),
    Example("gbs-factors", ("GBS 320", "256"), trial={"gbs": 320}, mended_trial={"gbs": 512}),
]
