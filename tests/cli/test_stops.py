"""Ctrl-C and SIGTERM, sent to real processes and to the handler."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from primus_mcp.cli.main import main, one_line
from primus_mcp.cli.stops import Stopped, signals_stop, signals_wait

SMALL = ("tune", "--model", "llama3_8B", "--gpu", "mi300x", "--seq-length", "2048", "--gbs", "64", "--seed-only")
LONG = ("tune", "--model", "deepseek_v3", "--gpu", "mi300x", "--nodes", "64", "--seed-only")
ARTEFACTS = ("trials.jsonl", "trials.png", "scratchpad.txt", "summary.json", "journal.jsonl", "session.json")


def heed_signals() -> None:
    """A test run that was started in the background ignores Ctrl-C, and its children would too."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_ends_with_code_4_and_all_artefacts_and_resume_continues(tmp_path: Path, number: signal.Signals) -> None:
    for attempt in range(5):
        run = tmp_path / f"run{attempt}"
        words = [*LONG, "--out-dir", str(run)]
        process = subprocess.Popen(
            [sys.executable, "-m", "primus_mcp", *words, "--seed-budget", "100000"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=heed_signals if sys.platform != "win32" else None,
        )
        log = run / "trials.jsonl"
        while process.poll() is None and not (log.exists() and log.read_bytes().count(b"\n")):
            time.sleep(0.01)
        process.send_signal(number)
        _, err = process.communicate()
        if process.returncode != 0:  # else it had finished before the signal came
            break
    assert process.returncode == 4
    assert "Traceback" not in err and "--resume continues" in err
    assert all((run / name).is_file() for name in ARTEFACTS)
    assert json.loads((run / "summary.json").read_text())["stopped_because"] == "interrupted"
    before = log.read_bytes()
    assert main([*words, "--resume", "--seed-budget", "2"]) == 0
    assert log.read_bytes().startswith(before)


def test_a_signal_raises_a_subclass_of_keyboard_interrupt_and_the_old_handler_comes_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt) as caught, signals_stop(4):
        signal.raise_signal(signal.SIGTERM)
    assert type(caught.value) is Stopped, "a plain KeyboardInterrupt that passed an exec would end the process by the signal"
    assert signal.getsignal(signal.SIGTERM) is before


def test_while_artefacts_are_written_the_first_signal_waits_and_the_second_stops() -> None:
    with signals_stop(4), signals_wait() as asked:
        assert not asked()
        signal.raise_signal(signal.SIGTERM)
        assert asked()
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGTERM)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with signals_stop(4):
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_line_of_an_error_holds_no_line_break_or_escape_and_an_end() -> None:
    assert one_line("a\nb\x1b[31mc\u2028d") == "a b\\x1b[31mc d"
    assert len(one_line("x" * 10_000)) < 3000


@pytest.mark.parametrize("name", ["x" * 5000, "new\nline.yaml", "bell\a.yaml", "\ud800.yaml"])
@pytest.mark.parametrize("flag", ["--workload", "--target-cluster"])
def test_a_path_of_any_characters_is_refused_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path, flag: str, name: str) -> None:
    other = ("--gpu", "mi300x") if flag == "--workload" else ("--model", "llama3_8B")
    assert main(["evaluate", *other, flag, name]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1 and "\a" not in said


def test_a_signal_while_modules_are_loaded_ends_with_code_4_since_extension_modules_may_crash_on_an_exception(tmp_path: Path) -> None:
    (tmp_path / "slow_module.py").write_text("import signal\nsignal.raise_signal(signal.SIGTERM)\n")
    script = "import sys\nfrom primus_mcp.cli.stops import signals_stop\nwith signals_stop(4):\n    import slow_module\n"
    words = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{script}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (4, "stopped\n")
