"""A linear layer, dense or grouped over experts: forward, input gradient and weight gradient with FP8 casts and gradient accumulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from primus_mcp.inputs.constants import TIME
from primus_mcp.inputs.hardware import Precision
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.record import Piece
from primus_mcp.projection.layers.settings import LayerSettings, Scaling
from primus_mcp.projection.ops.gemm import GroupedKernel, unaligned_efficiency
from primus_mcp.units import BF16_BYTES, FP8_BYTES

ALIGNED_SIDE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulation:
    """Where a weight gradient goes: `fused` adds into the main gradient inside the GEMM, else a bf16 result is added by a second pass."""

    fused: bool
    main_grad_bytes: int

    def output_bytes(self) -> float:
        """Bytes an element that the GEMM itself moves: read and write of the main gradient when fused, else one bf16 write."""
        return 2.0 * self.main_grad_bytes if self.fused else float(BF16_BYTES)

    def extra_bytes(self) -> float:
        """Bytes an element of the separate add: read the bf16 gradient, read and write the main gradient."""
        return 0.0 if self.fused else BF16_BYTES + 2.0 * self.main_grad_bytes


def accumulation(settings: LayerSettings, *, turbo: bool, legacy: bool = False) -> Accumulation:
    """TE linears fuse when the flag says so; the legacy grouped GEMM and Turbo (up to release v26.5.1) never do.

    Source: Megatron-LM distributed_data_parallel.py:444, AMD-AGI/Primus core/extensions/primus_turbo.py:240-275.
    """
    return Accumulation(fused=settings.gradient_accumulation_fusion and not turbo and not legacy, main_grad_bytes=settings.main_grad_bytes)


def _directions(
    rates: Rates, m: float, n: float, k: float, precision: Precision, groups: int, kernel: GroupedKernel, wgrad_bytes: float
) -> tuple[float, float, float]:
    """GEMM seconds of y = x W (m, n, k), dx = dy W' (m, k, n) and dW = dy' x (n, k, m)."""
    if groups == 1:
        return (
            rates.gemm_s(m, n, k, precision),
            rates.gemm_s(m, k, n, precision),
            rates.gemm_s(n, k, m, precision, output_bytes=wgrad_bytes),
        )
    return (
        rates.grouped_s(m, n, k, precision, groups, kernel),
        rates.grouped_s(m, k, n, precision, groups, kernel),
        rates.grouped_s(n, k, m, precision, groups, kernel, output_bytes=wgrad_bytes)
        / rates.cluster.profile.figures["grouped_weight_gradient_efficiency"],
    )


def _alignment(rates: Rates, outputs: float, inputs: float) -> float:
    """Rate of products whose rows are not whole blocks of the memory system, over that of the surface; tokens never matter."""
    whole = outputs % ALIGNED_SIDE == 0 and inputs % ALIGNED_SIDE == 0
    return 1.0 if whole else unaligned_efficiency(rates.gemm, rates.cluster)


def _scaling_rate(rates: Rates, scaling: Scaling) -> float:
    """Rate of FP8 products with block scales over that with one scale a tensor."""
    return 1.0 if scaling == "tensor" else rates.cluster.profile.figures[f"gemm_{scaling}_efficiency"]


def bias_gradient_rate(rates: Rates, settings: LayerSettings, precision: Precision, *, turbo: bool) -> float:
    """Rate of a weight-gradient GEMM that sums the gradient of a bias as well, over that of a plain one.

    TransformerEngine asks cuBLASLt or hipBLASLt for that sum in BF16, an epilogue that few kernels have; casts to FP8 sum on their way.
    Linears whose bias a later operation adds (attention output, both of a dense MLP, the second of experts) have none to sum. Turbo adds
    and sums in passes, 6 B an output, not priced. Source: TransformerEngine pytorch/module/linear.py and grouped_linear.py, Megatron-LM
    `skip_bias_add`.
    """
    if precision != "bf16" or turbo or not settings.bias_gradient_in_gemm:
        return 1.0
    return rates.cluster.profile.figures["gemm_bias_gradient_efficiency"]


def linear(
    rates: Rates,
    name: str,
    *,
    tokens: float,
    outputs: float,
    inputs: float,
    precision: Precision,
    cast_bytes: float,
    accumulate: Accumulation,
    scaling: Scaling = "tensor",
    trains_weights: bool = True,
    groups: int = 1,
    kernel: GroupedKernel = "persistent",
    module: str | None = None,
    cast_rows: tuple[float, float] | None = None,
    casts_input: bool = True,
    casts_gradient: bool = True,
    weight_rate: float = 1.0,
) -> Piece:
    """[tokens, inputs] x [inputs, outputs] of `groups` equal products (tokens = rows of one product).

    Sides of the weight that are no multiple of 128 lie on every contiguous dimension of all three GEMMs and slow them down.
    FP8: the input is cast in the forward pass and the output gradient in the backward pass, each once for the two GEMMs that read it;
    `cast_rows` rows of them are walked where these are not all (shards) or more than that (buffers larger than their content); a
    neighbour fused with it may hand over FP8 already. `weight_rate`: what else the weight gradient's kernel does (`bias_gradient_rate`).
    """
    products = _directions(rates, tokens, outputs, inputs, precision, groups, kernel, accumulate.output_bytes())
    rate = _alignment(rates, outputs, inputs) * _scaling_rate(rates, scaling)
    forward_s, backward_s, weight_s = (seconds / rate for seconds in products)
    weight_s /= weight_rate
    if cast_bytes:
        input_rows, gradient_rows = (tokens * groups, tokens * groups) if cast_rows is None else cast_rows
        forward_s += rates.pass_s(input_rows * inputs * cast_bytes) if casts_input else 0.0
        backward_s += rates.pass_s(gradient_rows * outputs * cast_bytes) if casts_gradient else 0.0
    weight_s += rates.pass_s(groups * outputs * inputs * accumulate.extra_bytes())
    return Piece(name=name, module=module, forward_s=forward_s, backward_s=backward_s, weight_s=weight_s if trains_weights else 0.0)


def _shard_rows(settings: LayerSettings, tokens: float) -> float:
    """Rows whose cast takes as long as that of a tensor which sequence parallelism casts in shards and gathers in FP8, c B an element.

    Block scales: Ts, both directions are gathered. One scale a tensor: c - 1 B of Ts, and the transpose of what was gathered, 2 B of T.
    """
    shard = tokens / settings.tp
    if settings.linear_scaling != "tensor" or settings.linear_precision != "fp8":
        return shard
    return shard + (2 * FP8_BYTES * tokens - FP8_BYTES * shard) / settings.linear_cast_bytes


def model_linear(
    rates: Rates,
    settings: LayerSettings,
    name: str,
    tokens: float,
    outputs: float,
    inputs: float,
    module: str | None = None,
    *,
    gathered: Literal["input", "gradient"] | None = None,
    biased: bool = False,
) -> Piece:
    """A dense linear in the precision, with the casts and the accumulation of the model's linears.

    `gathered` under sequence parallelism: the input of a column-parallel one, the output gradient of a row-parallel one.
    `biased`: it adds its bias itself.
    """
    cast_rows = None
    if gathered is not None and settings.linear_cast_bytes and settings.sequence_parallel and settings.tp > 1:
        shard = _shard_rows(settings, tokens)
        cast_rows = (shard, tokens) if gathered == "input" else (tokens, shard)
    return linear(
        rates,
        name,
        tokens=tokens,
        outputs=outputs,
        inputs=inputs,
        precision=settings.linear_precision,
        cast_bytes=settings.linear_cast_bytes,
        accumulate=accumulation(settings, turbo=settings.turbo_gemm),
        scaling=settings.linear_scaling,
        trains_weights=settings.trains_weights,
        module=module,
        cast_rows=cast_rows,
        weight_rate=bias_gradient_rate(rates, settings, settings.linear_precision, turbo=settings.turbo_gemm) if biased else 1.0,
    )


def weight_cast_s(rates: Rates, elements: float, settings: LayerSettings, precision: Precision) -> float:
    """FP8 copies of the weights, made once an iteration (`is_first_microbatch`); none when parameters are gathered in FP8."""
    if precision == "bf16" or settings.fp8_param_gather:
        return 0.0
    return rates.pass_s(elements * TIME["cast.weight"])
