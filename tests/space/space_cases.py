"""Small workloads that tests of space and search share: a dense, an MoE and an MLA model, from plain trainer arguments."""

from __future__ import annotations

from typing import Any

from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.workload import Workload, workload_from_arguments

DENSE: dict[str, Any] = {
    "num_layers": 32,
    "hidden_size": 4096,
    "ffn_hidden_size": 14336,
    "num_attention_heads": 32,
    "group_query_attention": True,
    "num_query_groups": 8,
    "seq_length": 8192,
    "max_position_embeddings": 8192,
    "swiglu": True,
    "add_bias_linear": False,
    "position_embedding_type": "rope",
    "normalization": "RMSNorm",
    "untie_embeddings_and_output_weights": True,
    "mock_data": True,
    "micro_batch_size": 2,
    "global_batch_size": 256,
    "use_distributed_optimizer": True,
    "overlap_grad_reduce": True,
    "overlap_param_gather": True,
    "gradient_accumulation_fusion": True,
    "sequence_parallel": True,
    "eval_iters": 0,
}
MOE: dict[str, Any] = DENSE | {
    "num_experts": 8,
    "moe_router_topk": 2,
    "moe_ffn_hidden_size": 14336,
    "moe_grouped_gemm": True,
    "moe_token_dispatcher_type": "alltoall",
    "moe_router_force_load_balancing": True,
    "expert_model_parallel_size": 8,
}
LATENT: dict[str, Any] = MOE | {
    "num_layers": 27,
    "hidden_size": 2048,
    "ffn_hidden_size": 10944,
    "num_attention_heads": 16,
    "group_query_attention": False,
    "num_query_groups": None,
    "multi_latent_attention": True,
    "kv_lora_rank": 512,
    "qk_head_dim": 128,
    "qk_pos_emb_head_dim": 64,
    "v_head_dim": 128,
    "num_experts": 64,
    "moe_router_topk": 6,
    "moe_ffn_hidden_size": 1408,
    "moe_shared_expert_intermediate_size": 2816,
    "moe_layer_freq": "([0]*1+[1]*26)",
    "seq_length": 4096,
    "max_position_embeddings": 4096,
}
MODELS = {"dense": DENSE, "moe": MOE, "latent": LATENT}


def make_workload(model: str = "dense", **arguments: Any) -> Workload:
    """One of the models with some trainer arguments changed."""
    document = {"modules": {"pre_trainer": {"framework": "megatron", "config": "pre_trainer.yaml", "model": "m.yaml", "overrides": {}}}}
    return workload_from_arguments(MODELS[model] | arguments, f"{model}-test", document=document)


def nodes(count: int = 4, gpu: str = "mi355x", gpus_per_node: int = 8) -> Cluster:
    """A cluster of MI355X nodes."""
    return make_cluster(gpu, num_nodes=count, gpus_per_node=gpus_per_node)
