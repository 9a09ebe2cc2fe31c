"""Linear layers, attention cores and grouped GEMMs from the family that the target runs, or else from the first that is installed.

Each factory returns a callable with its weights inside. The adapters are thin: they build what the family offers and nothing more.
Signatures are those of primus_turbo (AMD-AGI/Primus-Turbo@e7007f34, @030adb50), transformer_engine.pytorch 2.x and megatron-core 0.16.1;
only megatron-core and plain torch have run, and only on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch.nn import functional

from primus_mcp.measurement.job import DeviceKind, Family, Kernels, Operator
from primus_mcp.measurement.worker import megatron
from primus_mcp.measurement.worker.device import Device

Call = Callable[..., torch.Tensor]
ORDER: tuple[Family, ...] = ("turbo", "te", "megatron-core", "torch")
_MODULES: dict[Family, str] = {"turbo": "primus_turbo.pytorch", "te": "transformer_engine.pytorch", "megatron-core": "megatron.core"}


def available(family: Family) -> bool:
    """Whether a family can be imported here: one that is there but does not fit this torch or driver counts as absent."""
    if family == "torch":
        return True
    try:
        import_module(_MODULES[family])
    except (ImportError, OSError, RuntimeError, AttributeError):
        return False
    return True


def _runs(family: Family, operator: Operator, kind: DeviceKind) -> bool:
    """On a CPU: plain torch, and what of Megatron-Core needs no GPU."""
    on_cpu = family == "torch" or (family == "megatron-core" and operator != "attention")
    return (kind == "gpu" or on_cpu) and available(family)


def chosen(operator: Operator, wanted: Family, kind: DeviceKind) -> Family:
    """The wanted family, or the first of ORDER that runs here. Plain torch stays plain torch."""
    candidates = (wanted,) if wanted == "torch" else (wanted, *ORDER)
    return next(family for family in candidates if _runs(family, operator, kind))


class Layers:
    """The factories of one rank. `families` says what was really used; `weights` collects parameters of the unit that is being built."""

    def __init__(self, device: Device, wanted: Kernels) -> None:
        self.device = device
        self.families: dict[Operator, Family] = {operator: chosen(operator, family, device.kind) for operator, family in wanted.items()}
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
        if family == "megatron-core":
            parallel = self._module(megatron.linear(self.device, inputs, outputs))
            return lambda x: parallel(x)[0]
        weight = self._weight(outputs, inputs)
        if family == "turbo":
            from primus_turbo.pytorch.ops import gemm

            # by position: the names of its transposition flags changed; it takes matrices only
            return lambda x: gemm(x.reshape(-1, inputs), weight, False, True).reshape(*x.shape[:-1], outputs)
        return lambda x: functional.linear(x, weight)

    def norm(self, width: int) -> Call:
        """RMSNorm: of the family of the linears where it has one (Primus-Turbo's models keep Transformer Engine's)."""
        family = self.families.get("linear", "torch")
        if family == "megatron-core":
            return self._module(megatron.norm(self.device, width))  # type: ignore[no-any-return]
        if family == "te" or (family == "turbo" and available("te")):
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

            reach = (window - 1, 0) if window else (-1, -1)
            return lambda q, k, v: flash_attn_func(q, k, v, causal=True, window_size=reach)
        if family == "megatron-core":
            return megatron.attention(self.device, sizes)
        return _torch_attention(sizes, self.device)

    def grouped(self, experts: int, inputs: int, outputs: int, counts: list[int]) -> Call:
        """One GEMM an expert over `counts` rows each."""
        family = self.families.get("experts", "torch")
        if family == "te":
            import transformer_engine.pytorch as te

            made = te.GroupedLinear(experts, inputs, outputs, bias=False, params_dtype=self.device.dtype, device=self.device.target)
            module = self._module(made)
            return lambda x: module(x, counts)
        if family == "megatron-core":
            each = [self._module(megatron.linear(self.device, inputs, outputs)) for _ in range(experts)]
            return lambda x: torch.cat([expert(rows)[0] for expert, rows in zip(each, x.split(counts), strict=True)])
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
