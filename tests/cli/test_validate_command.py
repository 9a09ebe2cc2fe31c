"""`primus-mcp validate` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from primus_mcp.cli.main import main

OWN = {
    "id": "my run",
    "model": "Qwen3-30B-A3B",
    "gpu": "MI355X",
    "n_gpus": 8,
    "precision": "BF16",
    "seq": 4096,
    "mbs": 8,
    "gbs": 512,
    "tp": 1,
    "pp": 1,
    "ep": 8,
    "cp": 1,
    "framework": "Primus/Megatron-LM",
    "tokens_s_gpu": 20000.0,
    "mem_gb": 200.0,
    "mem_kind": "used HBM",
    "suite": ["mine"],
}


def rows_file(folder: Path, *rows: dict[str, object]) -> str:
    path = folder / "rows.jsonl"
    path.write_text("\n".join(json.dumps({**OWN, **row}) for row in rows), encoding="utf-8")
    return str(path)


def test_a_users_own_rows_are_scored_row_by_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_file(tmp_path, {}, {"id": "unknown", "gpu": "H800"})
    assert main(["validate", "--rows", rows, "--backend", "roofline"]) == 0
    out = capsys.readouterr().out
    assert "tokens/s/GPU" in out and "my run" in out and "GPU H800 is not in the catalogue" in out
    assert "assumed in" in out and "constants set against whole runs" in out


def test_the_json_has_rows_and_groups_in_tokens_and_gib(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    rows = rows_file(tmp_path, {"suite": ["amd-headline"]}, {"id": "unknown", "model": "Nobody-7B"})
    assert main(["validate", "--rows", rows, "--backend", "roofline", "--json", str(target)]) == 0
    document = json.loads(target.read_text(encoding="utf-8"))
    by_id = {(row["id"], row["what"]): row for row in document["rows"]}
    time, memory = by_id["my run", "time"], by_id["my run", "memory"]
    assert time["measured"] == 20000.0 and time["error_fraction"] == pytest.approx(time["predicted"] / 20000.0 - 1)
    assert memory["measured"] == 200.0 and memory["verdict"] in ("fits", "at_risk", "does_not_fit")
    assert by_id["unknown", "time"]["predicted"] is None and by_id["unknown", "time"]["skipped_reason"]
    assert "time: AMD headline" in document["groups"]


def test_what_and_suite_narrow_the_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_file(tmp_path, {}, {"id": "other", "suite": ["theirs"]})
    assert main(["validate", "--rows", rows, "--what", "memory", "--suite", "theirs", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["id"], row["what"]) for row in found] == [("other", "memory")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--suite", "nope"], "no row of suite 'nope'"),
        (["--leave-out", "nobody", "--suite", "mine"], "no scored row is of family"),
    ],
)
def test_a_name_that_no_row_has_is_bad_input(arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--rows", rows_file(tmp_path, {}), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_malformed_file_is_one_line_and_exit_code_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(OWN) + "\n{oops\n" + json.dumps({**OWN, "mbs": "two"}), encoding="utf-8")
    assert main(["validate", "--rows", str(path)]) == 2
    error = capsys.readouterr().err.strip()
    assert "line 2: not JSON" in error and "line 3: mbs" in error and "\n" not in error


def test_without_rows_the_published_runs_are_scored(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--groups-only", "--suite", "amd-headline", "--backend", "roofline"]) == 0
    out = capsys.readouterr().out
    assert "AMD headline" in out and "Spearman" in out
