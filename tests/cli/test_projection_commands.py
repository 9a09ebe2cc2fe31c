"""`primus-mcp memory`, `performance` and `both` with the projection guide's flags."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from primus_mcp.cli.main import main
from primus_mcp.evaluation.nearest import band_words
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.projection.memory import project_memory
from primus_mcp.reports.memory_tree import branches, memory_document
from primus_mcp.reports.pipeline_trace import MAX_TASKS, chrome_trace, pipeline_trace

MOE = ["--model", "qwen3_30B_A3B", "--gpu-arch", "mi355x", "--target-nodes", "1", "--target-ep-size", "8"]
DENSE = ["--model", "llama3.1_70B", "--gpu-arch", "mi355x", "--target-nodes", "4", "--set", "pp=4", "--global-batch-size", "64"]
PNG = b"\x89PNG"


def test_memory_prints_every_rank_and_component_with_its_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    main(["memory", *DENSE])
    out = capsys.readouterr().out
    assert all(f"rank {rank}" in out for rank in range(4)) and "rank 4" not in out
    assert all(f"[{tag}]" in out for tag in ("measured", "counted", "fitted", "estimated")) and "optimizer states" in out
    assert "worst rank 0" in out and "allocated" in out and "mi355x, too large: " in out and "beyond the 287.98 GB of the GPU" in out


def test_the_branches_of_a_rank_hold_every_component_once() -> None:
    workload, cluster = workload_from_model("qwen3_30B_A3B"), make_cluster("mi355x")
    memory = project_memory(workload.architecture, workload.baseline, cluster)
    for rank in memory.ranks:
        parts = [name for found in branches(rank).values() for name in found]
        assert sorted(parts) == sorted(rank.components)
        assert sum(sum(found.values()) for found in branches(rank).values()) == rank.device_bytes
    document = memory_document(memory, cluster)
    for entry in document["ranks"]:
        assert sum(part["gb"] for part in entry["components"].values()) == pytest.approx(entry["device_gb"])


def test_exit_code_three_says_that_it_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", *MOE, "--micro-batch-size", "64", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["fits_physically"] == "does_not_fit"
    assert main(["memory", *MOE, "--micro-batch-size", "1", "--enable-deepep", "--sync-free-stage", "1", "--json"]) == 0


def test_memory_that_the_gpu_may_hold_over_the_cap_is_not_told_that_it_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    layers = ["--set", "recompute_granularity=full", "--set", "recompute_num_layers=10"]
    assert main(["memory", *MOE, "--micro-batch-size", "8", "--enable-deepep", *layers]) == 3
    out = capsys.readouterr().out
    assert (
        "over cap: " in out
        and "above the cap of 259.18 GB" in out
        and "what brings it under the cap, fastest first:" in out
        and "makes it fit" not in out
    )


def test_memory_says_what_dominates_on_which_rank_and_which_single_change_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", *MOE, "--micro-batch-size", "32"]) == 3
    out = capsys.readouterr().out
    assert "most of rank 0" in out and "expert load is priced at 1 times the mean" in out and "at 2 times the mean" in out
    assert "what makes it fit, fastest first:" in out
    assert main(["memory", *MOE, "--micro-batch-size", "32", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    parts = found["ranks"][found["worst_rank"]]["components"]
    assert found["dominant"][0]["gb"] == max(part["gb"] for part in parts.values()) and found["dominant"][0]["rank"] == found["worst_rank"]
    assert list(found["memory_at_expert_load_gb"]) == ["1.5", "2"]
    assert found["memory_per_gpu_gb"] < found["memory_at_expert_load_gb"]["1.5"] < found["memory_at_expert_load_gb"]["2"]
    fitting = next(entry for entry in found["would_fit"] if "mbs" in entry["change"])
    speeds = [entry["tokens_per_s_per_gpu"] for entry in found["would_fit"]]
    assert speeds == sorted(speeds, reverse=True)
    main(["memory", *MOE, "--micro-batch-size", str(fitting["change"]["mbs"]), "--json"])
    again = json.loads(capsys.readouterr().out)
    assert again["memory_per_gpu_gb"] == pytest.approx(fitting["memory_per_gpu_gb"]) and again["within_margin"]


def test_a_dense_model_has_no_expert_load_and_one_that_fits_needs_no_change(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", "--model", "llama3_8B", "--gpu", "mi355x", "--micro-batch-size", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["memory_at_expert_load_gb"] is None and found["would_fit"] == []


def test_performance_breaks_the_iteration_down_to_its_sum(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["performance", *MOE, "--gemm-backend", "roofline", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "too large" and not found["within_margin"]
    assert sum(found["time_breakdown"].values()) == pytest.approx(found["iteration_ms"])
    assert found["backend"] == "roofline" and found["bubble_ratio"] == 0


def test_all_schedules_compare_with_the_reason_of_those_that_cannot_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["performance", *DENSE, "--schedule", "all", "--gemm-backend", "roofline"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = {line[:30].strip() for line in lines}
    assert {"1f1b", "interleaved_1f1b, VPP 2", "zerobubble", "zbv-formatted", "zbv-greedy-half", "zbv-greedy-min"} <= shown


def test_a_schedule_that_searches_leave_out_by_policy_is_named_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    main(["performance", *DENSE, "--set", "fp8=hybrid", "--schedule", "all", "--gemm-backend", "roofline"])
    out = capsys.readouterr().out
    assert "zbv-formatted: tune and sweep leave this out: policy: schedule zbv-formatted at PP 4 with fp8 hybrid" in out
    assert "1f1b: tune and sweep leave" not in out


def test_all_schedules_show_what_no_trainer_runs_as_what_ifs_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["performance", *DENSE, "--schedule", "all", "--gemm-backend", "roofline"]) == 0
    out = capsys.readouterr().out
    assert "what-if: dualpipe: neither Primus nor Megatron-LM has a bidirectional schedule" in out
    assert "what-if: seaailab-ilp: it exists in Primus's projection tool only" in out
    assert main(["performance", *DENSE, "--schedule", "dualpipe", "--gemm-backend", "roofline"]) == 2
    assert "pp_algorithm: is 'dualpipe'; write one of" in capsys.readouterr().err


def test_gpus_and_sizes_compare_in_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model", "llama3_8B", "--arch", "mi300x,mi355x", "--nodes", "1,2", "--gemm-backend", "roofline"]
    assert main(["performance", *arguments]) == 0
    out = capsys.readouterr().out
    assert all(f"{nodes} x 8 {gpu}" in out for nodes in (1, 2) for gpu in ("mi300x", "mi355x"))


def test_without_nodes_the_fewest_that_the_layout_needs_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    main(["memory", "--model", "llama3.1_70B", "--gpu", "mi355x", "--set", "pp=16", "--global-batch-size", "64"])
    assert "on 2 x 8 mi355x" in capsys.readouterr().out


def test_a_configuration_that_cannot_run_is_refused_with_the_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", *MOE, "--global-batch-size", "7"]) == 3
    assert "GBS 7 is not a multiple of" in capsys.readouterr().err
    assert main(["performance", "--model", "llama3_8B"]) == 2
    assert "no GPU is named" in capsys.readouterr().err
    assert main(["performance", *MOE, "--profiling-mode", "benchmark"]) == 2


def test_the_gpu_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PRIMUS_GPU_ARCH", "gfx942")
    assert main(["performance", "--model", "llama3_8B", "--gemm-backend", "roofline"]) == 0
    assert "mi300x" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["abc", "nan", "0", "-1", "1e300"])
def test_a_clock_in_the_environment_that_is_none_is_bad_input(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PRIMUS_GPU_CLOCK_MHZ", text)
    assert main(["performance", *MOE]) == 2
    assert "clock" in capsys.readouterr().err.lower()


def test_a_clock_that_is_not_the_catalogues_stands_in_the_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PRIMUS_GPU_CLOCK_MHZ", "1200")
    assert main(["performance", *MOE, "--micro-batch-size", "1"]) == 0
    shown = capsys.readouterr()
    assert "at 1,200 MHz" in shown.out and "PRIMUS_GPU_CLOCK_MHZ sets the clock" in shown.err


@pytest.mark.parametrize(
    "flags", [["--gpu-clock-mhz", "1e9"], ["--gpu-clock-mhz", "1"], ["--gpus-per-node", "3"], ["--target-nodes", "2000000"]]
)
def test_flags_that_describe_a_cluster_are_checked_as_its_file_is(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["performance", *MOE, *flags]) == 2
    assert "internal error" not in capsys.readouterr().err


@pytest.mark.parametrize("flag", [["--gpu-arch", "mi300x"], ["--gpus-per-node", "4"], ["--gpu-clock-mhz", "900"]])
def test_what_a_cluster_file_says_is_not_ignored_on_the_command_line(
    flag: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("target_cluster: {num_nodes: 1, gpu_arch: mi355x}\noptimization: {hbm_capacity_gb: 400}\n")
    model = ["performance", "--model", "qwen3_30B_A3B", "--set", "ep=8", "--target-cluster", str(path)]
    assert main([*model, *flag]) == 2
    assert flag[0] in capsys.readouterr().err
    assert main(model) == 0
    assert "hbm_capacity_gb 400.0 is more than a mi355x has" in capsys.readouterr().err


def test_performance_and_both_state_the_band_and_the_warning_of_evaluate(capsys: pytest.CaptureFixture[str]) -> None:
    model, knobs = ["--model", "qwen3_30B_A3B"], ["--set", "pp=2", "--set", "mbs=1", "--json"]
    assert main(["evaluate", *model, "--gpu", "mi325x", *knobs]) == 0
    priced = json.loads(capsys.readouterr().out)
    place = ["--gpu-arch", "mi325x", "--target-nodes", "1"]
    main(["both", *model, *place, *knobs])
    both = json.loads(capsys.readouterr().out)["performance"]
    main(["performance", *model, *place, *knobs])
    alone = json.loads(capsys.readouterr().out)
    assert priced["throughput_band"] and both["throughput_band"] == alone["throughput_band"] == priced["throughput_band"]
    assert all(found in priced["warnings"] for found in alone["warnings"])
    assert [found for found in priced["warnings"] if found["code"] == "unlike_validated_runs"] == [
        found for found in alone["warnings"] if found["code"] == "unlike_validated_runs"
    ]
    main(["performance", *model, *place, *knobs[:-1]])
    out = capsys.readouterr().out
    low, high = alone["throughput_band"]
    assert f"{low:,.0f} to {high:,.0f} tokens/s/GPU {band_words(found['code'] for found in alone['warnings'])}" in out
    assert ("unlike_validated_runs" in out) == any(found["code"] == "unlike_validated_runs" for found in alone["warnings"])


def test_the_trace_holds_every_task_once_and_no_rank_runs_two_at_a_time(tmp_path: Path) -> None:
    target = tmp_path / "trace.json"
    main(["performance", *DENSE, "--gemm-backend", "roofline", "--trace", str(target)])
    events = [event for event in json.loads(target.read_text(encoding="utf-8"))["traceEvents"] if event["ph"] == "X"]
    micro_batches = 64 // 8
    assert len(events) == 4 * micro_batches * 2
    for rank in range(4):
        own = sorted((event["ts"], event["ts"] + event["dur"]) for event in events if event["tid"] == rank)
        assert all(after[0] >= before[1] - 1e-6 for before, after in pairwise(own))


def test_a_trace_of_thousands_of_micro_batches_is_cut_and_says_so() -> None:
    workload = workload_from_model("llama3_8B", gbs=65_536, mbs=1)
    found = pipeline_trace(workload.architecture, workload.baseline, make_cluster("mi355x"), backend="roofline")
    assert found.micro_batches < found.all_micro_batches == 8192 or found.all_micro_batches * 3 <= MAX_TASKS
    shown = chrome_trace(found)["otherData"]["shown"]
    assert shown == f"{found.micro_batches} of {found.all_micro_batches} micro-batches"


@pytest.mark.parametrize("command", ["memory", "performance", "both"])
def test_pictures_are_written(command: str, tmp_path: Path) -> None:
    target = tmp_path / "picture.png"
    main([command, *DENSE, "--gemm-backend", "roofline", "--plot", str(target)])
    assert target.read_bytes().startswith(PNG)
    assert main([command, *DENSE, "--gemm-backend", "roofline", "--plot", str(tmp_path / "absent" / "picture.png")]) == 2


def test_both_prints_memory_and_time_of_one_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    main(["both", *DENSE, "--gemm-backend", "roofline", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"memory", "performance"}
    assert found["memory"]["configuration"] == found["performance"]["configuration"]


def test_every_picture_is_named_and_both_draws_memory_and_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, other = tmp_path / "x.svg", tmp_path / "x_time.svg"
    main(["both", *DENSE, "--gemm-backend", "roofline", "--plot", str(target)])
    said = capsys.readouterr().err
    assert f"chart of memory in {target}" in said and f"schedule 1f1b, in {other}" in said
    assert target.read_bytes() != other.read_bytes()
    main(["performance", *DENSE, "--gemm-backend", "roofline", "--schedule", "all", "--plot", str(target)])
    assert f"schedule 1f1b alone (any other: --plot with that --schedule), in {target}" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["evaluate", "performance"])
def test_only_a_model_with_experts_has_replicas_of_experts(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for model, told in (("llama3.1_8B", False), ("deepseek_v2_lite", True)):
        main([command, "--model", model, "--gpu", "mi300x", "--gemm-backend", "roofline"])
        assert ("expert dp" in capsys.readouterr().out) == told
