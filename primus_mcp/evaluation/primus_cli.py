"""`--evaluator primus`: the projection of a Primus checkout instead of our own, with a guard for each of its known faults."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from primus_mcp.errors import InputError, PrimusMcpError
from primus_mcp.evaluation.evaluators import Evaluator, Mode, Rules, over_margin
from primus_mcp.evaluation.primus_faults import configuration_faults, time_faults
from primus_mcp.evaluation.primus_output import PrimusMemory, faults, parse_memory, parse_time
from primus_mcp.evaluation.result import EvaluationResult, Fidelity, ResultWarning
from primus_mcp.inputs.regular_file import read_regular
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.performance.flops import model_flops_per_sequence
from primus_mcp.projection.placement import place
from primus_mcp.space.knobs import TrialConfig
from primus_mcp.space.overlay import overlay_yaml
from primus_mcp.units import GIB, TFLOPS

ENTRY = Path("primus") / "cli" / "main.py"
Profiling = Literal["simulate", "benchmark"]
_DROPPED = re.compile(r"^(PRIMUS_|NNODES$|NODE_RANK$|GPUS_PER_NODE$|WORLD_SIZE$|RANK$|LOCAL_RANK$|MASTER_)")
_COMMIT = re.compile(r"^[0-9a-f]{40}$")
_TAIL = 400


class PrimusError(PrimusMcpError):
    """Primus's projection could not be run, or ended with an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one command printed."""

    code: int
    output: str


