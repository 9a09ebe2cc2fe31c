"""The front on a terminal: one row a point in columns, every cluster's fastest, not more rows than one reads."""

from __future__ import annotations

import primus_mcp
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.reports.sweep_text import SHOWN_POINTS, front_text
from primus_mcp.search.pareto import FrontPoint

_RESULT = primus_mcp.evaluate("llama3_8B", "mi300x", {"mbs": 1}, gemm_backend="roofline")


def _point(nodes: int, rate: float, *, price: float | None = None, result: EvaluationResult = _RESULT) -> FrontPoint:
    return FrontPoint(
        cluster=f"mi300x_{nodes}nodes",
        gpu="mi300x",
        nodes=nodes,
        gpus=8 * nodes,
        tokens_per_s_per_gpu=rate,
        tokens_per_s=8 * nodes * rate,
        headroom_gb=rate / 100,
        mfu=None,
        usd_per_million_tokens=price,
        price_source=None,
        days=None,
        usd=None,
        trial={"mbs": 1},
        result=result,
    )


def test_too_many_points_keep_the_fastest_of_every_cluster_and_say_how_many_are_left_out() -> None:
    points = [_point(nodes, 1000.0 - 100 * level - nodes) for level in range(8) for nodes in (1, 2, 4)]
    lines = front_text(points).splitlines()
    assert len(lines) == 2 + SHOWN_POINTS + 1 and lines[-1].strip().startswith(f"{len(points) - SHOWN_POINTS} more points in --json")
    assert {line.split()[0] for line in lines[2:-1]} == {"1", "2", "4"}


def test_more_clusters_than_rows_are_all_shown() -> None:
    points = [_point(nodes, 1000.0 - nodes) for nodes in range(1, SHOWN_POINTS + 5)]
    assert len(front_text(points).splitlines()) == 2 + len(points)


def test_columns_stand_under_their_heads_and_what_nobody_knows_has_none() -> None:
    lines = front_text([_point(1, 12345.0, price=0.5), _point(16, 99.0)]).splitlines()[1:]
    assert "MFU" not in lines[0] and "days" not in lines[0] and "unknown" in lines[2]
    ends = {line.index(figure) + len(figure) for line, figure in zip(lines, ("tokens/s/GPU", "12,345", "99"), strict=True)}
    assert len(ends) == 1
    assert lines[2].endswith("the same")
