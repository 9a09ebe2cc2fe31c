"""Linear layers, attention cores and grouped GEMMs from the family that the target runs, or else from plain torch.

Each factory returns a callable with its weights inside. The adapters are thin: they build what the family offers and nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch.nn import functional

from primus_mcp.measurement.job import Family, Kernels, Operator
from primus_mcp.measurement.worker.device import Device

Call = Callable[..., torch.Tensor]
_MODULES: dict[Family, str] = {"te": "transformer_engine", "turbo": "primus_turbo"}


def available(family: Family) -> bool:
    """Whether a family can be imported here."""
    return family == "torch" or find_spec(_MODULES[family]) is not None


class Layers:
    """The factories of one rank. `families` says what was really used; `weights` collects parameters of the unit that is being built."""

    def __init__(self, device: Device, wanted: Kernels) -> None:
        self.device = device
        usable = device.kind == "gpu"
        self.families: dict[Operator, Family] = {
            operator: family if usable and available(family) else "torch" for operator, family in wanted.items()
        }
        self.weights: list[torch.Tensor] = []

    def _weight(self, *shape: int) -> torch.Tensor:
        weight = self.device.tensor(*shape, grad=True)
        self.weights.append(weight)
        return weight

    def _module(self, module: Any) -> Any:
        self.weights.extend(module.parameters())
        return module

    def linear(self, inputs: int, outputs: int) -> Call:
        """A linear layer without bias."""
        family = self.families.get("linear", "torch")
        if family == "te":
            import transformer_engine.pytorch as te

            module: Call = self._module(te.Linear(inputs, outputs, bias=False, params_dtype=self.device.dtype, device=self.device.target))
            return module
        weight = self._weight(outputs, inputs)
        if family == "turbo":
            from primus_turbo.pytorch.ops import gemm

            return lambda x: gemm(x, weight, trans_b=True)
        return lambda x: functional.linear(x, weight)

    def norm(self, width: int) -> Call:
        """RMSNorm: Transformer Engine's beside its linears."""
        if self.families.get("linear") == "te":
            import transformer_engine.pytorch as te

            module: Call = self._module(te.RMSNorm(width, params_dtype=self.device.dtype, device=self.device.target))
            return module
        weight = self._weight(width)
        return lambda x: functional.rms_norm(x, (width,), weight)

    def attention(self, sizes: dict[str, int]) -> Call:
        """The causal core over q, k, v of [batch, sequence, heads, dim]."""
        family, window = self.families.get("attention", "torch"), sizes["window"]
        if family == "te":
            import transformer_engine.pytorch as te

            dims = sizes["qk_dim"] if sizes["qk_dim"] == sizes["v_dim"] else (sizes["qk_dim"], sizes["v_dim"])
            kind = {"attn_mask_type": "causal", "qkv_format": "bshd", "num_gqa_groups": sizes["groups"], "attention_dropout": 0.0}
            if window:
                kind["window_size"] = (window - 1, 0)
            core: Call = te.DotProductAttention(sizes["heads"], dims, **kind)
            return core
        if family == "turbo":
            from primus_turbo.pytorch.ops import flash_attn_func

            return lambda q, k, v: flash_attn_func(q, k, v, causal=True)
        return _torch_attention(sizes, self.device)

    def grouped(self, experts: int, inputs: int, outputs: int, counts: list[int]) -> Call:
        """One GEMM an expert over `counts` rows each."""
        family = self.families.get("experts", "torch")
        if family == "te":
            import transformer_engine.pytorch as te

            made = te.GroupedLinear(experts, inputs, outputs, bias=False, params_dtype=self.device.dtype, device=self.device.target)
            module = self._module(made)
            return lambda x: module(x, counts)
        weight = self._weight(experts, inputs, outputs)
        if family == "turbo":
            from primus_turbo.pytorch.ops import grouped_gemm

            lengths = torch.tensor(counts, dtype=torch.int64, device=self.device.target)
            return lambda x: grouped_gemm(x, weight, lengths)
        return lambda x: torch.cat([rows @ weight[index] for index, rows in enumerate(x.split(counts))])


def _torch_attention(sizes: dict[str, int], device: Device) -> Call:
    mask = None
    if sizes["window"]:
        position = torch.arange(sizes["seq"], device=device.target)
        distance = position[:, None] - position[None, :]
        mask = (distance >= 0) & (distance < sizes["window"])
    grouped = sizes["heads"] != sizes["groups"]

    def core(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out = functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask, is_causal=mask is None, enable_gqa=grouped
        )
        return out.transpose(1, 2)

    return core


def activation(x: torch.Tensor, *, gated: bool) -> torch.Tensor:
    """SwiGLU over the two halves, or GELU."""
    if not gated:
        return functional.gelu(x)
    gate, value = x.chunk(2, dim=-1)
    return functional.silu(gate) * value
