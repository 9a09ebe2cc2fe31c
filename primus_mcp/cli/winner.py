"""What the winner of `primus-mcp sweep` is run with: exports, a workload file, and the command that prices it again."""

from __future__ import annotations

import argparse
import json
import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from primus_mcp.cli.setup import Problem
    from primus_mcp.search.sweep_result import SweepResult
    from primus_mcp.trials.storage import RunDirectory

_VALUES = ("workload", "model", "hf", "seq_length", "primus_root", "target_cluster", "gpus_per_node", "gbs")
_SWITCHES = ("scale_gbs", "allow_policy")
_DEFAULTS = {"vocab": "as-run", "gemm_backend": "auto"}


def _flags(arguments: argparse.Namespace, problem: Problem) -> Iterator[str]:
    """The flags that resolve this problem again, each with its value."""
    values: dict[str, Any] = {name: getattr(arguments, name, None) for name in _VALUES}
    if arguments.gpu is not None:
        values["gpu"] = problem.target.cluster.gpu.name if "," in arguments.gpu else arguments.gpu
    values["nodes"] = problem.target.cluster.num_nodes
    values |= {name: value for name, rest in _DEFAULTS.items() if (value := getattr(arguments, name, rest)) != rest}
    for name, value in values.items():
        if value is not None:
            yield from (f"--{name.replace('_', '-')}", str(value))
    yield from (f"--{name.replace('_', '-')}" for name in _SWITCHES if getattr(arguments, name, False))


def evaluate_command(arguments: argparse.Namespace, problem: Problem, trial: Mapping[str, Any]) -> str:
    """`primus-mcp evaluate` of a configuration that a sweep found, ready to paste."""
    return shlex.join(["primus-mcp", "evaluate", *_flags(arguments, problem), "--config", json.dumps(trial, separators=(",", ":"))])


def winner_text(
    arguments: argparse.Namespace, problem: Problem, result: SweepResult, directory: RunDirectory | None, *, brief: bool = False
) -> str:
    """How to run the configuration to choose: exports (not where `brief`), the workload file in the out-dir, the command that prices it."""
    from primus_mcp.reports.best import exports_block
    from primus_mcp.reports.sweep_text import chosen_of
    from primus_mcp.space.knobs import TrialConfig
    from primus_mcp.space.overlay import exports

    chosen = chosen_of(result)
    if chosen is None:
        return ""
    path = None if directory is None else str(directory.path / _file_name(problem))
    again = f"price it with all its parts: {evaluate_command(arguments, problem, chosen.trial)}\n"
    if brief:
        return (f"its workload file: {path}\n" if path else "") + again
    return f"{exports_block(exports(problem.workload, TrialConfig(**chosen.trial)), path)}\n\n{again}"


def _file_name(problem: Problem) -> str:
    return f"winner_{problem.target.cluster.name}.yaml"


def keep_winner(problem: Problem, result: SweepResult, directory: RunDirectory) -> None:
    """Write the workload file of the configuration to choose, where there is one."""
    from primus_mcp.reports.sweep_text import chosen_of
    from primus_mcp.space.knobs import TrialConfig
    from primus_mcp.space.overlay import overlay_yaml

    chosen = chosen_of(result)
    if chosen is not None:
        directory.write(_file_name(problem), overlay_yaml(problem.workload, TrialConfig(**chosen.trial)))
