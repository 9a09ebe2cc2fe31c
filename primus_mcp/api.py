"""The programming interface: `import primus_mcp` gives `tune`, `evaluate`, `sweep`, `axes`, `Session` and what they return.

A workload is a path, a model's name, a `Workload`; a cluster is a path, a GPU's name with `nodes`, a `TargetCluster`; the keywords of
`Sources` say more about both. All that can be wrong with them is a `PrimusMcpError` of one line.
Nothing is printed, nothing but the out-dir is written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from primus_mcp.errors import InputError
from primus_mcp.evaluation.evaluators import Evaluator, Mode, ProfilingMode, Rules, make_evaluator, with_policy_warnings
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.inputs.cluster import TargetCluster, parse_cluster, read_cluster
from primus_mcp.inputs.findings import TOLD
from primus_mcp.inputs.hf_workload import workload_from_hf
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.inputs.workload import Workload, read_workload
from primus_mcp.projection.ops.backend import GemmBackend
from primus_mcp.reports.summary import Summary
from primus_mcp.search.sweep import sweep as sweep_space
from primus_mcp.search.sweep_result import SweepResult
from primus_mcp.search.sweep_tools import analytic, check_axes
from primus_mcp.session import TuningSession as Session
from primus_mcp.space.adapted import AdaptedBaseline, adapt_baseline
from primus_mcp.space.axes import legal_axes
from primus_mcp.space.knobs import KnobValue
from primus_mcp.space.parsing import parse_trial

if TYPE_CHECKING:
    from primus_mcp.evaluation.measured import BenchmarkSettings

__all__ = [
    "Outcome",
    "Problem",
    "Session",
    "Sources",
    "SweepResult",
    "axes",
    "evaluate",
    "problem",
    "resolve",
    "resolve_cluster",
    "resolve_workload",
    "sweep",
    "tune",
]

_YAML = (".yaml", ".yml")


class Sources(TypedDict, total=False):
    """Keywords of `problem`, `tune`, `evaluate`, `sweep` and `axes` that say more about both; each may be left out or None."""

    nodes: int | None
    """With a GPU's name; default 1."""
    gpus_per_node: int | None
    """With a GPU's name; default 8."""
    seq_length: int | None
    """Tokens a sequence, with a model's name or a config.json; default: the model's own."""
    gbs: int | None
    """Sequences an iteration; default: the workload's own."""
    primus_root: Path | None
    """Primus checkout whose model and module files come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A workload on a cluster, ready to be searched. `workload` is the adapted one, whose baseline runs on the cluster."""

    workload: Workload
    target: TargetCluster
    adapted: AdaptedBaseline
    rules: Rules
    evaluator: Evaluator
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What `tune` found. `best` is None where nothing legal fits; `report` is the text that the command line prints."""

    best: EvaluationResult | None
    summary: Summary
    report: str
    session: Session
    notes: tuple[str, ...]


def resolve_workload(
    workload: str | Path | Workload, *, seq_length: int | None = None, gbs: int | None = None, primus_root: Path | None = None
) -> Workload:
    """A Primus file (a path, or a text that ends in .yaml), a Hugging Face config.json (.json), or a model of the catalogue by name.

    `seq_length` goes with the latter two only.
    """
    if isinstance(workload, Workload):
        return workload
    if str(workload).lower().endswith(".json"):
        return workload_from_hf(Path(workload), seq_length=seq_length, gbs=gbs)
    if isinstance(workload, str) and not workload.lower().endswith(_YAML):
        return workload_from_model(workload, seq_length=seq_length, gbs=gbs)
    if seq_length is not None:
        raise InputError(
            "goes with a model's name or config.json only", where="seq_length", remedy="write seq_length into the workload's overrides"
        )
    return read_workload(Path(workload), primus_root=primus_root)


def resolve_cluster(
    cluster: str | Path | TargetCluster, *, nodes: int | None = None, gpus_per_node: int | None = None, primus_root: Path | None = None
) -> TargetCluster:
    """A cluster file (a path, or a text that ends in .yaml), or a GPU of the catalogue by name with `nodes` (1) and `gpus_per_node` (8)."""
    if isinstance(cluster, TargetCluster):
        return cluster
    if isinstance(cluster, str) and not cluster.lower().endswith(_YAML):
        block = {
            "gpu_arch": cluster,
            "num_nodes": 1 if nodes is None else nodes,
            "gpus_per_node": 8 if gpus_per_node is None else gpus_per_node,
        }
        return parse_cluster({"target_cluster": block}, where="cluster")
    if nodes is not None or gpus_per_node is not None:
        raise InputError("go with a GPU's name only", where="nodes, gpus_per_node", remedy="write them into the cluster file")
    return read_cluster(Path(cluster), primus_root=primus_root)


def resolve(
    original: Workload,
    target: TargetCluster,
    *,
    gbs: int | None = None,
    scale_gbs: bool = False,
    pins: Mapping[str, KnobValue] | None = None,
    allow_policy: bool = False,
    mode: Mode = "full",
    profiling_mode: ProfilingMode = "simulate",
    gemm_backend: GemmBackend = "auto",
    benchmark: BenchmarkSettings | None = None,
) -> Problem:
    """Adapt the workload's baseline to the cluster and build the evaluator. Raises InputError where nothing is legal."""
    adapted = adapt_baseline(original, target.cluster, gbs=gbs, scale_gbs=scale_gbs)
    rules = Rules(
        workload=adapted.workload,
        cluster=target.cluster,
        axes=dict(target.axes.model_dump()),
        pins=pins or {},
        allow_policy=allow_policy,
    )
    evaluator = make_evaluator(
        rules,
        mode=mode,
        profiling_mode=profiling_mode,
        has_gpu=target.benchmark_host.has_gpu,
        gemm_backend=gemm_backend,
        benchmark=benchmark or target.benchmark_host,
    )
    told = tuple(finding.text for finding in original.findings if finding.code in TOLD)
    return Problem(
        workload=adapted.workload,
        target=target,
        adapted=adapted,
        rules=rules,
        evaluator=evaluator,
        notes=(*told, *target.warnings, *adapted.lines),
    )


