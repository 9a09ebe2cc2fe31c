"""Runs `training_job.py` and the anchored projection of the same job, for tests and by hand: `python tests/measurement/truth.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from primus_mcp.evaluation.measured import plan_for
from primus_mcp.inputs.architecture import Architecture, MixtureOfExperts
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.measurement.anchor import anchor_performance
from primus_mcp.measurement.device_model import cpu_cluster
from primus_mcp.measurement.measure import MeasureSettings, measure
from primus_mcp.projection.performance import project_performance

SIZES = {"layers": 2, "hidden": 256, "ffn": 768, "heads": 8, "groups": 4, "seq": 256, "vocab": 2048, "micro_batches": 4, "steps": 30}


def job_of(kind: str) -> dict[str, Any]:
    experts = {"experts": 4, "top_k": 2, "expert_ffn": 256} if kind == "ep" else {"experts": 0, "top_k": 0, "expert_ffn": 0}
    return {**SIZES, **experts, "kind": kind}


def architecture_of(job: dict[str, Any]) -> Architecture:
    moe = (
        MixtureOfExperts(num_experts=job["experts"], top_k=job["top_k"], expert_ffn_hidden_size=job["expert_ffn"])
        if job["experts"]
        else None
    )
    return Architecture(
        name=f"toy-{job['kind']}",
        num_layers=job["layers"],
        hidden_size=job["hidden"],
        ffn_hidden_size=job["ffn"],
        num_attention_heads=job["heads"],
        num_query_groups=job["groups"],
        head_dim=job["hidden"] // job["heads"],
        seq_length=job["seq"],
        vocab_size=job["vocab"],
        vocab_source="explicit",
        experts=moe,
        moe_layers=(moe is not None,) * job["layers"],
    )


def config_of(job: dict[str, Any]) -> TrainingConfig:
    kind = job["kind"]
    return TrainingConfig(
        tp=2 if kind == "tp" else 1,
        pp=2 if kind == "pp" else 1,
        ep=2 if kind == "ep" else 1,
        mbs=1,
        gbs=job["micro_batches"] * (2 if kind == "ep" else 1),
        use_distributed_optimizer=False,
        forced_balance=True,
        grouped_gemm="legacy",
    )


def real_s(job: dict[str, Any], ranks: int) -> dict[str, float]:
    """Seconds of a step of the real loop, medians of the worse rank: wall, CPU time of its thread, time ready without a core."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "job.json", Path(folder) / "out.json"
        path.write_text(json.dumps(job))
        program = str(Path(__file__).parent / "training_job.py")
        arguments = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={ranks}",
            program,
            str(path),
            str(out),
        ]
        for last in (False, True):  # gloo's ranks now and then lose each other at start: once more, then it counts
            done = subprocess.run(arguments, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
            if done.returncode == 0:
                break
            assert not last, done.stderr.decode(errors="replace")[-2000:]
        return dict(json.loads(out.read_text()))


def projected_s(job: dict[str, Any], ranks: int, lock: Path) -> tuple[float, dict[str, float]]:
    """The anchored projection and its breakdown."""
    arch, config, cluster = architecture_of(job), config_of(job), cpu_cluster(ranks)
    plan = plan_for(arch, config, cluster, ranks)
    artefact = measure(plan, None, MeasureSettings(device="cpu", repeats=30, warm_up=5, limit_s=120, lock=lock))
    anchor = anchor_performance(arch, config, cluster, artefact, plan, backend="roofline")
    found = project_performance(arch, config, cluster, gemm_backend="roofline", measured=anchor.measured)
    return found.iteration_s, dict(found.time_breakdown_s)


WAITING = frozenset({"tp", "a2a", "pipeline_p2p", "gradient_exchange", "bubble"})
"""Components in which the thread of a rank waits for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Projected over real: wall time of an iteration, and compute over CPU time of the busiest rank's thread.

    `waited`: share of the real wall time in which a rank was ready and others had the cores. `drift`: by how much the projection from
    layers measured after the real run differs from the one before it: the machine itself changed its speed.
    """

    wall: float
    cpu: float
    waited: float
    drift: float
    text: str


@contextmanager
def first_in_line() -> Iterator[bool]:
    """Real-time scheduling for this process's next children, where that is allowed (root): what else runs here waits for them."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except (AttributeError, OSError):
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def compare(kind: str, lock: Path) -> Comparison:
    """Measure, really run, measure again, for one job of two ranks; what is compared is the mean of both projections."""
    job = job_of(kind)
    before = projected_s(job, 2, lock)
    real = real_s(job, 2)
    after = projected_s(job, 2, lock)
    projected, drift = (before[0] + after[0]) / 2, after[0] / before[0] - 1
    parts = {name: (before[1].get(name, 0.0) + after[1].get(name, 0.0)) / 2 for name in {**before[1], **after[1]}}
    computed = sum(seconds for name, seconds in parts.items() if name not in WAITING)
    wall, cpu, waited = projected / real["wall_s"], computed / real["cpu_s"], real["waited_s"] / real["wall_s"]
    shown = ", ".join(f"{name} {seconds * 1e3:.1f}" for name, seconds in parts.items() if seconds)
    text = (
        f"{kind}: projected {projected * 1e3:.1f} ms, real {real['wall_s'] * 1e3:.1f} ms ({wall - 1:+.1%}); "
        f"compute {computed * 1e3:.1f} ms, CPU time of the busiest rank {real['cpu_s'] * 1e3:.1f} ms ({cpu - 1:+.1%}); "
        f"ranks waited {waited:.0%} of the time for a core, load {os.getloadavg()[0]:.1f}, drift {drift:+.1%}; ms: {shown}"
    )
    return Comparison(wall=wall, cpu=cpu, waited=waited, drift=abs(drift), text=text)


def main() -> None:
    """Each kind as it is, and again first in line where others took the cores."""
    lock = Path(tempfile.gettempdir()) / "truth.lock"
    for kind in sys.argv[1:] or ("tp", "ep", "pp"):
        found = compare(kind, lock)
        sys.stdout.write(f"{found.text}\n")
        sys.stdout.flush()
        with first_in_line() as allowed:
            if allowed and found.waited > 0.05:
                sys.stdout.write(f"  first in line: {compare(kind, lock).text}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
