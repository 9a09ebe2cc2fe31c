"""Files that users name are opened one way: regular files only, wherever in the product."""

from __future__ import annotations

import ast
import os
import socket
import sys
from pathlib import Path

import pytest

import primus_mcp
from primus_mcp.errors import InputError, RunDirectoryError
from primus_mcp.inputs.cluster import read_cluster
from primus_mcp.inputs.hf_workload import workload_from_hf
from primus_mcp.inputs.regular_file import open_regular, read_regular
from primus_mcp.inputs.workload import read_workload
from primus_mcp.measurement.artefact import load
from primus_mcp.measurement.calibration import load_calibration
from primus_mcp.measurement.residuals import read_residuals
from primus_mcp.measurement.trace import read_trace
from primus_mcp.reports.html_source import read_report
from primus_mcp.trials.storage import RunDirectory, append_whole
from primus_mcp.validation.rows import read_rows

READERS = (read_workload, read_cluster, workload_from_hf, read_rows, read_residuals, read_trace, load, load_calibration)
posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes in folders")
OWN_FILES = {
    "inputs/catalogue.py",
    "inputs/regular_file.py",
    "measurement/launch.py",
    "measurement/worker/__main__.py",
    "measurement/worker/device.py",
    "reports/html.py",
    "tools/prompt_blocks.py",
    "tools/prompt_files.py",
    "version.py",
}
"""Read what the package ships, what the system says of itself, or what a child of this process wrote to a folder of its own."""


def _pipe(folder: Path, name: str = "pipe.json") -> Path:
    os.mkfifo(folder / name)
    return folder / name


@posix
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__module__.rpartition(".")[2])
def test_a_pipe_a_socket_and_a_device_are_refused_at_once_by_every_reader(reader: object, tmp_path: Path) -> None:
    assert callable(reader)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket.json"))
        for path in (_pipe(tmp_path), tmp_path / "socket.json", Path("/dev/zero")):
            with pytest.raises(InputError, match="not a regular file") as told:
                reader(path)
            assert str(path) in str(told.value) and "\n" not in str(told.value)


@posix
@pytest.mark.parametrize("name", ["trials.jsonl", "journal.jsonl", "session.json", "summary.json"])
def test_an_out_dir_with_a_pipe_in_the_place_of_a_file_never_waits(name: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    _pipe(tmp_path / "run", name)
    with pytest.raises(RunDirectoryError, match="not a regular file") as told:
        primus_mcp.tune("llama3_8B", "mi300x", out_dir=tmp_path / "run", seed_budget=1, gemm_backend="roofline")
    assert "\n" not in str(told.value)


@posix
def test_a_report_of_an_out_dir_whose_log_or_sweep_is_a_pipe_is_refused(tmp_path: Path) -> None:
    for name, said in (("trials.jsonl", "not a regular file"), ("sweep.json", "broken or of another version")):
        (folder := tmp_path / name[:-5]).mkdir()
        _pipe(folder, name)
        with pytest.raises(RunDirectoryError, match=said):
            read_report(folder)


@posix
def test_nothing_is_appended_to_a_pipe(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run").locked(), pytest.raises(RunDirectoryError, match="not a regular file"):
        append_whole(_pipe(tmp_path), b"text")


def test_a_regular_file_is_read_whole_and_a_larger_one_than_allowed_is_not(tmp_path: Path) -> None:
    (path := tmp_path / "file").write_bytes(b"0123456789")
    with open_regular(path) as file:
        assert file.read() == b"0123456789"
    assert read_regular(path, 10) == b"0123456789"
    with pytest.raises(OSError, match="more than 9 bytes"):
        read_regular(path, 9)
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none\0here")


def test_no_module_opens_a_file_for_reading_in_another_way() -> None:
    package, found = Path(primus_mcp.__file__).parent, []
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if name not in OWN_FILES else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _reads(node, node.func):
                found.append(f"{name}:{node.lineno}")
    assert not found, "use primus_mcp.inputs.regular_file"


def _reads(call: ast.Call, function: ast.Attribute) -> bool:
    """`.read_text(...)`, `.read_bytes(...)`, and `.open("r...")` of a path."""
    modes = [argument.value for argument in call.args[:1] if isinstance(argument, ast.Constant) and isinstance(argument.value, str)]
    return function.attr in ("read_text", "read_bytes") or (function.attr == "open" and any(mode in ("r", "rb", "rt") for mode in modes))
