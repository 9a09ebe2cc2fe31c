"""The doctor says what works, what does without, and the remedy; it needs nothing but the core and leaves nothing behind."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from primus_mcp.cli import doctor
from primus_mcp.cli.main import main
from primus_mcp.driver import doctor as driver_doctor


def diagnose(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    code = main(["doctor", "--json", *arguments])
    return code, {check["name"]: check for check in json.loads(capsys.readouterr().out)}


def test_every_part_is_named_and_what_is_missing_has_a_remedy(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, checks = diagnose(capsys, "--out-dir", str(tmp_path / "runs"))
    assert code == 0
    assert set(checks) == {"python", "catalogue", "out-dir", "console", "origami", "torch", "dspy", "deno", "llm", "primus", "node"}
    assert all(check["status"] == "ok" or check["remedy"] for check in checks.values())
    assert all("\n" not in check["found"] for check in checks.values())
    assert list(tmp_path.iterdir()) == []


def test_the_plain_report_has_a_line_a_check(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["doctor", "--out-dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith(("ok ", "optional ", "broken ")) for line in lines) == len(doctor.CHECKS)


@pytest.mark.parametrize("package", ["origami", "torch", "dspy"])
def test_an_absent_package_is_optional(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, package: str
) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    code, checks = diagnose(capsys, "--out-dir", str(tmp_path))
    assert code == 0
    assert (checks[package]["status"], checks[package]["found"]) == ("optional", "not installed")
    assert "pip install" in checks[package]["remedy"]


def test_programs_that_are_absent_or_do_not_start_are_optional(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "_program", lambda *names: None)
    _, checks = diagnose(capsys, "--out-dir", str(tmp_path))
    assert {checks[name]["found"] for name in ("deno", "node")} == {"not found"}
    monkeypatch.setattr(doctor, "_program", lambda *names: str(tmp_path))
    _, checks = diagnose(capsys, "--out-dir", str(tmp_path))
    assert all("does not start" in checks[name]["found"] for name in ("deno", "node"))


def test_a_folder_that_cannot_be_written_is_broken(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("x", encoding="utf-8")
    code, checks = diagnose(capsys, "--out-dir", str(blocked))
    assert (code, checks["out-dir"]["status"], checks["out-dir"]["remedy"]) == (2, "broken", "choose a writable --out-dir")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_broken(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert diagnose(capsys, "--out-dir", str(tmp_path))[1]["out-dir"]["status"] == "broken"


def test_the_key_of_a_language_model_is_never_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith(("LLM_", "OPENAI_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)
    assert diagnose(capsys)[1]["llm"]["status"] == "optional"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    _, checks = diagnose(capsys)
    assert checks["llm"]["status"] == "ok"
    assert "very-secret" not in json.dumps(checks)
    assert "OPENAI_API_KEY" in checks["llm"]["found"]


def test_a_primus_root_that_is_none_is_broken_and_a_real_one_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert diagnose(capsys, "--primus-root", str(tmp_path))[0] == 2
    (tmp_path / "primus" / "configs" / "models").mkdir(parents=True)
    code, checks = diagnose(capsys, "--primus-root", str(tmp_path))
    assert (code, checks["primus"]["status"]) == (0, "ok")


def test_a_check_that_fails_itself_does_not_end_the_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def _surprise(_: object) -> doctor.Check:
        raise RuntimeError("surprise\nof two lines")

    monkeypatch.setattr(doctor, "CHECKS", (_surprise, *doctor.CHECKS))
    before = "torch" in sys.modules
    code, checks = diagnose(capsys, "--out-dir", str(tmp_path))
    assert code == 2
    assert "surprise of two lines" in checks["surprise"]["found"]
    assert ("torch" in sys.modules) == before


def test_llm_asks_the_driver_and_never_ends_in_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [
        driver_doctor.Check(name="language model", ok=True, text="openai/x"),
        driver_doctor.Check(name="request", ok=False, text="no answer"),
    ]
    monkeypatch.setattr(driver_doctor, "check_llm", lambda *_, **__: asked)
    assert main(["doctor", "--llm", "--json", "--out-dir", str(tmp_path)]) == 0
    found = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert (found["language model"]["status"], found["request"]["status"]) == ("ok", "optional")
    assert found["request"]["found"] == "no answer"
