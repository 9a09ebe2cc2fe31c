"""Primus as evaluator: what is asked, what is believed, and what is not."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_mcp.errors import InputError
from primus_mcp.evaluation.evaluators import Rules
from primus_mcp.evaluation.primus_cli import Answer, PrimusError, PrimusEvaluator, PrimusSettings, checkout_problem, commit_of, run_command
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.projection.performance.flops import model_flops_per_sequence
from primus_mcp.space.knobs import TrialConfig

COMMIT = "fd1eeabb" + "0" * 32
SEQ, GBS, GPUS = 4096, 64, 8
MEMORY = """[Primus:Projection] Memory Projection Summary on Rank 0:
  Param+Optimizer Memory: {states} GB
  Activation Memory (per batch size 1, seq len 4096): {activation} GB
  Projected Total Memory: {total} GB
"""
TIME = """🎯 Target Configuration (1 nodes):
   Nodes: 1, GPUs: 8
   TP={tp}, PP={pp}, EP=1, CP={cp}, DP=8
   Iteration Time: {ms} ms (x)
   Tokens/s/GPU: {tokens}
"""


def time_text(ms: float = 4096.0, *, tokens: float | None = None, tp: int = 1, pp: int = 1, cp: int = 1) -> str:
    return TIME.format(ms=ms, tokens=f"{tokens or GBS * SEQ / (ms / 1000) / GPUS:,.0f}", tp=tp, pp=pp, cp=cp)


def memory_text(activation: float = 20.0) -> str:
    return MEMORY.format(states=40.0, activation=activation, total=40.0 + activation)


class Checkout:
    """A folder that looks like Primus, and a runner that answers for it."""

    def __init__(self, folder: Path, memory: str = memory_text(), time: str = time_text(), code: int = 0) -> None:
        self.root = folder / "Primus"
        (self.root / "primus" / "cli").mkdir(parents=True)
        (self.root / "primus" / "cli" / "main.py").write_text("")
        (self.root / ".git").mkdir()
        (self.root / ".git" / "HEAD").write_text(COMMIT)
        self.answers, self.code = {"memory": memory, "performance": time}, code
        self.asked: list[list[str]] = []
        self.overlays: list[dict[str, Any]] = []
        self.environment: Mapping[str, str] = {}

    def run(self, arguments: list[str], environment: Mapping[str, str], _: Path, __: float) -> Answer:
        self.asked.append(arguments)
        self.environment = environment
        self.overlays.append(yaml.safe_load(Path(arguments[arguments.index("--config") + 1]).read_text()))
        return Answer(code=self.code, output=self.answers[arguments[arguments.index("projection") + 1]])

    def evaluator(self) -> PrimusEvaluator:
        workload = workload_from_model("llama3.1_8B", seq_length=SEQ, gbs=GBS)
        rules = Rules(workload=workload, cluster=make_cluster("mi300x"), axes={}, pins={}, allow_policy=True)
        return PrimusEvaluator(rules, PrimusSettings(root=self.root), runner=self.run)

    def evaluate(self, **knobs: Any) -> EvaluationResult:
        return self.evaluator().evaluate(TrialConfig(mbs=1, gbs=GBS, **knobs))


def codes(result: EvaluationResult) -> set[str]:
    return {warning.code for warning in result.warnings}


def test_memory_then_time_with_the_trial_s_overlay_and_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIMUS_TP", "8")
    checkout = Checkout(tmp_path)
    result = checkout.evaluate()
    assert (result.fidelity, result.backend, result.source) == ("primus", f"primus@{COMMIT}", "simulate")
    assert (result.memory_per_gpu_gb, result.iteration_ms, result.tokens_per_s_per_gpu) == (60.0, 4096.0, 8000.0)
    architecture = checkout.evaluator().workload.architecture
    tflops_per_token = model_flops_per_sequence(architecture, 1) / SEQ / 1e12
    assert result.tflops_per_s_per_gpu == pytest.approx(8000 * tflops_per_token)
    assert [arguments[arguments.index("projection") + 1] for arguments in checkout.asked] == ["memory", "performance"]
    overrides = next(iter(checkout.overlays[0]["modules"].values()))["overrides"]
    assert overrides["micro_batch_size"] == 1 and overrides["global_batch_size"] == GBS
    assert "PRIMUS_TP" not in checkout.environment and checkout.environment["NNODES"] == "1"


def test_what_does_not_fit_is_not_timed(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, memory=memory_text(activation=300.0))
    result = checkout.evaluate()
    assert result.within_margin is False and result.tokens_per_s_per_gpu is None and len(checkout.asked) == 1


@pytest.mark.parametrize(
    ("time", "code"),
    [
        ("Max retry\n" + time_text(), "primus_deadlock"),
        ("projection done\n", "primus_partial"),
        (time_text(tokens=16_000), "primus_inconsistent"),
        (time_text(ms=100.0), "primus_implausible"),
        (time_text(tp=2), "primus_other_job"),
    ],
)
def test_a_time_that_cannot_be_believed_is_null_with_the_reason(tmp_path: Path, time: str, code: str) -> None:
    result = Checkout(tmp_path, time=time).evaluate()
    assert result.tokens_per_s_per_gpu is None and result.iteration_ms is None
    assert code in codes(result) and result.reason and result.memory_per_gpu_gb == 60.0


def test_context_parallelism_under_a_pipeline_is_never_believed(tmp_path: Path) -> None:
    result = Checkout(tmp_path, time=time_text(pp=2, cp=2)).evaluate(pp=2, cp=2)
    assert "primus_free_cp" in codes(result) and result.tokens_per_s_per_gpu is None


def test_no_activations_at_all_are_no_memory(tmp_path: Path) -> None:
    result = Checkout(tmp_path, memory=memory_text(activation=0.0)).evaluate()
    assert result.memory_per_gpu_gb is None and "primus_no_activations" in codes(result)


def test_known_faults_of_a_configuration_are_warnings(tmp_path: Path) -> None:
    result = Checkout(tmp_path, time=time_text(tp=2)).evaluate(tp=2)
    assert {"primus_memory_ignores_tp", "primus_tp_as_tokens"} <= codes(result) and result.tokens_per_s_per_gpu == 8000.0


def test_an_error_of_primus_is_one_line_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(PrimusError, match=r"code 1: Traceback ValueError: 23 is not a valid data_type_t$"):
        Checkout(tmp_path, memory="Traceback\nValueError: 23 is not a valid\n  data_type_t", code=1).evaluate()


def test_an_illegal_trial_asks_nobody(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    assert not checkout.evaluate(tp=3).legal and not checkout.asked


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    assert checkout_problem(tmp_path / "absent") and checkout_problem(tmp_path)
    assert commit_of(tmp_path) == "unknown"
    checkout = Checkout(tmp_path)
    assert checkout_problem(checkout.root) is None and commit_of(checkout.root) == COMMIT
    (checkout.root / "primus" / "cli" / "main.py").unlink()
    with pytest.raises(InputError, match="no Primus checkout"):
        checkout.evaluator()


def test_a_command_that_hangs_is_ended_and_one_that_does_not_exist_is_told(tmp_path: Path) -> None:
    with pytest.raises(PrimusError, match="longer than 1 s"):
        run_command([sys.executable, "-c", "import time; time.sleep(60)"], {}, tmp_path, 1.0)
    with pytest.raises(PrimusError, match="cannot start"):
        run_command([str(tmp_path / "nothing")], {}, tmp_path, 1.0)
    answer = run_command([sys.executable, "-c", "import sys; print(sys.stdin.read() == ''); sys.exit(3)"], {}, tmp_path, 30.0)
    assert (answer.code, answer.output.strip()) == (3, "True")


def double(folder: Path) -> Path:
    """A checkout whose command line takes exactly Primus's arguments."""
    root = folder / "Primus"
    (root / "primus" / "cli").mkdir(parents=True)
    source = Path(__file__).with_name("primus_double.py")
    (root / "primus" / "cli" / "main.py").write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    return root


