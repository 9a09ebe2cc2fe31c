"""What the schedules that are planned from costs plan with, from the configuration."""

from __future__ import annotations

from dataclasses import replace

from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.pipeline.heuristic import PlannerCosts, default_costs


def planner_of(config: TrainingConfig) -> PlannerCosts | None:
    """Primus's defaults with what the configuration sets; None where it sets nothing, or its schedule plans nothing.

    The solved schedule has 1F1B's memory, PP live micro-batches a rank, unless `pp_max_mem` names another.
    """
    default = default_costs(config.pp)
    if config.schedule == "seaailab-ilp":
        return replace(default, caps=config.pp_max_mem or (float(config.pp),) * config.pp)
    planner = replace(
        default,
        forward=config.pp_cost_f or default.forward,
        backward=config.pp_cost_b or default.backward,
        weight=config.pp_cost_w or default.weight,
        caps=config.pp_max_mem,
    )
    return None if planner == default else planner