Runner = Callable[[list[str], Mapping[str, str], Path, float], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimusSettings:
    """`python` runs the checkout (its dependencies must be there). `profiling` benchmark: on this host's GPUs, `gpus` processes."""

    root: Path
    python: str = sys.executable
    profiling: Profiling = "simulate"
    gpus: int = 1
    hardware_config: Path | None = None
    limit_s: float = 600.0


def run_command(arguments: list[str], environment: Mapping[str, str], folder: Path, limit_s: float) -> Answer:
    """One child with its own process group, no input, a time limit; both streams together. Raises PrimusError."""
    try:
        child = subprocess.Popen(  # noqa: S603
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
        )
    except OSError as error:
        raise PrimusError(f"cannot start {arguments[0]}: {error.strerror or error}") from None
    try:
        output, _ = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise PrimusError(f"Primus's projection took longer than {limit_s:g} s and was ended") from None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(child.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        child.kill()
        child.wait()
    return Answer(code=child.returncode, output=output.decode("utf-8", errors="replace"))


def checkout_problem(root: Path) -> str | None:
    """Why a folder cannot serve as a Primus checkout; None: it can."""
    if not root.is_dir():
        return f"{root} is no folder"
    if not (root / ENTRY).is_file():
        return f"{root} holds no {ENTRY}: it is no Primus checkout"
    return None


def commit_of(root: Path) -> str:
    """The checkout's commit, read from its files; 'unknown' where it is no git checkout."""
    with suppress(OSError, UnicodeDecodeError):
        head = read_regular(root / ".git" / "HEAD").decode("utf-8").strip()
        if head.startswith("ref: "):
            head = read_regular(root / ".git" / head.removeprefix("ref: ")).decode("utf-8").strip()
        if _COMMIT.match(head):
            return head
    return "unknown"


class PrimusEvaluator(Evaluator):
    """Our rules, Primus's numbers. A fault that makes a number wrong takes the number away and says why."""

    mode: Mode = "full"
    fidelity: Fidelity = "primus"

    def __init__(self, rules: Rules, settings: PrimusSettings, *, runner: Runner = run_command) -> None:
        super().__init__(rules)
        if (problem := checkout_problem(settings.root)) is not None:
            raise InputError(problem, where="--primus-root", remedy="name a checkout of AMD-AGI/Primus")
        self.settings, self._run = replace(settings, root=settings.root.resolve()), runner  # its commands run in that folder
        self.commit = commit_of(settings.root)
        self.measures = settings.profiling == "benchmark"

    @property
    def identity(self) -> str:
        """Evaluator and commit."""
        return f"primus@{self.commit[:12]}/{self.settings.profiling}/{self.cluster.gpu.name}"

    def command(self, what: Literal["memory", "performance"], overlay: Path) -> list[str]:
        """The argument list (flags of AMD-AGI/Primus@0d375567, primus/cli/subcommands/projection.py); no shell reads it."""
        settings, cluster = self.settings, self.cluster
        launcher = [settings.python]
        if settings.profiling == "benchmark":
            launcher += ["-m", "torch.distributed.run", "--standalone", "--nnodes=1", f"--nproc-per-node={settings.gpus}"]
        arguments = [*launcher, str(settings.root / ENTRY), "projection", what, "--config", str(overlay)]
        arguments += ["--target-nodes", str(cluster.num_nodes)]
        if settings.profiling == "benchmark":
            arguments += ["--benchmark-gpus", str(settings.gpus)]
        if what == "memory":
            return [*arguments, "--memory-mode", settings.profiling]
        arguments += ["--profiling-mode", settings.profiling, "--gpu-arch", cluster.gpu.name]
        if settings.hardware_config is not None:
            arguments += ["--hardware-config", str(settings.hardware_config)]
        return arguments

    def environment(self) -> dict[str, str]:
        """This process's, without what would change the configuration; the memory projection takes the nodes from NNODES only."""
        kept = {name: value for name, value in os.environ.items() if not _DROPPED.match(name)}
        path = os.pathsep.join(part for part in (str(self.settings.root), kept.get("PYTHONPATH", "")) if part)
        sizes = {"NNODES": str(self.cluster.num_nodes), "GPUS_PER_NODE": str(self.cluster.gpus_per_node)}
        return {**kept, **sizes, "PYTHONPATH": path, "PYTHONUTF8": "1", "HSA_NO_SCRATCH_RECLAIM": "1"}

    def _ask(self, what: Literal["memory", "performance"], overlay: Path) -> str:
        answer = self._run(self.command(what, overlay), self.environment(), self.settings.root, self.settings.limit_s)
        if answer.code != 0:
            tail = " ".join(answer.output[-_TAIL:].split())
            raise PrimusError(f"Primus's projection {what} ended with code {answer.code}: {tail}")
        return answer.output

    def price(self, trial: TrialConfig, config: TrainingConfig, *, even_if_over: bool = False) -> EvaluationResult:
        """Memory, then time. Raises PrimusError where Primus ends with an error."""
        placement = place(self.workload.architecture, config, self.cluster.world_size)
        warnings = [ResultWarning(code=code, text=text) for code, text in configuration_faults(self.workload.architecture, config)]
        fields: dict[str, Any] = {"source": "memory_only", "backend": f"primus@{self.commit}"}
        with tempfile.TemporaryDirectory(prefix="primus-mcp-overlay-") as folder:
            overlay = Path(folder) / "trial.yaml"
            overlay.write_text(overlay_yaml(self.workload, trial), encoding="utf-8")
            fields |= self._memory(self._ask("memory", overlay), warnings)
            if fields["within_margin"] or even_if_over:
                fields |= self._time(self._ask("performance", overlay), config, warnings)
        return self.result(trial, config, placement, **fields, warnings=warnings)

    def _memory(self, output: str, warnings: list[ResultWarning]) -> dict[str, Any]:
        warnings += [ResultWarning(code=code, text=text) for code, text in faults(output)]
        found: PrimusMemory | None = parse_memory(output)
        if found is None:
            return {"within_margin": None, "reason": "Primus printed no memory summary"}
        if found.activation_gb == 0:
            text = "Primus projects no activation memory at all (its micro-batch count came out as 0): its memory is not used"
            warnings.append(ResultWarning(code="primus_no_activations", text=text))
            return {"within_margin": None, "reason": text}
        reason = over_margin(self.cluster, found.total_gb * GIB)
        return {
            "memory_per_gpu_gb": found.total_gb,
            "param_optimizer_gb": found.param_optimizer_gb,
            "activation_gb": found.activation_gb,
            "memory_upper_gb": found.upper_gb,
            "within_margin": reason is None,
            "reason": reason,
        }

    def _time(self, output: str, config: TrainingConfig, warnings: list[ResultWarning]) -> dict[str, Any]:
        arch, cluster = self.workload.architecture, self.cluster
        found, told = parse_time(output), faults(output)
        if found is None:
            told = (*told, ("primus_partial", "Primus ended well without a target configuration: its time is not used"))
        flops = model_flops_per_sequence(arch, config.tp) / arch.seq_length
        mfu = found.tokens_per_s_per_gpu * flops / cluster.gpu.peak_flops["bf16"] if found else None
        if found is not None and mfu is not None:
            told = (*told, *time_faults(found, config, cluster, arch.seq_length, mfu))
        warnings += [ResultWarning(code=code, text=text) for code, text in told]
        if found is None or told:
            return {"reason": told[0][1]}
        return {
            "iteration_ms": found.iteration_ms,
            "tokens_per_s_per_gpu": found.tokens_per_s_per_gpu,
            "tflops_per_s_per_gpu": found.tokens_per_s_per_gpu * flops / TFLOPS,
            "comm_breakdown": {**found.traffic_ms, "total": sum(found.traffic_ms.values())},
            "source": "benchmark" if self.measures else "simulate",
        }
