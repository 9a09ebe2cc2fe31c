"""`primus-mcp detect` against tools that answer, fail, hang and print without end."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest
from cli_cases import run

from primus_mcp.cli import detect as command

POSIX = pytest.mark.skipif(os.name != "posix", reason="the stand-ins for the tools are shell scripts")
AMD = json.dumps(
    [
        {"gpu": index, "asic": {"market_name": "AMD Instinct MI300X"}, "vram": {"size": {"value": 196592, "unit": "MB"}}}
        for index in range(8)
    ]
)
RDMA = "".join(f"link mlx5_{index}/1 state ACTIVE physical_state LINK_UP\n" for index in range(8))


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An otherwise empty path to put stand-ins for the tools on."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def put(folder: Path, name: str, body: str) -> None:
    file = folder / name
    file.write_text(f"#!{sys.executable}\nimport sys, time\n{body}\n", encoding="utf-8")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


@POSIX
def test_this_host_is_read_and_the_file_tunes(capsys: pytest.CaptureFixture[str], tools: Path, tmp_path: Path) -> None:
    put(tools, "amd-smi", f"print({AMD!r}) if sys.argv[1:] == ['static', '--json'] else sys.exit(2)")
    put(tools, "rdma", f"print({RDMA!r})")
    file = tmp_path / "cluster.yaml"
    code, out, err = run(capsys, "detect", "--out", str(file), "--nodes", "2")
    assert code == 0 and "gpu_arch" in out and "8 active ports" in err
    words = ("--seed-only", "--seed-budget", "2", "--gemm-backend", "roofline", "--out-dir", str(tmp_path / "run"))
    code, out, err = run(capsys, "tune", "--model", "llama3.1_8B", "--target-cluster", str(file), *words)
    assert code == 0 and "BEST CONFIGURATION" in out, err
    code, out, _ = run(capsys, "detect", "--json")
    document = json.loads(out)
    assert document["cluster"]["available_for_benchmark"] == {"has_gpu": True, "benchmark_gpus": 8}
    assert all(item["source"] for item in document["found"])


def test_files_are_read_instead_of_this_host(capsys: pytest.CaptureFixture[str], tools: Path, tmp_path: Path) -> None:
    (tmp_path / "static.json").write_text(AMD, encoding="utf-8")
    (tmp_path / "rdma.txt").write_text(RDMA, encoding="utf-8")
    code, out, _ = run(capsys, "detect", "--from", str(tmp_path / "static.json"), str(tmp_path / "rdma.txt"), "--nodes", "4")
    assert code == 0
    assert "num_nodes: 4" in out and "# --nodes" in out and "has_gpu: read from files" in out


@POSIX
@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("print('Permission denied: /dev/kfd', file=sys.stderr); sys.exit(1)", "Permission denied: /dev/kfd"),
        ("sys.exit(3)", "ended with code 3"),
        ("time.sleep(60)", "took longer"),
        ("sys.stdout.write('x' * (9 * 2**20))", "printed more than"),
        ("print('[]')", "lists no GPU"),
        ("sys.stdout.buffer.write(b'\\xff\\xfe{' * 10)", "garbled"),
        (f"print({AMD[:300]!r})", "JSON"),
    ],
)
def test_a_tool_that_fails_is_one_line_with_exit_code_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tools: Path, body: str, named: str
) -> None:
    monkeypatch.setattr(command, "TIMEOUT_S", 2.0)
    put(tools, "amd-smi", body)
    code, out, err = run(capsys, "detect")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1 and err.startswith("error:") and named in err


def test_a_host_without_tools_says_what_to_do(capsys: pytest.CaptureFixture[str], tools: Path) -> None:
    code, _, err = run(capsys, "detect")
    assert code == 2 and "nvidia-smi is not there" in err and "--from FILE" in err


@pytest.mark.parametrize("words", [("--from", "missing.json"), ("--from", "."), ("--nodes", "0"), ("--nodes", "x")])
def test_bad_input_is_one_line_with_exit_code_2(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    code, out, err = run(capsys, "detect", *words)
    assert (code, out) == (2, "")
    assert [line.startswith("error:") for line in err.splitlines()].count(True) == 1


@POSIX
def test_a_tool_without_gpus_or_with_a_fault_does_not_hide_another_that_has_them(capsys: pytest.CaptureFixture[str], tools: Path) -> None:
    put(tools, "amd-smi", "print('[]')")
    put(tools, "nvidia-smi", "print('GPU 0: NVIDIA B200 (UUID: GPU-1)')")
    put(tools, "rdma", "sys.exit(4)")
    code, out, err = run(capsys, "detect")
    assert code == 0 and "gpu_arch: b200" in out
    assert "rdma link ended with code 4" in err
