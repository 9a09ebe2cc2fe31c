"""What `memory`, `performance` and `both` share: the flags of Primus's projection guide, and the configurations that they name."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primus_mcp.cli.common import (
    add_model_sources,
    add_reading_arguments,
    count,
    knob_values,
    load_workload,
    picture_file,
    positive_count,
    positive_number,
)
from primus_mcp.cli.evaluator_options import require_no_artefact
from primus_mcp.cli.measuring import add_measuring_arguments, measuring_settings
from primus_mcp.cli.projected_clusters import CLOCK_VARIABLE, GPU_VARIABLE, named_clusters
from primus_mcp.errors import InputError, NothingLegalError
from primus_mcp.units import MHZ

if TYPE_CHECKING:
    from primus_mcp.evaluation.measured import Measured
    from primus_mcp.inputs.hardware import Cluster
    from primus_mcp.inputs.training import TrainingConfig
    from primus_mcp.inputs.workload import Workload
    from primus_mcp.projection.memory import MemoryProjection, Word
    from primus_mcp.space.knobs import TrialConfig

GPUS_PER_NODE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Projected:
    """One configuration on one cluster; `measured` where --profiling-mode anchors it."""

    workload: Workload
    trial: TrialConfig
    config: TrainingConfig
    cluster: Cluster
    measured: Measured | None = None

    @property
    def title(self) -> str:
        """One line that names it."""
        degrees = " ".join(f"{name.upper()} {getattr(self.config, name)}" for name in ("tp", "pp", "ep", "cp", "vpp", "mbs", "gbs"))
        return f"{self.workload.name} on {self.place}: {degrees}"

    @property
    def place(self) -> str:
        """Nodes, GPUs a node, GPU, and its clock where it is not the catalogue's."""
        clock_mhz = self.cluster.clock_ratio * self.cluster.gpu.boost_clock_hz / MHZ
        clock = "" if self.cluster.clock_ratio == 1 else f" at {clock_mhz:,.0f} MHz"
        return f"{self.cluster.num_nodes} x {self.cluster.gpus_per_node} {self.cluster.gpu.name}{clock}"


