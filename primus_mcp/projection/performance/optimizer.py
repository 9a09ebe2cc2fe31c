"""The optimizer step of one rank: gradient norm, clipping, state update, bf16 copy."""

from __future__ import annotations

from primus_mcp.inputs.constants import TIME
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.parameters import RankParameters
from primus_mcp.projection.placement import Placement
from primus_mcp.units import BF16_BYTES


def step_bytes(config: TrainingConfig) -> float:
    """HBM bytes an owned element: main parameter and moments read and written, gradient read for the norm, scaled, read again,
    bf16 copy written. SGD has one moment, Muon one (its matrix products are not priced here: see warnings).
    """
    moments = config.exp_avg_bytes + (config.exp_avg_sq_bytes if config.optimizer == "adam" else 0)
    gradient_passes = 2 + TIME["clip_passes"]
    return 2 * (config.main_param_bytes + moments) + gradient_passes * config.main_grad_bytes + BF16_BYTES


def owned_elements(config: TrainingConfig, placement: Placement, parameters: RankParameters) -> float:
    """Elements that a rank updates. Sharded: dense over DP x CP, experts over expert DP; otherwise all."""
    sharded = config.use_distributed_optimizer or config.use_torch_fsdp2
    if not sharded:
        return float(parameters.total)
    return parameters.dense / (placement.replicas * config.cp) + parameters.expert / placement.expert_replicas


def optimizer_s(rates: Rates, config: TrainingConfig, placement: Placement, parameters: RankParameters) -> float:
    """Owned elements x bytes / (eff W) + fixed."""
    owned = owned_elements(config, placement, parameters)
    bandwidth = rates.cluster.gpu.hbm_bandwidth_bytes_per_s * TIME["optimizer_hbm_efficiency"]
    return owned * step_bytes(config) / bandwidth + TIME["optimizer_fixed_s"]