def _pins(pins: Mapping[str, KnobValue] | None) -> dict[str, KnobValue]:
    given = {name: value for name, value in (pins or {}).items() if value is not None}
    trial = parse_trial(given)
    return {name: getattr(trial, name) for name in given}


def _resolved(
    workload: str | Path | Workload,
    cluster: str | Path | TargetCluster,
    *,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    seq_length: int | None = None,
    gbs: int | None = None,
    primus_root: Path | None = None,
) -> tuple[Workload, TargetCluster]:
    original = resolve_workload(workload, seq_length=seq_length, gbs=gbs, primus_root=primus_root)
    return original, resolve_cluster(cluster, nodes=nodes, gpus_per_node=gpus_per_node, primus_root=primus_root)


def problem(
    workload: str | Path | Workload,
    cluster: str | Path | TargetCluster,
    *,
    pins: Mapping[str, KnobValue] | None = None,
    allow_policy: bool = False,
    mode: Mode = "full",
    gemm_backend: GemmBackend = "auto",
    **sources: Unpack[Sources],
) -> Problem:
    """Resolve both names or files (`Sources`), see `resolve`. `problem.rules` and `problem.evaluator` price anything without an out-dir."""
    original, target = _resolved(workload, cluster, **sources)
    return resolve(
        original, target, gbs=sources.get("gbs"), pins=_pins(pins), allow_policy=allow_policy, mode=mode, gemm_backend=gemm_backend
    )


