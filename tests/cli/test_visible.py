"""Names, paths and words of files may hold anything; a terminal gets nothing to obey, and documents stay what they are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cli_cases import run

from primus_mcp.cli.streams import visible

BAD = "run\x1b[31m\x9b2J\x07\u202e"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")
SMALL = ("--model", "llama3_8B", "--gpu", "mi300x", "--seq-length", "2048", "--gbs", "64", "--gemm-backend", "roofline")
WORKLOAD = Path(__file__).parents[2] / "examples" / "workloads" / "mixtral_8x22B_v0.1-BF16-pretrain.yaml"


def test_every_character_that_is_obeyed_is_written_as_json_writes_it() -> None:
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x202E, 0xFEFF, 0xD800, 0xE0001):
        shown = visible(f"a{chr(code)}b")
        assert (shown == f"a{chr(code)}b") if chr(code) in "\n\t" else not OBEYED.search(shown), hex(code)
        if chr(code) not in "\n\t":
            assert json.loads(f'"{shown}"') == f"a{chr(code)}b"
    assert visible("Zürich 上海 → 5,810") == "Zürich 上海 → 5,810"


@pytest.mark.skipif(sys.platform == "win32", reason="no such file name there")
def test_an_out_dir_with_escape_codes_in_its_name_is_printed_escaped(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIMUS_MCP_CACHE_DIR", str(tmp_path / f"cache{BAD}"))
    out_dir = tmp_path / BAD
    said = []
    for words in (
        ("tune", *SMALL, "--seed-only", "--seed-budget", "1", "--out-dir", str(out_dir)),
        ("tune", *SMALL, "--seed-only", "--seed-budget", "1", "--out-dir", str(out_dir)),
        ("report", str(out_dir)),
        ("cache",),
        ("doctor", "--out-dir", str(out_dir)),
        ("sweep", *SMALL, "--axes", "mbs", "--jobs", "1", "--out-dir", str(out_dir)),
        ("report", str(tmp_path / BAD / "absent")),
        ("evaluate", *SMALL[:2], "--target-cluster", f"{BAD}.yaml"),
        (f"tune{BAD}",),
        ("tune", f"--{BAD}"),
        ("tune", *SMALL, "--budget", f"{BAD}=3"),
    ):
        _, out, err = run(capsys, *words)
        assert not OBEYED.search(out + err), (words, out, err)
        said.append(out + err)
    assert "artefacts in " in said[0] and "\\u001b[31m" in said[0] and "\\u001b[31m" in said[2]


@pytest.mark.skipif(sys.platform == "win32", reason="no such file name there")
def test_a_workload_file_whose_name_holds_line_breaks_and_escape_codes_adds_no_line_to_what_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / f"x{BAD}\nmodules: 3\n.yaml"
    shutil.copy(WORKLOAD, file)
    code, out, _ = run(capsys, "convert", "--workload", str(file), "--to", "primus")
    assert code == 0 and "pre_trainer" in yaml.safe_load(out)["modules"] and not OBEYED.search(out)
    out_dir = tmp_path / "out"
    words = (
        "tune",
        "--workload",
        str(file),
        "--gpu",
        "mi355x",
        "--nodes",
        "4",
        "--seed-only",
        "--seed-budget",
        "2",
        "--out-dir",
        str(out_dir),
    )
    code, out, err = run(capsys, *words)
    assert code == 0 and not OBEYED.search(out + err)
    for written in (out_dir / "trials").iterdir():
        text = written.read_text(encoding="utf-8")
        assert "pre_trainer" in yaml.safe_load(text)["modules"] and not OBEYED.search(text)


def test_json_with_characters_that_are_obeyed_is_the_same_document(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    price = {"usd_per_gpu_hour": 2.0, "source": "a contract of Zürich"}
    file.write_text(yaml.safe_dump({"target_cluster": {"gpu_arch": "mi300x", "price": price}}), encoding="utf-8")
    code, out, _ = run(capsys, "sweep", *SMALL[:2], "--target-cluster", str(file), "--axes", "mbs", "--jobs", "1", "--no-cache", "--json")
    assert code == 0 and "Zürich" in str(json.loads(out))


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals")
def test_on_a_terminal_bars_are_drawn_and_names_are_not_obeyed(tmp_path: Path) -> None:
    import os
    import pty

    leader, follower = pty.openpty()
    words = ("tune", *SMALL, "--seed-only", "--seed-budget", "1", "--no-cache", "--out-dir", str(tmp_path / "a\x1b[31mb"))
    child = subprocess.Popen(
        [sys.executable, "-m", "primus_mcp", *words], stdin=follower, stdout=follower, stderr=follower, env={**os.environ, "TERM": "xterm"}
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            read = os.read(leader, 65536)
        except OSError:
            break
        if not read:
            break
        shown += read
    os.close(leader)
    assert child.wait() == 0
    assert b"\x1b[" in shown and b"a\x1b[31mb" not in shown and b"a\\u001b[31mb" in shown
