"""`primus-mcp convert`: a Megatron-LM argument list to a Primus workload file, and any workload to a Megatron-LM argument list."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from primus_mcp.cli.common import add_model_sources, add_reading_arguments, knob_values, load_workload, positive_count
from primus_mcp.errors import InputError

if TYPE_CHECKING:
    from primus_mcp.inputs.workload import Workload
    from primus_mcp.space.knobs import TrialConfig

STDIN = "-"
_NAME = re.compile(r"[A-Za-z_]\w*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One source, the form to write, knobs to set on the way."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--megatron", metavar="FILE", help="arguments of pretrain_gpt.py: a list, a launch script, or - for stdin")
    source.add_argument("--workload", type=Path, metavar="YAML", help="Primus pretrain YAML, such as trials/trial_0012.yaml of an out-dir")
    add_model_sources(source)
    parser.add_argument("--to", choices=("primus", "megatron"), help="what to write (default: the other form)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write it (default: stdout)")
    parser.add_argument("--set", action="append", metavar="KNOB=VALUE", help="one knob (repeatable), for example tp=8")
    parser.add_argument("--define", action="append", metavar="NAME=VALUE", help="a variable of the script (repeatable), with --megatron")
    parser.add_argument("--gbs", type=positive_count, metavar="N", help="global batch size, with --model or --hf")
    add_reading_arguments(parser, vocab="whose vocabulary is built, with --workload")


def _defines(pairs: list[str] | None) -> dict[str, str]:
    defines = {}
    for pair in pairs or []:
        name, separator, value = pair.partition("=")
        if not separator or not _NAME.fullmatch(name):
            raise InputError(f"{pair[:80]!r} is not NAME=VALUE", where="--define", remedy="write for example SEQ_LENGTH=4096")
        defines[name] = value
    return defines


def _text_of(source: str) -> tuple[str, str, str]:
    """(text, where, name)."""
    from primus_mcp.inputs.yaml_loader import MAX_BYTES, read_text

    if source != STDIN:
        path = Path(source)
        return read_text(path), source, "".join(c if c.isalnum() or c in "._-" else "_" for c in path.stem) or "megatron"
    text = sys.stdin.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise InputError(f"has more than {MAX_BYTES:,} characters", where="stdin", remedy="give the arguments only")
    return text, "stdin", "megatron"


def _source(arguments: argparse.Namespace) -> Workload:
    if arguments.megatron is None:
        if arguments.define:
            raise InputError("goes with --megatron only", where="--define", remedy="leave it out")
        return load_workload(arguments)
    from primus_mcp.inputs.megatron_workload import workload_from_megatron

    for flag, value in (("--seq-length", arguments.seq_length), ("--gbs", arguments.gbs)):
        if value is not None:
            raise InputError("goes with --model and --hf only", where=flag, remedy="change the arguments, or use --set gbs=N")
    text, where, name = _text_of(arguments.megatron)
    return workload_from_megatron(text, name=name, where=where, defines=_defines(arguments.define))


def _megatron(workload: Workload, trial: TrialConfig) -> str:
    from primus_mcp.inputs.megatron_workload import export_megatron
    from primus_mcp.space.trainer_keys import read_trial, trainer_keys

    keys = trainer_keys(trial, workload)
    export = export_megatron({**workload.arguments, **keys}, workload.architecture, read_trial(workload, trial, keys))
    if export.not_megatron:
        print(f"note: Megatron-LM has no argument for {', '.join(export.not_megatron)}: left out", file=sys.stderr)
    for field, ours, theirs in export.changed:
        print(f"note: Megatron-LM would run {field} {theirs} instead of {ours}", file=sys.stderr)
    return export.text(f"Written by `primus-mcp convert`: {workload.name}{_with(trial)}")


def _with(trial: TrialConfig) -> str:
    knobs = trial.model_dump_json(exclude_none=True)
    return "" if knobs == "{}" else f" with {knobs}"


def run(arguments: argparse.Namespace) -> int:
    """Read one form, write the other; what was noticed goes to stderr."""
    from primus_mcp.cli.main import EXIT_OK
    from primus_mcp.cli.projected import write_bytes
    from primus_mcp.space.overlay import overlay_yaml
    from primus_mcp.space.parsing import parse_trial

    workload = _source(arguments)
    trial = parse_trial(knob_values(arguments.set, "--set"))
    for finding in workload.findings:
        print(f"note: {finding.text}", file=sys.stderr)
    form = arguments.to or ("megatron" if arguments.megatron is None else "primus")
    if form == "megatron":
        text = _megatron(workload, trial)
    else:
        _, _, body = overlay_yaml(workload, trial).partition("\n")
        text = f"# Written by `primus-mcp convert`: {workload.name}{_with(trial)}\n{body}"
    if arguments.out is None:
        print(text, end="")
    else:
        write_bytes(arguments.out, text.encode("utf-8"), "--out")
    return EXIT_OK
