"""Standard streams that are closed, full, or piped into a program that has ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX file descriptors")
SMALL = ("--model", "llama3_8B", "--gpu", "mi300x", "--seq-length", "2048", "--gbs", "64")


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "primus_mcp", *words]


def closing(*numbers: int) -> Callable[[], None]:
    def close() -> None:
        for number in numbers:
            os.close(number)

    return close


def tune(folder: Path) -> list[str]:
    return command("tune", *SMALL, "--seed-only", "--seed-budget", "1", "--out-dir", str(folder))


@pytest.mark.parametrize("numbers", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_a_search_needs_no_standard_stream(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    done = subprocess.run(tune(tmp_path / "run"), preexec_fn=closing(*numbers), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["best"] is not None
    for line in (tmp_path / "run" / "trials.jsonl").read_text().splitlines():
        json.loads(line)


def test_with_stderr_closed_no_note_is_mixed_into_the_json_on_stdout() -> None:
    words = command("evaluate", *SMALL, "--nodes", "2", "--json")
    done = subprocess.run(words, preexec_fn=closing(2), stdout=subprocess.PIPE, text=True, check=False)
    json.loads(done.stdout)


@pytest.mark.parametrize("words", [("models",), ("gpus",), ("--help",), ("evaluate", *SMALL)], ids=lambda words: words[0])
def test_a_reader_that_has_ended_is_no_error(words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command(*words), stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert done.returncode == 0, done.stderr
    assert "rror" not in done.stderr and "Exception" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", [("models",), ("evaluate", *SMALL)], ids=lambda words: words[0])
def test_a_full_disk_under_stdout_is_one_line_and_code_2(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command(*words), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: No space left on device")
    assert "Exception" not in done.stderr
