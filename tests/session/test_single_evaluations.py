"""What somebody asks for is a single evaluation: it obeys the trainer's rules, and what is refused costs nothing."""

from __future__ import annotations

from pathlib import Path

from primus_mcp.api import problem
from primus_mcp.evaluation.measured import BenchmarkSettings, MeasuredEvaluator
from primus_mcp.session import TuningSession
from primus_mcp.space.knobs import TrialConfig

EXAMPLES = Path(__file__).parents[2] / "examples"
MIXTRAL, CLUSTER = EXAMPLES / "workloads" / "mixtral_8x22B_v0.1-BF16-pretrain.yaml", EXAMPLES / "clusters" / "mi355x_4nodes.yaml"


def test_what_the_policy_refuses_is_priced_for_a_person_and_best_only_where_the_policy_is_lifted(tmp_path: Path) -> None:
    outside = TrialConfig(recompute_granularity="full", vpp=14)

    def opened(*, allow_policy: bool = False) -> TuningSession:
        found = problem(str(MIXTRAL), str(CLUSTER), gemm_backend="roofline", allow_policy=allow_policy)
        return TuningSession.open(found.workload, found.target, found.evaluator, tmp_path)

    session = opened()
    asked = session.evaluate(outside)
    assert asked.legal and asked.tokens_per_s_per_gpu and session.best().best is None
    searched = session.evaluate(outside, origin="llm")
    assert not searched.legal and searched.trial_id != asked.trial_id
    lifted = opened(allow_policy=True)
    again = lifted.evaluate(outside)
    assert again.trial_id not in (asked.trial_id, searched.trial_id)
    best = lifted.best().best
    assert best is not None and best.trial_id == again.trial_id and best.tokens_per_s_per_gpu == asked.tokens_per_s_per_gpu


def test_what_is_refused_or_too_large_costs_no_measured_run(tmp_path: Path) -> None:
    found = problem(str(MIXTRAL), str(CLUSTER), gemm_backend="roofline")
    settings = BenchmarkSettings(gpus=1)
    evaluator = MeasuredEvaluator(found.rules, settings, gemm_backend="roofline")
    session = TuningSession.open(found.workload, found.target, evaluator, tmp_path)
    assert not session.evaluate(TrialConfig(tp=3)).legal
    assert session.evaluate(TrialConfig(tp=1, recompute_granularity="none")).within_margin is False
    spent = {row.name: row.spent for row in session.spending()}
    assert spent["max_benchmark_calls"] == 0 and spent["max_evaluations"] == 2