def tune(
    workload: str | Path | Workload,
    cluster: str | Path | TargetCluster,
    *,
    out_dir: str | Path | None = None,
    pins: Mapping[str, KnobValue] | None = None,
    allow_policy: bool = False,
    mode: Literal["dry", "memory-real", "full"] = "full",
    gemm_backend: GemmBackend = "auto",
    seed_budget: int = 12,
    reprice: bool = False,
    **sources: Unpack[Sources],
) -> Outcome:
    """The search without a language model: the seed plan until `seed_budget` configurations are priced.

    Trials and artefacts go to `out_dir` (None: a new temporary folder, see `session.folder.path`), which a later call continues.
    """
    found = problem(workload, cluster, pins=pins, allow_policy=allow_policy, mode=mode, gemm_backend=gemm_backend, **sources)
    folder = Path(tempfile.mkdtemp(prefix="primus-mcp-")) if out_dir is None else Path(out_dir)
    session = Session.open(
        found.workload,
        found.target,
        found.evaluator,
        folder,
        reprice=reprice,
        limits={"seed_budget": seed_budget},
        pins=found.rules.pins,
    )
    stopped = session.run_seeds().stopped_because
    summary = session.finish(stopped)
    return Outcome(best=session.best().best, summary=summary, report=session.report(), session=session, notes=found.notes)


def evaluate(
    workload: str | Path | Workload,
    cluster: str | Path | TargetCluster,
    knobs: Mapping[str, KnobValue] | None = None,
    *,
    allow_policy: bool = False,
    gemm_backend: GemmBackend = "auto",
    **sources: Unpack[Sources],
) -> EvaluationResult:
    """Price one configuration: what `knobs` leaves out is the (adapted) workload's own. Illegal is a result, with its reason.

    Only what the trainer cannot run is illegal here; a bound of the search (a policy) is a warning, without `allow_policy`.
    """
    original, target = _resolved(workload, cluster, **sources)
    found = resolve(original, target, gbs=sources.get("gbs"), allow_policy=True, gemm_backend=gemm_backend)
    trial = parse_trial(dict(knobs or {}))
    result = found.evaluator.evaluate(trial)
    return result if allow_policy else with_policy_warnings(result, found.rules, trial)


def sweep(
    workload: str | Path | Workload,
    cluster: str | Path | TargetCluster,
    *,
    pins: Mapping[str, KnobValue] | None = None,
    only: Iterable[str] | None = None,
    where: str | None = None,
    top: int = 10,
    jobs: int = 1,
    allow_policy: bool = False,
    gemm_backend: GemmBackend = "auto",
    **sources: Unpack[Sources],
) -> SweepResult:
    """The fastest configurations of the whole legal space with the proof (docs/search.md). Nothing is written.

    `only`: knobs that may move (None: all). `where`: a condition such as `tp<=8 and memory_per_gpu_gb<200`. `jobs`: processes, which
    change nothing about the answer; more than one needs `if __name__ == "__main__"` in a script.
    """
    found = problem(workload, cluster, pins=pins, allow_policy=allow_policy, gemm_backend=gemm_backend, **sources)
    evaluator, knobs = analytic(found.evaluator), None if only is None else tuple(only)
    check_axes(evaluator, knobs or ())
    return sweep_space(evaluator, only=knobs, where=where, top=top, jobs=jobs, gemm_backend=gemm_backend)


def axes(
    workload: str | Path | Workload,
    cluster: str | Path | TargetCluster,
    *,
    pins: Mapping[str, KnobValue] | None = None,
    **sources: Unpack[Sources],
) -> dict[str, tuple[KnobValue, ...]]:
    """Every knob with the values that are legal in some configuration."""
    original, target = _resolved(workload, cluster, **sources)
    adapted = adapt_baseline(original, target.cluster, gbs=sources.get("gbs")).workload
    values = legal_axes(adapted, target.cluster, axes=dict(target.axes.model_dump()), pins=_pins(pins))
    return {name: tuple(items) for name, items in values.items()}
