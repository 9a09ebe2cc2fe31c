"""Bad input of each kind: one line that names field, value and remedy, exit code 2, and no flag that is passed over in silence."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from cli_cases import run

MODEL = ["--model", "llama3_8B", "--gpu", "mi300x"]
_BOMB = "a: &a [x,x,x,x,x,x,x,x]\n" + "".join(f"{new}: &{new} [{','.join([f'*{old}'] * 8)}]\n" for old, new in pairwise("abcdefghi"))
"""Eight times eight times ... what the line above holds."""
FILES: dict[str, bytes | None] = {
    "missing": None,
    "empty": b"",
    "binary": b"\xff\xfe\x00\x80",
    "list": b"[1, 2]",
    "nan": b'{"a": NaN}',
    "deep": b"[" * 100_000,
    "text": b"hello world\n",
    "bomb": _BOMB.encode(),
}
NAMED = (
    ["evaluate", "--gpu", "mi300x", "--workload"],
    ["evaluate", "--gpu", "mi300x", "--hf"],
    ["sweep", "--model", "llama3_8B", "--target-cluster"],
    ["memory", *MODEL, "--hardware-config"],
    ["performance", *MODEL, "--profiling-mode", "both", "--load-benchmark"],
    ["evaluate", *MODEL, "--calibration"],
    ["validate", "--rows"],
    ["calibrate", "--rows"],
    ["convert", "--megatron"],
)


def _one_line(code: int, err: str) -> str:
    lines = [line for line in err.splitlines() if not line.startswith("note:")]
    assert code == 2 and len(lines) == 1 and lines[0].startswith("error: "), (code, err)
    return lines[0]


@pytest.mark.parametrize("kind", [*FILES, "folder"])
@pytest.mark.parametrize("words", NAMED, ids=lambda words: f"{words[0]} {words[-1]}")
def test_a_file_that_is_none_of_its_kind_is_one_line_that_names_it(
    words: list[str], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{kind}.json"
    if kind == "folder":
        path.mkdir()
    elif (content := FILES[kind]) is not None:
        path.write_bytes(content)
    code, _, err = run(capsys, *words, str(path))
    assert f"{kind}.json" in _one_line(code, err) and "; " in err


def test_the_cluster_file_of_the_doctor_is_named_where_it_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor", "--out-dir", str(tmp_path), "--target-cluster", str(tmp_path / "none.yaml"), "--json")
    broken = [check for check in json.loads(out) if check["status"] == "broken"]
    assert code == 2 and "none.yaml: does not exist" in broken[0]["found"] and broken[0]["remedy"] == "name a cluster file that can be read"


@pytest.mark.parametrize("command", ["evaluate", "memory", "performance", "both"])
@pytest.mark.parametrize("flag", ["--load-benchmark", "--save-benchmark"])
def test_an_artefact_that_nothing_would_be_anchored_on_is_refused(
    command: str, flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, command, *MODEL, flag, str(tmp_path / "bench.json"))
    assert _one_line(code, err) == (
        f"error: {flag}: goes with measured layers only; add --profiling-mode benchmark or both, or leave it out"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--config", ""], "--config: is not JSON"),
        (["--config", "[]"], "--config: is [], not an object of knobs"),
        (["--config", '{"tp": 0}'], "tp: 0 is not legal"),
        (["--set", "=3"], "--set"),
        (["--set", "tp=99999999999"], "tp: 99999999999 is not legal; use at most 65,536"),
        (["--set", "pp_schedule=v-half"], "write zbv-greedy-half"),
        (["--nodes", "2,4"], "`primus-mcp sweep --nodes` compares sizes"),
    ],
)
def test_a_value_that_cannot_be_meant_is_told_under_its_flag_with_the_remedy(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "evaluate", *MODEL, *words)
    assert said in _one_line(code, err)
