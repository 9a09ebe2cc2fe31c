"""Schedules that no trainer runs: every one is refused in a search with its reason, and priced only on a configuration that could run."""

from __future__ import annotations

from typing import get_args

import pytest
from space_cases import make_workload, nodes

from primus_mcp.inputs.training import TrainingConfig, WhatIfSchedule
from primus_mcp.space.axes import RUNNABLE_SCHEDULES
from primus_mcp.space.knobs import PipelineSchedule, TrialConfig
from primus_mcp.space.legality import check_legality
from primus_mcp.space.what_if import WHAT_IF_SCHEDULES, what_if


def test_every_value_of_the_knob_either_runs_or_says_why_not() -> None:
    assert set(get_args(PipelineSchedule)) == {*RUNNABLE_SCHEDULES, *WHAT_IF_SCHEDULES}
    assert set(get_args(WhatIfSchedule)) == set(WHAT_IF_SCHEDULES)


@pytest.mark.parametrize("schedule", sorted(WHAT_IF_SCHEDULES))
@pytest.mark.parametrize("allow_policy", [False, True])
def test_a_search_never_takes_one(schedule: WhatIfSchedule, allow_policy: bool) -> None:
    verdict = check_legality(make_workload("dense"), TrialConfig(pp=4, vpp=2, pp_schedule=schedule), nodes(), allow_policy=allow_policy)
    assert not verdict.legal
    assert WHAT_IF_SCHEDULES[schedule] in (verdict.reason or "")


def test_the_layer_split_follows_the_copies() -> None:
    one, two = TrainingConfig(pp=4, pipeline_layout="Et|t|t|tL"), TrainingConfig(pp=4, vpp=2, pipeline_layout="Et|t|t|t|t|t|t|tL")
    assert (what_if(one, "dualpipe").vpp, what_if(one, "dualpipe").pipeline_layout) == (2, one.pipeline_layout)
    assert (what_if(one, "seaailab-ilp").vpp, what_if(one, "seaailab-ilp").pipeline_layout) == (1, one.pipeline_layout)
    assert (what_if(two, "dualpipe-v").vpp, what_if(two, "dualpipe-v").pipeline_layout) == (2, two.pipeline_layout)
    assert what_if(one, "dualpipe-v").pipeline_layout is None
    assert what_if(two, "dualpipe").pipeline_layout is None
