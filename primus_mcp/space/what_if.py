"""Schedules that no key of the trainer selects: priced beside the others to show what they would gain, never legal in a search."""

from __future__ import annotations

from dataclasses import replace

from primus_mcp.inputs.training import TWO_COPY_SCHEDULES, V_SCHEDULES, TrainingConfig, WhatIfSchedule

WHAT_IF_SCHEDULES: dict[WhatIfSchedule, str] = {
    "seaailab-ilp": "it exists in Primus's projection tool only, which solves for it when Megatron's zero-bubble fork is importable",
    "dualpipe": "neither Primus nor Megatron-LM has a bidirectional schedule, nor a second copy of the model on each rank",
    "dualpipe-v": "neither Primus nor Megatron-LM has it; zbv-formatted places its stages alike",
}
"""Name to why it cannot run."""


def what_if(config: TrainingConfig, schedule: WhatIfSchedule) -> TrainingConfig:
    """A configuration of a runnable split-backward schedule with another order.

    The V forms take VPP 2; two copies of the model split its layers over PP stages, as VPP 1 does. Sizes are judged when it is priced.
    """
    vpp = 2 if schedule in V_SCHEDULES else 1
    split = 1 if schedule in TWO_COPY_SCHEDULES else vpp
    layout = config.pipeline_layout if config.vpp == split else None
    return replace(config, schedule=schedule, vpp=vpp, pipeline_layout=layout)
