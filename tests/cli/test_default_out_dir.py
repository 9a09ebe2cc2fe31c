"""Without --out-dir, another sequence length, batch or pin is another run; what an earlier version kept is found again."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_cases import run

DENSE = ("tune", "--model", "llama3_8B", "--gpu", "mi300x", "--gemm-backend", "roofline", "--seed-only", "--seed-budget", "1", "--no-cache")


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_way_to_change_the_workload_has_a_folder_of_its_own_and_resumes_there(capsys: pytest.CaptureFixture[str]) -> None:
    runs = (
        (),
        ("--seq-length", "2048"),
        ("--seq-length", "4096"),
        ("--gbs", "64"),
        ("--pin", "fp8=none"),
        ("--pin", "fp8=none", "--pin", "tp=2"),
    )
    for flags in runs:
        code, out, err = run(capsys, *DENSE, *flags)
        assert code == 0 and "WARNING" not in err, err
    assert sorted(folder.name.removeprefix("mi300x_1nodes-llama3_8B") for folder in Path("tuning_runs").iterdir()) == [
        "",
        "-fp8_none",
        "-fp8_none-tp_2",
        "-gbs64",
        "-seq2048",
        "-seq4096",
    ]
    code, out, err = run(capsys, *DENSE, "--seq-length", "2048", "--resume")
    assert code == 0 and "seq2048" in out and len(list(Path("tuning_runs").iterdir())) == len(runs)


def test_a_run_that_lies_in_the_plain_folder_is_continued_there(capsys: pytest.CaptureFixture[str]) -> None:
    plain = "tuning_runs/mi300x_1nodes-llama3_8B"
    assert run(capsys, *DENSE, "--seq-length", "2048", "--out-dir", plain)[0] == 0
    code, out, err = run(capsys, *DENSE, "--seq-length", "2048", "--resume")
    assert code == 0 and out.splitlines()[-1] == f"artefacts in {plain}" and "WARNING" not in err
    code, out, _ = run(capsys, *DENSE, "--seq-length", "4096")
    assert code == 0 and out.splitlines()[-1] == f"artefacts in {plain}-seq4096"
    (Path(plain) / "session.json").write_text("[[[[")
    code, out, _ = run(capsys, *DENSE, "--seq-length", "2048")
    assert code == 0 and out.splitlines()[-1] == f"artefacts in {plain}-seq2048"


def test_a_name_of_any_length_makes_a_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "examples" / "workloads" / "mixtral_8x22B_v0.1-BF16-pretrain.yaml").read_text(encoding="utf-8")
    for name in ("x" * 240, "x" * 239 + "y"):
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
        words = ("tune", "--workload", f"{name}.yaml", "--gpu", "mi355x", "--nodes", "4", "--seed-only", "--seed-budget", "1", "--no-cache")
        assert run(capsys, *words)[0] in (0, 3)
    assert len(list(Path("tuning_runs").iterdir())) == 2
