"""The winner's pipeline is drawn as it is priced."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from workload_cases import evaluator_of

from primus_mcp.projection.performance import project_performance
from primus_mcp.search.sweep_result import SweepResult
from primus_mcp.search.sweep_timeline import MAX_TASKS, winner_timeline
from primus_mcp.space.knobs import TrialConfig

OVERLAP = {"overlap_moe_expert_parallel_comm": True, "overlap_p2p_comm": True}
INTERLEAVED = {"pipeline_model_parallel_size": 4, "num_virtual_stages_per_pipeline_rank": 2}


def drawn(tmp_path: Path, micro_batches: int, overrides: dict[str, Any]) -> tuple[list[tuple[int, str, int, int, float, float]], float]:
    """(tasks, latest end of a rank as projected) of Qwen3-30B's own settings on 32 MI355X."""
    run = {"expert_model_parallel_size": 8, "global_batch_size": 8 * micro_batches, **overrides}
    evaluator = evaluator_of(tmp_path, "qwen3_30B_A3B", "mi355x", 4, **run)
    won = cast("SweepResult", SimpleNamespace(best=SimpleNamespace(trial={})))
    config = evaluator.rules.check(TrialConfig()).config
    assert config is not None
    projected = project_performance(evaluator.workload.architecture, config, evaluator.cluster, gemm_backend="roofline")
    return winner_timeline(evaluator, won), max(projected.rank_end_s)


@pytest.mark.parametrize(
    "overrides",
    [INTERLEAVED, INTERLEAVED | OVERLAP, {"pipeline_model_parallel_size": 4}],
    ids=["interleaved", "interleaved with overlapped exchange", "1f1b"],
)
def test_what_is_drawn_ends_when_the_projection_says(tmp_path: Path, overrides: dict[str, Any]) -> None:
    tasks, end_s = drawn(tmp_path, 16, overrides)
    # A rank that waits for its transfers ends one transfer after its last task.
    assert max(task[5] for task in tasks) == pytest.approx(end_s, rel=1e-3)


def test_overlapped_exchange_is_drawn_in_pairs(tmp_path: Path) -> None:
    tasks, _ = drawn(tmp_path, 16, INTERLEAVED | OVERLAP)
    spans = {(rank, start, end) for rank, kind, _, _, start, end in tasks if kind == "F"}
    paired = [task for task in tasks if task[1] == "D" and (task[0], task[4], task[5]) in spans]
    alone, _ = drawn(tmp_path, 16, INTERLEAVED)
    assert len(paired) > len(tasks) / 4
    assert not {(task[0], task[4]) for task in alone if task[1] == "D"} & {(task[0], task[4]) for task in alone if task[1] == "F"}


def test_a_long_pipeline_is_cut_to_a_number_that_its_order_has(tmp_path: Path) -> None:
    tasks, _ = drawn(tmp_path, 1000, INTERLEAVED)
    shown = {task[2] for task in tasks}
    assert len(tasks) <= 2 * MAX_TASKS
    assert len(shown) % 4 == 0
    assert shown == set(range(len(shown)))
