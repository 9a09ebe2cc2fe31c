"""What somebody asks for is a single evaluation: it obeys the trainer's rules, and what is refused costs nothing."""

from __future__ import annotations

from pathlib import Path

from primus_mcp.api import problem
from primus_mcp.evaluation.measured import BenchmarkSettings, MeasuredEvaluator
from primus_mcp.session import TuningSession
from primus_mcp.space.knobs import KnobValue, TrialConfig
from primus_mcp.trials.journal import Done

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


def test_a_log_that_is_priced_again_keeps_what_a_person_asked_for_outside_the_policy(tmp_path: Path) -> None:
    outside = TrialConfig(recompute_granularity="full", vpp=14)
    found = problem(str(MIXTRAL), str(CLUSTER), gemm_backend="roofline")
    session = TuningSession.open(found.workload, found.target, found.evaluator, tmp_path)
    asked = session.evaluate(outside)
    assert not session.evaluate(outside, origin="llm").legal
    again = TuningSession.open(found.workload, found.target, found.evaluator, tmp_path, reprice=True)
    assert [record.result for record in again.history()] == [record.result for record in session.history()]
    assert again.evaluate(outside).trial_id == asked.trial_id and again.best().best is None


def test_a_log_that_is_priced_again_under_a_pin_holds_it_in_every_trial(tmp_path: Path) -> None:
    def opened(*, reprice: bool = False, pins: dict[str, KnobValue] | None = None) -> TuningSession:
        found = problem(str(MIXTRAL), str(CLUSTER), gemm_backend="roofline", pins=pins)
        return TuningSession.open(found.workload, found.target, found.evaluator, tmp_path, reprice=reprice, pins=found.rules.pins)

    session = opened()
    for trial in (TrialConfig(), TrialConfig(mbs=4), TrialConfig(mbs=1)):
        session.evaluate(trial, origin="llm")
    again = opened(reprice=True, pins={"mbs": 4})
    assert [(record.trial.get("mbs"), record.result.legal) for record in again.history()] == [(4, True), (1, False)]
    assert [event.repeated for event in again.journal.events() if isinstance(event, Done)] == [False, True, False]


def test_what_is_refused_or_too_large_costs_no_measured_run(tmp_path: Path) -> None:
    found = problem(str(MIXTRAL), str(CLUSTER), gemm_backend="roofline")
    settings = BenchmarkSettings(gpus=1)
    evaluator = MeasuredEvaluator(found.rules, settings, gemm_backend="roofline")
    session = TuningSession.open(found.workload, found.target, evaluator, tmp_path)
    assert not session.evaluate(TrialConfig(tp=3)).legal
    assert session.evaluate(TrialConfig(tp=1, recompute_granularity="none")).within_margin is False
    spent = {row.name: row.spent for row in session.spending()}
    assert spent["max_benchmark_calls"] == 0 and spent["max_evaluations"] == 2
