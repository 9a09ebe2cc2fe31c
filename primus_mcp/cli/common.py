"""Arguments that several commands share, and how they become records."""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

from primus_mcp.cli.flags import of_flags
from primus_mcp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from primus_mcp.inputs.cluster import TargetCluster
    from primus_mcp.inputs.workload import Workload

MAX_LIMIT = 1e15
"""Of a budget."""
_WHOLE = re.compile(r"[+-]?[0-9]+")
LONGEST_NUMBER = 40
MAX_MINUTES = 525_600
LEAST_JOBS, JOBS_A_CORE = 16, 4
"""Processes that may be asked for: so many on any machine, so many a core."""
MAX_LISTED = 64
"""Values of a list: each is a cluster to price."""


def positive_number(text: str) -> float:
    """A finite number above 0, for argparse."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not math.isfinite(value) or value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number above 0")
    return value


def minutes(text: str) -> float:
    """A time limit of up to a year, for argparse."""
    value = positive_number(text)
    if value > MAX_MINUTES:
        raise argparse.ArgumentTypeError(f"{_cut(text)} is more than {MAX_MINUTES:,} minutes")
    return value


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number within bounds, for argparse."""

    def read(text: str) -> int:
        if not _WHOLE.fullmatch(text.strip()):
            raise argparse.ArgumentTypeError(f"{_cut(text)} is not a whole number")
        value = int(text) if len(text) <= LONGEST_NUMBER else most + 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{_cut(text)} is not between {least} and {most:,}")
        return value

    return read


def _cut(text: str) -> str:
    return repr(text if len(text) <= LONGEST_NUMBER else f"{text[:LONGEST_NUMBER]}...")


count = whole(0, 10**9)
"""A whole number of 0 or more, for argparse."""
positive_count = whole(1, 10**9)
"""A whole number of 1 or more, for argparse."""


def node_count(text: str) -> int:
    """Nodes, as many as a cluster file may have, for argparse."""
    from primus_mcp.inputs.cluster_file import MAX_NODES

    if "," in text:
        raise argparse.ArgumentTypeError(f"{_cut(text)} is several sizes and this takes one; `primus-mcp sweep --nodes` compares sizes")
    return whole(1, MAX_NODES)(text)


def job_count(text: str) -> int:
    """Processes: more than a few a core only take memory."""
    from primus_mcp.search.sweep_crew import cores

    return whole(1, max(LEAST_JOBS, JOBS_A_CORE * cores()))(text)


def picture_file(text: str) -> Path:
    """A file for a picture, of a kind that can be drawn, for argparse."""
    from primus_mcp.reports.charts.render import SUFFIXES

    if (path := Path(text)).suffix not in SUFFIXES:
        raise argparse.ArgumentTypeError(f"{text!r} ends neither in {' nor in '.join(SUFFIXES)}")
    return path


def new_folder(text: str) -> Path:
    """A folder to write to, `~` expanded, for argparse."""
    if not text.strip() or "\0" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is no folder")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def add_model_sources(source: argparse._MutuallyExclusiveGroup) -> None:
    """--model and --hf: a workload without a workload file."""
    source.add_argument("--model", metavar="NAME", help="a model of the catalogue instead of a file (see `primus-mcp models`)")
    source.add_argument("--hf", type=Path, metavar="JSON", help="a Hugging Face config.json, or its folder, instead of a Primus file")


def add_reading_arguments(parser: argparse.ArgumentParser, *, vocab: str) -> None:
    """What `load_workload` reads a workload with. `vocab`: the help of --vocab."""
    parser.add_argument("--seq-length", type=positive_count, metavar="N", help="tokens a sequence, with --model or --hf")
    parser.add_argument("--primus-root", type=Path, metavar="DIR", help="Primus checkout whose model and module files come first")
    parser.add_argument("--vocab", choices=("as-run", "tokenizer"), default="as-run", help=vocab)


def add_workload_arguments(parser: argparse.ArgumentParser) -> None:
    """--workload, --model or --hf, and what resolves them."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--workload", type=Path, metavar="YAML", help="Primus pretrain YAML")
    add_model_sources(source)
    add_reading_arguments(
        parser, vocab="as-run: the vocabulary that the YAML makes the trainer build (mock data has its own); tokenizer: the model's own"
    )


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """--target-cluster, or --gpu with --nodes."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--target-cluster", type=Path, metavar="YAML", help="target-cluster YAML")
    source.add_argument("--gpu", metavar="NAME", help="a GPU of the catalogue instead of a file (see `primus-mcp gpus`)")
    parser.add_argument("--nodes", type=node_count, metavar="N", help="nodes (default: the cluster file's, else 1)")
    parser.add_argument("--gpus-per-node", type=positive_count, metavar="N", help="GPUs a node, with --gpu (default 8)")


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    """--gemm-backend, --allow-policy, --gbs, --scale-gbs."""
    parser.add_argument(
        "--gemm-backend", choices=("auto", "roofline", "origami"), default="auto", help="GEMM model (auto: Origami where installed)"
    )
    parser.add_argument(
        "--allow-policy", action="store_true", help="lift the policy bounds of the search; what the trainer cannot run stays refused"
    )
    batch = parser.add_mutually_exclusive_group()
    batch.add_argument("--gbs", type=positive_count, metavar="N", help="global batch size of the baseline")
    batch.add_argument("--scale-gbs", action="store_true", help="scale the workload's global batch size by target GPUs / source GPUs")


