"""Tools that belong to the server itself: opening sessions, the target cluster, and jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from primus_mcp.errors import InputError
from primus_mcp.projection.parameters import total_parameters
from primus_mcp.server.jobs import Job, JobRunner
from primus_mcp.server.opening import Request
from primus_mcp.server.options import ANSWER_WITHIN_S
from primus_mcp.server.sessions import OpenSession, SessionStore
from primus_mcp.space.knobs import set_knobs
from primus_mcp.tools.configuration import baseline_knobs, read_config
from primus_mcp.tools.registry import LlmReply, Tool, tool
from primus_mcp.tools.results import Result
from primus_mcp.units import bytes_to_gb

HOST_TOOLS: dict[str, Tool] = {}
MAX_WAIT_S = 50
CANCEL_WAIT_S = 2
MAX_YAML = 200_000
Pins = Annotated[dict[str, Any] | str | None, WithJsonSchema({"type": "object", "description": 'knobs to hold, e.g. {"tp":8}'})]
Text = Annotated[str, Field(max_length=4096)]
Yaml = Annotated[str, Field(max_length=MAX_YAML, description="path or YAML text")]
Count = Annotated[int, Field(ge=0, le=1_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What the server's own tools work on, for one caller."""

    store: SessionStore
    jobs: JobRunner
    owner: str
    ask_llm: Callable[[str, str], LlmReply] | None = None


class Opened(Result):
    """A session and what it is about."""

    session_id: str
    workload: str
    model: str
    parameters: int
    cluster: str
    world_size: int
    gpu: str
    memory_cap_gb: float
    seq_length: int
    baseline: dict[str, Any] = Field(description="every knob of the baseline")
    pinned: dict[str, Any]
    notes: list[str] = Field(description="adapted baseline, findings about the workload, warnings about the cluster")
    resumed_trials: int
    best_trial_id: int | None
    best_tokens_per_s_per_gpu: float | None
    out_dir: str


class JobStatus(Result):
    """A job and, once it has ended, its result."""

    job_id: str
    state: str = Field(description="running, finished, failed, cancelled")
    title: str
    done: int
    total: int
    text: str
    error: str | None = None
    result: dict[str, Any] | None = None


def opened(entry: OpenSession) -> Opened:
    """What a client is told about its session."""
    session = entry.tuning
    cluster, best = session.target.cluster, session.best().best
    told = [finding.text for finding in session.workload.findings]
    return Opened(
        session_id=entry.session_id,
        workload=session.workload.name,
        model=session.workload.architecture.name,
        parameters=total_parameters(session.workload.architecture),
        cluster=cluster.name,
        world_size=cluster.world_size,
        gpu=cluster.gpu.name,
        memory_cap_gb=bytes_to_gb(cluster.memory_cap_bytes),
        seq_length=session.workload.architecture.seq_length,
        baseline=baseline_knobs(session),
        pinned=dict(session.pins),
        notes=[*entry.lines, *told, *session.target.warnings],
        resumed_trials=session.resumed,
        best_trial_id=best.trial_id if best else None,
        best_tokens_per_s_per_gpu=best.tokens_per_s_per_gpu if best else None,
        out_dir=str(session.folder.path),
        next="get_best and get_history show what was tried; go on with evaluate_simulate"
        if session.resumed
        else "evaluate_simulate without config_json prices the baseline; seed_trials runs the search's own plan",
    )


def status(job: Job) -> JobStatus:
    """A job as clients see it."""
    ended = job.state != "running"
    return JobStatus(
        job_id=job.job_id,
        state=job.state,
        title=job.title,
        done=job.done,
        total=job.total,
        text=job.text,
        error=job.error,
        result=job.result.model_dump(mode="json", exclude={"next"}) if job.result is not None else None,
        next=(job.result.next if job.result is not None else "")
        if ended
        else f"get_job(job_id, wait_s={int(ANSWER_WITHIN_S)}) until it ends",
    )


@tool("Open a tuning session", toolset="session", scope="host", idempotent=True, into=HOST_TOOLS)
def open_session(
    host: Host,
    workload: Annotated[str, Field(min_length=1, max_length=MAX_YAML, description="name from list_models, path, or Primus YAML text")],
    cluster: Yaml = "",
    gpu: Annotated[str, Field(max_length=100, description="name from list_gpus, e.g. mi355x")] = "",
    nodes: Count = 0,
    gpus_per_node: Count = 0,
    seq_length: Annotated[int, Field(ge=0, le=2**30)] = 0,
    global_batch_size: Annotated[int, Field(ge=0, le=2**30)] = 0,
    pin: Pins = None,
    out_dir: Text = "",
    reprice: Annotated[bool, Field(description="price an older log again")] = False,
) -> Opened:
    """Start here: a workload on a target cluster (gpu and nodes, or cluster). Resumes what was tried before. 0: as the workload says."""
    request = Request(
        workload=workload.strip() if "\n" not in workload.strip() else workload,
        cluster=cluster,
        gpu=gpu,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        seq_length=seq_length,
        global_batch_size=global_batch_size,
        pin=_pins(pin),
        out_dir=out_dir,
        reprice=reprice,
    )
    return opened(host.store.open(request, host.owner))


def _pins(pin: object) -> dict[str, Any] | None:
    if pin is None or isinstance(pin, dict):
        return pin
    return dict(set_knobs(read_config(pin)))


@tool("Change the target cluster", toolset="session", scope="host", idempotent=True, into=HOST_TOOLS)
def set_cluster(
    host: Host,
    cluster: Yaml = "",
    gpu: Text = "",
    nodes: Count = 0,
    gpus_per_node: Count = 0,
    session_id: Annotated[str, Field(max_length=100)] = "",
) -> Opened:
    """What if: the same workload on other nodes or GPUs. Results are kept apart per cluster; going back finds them again."""
    if not (cluster or gpu or nodes or gpus_per_node):
        raise InputError("nothing to change", where="set_cluster", remedy="give nodes, gpu, gpus_per_node or cluster")
    entry = host.store.find(session_id, host.owner)
    before = entry.request
    changed = replace(
        before,
        cluster=cluster or before.cluster,
        gpu=gpu or ("" if cluster else before.gpu),
        nodes=nodes or (0 if cluster else before.nodes),
        gpus_per_node=gpus_per_node or (0 if cluster else before.gpus_per_node),
    )
    host.store.set_cluster(entry, changed, own_file=not cluster)
    return opened(entry)


@tool("State and result of a job", toolset="session", scope="host", read_only=True, into=HOST_TOOLS)
def get_job(
    host: Host,
    job_id: Annotated[str, Field(max_length=100)],
    wait_s: Annotated[int, Field(ge=0, le=MAX_WAIT_S, description="wait so long for its end")] = 0,
) -> JobStatus:
    """A job that a long tool left running: its progress, and its result once it has ended."""
    job = host.jobs.find(job_id, host.owner)
    job.finished.wait(min(wait_s, ANSWER_WITHIN_S))
    return status(job)


@tool("Cancel a job", toolset="session", scope="host", destructive=True, idempotent=True, into=HOST_TOOLS)
def cancel_job(host: Host, job_id: Annotated[str, Field(max_length=100)]) -> JobStatus:
    """Stop a job; what it evaluated so far stays in the log."""
    job = host.jobs.find(job_id, host.owner)
    host.jobs.cancel(job)
    job.finished.wait(CANCEL_WAIT_S)
    return status(job)
