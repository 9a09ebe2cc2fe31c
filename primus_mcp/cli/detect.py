"""`primus-mcp detect`: the GPUs, links and NICs of this host, or of saved tool output, as a cluster file."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from primus_mcp.cli.common import node_count
from primus_mcp.errors import InputError

if TYPE_CHECKING:
    from primus_mcp.inputs.detect import Detection
    from primus_mcp.inputs.detect_records import ToolOutput

GPU_TOOLS: tuple[tuple[str, ...], ...] = (
    ("amd-smi", "static", "--json"),
    ("rocm-smi", "--showproductname", "--showmeminfo", "vram", "--json"),
    ("nvidia-smi", "-q", "-x"),
)
MORE_TOOLS: tuple[tuple[str, ...], ...] = (("amd-smi", "topology", "--json"), ("rdma", "link"), ("ibv_devinfo",))
TIMEOUT_S = 30.0
MAX_OUTPUT = 8 * 2**20
THIS_HOST = "this host"
ABSENT = "is not there"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What one tool did. `problem`: why its output is of no use."""

    command: str
    output: str = ""
    problem: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--out, --from, --nodes, --json."""
    parser.add_argument("--out", type=Path, metavar="YAML", help="where to write the cluster file (default: stdout)")
    parser.add_argument(
        "--from", dest="files", type=Path, action="append", nargs="+", metavar="FILE", help="saved output of the tools instead of this host"
    )
    parser.add_argument("--nodes", type=node_count, metavar="N", help="nodes of the cluster, which one host cannot know")
    parser.add_argument("--json", action="store_true", help="one JSON document with every value and its source")


def run_tool(command: Sequence[str]) -> Ran:
    """One tool, without a shell, without input, with a time limit and a bound on what it may print."""
    from primus_mcp.inputs.detect_records import plain

    shown = " ".join(command)
    program = shutil.which(command[0])
    if program is None:
        return Ran(command=shown, problem=f"{command[0]} {ABSENT}")
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            done = subprocess.run(  # noqa: S603
                [program, *command[1:]], stdin=subprocess.DEVNULL, stdout=out, stderr=err, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return Ran(command=shown, problem=f"{shown} took longer than {TIMEOUT_S:g} s")
        except OSError as error:
            return Ran(command=shown, problem=f"{shown} does not start ({error.strerror or type(error).__name__})")
        out.seek(0)
        err.seek(0)
        output, said = out.read(MAX_OUTPUT + 1), err.read(4096).decode("utf-8", errors="replace")
    text = output.decode("utf-8", errors="replace")
    if done.returncode != 0:
        told = plain(next((line for line in (*said.splitlines(), *text.splitlines()) if line.strip()), "it says nothing"))
        return Ran(command=shown, problem=f"{shown} ended with code {done.returncode}: {told}")
    if len(output) > MAX_OUTPUT:
        return Ran(command=shown, problem=f"{shown} printed more than {MAX_OUTPUT:,} bytes")
    return Ran(command=shown, output=text)


def _asked(command: Sequence[str]) -> tuple[ToolOutput | None, str | None]:
    """What a tool of this host says, or why that is of no use."""
    from primus_mcp.inputs.detect_formats import parse_tool_output

    ran = run_tool(command)
    if ran.problem is not None:
        return None, ran.problem
    try:
        return parse_tool_output(ran.output, THIS_HOST), None
    except InputError as error:
        return None, f"{ran.command} {error.problem}"


def outputs_of_this_host() -> tuple[list[ToolOutput], list[str]]:
    """(what the tools of this host say, which ones are of no use and why): GPUs, then links and NICs. Raises InputError without GPUs."""
    found: list[ToolOutput] = []
    problems: list[str] = []
    for command in GPU_TOOLS:
        if command[0] == "rocm-smi" and any(output.gpus for output in found):
            continue
        output, problem = _asked(command)
        found += [output] if output else []
        problems += [problem] if problem else []
    with_gpus = [output for output in found if output.gpus]
    if not found:
        remedy = "run as a user of the groups render and video, or give saved output with --from FILE"
        raise InputError("; ".join(problems), where=THIS_HOST, remedy=remedy)
    found = with_gpus or found[:1]
    for command in MORE_TOOLS:
        output, problem = _asked(command)
        found += [output] if output and (output.links or output.nics) else []
        problems += [problem] if problem else []
    return found, [problem for problem in problems if not problem.endswith(ABSENT)]


def _outputs_of_files(paths: Sequence[Path]) -> list[ToolOutput]:
    from primus_mcp.inputs.detect_formats import parse_tool_output
    from primus_mcp.inputs.yaml_loader import read_text

    return [parse_tool_output(read_text(path), str(path)) for path in paths]


def _checked(detection: Detection, text: str) -> None:
    """What is written must be a cluster file."""
    from primus_mcp.inputs.cluster import parse_cluster
    from primus_mcp.inputs.yaml_loader import parse_text

    parse_cluster(parse_text(text, "detect"), where="detect")
    assert parse_text(text, "detect") == detection.document()


def run(arguments: argparse.Namespace) -> int:
    """Write the file; what is not known goes to stderr too."""
    from primus_mcp.cli.codes import EXIT_OK
    from primus_mcp.cli.projected import write_bytes
    from primus_mcp.inputs.detect import cluster_yaml, detect

    paths = [path for group in arguments.files or [] for path in group]
    outputs, problems = (_outputs_of_files(paths), []) if paths else outputs_of_this_host()
    found = detect(outputs, nodes=arguments.nodes, this_host=not paths)
    text = cluster_yaml(found)
    _checked(found, text)
    if arguments.out is not None:
        write_bytes(arguments.out, text.encode("utf-8"), "--out")
    if arguments.json:
        items = [asdict(item) for item in found.found]
        print(json.dumps({"cluster": found.document(), "found": items, "sources": found.sources, "notes": found.notes}, indent=2))
    elif arguments.out is None:
        print(text, end="")
    else:
        for item in found.found:
            print(f"{item.key:16} {'-' if item.value is None else item.value!s:8} {item.source}")
    for note in (*found.notes, *problems):
        print(f"note: {note}", file=sys.stderr)
    return EXIT_OK
