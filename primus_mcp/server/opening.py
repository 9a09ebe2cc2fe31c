"""From what a client says (a path, a catalogue name, YAML text; a GPU and a number of nodes) to a TuningSession."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from primus_mcp.api import Problem, resolve
from primus_mcp.errors import InputError, UnsupportedFeatureError
from primus_mcp.evaluation.digest import digest
from primus_mcp.inputs.cluster import TargetCluster, find_hardware_config, parse_cluster
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.inputs.published import is_model, published_models
from primus_mcp.inputs.workload import Workload, read_workload, workload_from_arguments
from primus_mcp.inputs.yaml_loader import MAX_BYTES, load_yaml, parse_text
from primus_mcp.server.fence import Fence
from primus_mcp.server.options import ServeOptions
from primus_mcp.session import TuningSession
from primus_mcp.space.knobs import KnobValue
from primus_mcp.space.parsing import parse_trial
from primus_mcp.trials.storage import write_atomic

ENVIRONMENT_PREFIX = "PRIMUS_"
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]+")
_DIGITS = 8
INLINE = "workload (inline)"
INLINE_CLUSTER = "cluster (inline)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a session is to be about, as the client said it."""

    workload: str
    cluster: str = ""
    gpu: str = ""
    nodes: int = 0
    gpus_per_node: int = 0
    seq_length: int = 0
    global_batch_size: int = 0
    pin: Mapping[str, Any] | None = None
    out_dir: str = ""
    reprice: bool = False

    @property
    def changed(self) -> bool:
        """Whether the session is about more than the workload as it is."""
        return bool(self.seq_length or self.global_batch_size or self.pin)


def environment() -> dict[str, str]:
    """Variables that a client's YAML may refer to: PRIMUS_*, and none that names a secret."""
    return {name: value for name, value in os.environ.items() if name.startswith(ENVIRONMENT_PREFIX) and not _SECRET.search(name)}


def is_inline(text: str) -> bool:
    """YAML text has a line break and a colon; a path or name has not."""
    return "\n" in text.strip() or (text.strip().startswith("{") and ":" in text)


def _catalogue_file(name: str) -> Path | None:
    """A bundled workload, by its file's stem."""
    for folder in (files("primus_mcp") / "_examples" / "workloads", Path(__file__).parents[2] / "examples" / "workloads"):
        if folder.is_dir():
            for entry in folder.iterdir():
                if entry.name == f"{name}.yaml":
                    with as_file(entry) as path:
                        return path
    return None


def _from_text(text: str, options: ServeOptions, home: Path, where: str) -> Workload:
    """Inline YAML is kept below the home, so that the session can be repeated; its path appears in no message."""
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise InputError(f"has more than {MAX_BYTES:,} bytes", where=where, remedy="this is no workload file")
    document = parse_text(text, where)
    stem = _UNSAFE.sub("_", str(document.get("exp_name") or "workload"))[:60].strip("._") or "workload"
    if "${" in stem or stem.startswith("_"):
        stem = "workload"
    path = home / "inline" / f"{stem}-{digest(text)[:_DIGITS]}.yaml"
    write_atomic(path, text)
    try:
        return read_workload(path, primus_root=options.primus_root, environment=environment())
    except UnsupportedFeatureError as error:
        raise UnsupportedFeatureError(error.problem.replace(str(path), where), where=where, remedy=error.remedy) from None
    except InputError as error:
        raise InputError(
            error.problem.replace(str(path), where), where=(error.where or where).replace(str(path), where), remedy=error.remedy
        ) from None


