"""Traces: every kernel is counted once, overlap and idle time are what they are, and hostile files are one line."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from primus_mcp.cli.main import main
from primus_mcp.errors import InputError
from primus_mcp.measurement.calibration import load_calibration
from primus_mcp.measurement.trace import kind_of, read_trace, terms_of_trace


def kernel(name: str, start_us: float, duration_us: float, **arguments: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "ts": start_us, "dur": duration_us, "args": arguments}


EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 900},
    kernel("Cijk_Ailk_Bljk_BBS_BH_MT256x256x64", 100, 400),
    kernel("ck_tile::FmhaFwdKernel", 500, 100),
    kernel("ncclDevKernel_SendRecv", 550, 100, **{"Collective name": "all_to_allv", "In msg nelems": 1_000_000, "dtype": "BFloat16"}),
    kernel("void at::native::vectorized_elementwise_kernel", 700, 50),
    {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoD", "ts": 750, "dur": 10},
    {"ph": "i", "name": "marker", "ts": 1},
    "nonsense",
    kernel("broken", float("nan"), 1),
]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Cijk_Alik_Bljk_HHS_BH_MT128x128x64", "gemm"),
        ("nvjet_tst_256x128", "gemm"),
        ("void flash_fwd_kernel<...>", "attention"),
        ("fmha_bwd_d128_bf16_causal", "attention"),
        ("ncclDevKernel_AllGather_RING_LL", "collective"),
        ("ncclDevKernel_SendRecv", "collective"),
        ("nccl all_to_allv", "a2a"),
        ("nccl send", "collective"),
        ("deep_ep::intranode::dispatch<8>", "a2a"),
        ("ck_grouped_gemm_kernel", "grouped_gemm"),
        ("rmsnorm_bwd_tuned_kernel", "norm"),
        ("my_kernel", "other"),
    ],
)
def test_kernels_are_known_by_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_a_torch_trace_gives_time_by_kind_overlap_idle_time_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": EVENTS}).replace("NaN", "null"))
    found = read_trace(path)
    assert found.seconds("gemm") == pytest.approx(400e-6) and found.seconds("copy") == pytest.approx(10e-6)
    assert found.span_s == pytest.approx(660e-6) and found.busy_s == pytest.approx(610e-6)
    assert found.overlapped_s == pytest.approx(50e-6)
    assert next(kind for kind in found.kinds if kind.kind == "a2a").sent_bytes == 2_000_000
    terms = terms_of_trace(found, 1)
    assert sum(terms.values()) == pytest.approx(found.span_s)
    assert terms["host_and_bubble"] == pytest.approx(50e-6)


def test_sends_of_a_pipeline_are_no_exchange_of_experts(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    names = {"Collective name": "send", "In msg nelems": 1000, "dtype": "Float"}
    path.write_text(json.dumps({"traceEvents": [kernel("ncclDevKernel_SendRecv", 0, 5, **names), kernel("Cijk_x", 5, 10)]}))
    found = read_trace(path)
    assert found.seconds("a2a") == 0 and found.seconds("collective") == pytest.approx(5e-6)
    assert next(kind for kind in found.kinds if kind.kind == "collective").sent_bytes == 4000


@pytest.mark.parametrize(("text", "problem"), [("a,b\n1,2\n", "has no column"), ("{}", "has no traceEvents"), ("[1", "is neither")])
def test_a_file_that_is_no_trace_is_named(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "other.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=rf"other\.txt: {problem}"):
        read_trace(path)


def test_traces_of_several_gpus_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [kernel("Cijk_a", 0, 5, device=0), kernel("Cijk_b", 0, 5, device=1)]}))
    with pytest.raises(InputError, match="kernels of 2 GPUs"):
        read_trace(path)
    table = tmp_path / "kernel_trace.csv"
    table.write_text("Agent_Id,Kernel_Name,Start_Timestamp,End_Timestamp\nAgent 4,Cijk_X,1000,3000\nAgent 5,Cijk_X,1000,3000\n")
    with pytest.raises(InputError, match="kernels of 2 GPUs"):
        read_trace(table)


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_a_real_trace_of_torch_s_profiler_is_read_and_one_of_a_cpu_has_no_kernel(tmp_path: Path) -> None:
    """Its own export, plain and packed; GPU events as Kineto writes them are then added to it by hand."""
    program = (
        "import sys, torch\nfrom torch.profiler import ProfilerActivity, profile\n"
        "model = torch.nn.Linear(8, 8)\n"
        "with profile(activities=[ProfilerActivity.CPU]) as found:\n    model(torch.randn(4, 8)).sum().backward()\n"
        "found.export_chrome_trace(sys.argv[1])\n"
    )
    packed = tmp_path / "trace.json.gz"
    subprocess.run([sys.executable, "-c", program, str(packed)], check=True, capture_output=True, timeout=120)
    with pytest.raises(InputError, match="has no GPU kernel"):
        read_trace(packed)
    document = json.loads(gzip.decompress(packed.read_bytes()))
    assert any(event.get("cat") == "cpu_op" for event in document["traceEvents"])
    document["traceEvents"] += [kernel("Cijk_x", 10.5, 2.25, device=0, stream=0), kernel("void rmsnorm_fwd", 13.0, 1.0, device=0, stream=0)]
    packed.write_bytes(gzip.compress(json.dumps(document).encode()))
    found = read_trace(packed)
    assert [found.span_s, found.busy_s] == pytest.approx([3.5e-6, 3.25e-6])


def test_a_trace_becomes_a_calibration_that_gives_its_own_time_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, saved = tmp_path / "trace.json", tmp_path / "calibration.json"
    path.write_text(json.dumps({"traceEvents": EVENTS[:6]}))
    model = ["--model", "llama3.1_8B", "--seq-length", "4096", "--gpu", "mi300x", "--gbs", "64", "--gemm-backend", "roofline"]
    assert main(["import-trace", str(path), *model, "--save", str(saved), "--json"]) == 0
    terms = json.loads(capsys.readouterr().out)["terms"]
    found = load_calibration(saved)
    assert (found.source, found.points, found.log_band) == ("trace", 1, None)
    assert found.multipliers["gemm"] == pytest.approx(0.4 / terms["gemm"]["projected_ms"])  # 400 us of GEMM in the trace
    assert main(["evaluate", *model, "--calibration", str(saved), "--json"]) in (0, 3)
    corrected = json.loads(capsys.readouterr().out)
    assert "1 measured trace" in corrected["confidence"] and "too few for a confidence band" in corrected["confidence"]
    assert main(["import-trace", str(path), "--save", str(saved)]) == 2


def test_packed_traces_and_rocprof_csv_are_read_too(tmp_path: Path) -> None:
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(json.dumps({"traceEvents": EVENTS[:4]}).encode()))
    assert read_trace(packed).seconds("attention") == pytest.approx(100e-6)
    table = tmp_path / "kernel_trace.csv"
    table.write_text('"Kind","Kernel_Name","Start_Timestamp","End_Timestamp"\n"KERNEL_DISPATCH","Cijk_X",1000,3000\n"K","fmha",3000,x\n')
    assert read_trace(table).seconds("gemm") == pytest.approx(2e-6)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"traceEvents": 3}',
        "a,b\n1,2\n",
        "[" * 100_000,
        "\x1f\x8bxx",
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1e999, "dur": 1}]}',
    ],
)
def test_hostile_files_are_refused_in_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "trace"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert "\n" not in str(caught.value)


def test_the_command_explains_where_a_run_differs_from_the_projection(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": EVENTS[:6]}))
    command = ["import-trace", str(path), "--model", "llama3.1_8B", "--seq-length", "4096", "--gpu", "mi300x", "--gbs", "64"]
    assert main([*command, "--gemm-backend", "roofline"]) == 0
    out = capsys.readouterr().out
    assert "2.0 MB sent" in out and "communication" in out and "difference" in out
    assert main(["import-trace", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["terms"]["gemm"]["projected_ms"] is None
