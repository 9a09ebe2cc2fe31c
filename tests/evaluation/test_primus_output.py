"""Primus's printed projections: recorded ones read exactly, truncated and hostile ones never give a number."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from primus_double import memory_text

from primus_mcp.evaluation.primus_output import faults, parse_memory, parse_time

MEMORY = """
  [embedding]
    Params: 0.616563 Billion (616,562,688)
    Activation Memory: 0.1875 GB
====================================================================================================
[Primus:Projection] Memory Projection Summary on Rank 0:
  Params: 6.078751 Billion (6,078,750,720.0)
  Param+Optimizer Memory: 79.2579 GB
  Activation Memory (per batch size 2, seq len 8192): 277.2500 GB
  Projected Total Memory: 356.5079 GB
====================================================================================================
"""
MEASURED = memory_text("benchmark")
TIME = """
📡 Communication Breakdown:
   gradient_allreduce: 118.240 ms (message: 24192.00 MB) [OVERLAPPED]
   moe_a2a: (included in pipeline simulation — 56 layers × 2.570 ms/layer)
   Total Communication (critical path): 0.000 ms
🎯 Target Configuration (4 nodes):
   Nodes: 4, GPUs: 32
   TP=1, PP=4, EP=8, CP=1, DP=8
   Iteration Time: 9057.780 ms (from pipeline simulation + 11.8 ms grad AR + 14.8 ms optimizer)
   Tokens/s/GPU: 3,618
====================================================================================================
"""


def test_the_summary_counts_not_the_first_line_that_looks_like_it() -> None:
    found = parse_memory(MEMORY)
    assert found is not None
    assert (found.param_optimizer_gb, found.activation_gb, found.total_gb) == (79.2579, 277.25, 356.5079)


def test_the_target_configuration_is_read_with_its_degrees() -> None:
    found = parse_time(TIME)
    assert found is not None
    assert (found.iteration_ms, found.tokens_per_s_per_gpu, found.nodes, found.gpus) == (9057.78, 3618.0, 4, 32)
    assert (found.tp, found.pp, found.ep, found.cp, found.dp) == (1, 4, 8, 1, 8)
    assert found.traffic_ms == {"gradient_allreduce": 118.24}


def test_of_several_configurations_the_last_counts() -> None:
    benchmarked = TIME.replace("9057.780", "1.000").replace("3,618", "9")
    found = parse_time(benchmarked + TIME)
    assert found is not None and found.iteration_ms == 9057.78


@given(st.integers(0, len(MEMORY)), st.integers(0, len(TIME)))
def test_a_cut_output_gives_whole_figures_or_none(memory: int, time: int) -> None:
    part, other = parse_memory(MEMORY[:memory]), parse_time(TIME[:time])
    assert part is None or (part.param_optimizer_gb, part.total_gb) == (79.2579, 356.5079)
    assert other is None or (other.iteration_ms, other.tokens_per_s_per_gpu) == (9057.78, 3618.0)


@given(st.integers(0, len(MEASURED)))
def test_a_cut_measured_report_gives_whole_figures_or_none(length: int) -> None:
    found = parse_memory(MEASURED[:length])
    assert found is None or (found.param_optimizer_gb, found.activation_gb, found.total_gb, found.upper_gb) == (38.0, 20.0, 62.5, 66.0)
    assert parse_memory(MEASURED) is not None and parse_memory(MEASURED.replace("66.000", "60.000")) is None


@given(st.text())
def test_any_text_is_answered_without_an_error(text: str) -> None:
    parse_memory(text)
    parse_time(text)
    faults(text)


@pytest.mark.parametrize(
    "text",
    [
        MEMORY.replace("356.5079", "nan"),
        MEMORY.replace("356.5079", "1e999"),
        MEMORY.replace("Projected Total Memory: 356.5079 GB", "Projected Total Memory: GB"),
        MEMORY.replace("277.2500 GB", "lots"),
        "Memory Projection Summary on Rank 0:" * 1000,
    ],
)
def test_hostile_memory_gives_no_number(text: str) -> None:
    assert parse_memory(text) is None


@pytest.mark.parametrize(
    "text",
    [
        TIME.replace("9057.780 ms", "-5 ms"),
        TIME.replace("9057.780 ms", "0 ms"),
        TIME.replace("3,618", "inf"),
        TIME.replace("TP=1, PP=4", "TP=x, PP=4"),
        TIME.replace("Nodes: 4, GPUs: 32", ""),
        TIME.replace("9057.780", "9" * 500),
    ],
)
def test_hostile_times_give_no_number(text: str) -> None:
    assert parse_time(text) is None


def test_what_the_output_says_about_itself_is_told() -> None:
    assert [code for code, _ in faults("... Max retry exceeded\n" + TIME)] == ["primus_deadlock"]
    assert [code for code, _ in faults("Traceback (most recent call last):\n  x")] == ["primus_traceback"]
    assert faults(TIME) == ()


@pytest.mark.parametrize(
    ("name", "total", "iteration", "tokens"),
    [("llama3.1_8B_1node", None, 10_339.135, 25_355.0), ("mixtral_8x22B_4nodes", 356.5079, 9057.78, 3618.0)],
)
def test_recorded_outputs(shared: Path, name: str, total: float | None, iteration: float, tokens: float) -> None:
    folder = shared / "upstream" / "stdout"
    memory = parse_memory((folder / f"memory_{name}.txt").read_text(encoding="utf-8"))
    time = parse_time((folder / f"performance_{name}.txt").read_text(encoding="utf-8"))
    assert memory is not None and time is not None
    assert total is None or memory.total_gb == total
    assert memory.param_optimizer_gb + memory.activation_gb == pytest.approx(memory.total_gb, abs=1e-3)
    assert (time.iteration_ms, time.tokens_per_s_per_gpu) == (iteration, tokens)
    assert not faults((folder / f"performance_{name}.txt").read_text(encoding="utf-8"))
