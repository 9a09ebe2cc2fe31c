"""`primus-mcp convert`: a Megatron-LM argument list, a model or a workload to a Primus workload file or a Megatron-LM argument list."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from primus_mcp.cli.common import add_model_sources, add_reading_arguments, knob_values, load_workload, positive_count
from primus_mcp.errors import InputError

if TYPE_CHECKING:
    from primus_mcp.inputs.workload import Workload
    from primus_mcp.space.knobs import TrialConfig

STDIN = "-"
FORMS = ("primus", "megatron")
_SAID: Mapping[str, str] = {"primus": "a Primus workload file", "megatron": "Megatron-LM's arguments"}
_ENDINGS: Mapping[str, str] = {".yaml": "primus", ".yml": "primus", ".sh": "megatron"}
_NAME = re.compile(r"[A-Za-z_]\w*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One source, the form to write, knobs to set on the way."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--megatron", metavar="FILE", help="arguments of pretrain_gpt.py: a list, a launch script, or - for stdin")
    source.add_argument("--workload", type=Path, metavar="YAML", help="Primus pretrain YAML, such as trials/trial_0012.yaml of an out-dir")
    add_model_sources(source)
    parser.add_argument("--to", choices=FORMS, help="what to write (default: by the ending of --out, .yaml or .sh, else the other form)")
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


def _form(arguments: argparse.Namespace) -> str:
    """What to write: --to, else what the name of --out promises, else the other form. Raises InputError where the two disagree."""
    asked: str | None = arguments.to
    ending = arguments.out.suffix.lower() if arguments.out is not None else ""
    promised = _ENDINGS.get(ending)
    if asked and promised and asked != promised:
        remedy = f"give a file that ends in {'.sh' if asked == 'megatron' else '.yaml'}, or --to {promised}"
        raise InputError(f"{arguments.out} ends in {ending} and would hold {_SAID[asked]}", where="--out", remedy=remedy)
    return asked or promised or ("megatron" if arguments.megatron is None else "primus")


def _remarks(workload: Workload) -> list[str]:
    """Where the numbers of a model file of Primus's own come from, or that they are not known; findings do not say it."""
    from primus_mcp.inputs.model_workload import PLAIN_MODEL

    preset = Path(str(workload.document.get("modules", {}).get(workload.module, {}).get("model", ""))).stem
    if f"{preset}.yaml" == PLAIN_MODEL:
        return []
    rotary = ["rotary_base"] if workload.architecture.position_embedding == "rope" else []
    keys = [*rotary, "norm_epsilon", "init_method_std"]
    if missing := [key for key in keys if key not in workload.arguments]:
        return [
            f"{', '.join(missing)} of {preset} are not known here: start from Primus's own model file {preset}.yaml (--primus-root DIR)"
        ]
    said = ", ".join(f"{key} {workload.arguments[key]}" for key in keys)
    return [f"{said} are those of Primus's model file {preset}.yaml and the overrides; --hf config.json takes the model's own"]


def _megatron(workload: Workload, trial: TrialConfig) -> str:
    from primus_mcp.inputs.findings import IN_FILES
    from primus_mcp.inputs.megatron_workload import export_megatron
    from primus_mcp.space.trainer_keys import read_trial, trainer_keys

    keys = trainer_keys(trial, workload)
    export = export_megatron({**workload.arguments, **keys}, workload.architecture, read_trial(workload, trial, keys))
    if export.not_megatron:
        print(f"note: Megatron-LM has no argument for {', '.join(export.not_megatron)}: left out", file=sys.stderr)
    for field, ours, theirs in export.changed:
        print(f"note: Megatron-LM would run {field} {theirs} instead of {ours}", file=sys.stderr)
    remarks = _remarks(workload)
    for remark in remarks:
        print(f"note: {remark}", file=sys.stderr)
    untold = [finding.text for finding in workload.findings if finding.code in IN_FILES]
    return export.text(f"Written by `primus-mcp convert`: {workload.name}{_with(trial)}", (*untold, *remarks))


def _with(trial: TrialConfig) -> str:
    knobs = trial.model_dump_json(exclude_none=True)
    return "" if knobs == "{}" else f" with {knobs}"


def run(arguments: argparse.Namespace) -> int:
    """Read one form, write the other; what was noticed goes to stderr."""
    from primus_mcp.cli.codes import EXIT_OK
    from primus_mcp.cli.projected import write_bytes
    from primus_mcp.space.overlay import overlay_yaml
    from primus_mcp.space.parsing import parse_trial

    form = _form(arguments)
    workload = _source(arguments)
    trial = parse_trial(knob_values(arguments.set, "--set"))
    for finding in workload.findings:
        print(f"note: {finding.text}", file=sys.stderr)
    if form == "megatron":
        text = _megatron(workload, trial)
    else:
        _, _, body = overlay_yaml(workload, trial).partition("\n")
        text = f"# Written by `primus-mcp convert`: {workload.name}{_with(trial)}\n{body}"
    if arguments.out is None:
        print(text, end="")
    else:
        write_bytes(arguments.out, text.encode("utf-8"), "--out")
        print(f"note: {arguments.out} holds {_SAID[form]}", file=sys.stderr)
    return EXIT_OK