def add_projection_arguments(parser: argparse.ArgumentParser) -> None:
    """The projection guide's flags, and the package's own names for them."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", "--exp", "--workload", dest="workload", type=Path, metavar="YAML", help="Primus pretrain YAML")
    add_model_sources(source)
    add_reading_arguments(parser, vocab="the vocabulary that runs, or the model's own")
    parser.add_argument("--target-cluster", type=Path, metavar="YAML", help="target-cluster YAML")
    parser.add_argument("--gpu-arch", "--arch", "--gpu", dest="arch", metavar="GPU[,GPU]", help=f"GPU; several compare ({GPU_VARIABLE})")
    parser.add_argument(
        "--target-nodes",
        "--target-num-nodes",
        "--nodes",
        dest="nodes",
        metavar="N[,N]",
        help="nodes; several compare (default: the fewest that TP, PP, CP and EP need)",
    )
    parser.add_argument("--gpus-per-node", type=positive_count, metavar="N", help=f"GPUs a node (default {GPUS_PER_NODE})")
    parser.add_argument("--gpu-clock-mhz", type=positive_number, metavar="MHZ", help=f"GPU clock ({CLOCK_VARIABLE})")
    parser.add_argument("--hardware-config", type=Path, metavar="YAML", help="network figures that replace the catalogue's")
    parser.add_argument("--profile", metavar="NAME", help="dated software profile of the GPU")
    parser.add_argument("--gemm-backend", choices=("auto", "roofline", "origami"), default="auto", help="GEMM model")
    parser.add_argument(
        "--profiling-mode",
        choices=("simulate", "benchmark", "both"),
        default="simulate",
        help="analytic, or anchored on layers measured on this host (both: side by side)",
    )
    add_measuring_arguments(parser)
    parser.add_argument("--target-ep-size", type=positive_count, metavar="N", help="expert_model_parallel_size")
    parser.add_argument("--micro-batch-size", type=positive_count, metavar="N", help="micro-batch")
    parser.add_argument("--global-batch-size", type=positive_count, metavar="N", help="global batch")
    parser.add_argument("--num-virtual-stages-per-pipeline-rank", dest="vpp", type=positive_count, metavar="N", help="virtual stages")
    parser.add_argument(
        "--pipeline-schedule-algorithm", "--schedule", dest="schedule", metavar="NAME", help="pipeline schedule, or all to compare"
    )
    parser.add_argument("--enable-zero-bubble", action="store_true", help="zero-bubble schedule")
    parser.add_argument("--enable-deepep", action="store_true", help="DeepEP dispatcher")
    parser.add_argument("--sync-free-stage", type=count, metavar="0-3", help="sync-free MoE stage")
    parser.add_argument("--set", action="append", metavar="KNOB=VALUE", help="any other knob (repeatable), for example tp=8")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--plot", type=picture_file, metavar="FILE", help="write a picture, .png or .svg")


def _changes(arguments: argparse.Namespace) -> dict[str, Any]:
    """Flags to knobs."""
    named = {
        "ep": arguments.target_ep_size,
        "mbs": arguments.micro_batch_size,
        "gbs": arguments.global_batch_size,
        "vpp": arguments.vpp,
        "sync_free_stage": arguments.sync_free_stage,
        "use_turbo_deepep": True if arguments.enable_deepep else None,
        "pp_schedule": "zerobubble" if arguments.enable_zero_bubble else None if arguments.schedule == "all" else arguments.schedule,
    }
    return {**{name: value for name, value in named.items() if value is not None}, **knob_values(arguments.set, "--set")}


def _fewest_nodes(config: TrainingConfig, per_node: int, *, moe: bool) -> int:
    """Nodes of one replica: max(TP PP CP, ETP PP EP) GPUs, rounded up."""
    replica = config.tp * config.pp * config.cp
    return -(-(max(replica, config.etp * config.pp * config.ep) if moe else replica) // per_node)


def resolve_projection(arguments: argparse.Namespace, extra: Mapping[str, Any] | None = None) -> list[Projected]:
    """The configurations that the flags name, one a cluster; what the trainer would refuse goes to stderr. Raises InputError,
    where nothing is legal NothingLegalError.
    """
    from primus_mcp.space.legality import check_legality
    from primus_mcp.space.parsing import parse_trial
    from primus_mcp.space.trainer_keys import resolve

    arguments.gbs = None
    workload = load_workload(arguments)
    trial = parse_trial({**_changes(arguments), **(extra or {})})
    per_node = arguments.gpus_per_node or GPUS_PER_NODE
    fewest = _fewest_nodes(resolve(workload, trial), per_node, moe=workload.architecture.is_moe)
    found, refused = [], []
    for cluster in named_clusters(arguments, fewest, per_node):
        verdict = check_legality(workload, trial, cluster, allow_policy=True)
        if verdict.legal and verdict.config is not None:
            found.append(Projected(workload=workload, trial=trial, config=verdict.config, cluster=cluster))
        else:
            refused.append(f"{cluster.num_nodes} x {cluster.gpus_per_node} {cluster.gpu.name}: {verdict.reason or 'illegal'}")
    if not found:
        raise NothingLegalError("; ".join(refused), remedy="change the flags named, or the number of nodes")
    for line in refused:
        print(f"not possible: {line}", file=sys.stderr)
    return found


def measured_cases(arguments: argparse.Namespace) -> list[Projected]:
    """The configurations, anchored where --profiling-mode asks for it; layers of the same shape are measured once. Raises InputError, and
    MeasurementError.
    """
    if arguments.profiling_mode == "simulate":
        require_no_artefact(arguments)
        return resolve_projection(arguments)
    cases = resolve_projection(arguments)
    from primus_mcp.evaluation.measured import measured_projection
    from primus_mcp.inputs.cluster import read_cluster

    where = arguments.target_cluster
    host = read_cluster(where, primus_root=arguments.primus_root).benchmark_host if where is not None else None
    settings, found = measuring_settings(arguments, host), []
    for case in cases:
        arch, config = case.workload.architecture, case.config
        measured = measured_projection(arch, config, case.cluster, settings, backend=arguments.gemm_backend)
        settings = replace(settings, known=measured.artefact)
        found.append(replace(case, measured=measured))
    return found


def memory_of(case: Projected) -> MemoryProjection:
    """Projected, or anchored on a measured run."""
    from primus_mcp.projection.memory import project_memory

    if case.measured is not None:
        return case.measured.memory
    return project_memory(case.workload.architecture, case.config, case.cluster)


def verdict_of(case: Projected) -> Word:
    """Does it fit?"""
    return memory_of(case).verdict(case.cluster)


def print_documents(documents: Sequence[Mapping[str, Any]]) -> None:
    """One JSON document: of the only case itself, of several a list."""
    print(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2))


def tell_findings(workload: Workload) -> None:
    """What changes what the answer is about, to stderr."""
    from primus_mcp.inputs.findings import TOLD

    for finding in workload.findings:
        if finding.code in TOLD:
            print(f"note: {finding.text}", file=sys.stderr)


def write_bytes(path: Path, data: bytes, flag: str) -> None:
    """A file. Raises InputError."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise InputError(f"cannot be written: {error}", where=flag, remedy="name a writable file") from None


def expert_replicas(expert_dp: int | None, *, moe: bool) -> str:
    """`, expert dp 4` of a model with experts; nothing of another."""
    return f", expert dp {expert_dp}" if moe else ""


def tell_picture(path: Path, what: str) -> None:
    """What was drawn, and where it lies, to stderr: stdout may be one JSON document."""
    print(f"{what} in {path}", file=sys.stderr)