def driven(settings: PrimusSettings, gpu: str = "mi300x", seq: int = SEQ, **knobs: Any) -> EvaluationResult:
    workload = workload_from_model("llama3.1_8B", seq_length=seq, gbs=knobs.get("gbs", GBS))
    rules = Rules(workload=workload, cluster=make_cluster(gpu), axes={}, pins={}, allow_policy=True)
    return PrimusEvaluator(rules, settings).evaluate(TrialConfig(**{"mbs": 1, "gbs": GBS, **knobs}))


def test_its_command_line_takes_every_argument_that_is_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, hardware = double(tmp_path), tmp_path / "hardware.yaml"
    hardware.write_text("{}")
    monkeypatch.chdir(tmp_path)
    result = driven(PrimusSettings(root=Path(root.name), hardware_config=hardware), tp=2)
    assert (result.memory_per_gpu_gb, result.iteration_ms, result.reason) == (58.0, 4096.0, None)
    assert result.tokens_per_s_per_gpu == pytest.approx(GBS * SEQ / 4.096 / GPUS, rel=0.001) and result.backend == "primus@unknown"


def test_an_argument_that_it_does_not_know_ends_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = PrimusSettings(root=double(tmp_path))
    command = PrimusEvaluator.command
    monkeypatch.setattr(PrimusEvaluator, "command", lambda self, what, overlay: [*command(self, what, overlay), "--no-such-flag", "1"])
    with pytest.raises(PrimusError, match="Override key '--no-such-flag' does not exist"):
        driven(settings)


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_its_measured_projection_runs_under_torch_s_launcher_and_its_upper_bound_is_kept(tmp_path: Path) -> None:
    result = driven(PrimusSettings(root=double(tmp_path), profiling="benchmark", gpus=2))
    assert (result.memory_per_gpu_gb, result.memory_upper_gb, result.param_optimizer_gb) == (62.5, 66.0, 38.0)
    assert result.source == "benchmark" and result.iteration_ms == 4096.0


def test_recorded_words_of_primus_go_through_a_real_process(tmp_path: Path, shared: Path) -> None:
    root = double(tmp_path)
    for suite in ("memory", "performance"):
        text = (shared / "upstream" / "stdout" / f"{suite}_llama3.1_8B_1node.txt").read_text(encoding="utf-8")
        (root / f"{suite}.txt").write_text(text, encoding="utf-8")
    result = driven(PrimusSettings(root=root), gpu="mi355x", seq=8192, mbs=4, gbs=256)
    assert (result.memory_per_gpu_gb, result.activation_gb, result.iteration_ms) == (204.7734, 166.625, 10_339.135)
    cut = root / "performance.txt"
    cut.write_text(cut.read_text(encoding="utf-8").rpartition("Tokens/s/GPU")[0], encoding="utf-8")
    result = driven(PrimusSettings(root=root), gpu="mi355x", seq=8192, mbs=4, gbs=256)
    assert result.iteration_ms is None and "primus_partial" in codes(result)
