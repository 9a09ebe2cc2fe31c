"""What torch FSDP2 holds beside its shards, alone and under torch.distributed.pipelining (TorchTitan; Megatron's FSDP2 needs PP 1).

Known error: read in source, no Megatron run states it; TorchTitan runs miss by 6% on average and up to 12% (ring CP 8, interleaved).
"""

from __future__ import annotations

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.memory.activations.settings import ActivationSettings, wraps_ends
from primus_mcp.projection.memory.stage import Stage
from primus_mcp.projection.parameters import embedding_parameters, final_norm_parameters, head_parameters
from primus_mcp.units import BF16_BYTES, FP8_BYTES


def unsharded_bytes(stage: Stage, arch: Architecture, config: TrainingConfig) -> float:
    """Gathered parameters and their gradients. w: bytes a gathered element, 2, or 1 where layers are gathered in FP8.

    PP 1: one gathered layer and the root group in BF16, with the BF16 gradient of what the root's backward pass waits for. Root of
    Megatron and Primus: the final norm; embedding and output matrix are units of their own (`activations.ends`). Of TorchTitan: these
    too, the gradient of norm and output matrix waiting for the embedding's at the very end. While a layer runs its operations hold more
    (`activations.gathered`).
    PP > 1: the whole stage stays gathered. Its gradients accumulate unsharded in fp32 (`Peak.gradients_bytes`); they are reduced after
    the last backward, when no activation is alive.
    Source: torch fully_shard with reshard_after_forward, torch/distributed/pipelining/stage.py (post_backward after the last chunk),
    Megatron-LM core/distributed/torch_fully_sharded_data_parallel.py.
    """
    gathered, layer = FP8_BYTES if config.fp8_param_gather else BF16_BYTES, stage.largest_layer_parameters
    if config.pp == 1:
        norm = final_norm_parameters(arch).total
        if wraps_ends(config):
            return layer * gathered + 2 * norm * BF16_BYTES
        embedding, head = embedding_parameters(arch, config.tp).total, head_parameters(arch, config.tp).total
        with_gradient = norm + head
        weight_alone = 0 if arch.tied_embeddings else embedding
        return layer * gathered + (2 * with_gradient + weight_alone) * BF16_BYTES
    ends = stage.parameters.total - stage.layer_parameters
    return stage.layer_parameters * gathered + ends * BF16_BYTES


def pipeline_buffers_bytes(
    stage: Stage, config: TrainingConfig, settings: ActivationSettings, live_chunks: int, micro_batches: int
) -> float:
    """torch.distributed.pipelining frees nothing between stages: outputs of live chunks until their backward, receive buffers of every
    micro-batch and chunk (activation and gradient; one of them at the ends), the logits of every micro-batch on the last rank.

    Megatron frees stage outputs (deallocate_pipeline_outputs): 0 without FSDP2 and PP > 1. Source: torch/distributed/pipelining/stage.py.
    """
    if not config.use_torch_fsdp2 or config.pp == 1:
        return 0.0
    directions = 1 if config.vpp == 1 and (stage.has_loss or stage.rank == 0) else 2
    logits = settings.tokens * settings.arch.padded_vocab_size(config.tp) / config.tp * BF16_BYTES if stage.has_loss else 0.0
    return (live_chunks + directions * micro_batches * config.vpp) * settings.hidden_bytes + micro_batches * logits