def load_workload(request: Request, fence: Fence, options: ServeOptions, home: Path) -> Workload:
    """The workload, with another sequence length if one is asked for."""
    source = request.workload
    if is_inline(source):
        workload = _from_text(source, options, home, INLINE)
    elif (bundled := _catalogue_file(source)) is not None:
        workload = read_workload(bundled, primus_root=options.primus_root, environment=environment())
    elif is_model(source):
        return workload_from_model(source, seq_length=request.seq_length or None, gbs=request.global_batch_size or None)
    elif "/" in source or "\\" in source or source.endswith((".yaml", ".yml")):
        workload = read_workload(fence.path(source, "workload"), primus_root=options.primus_root, environment=environment())
    else:
        near = get_close_matches(source, published_models(), n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InputError(
            f"{source[:80]!r} is no model of the catalogue",
            where="workload",
            remedy=f"{hint}list_models lists the names; a file is given by its path",
        )
    return _with_seq_length(workload, request.seq_length) if request.seq_length else workload


def _with_seq_length(workload: Workload, seq_length: int) -> Workload:
    changes = {
        "seq_length": seq_length,
        "max_position_embeddings": max(seq_length, int(workload.arguments["max_position_embeddings"] or 0)),
    }
    document = deepcopy(dict(workload.document))
    module = document["modules"][workload.module]
    module["overrides"] = {**(module.get("overrides") or {}), **changes}
    changed = workload_from_arguments(
        {**workload.arguments, **changes},
        workload.architecture.name,
        path=workload.path,
        module=workload.module,
        document=document,
        read=workload.files,
    )
    return replace(changed, name=workload.name)


def load_cluster(request: Request, fence: Fence, options: ServeOptions) -> TargetCluster:
    """The cluster: a file, YAML text, or a GPU and nodes; the latter also change what a file says."""
    base: Path | None = None
    if request.cluster and is_inline(request.cluster):
        document, where = parse_text(request.cluster, INLINE_CLUSTER), INLINE_CLUSTER
    elif request.cluster:
        path = fence.path(request.cluster, "cluster")
        document, where, base = load_yaml(path), str(path), path.parent
    elif request.gpu and request.nodes:
        document, where = {}, "cluster"
    else:
        raise InputError("no target cluster", where="cluster", remedy="give gpu and nodes (list_gpus lists the names), or a cluster YAML")
    target = document.get("target_cluster")
    target = dict(target) if isinstance(target, dict) else {}
    changes = {"gpu_arch": request.gpu, "num_nodes": request.nodes, "gpus_per_node": request.gpus_per_node}
    asked = {name: value for name, value in changes.items() if value}
    if request.cluster and asked:
        target.pop("name", None)
    if asked.get("gpu_arch") not in (None, target.get("gpu_arch")):
        target.pop("hardware_config", None)
    if target or asked:
        document = {**document, "target_cluster": {**target, **asked}}
    hardware = target.get("hardware_config")
    if isinstance(hardware, str):
        fence.require(
            find_hardware_config(hardware, base=base, primus_root=options.primus_root, where=where), "target_cluster.hardware_config"
        )
    return parse_cluster(document, where=where, base=base, primus_root=options.primus_root)


def pins_of(request: Request) -> dict[str, KnobValue]:
    """Pinned knobs with their types checked."""
    given = {name: value for name, value in (request.pin or {}).items() if value is not None}
    trial = parse_trial(given)
    return {name: getattr(trial, name) for name in given}


def safe_name(text: str) -> str:
    """A folder name for any text."""
    return _UNSAFE.sub("_", text)[:150].strip(".") or "run"


def run_folder(request: Request, workload: Workload, target: TargetCluster, home: Path) -> Path:
    """`<home>/runs/<cluster>-<workload>`; what differs from the workload as it is adds a digest, so that runs are kept apart."""
    name = safe_name(f"{target.cluster.name}-{workload.name}")
    if request.changed or is_inline(request.workload) or is_inline(request.cluster):
        inline = request.workload if is_inline(request.workload) else ""
        name += "-" + digest(inline, request.cluster, request.seq_length, request.global_batch_size, request.pin)[:_DIGITS]
    return home / "runs" / name


def resolved(request: Request, fence: Fence, options: ServeOptions, home: Path) -> tuple[Workload, Problem]:
    """The workload as its file says, and the problem that it is on the cluster."""
    workload, target = load_workload(request, fence, options, home), load_cluster(request, fence, options)
    problem = resolve(
        workload,
        target,
        gbs=request.global_batch_size or None,
        pins=pins_of(request),
        allow_policy=options.allow_policy,
        mode=options.mode,
    )
    return workload, problem


def start_session(
    request: Request, fence: Fence, options: ServeOptions, home: Path, folder_on: Callable[[str], Path | None]
) -> tuple[TuningSession, tuple[str, ...]]:
    """The session and the lines that say how the baseline was adapted. `folder_on(cluster name)` None: the default place."""
    workload, problem = resolved(request, fence, options, home)
    session = TuningSession.open(
        problem.workload,
        problem.target,
        problem.evaluator,
        folder_on(problem.target.cluster.name) or run_folder(request, workload, problem.target, home),
        reprice=request.reprice,
        limits=options.limits,
        pins=problem.rules.pins,
    )
    return session, problem.adapted.lines
