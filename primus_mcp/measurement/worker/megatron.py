"""Layers of Megatron-Core's local specification (no Transformer Engine): each rank alone, its slice as it is, so every group has one rank.

Checked against megatron-core 0.16.1, and run with it on a CPU. Its attention core keeps its scores in a GPU buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as distributed
from torch.nn import functional

from primus_mcp.measurement.worker.device import Device


@lru_cache(maxsize=1)
def _prepare() -> None:
    """Its modules ask for process groups and a random state even where one rank is alone and nothing is dropped."""
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import initialize_rng_tracker

    if not distributed.is_initialized():
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    if not parallel_state.is_initialized():
        parallel_state.initialize_model_parallel()
    initialize_rng_tracker(inference_rng_tracker=True)


def _config(device: Device, *, heads: int = 1, groups: int = 1, dim: int = 8) -> Any:
    from megatron.core.transformer.transformer_config import TransformerConfig

    _prepare()
    return TransformerConfig(
        num_layers=1,
        hidden_size=heads * dim,
        num_attention_heads=heads,
        num_query_groups=groups,
        kv_channels=dim,
        params_dtype=device.dtype,
        bf16=device.dtype is torch.bfloat16,
        use_cpu_initialization=device.kind == "cpu",
        perform_initialization=False,
        normalization="RMSNorm",
        attention_dropout=0.0,
        masked_softmax_fusion=False,
        attention_softmax_in_fp32=False,
        gradient_accumulation_fusion=False,
        add_bias_linear=False,
    )


def linear(device: Device, inputs: int, outputs: int) -> torch.nn.Module:
    """Its column-parallel linear; the call gives (output, bias)."""
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear

    module: torch.nn.Module = ColumnParallelLinear(inputs, outputs, config=_config(device), init_method=lambda weight: weight, bias=False)
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(device.tensor(*weight.shape))
    return module


def norm(device: Device, width: int) -> torch.nn.Module:
    """The norm that its local specification takes without Apex."""
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    module: torch.nn.Module = WrappedTorchNorm(_config(device), width).to(device=device.target, dtype=device.dtype)
    return module


def attention(device: Device, sizes: dict[str, int]) -> Callable[..., torch.Tensor]:
    """Its unfused core over q, k, v of [batch, sequence, heads, dim]; narrower values are padded to the width of the keys."""
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.core.transformer.enums import AttnMaskType

    dim, values = sizes["qk_dim"], sizes["v_dim"]
    config = _config(device, heads=sizes["heads"], groups=sizes["groups"], dim=dim)
    core = DotProductAttention(config, 1, AttnMaskType.causal, "self", attention_dropout=0.0)
    position = torch.arange(sizes["seq"], device=device.target)
    distance = position[:, None] - position[None, :]
    hidden = (distance < 0) | (distance >= sizes["window"]) if sizes["window"] else distance < 0

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.transpose(0, 1).contiguous() for x in (q, k, functional.pad(v, (0, dim - values))))
        out: torch.Tensor = core(q, k, v, hidden[None, None])
        return out.reshape(sizes["seq"], sizes["mbs"], -1, dim)[..., :values].transpose(0, 1)

    return call