def load_workload(arguments: argparse.Namespace) -> Workload:
    """The workload that --workload, --model or --hf names."""
    from primus_mcp.inputs.hf_workload import workload_from_hf
    from primus_mcp.inputs.model_workload import workload_from_model
    from primus_mcp.inputs.workload import read_workload

    root: Path | None = arguments.primus_root
    if root is not None and not root.is_dir():
        raise InputError("is no folder", where=str(root), remedy="name a Primus checkout")
    length: int | None = getattr(arguments, "seq_length", None)
    gbs: int | None = getattr(arguments, "gbs", None)
    if getattr(arguments, "hf", None) is not None:
        return workload_from_hf(arguments.hf, seq_length=length, gbs=gbs)
    if arguments.workload is None:
        return workload_from_model(arguments.model, seq_length=length, gbs=gbs)
    if length is not None:
        raise InputError("goes with --model and --hf only", where="--seq-length", remedy="write seq_length into the workload's overrides")
    return read_workload(arguments.workload, primus_root=arguments.primus_root, vocab=arguments.vocab)


def load_cluster(arguments: argparse.Namespace) -> TargetCluster:
    """The cluster that --target-cluster or --gpu and --nodes name."""
    from primus_mcp.inputs.cluster import parse_cluster, read_cluster

    if arguments.target_cluster is None:
        block = {"gpu_arch": arguments.gpu, "num_nodes": arguments.nodes or 1, "gpus_per_node": arguments.gpus_per_node or 8}
        try:
            return parse_cluster({"target_cluster": block}, where="--gpu", own_gpus=True)
        except InputError as error:
            raise of_flags(error, {"gpus_per_node": "--gpus-per-node"}) from None
    if arguments.gpus_per_node is not None:
        raise InputError("goes with --gpu only", where="--gpus-per-node", remedy="write it into the cluster file")
    return read_cluster(arguments.target_cluster, primus_root=arguments.primus_root, nodes=arguments.nodes)


def knob_values(pairs: list[str] | None, flag: str) -> dict[str, object]:
    """`tp=8 fp8=none` to a mapping; values are read as JSON scalars, bare words as text."""
    import json

    values: dict[str, object] = {}
    for pair in pairs or []:
        name, separator, text = pair.partition("=")
        if not separator or not name or not text:
            example = "max_rounds=4" if flag == "--budget" else "tp=8"
            raise InputError(f"{pair!r} is not name=value", where=flag, remedy=f"write for example {example}")
        if name in values:
            raise InputError(f"{name} is given twice", where=flag, remedy="give each knob once")
        try:
            values[name] = json.loads(text)
        except (ValueError, RecursionError):
            values[name] = text
    return values


def budget_limits(pairs: list[str] | None) -> dict[str, float | None]:
    """`max_rounds=4 max_usd=null` to limits by name; null: none. Raises InputError that names --budget."""
    from primus_mcp.trials.budget import LIMIT_NAMES

    limits: dict[str, float | None] = {}
    for name, value in knob_values(pairs, "--budget").items():
        if name not in LIMIT_NAMES:
            raise InputError(f"there is no budget {name!r}", where="--budget", remedy=f"use one of {', '.join(LIMIT_NAMES)}")
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_LIMIT):
            remedy = "write for example max_rounds=4, or null for no limit"
            raise InputError(f"{name}={value!r} is not a number from 0 to {MAX_LIMIT:g}", where="--budget", remedy=remedy)
        limits[name] = value
    return limits


def listed(text: str, flag: str) -> list[str]:
    """The words of a list with commas, each once. Raises InputError for an empty one, and for a list without an end."""
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise InputError(f"{text[:LONGEST_NUMBER]!r} has an empty place", where=flag, remedy="separate values by single commas")
    words = list(dict.fromkeys(words))
    if len(words) > MAX_LISTED:
        raise InputError(f"names {len(words):,} values, at most {MAX_LISTED} are taken", where=flag, remedy="ask for fewer at once")
    return words


def listed_gpus(text: str, flag: str) -> list[str]:
    """The same of GPUs, of which two names of one GPU are one."""
    from primus_mcp.inputs.hardware_files import gpu_profile

    named: dict[str, str] = {}
    for word in listed(text, flag):
        try:
            named.setdefault(gpu_profile(word).name, word)
        except InputError:  # a file, or nothing: who builds the cluster says so
            named.setdefault(word, word)
    return list(named.values())


def listed_nodes(text: str, flag: str) -> list[int]:
    """The same of numbers of nodes."""
    try:
        return list(dict.fromkeys(node_count(word) for word in listed(text, flag)))
    except argparse.ArgumentTypeError as error:
        raise InputError(str(error), where=flag, remedy="write for example 4,8,16") from None
