"""A tuning session: every trial once, whatever happens on the way; artefacts that say what they are."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from workload_cases import TWO_NODES, written_workload

from primus_mcp.errors import RunDirectoryError, UnknownFigureError
from primus_mcp.evaluation.evaluators import DryEvaluator, Evaluator, Mode, ProfilingMode, Rules, make_evaluator
from primus_mcp.evaluation.measured import BenchmarkSettings
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.inputs.cluster import TargetCluster, parse_cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.inputs.workload import Workload, read_workload
from primus_mcp.measurement.job import RankReport
from primus_mcp.measurement.launch import MeasurementError
from primus_mcp.search.seeds import Seed
from primus_mcp.session import TuningSession
from primus_mcp.space.knobs import KnobValue, TrialConfig
from primus_mcp.trials.budget import BudgetExhaustedError
from primus_mcp.trials.journal import Done, Reserved

DEGREES = {
    "tensor_model_parallel_size": "${PRIMUS_TP:1}",
    "pipeline_model_parallel_size": "${PRIMUS_PP:1}",
    "expert_model_parallel_size": "${PRIMUS_EP:8}",
}


def setting(folder: Path, **cluster: Any) -> tuple[Workload, TargetCluster]:
    workload = written_workload(folder, "mixtral_8x7B_v0.1", **DEGREES, micro_batch_size=2)
    return workload, parse_cluster({**TWO_NODES, **cluster}, where="cluster.yaml")


def evaluator_for(
    workload: Workload,
    target: TargetCluster,
    mode: Mode = "dry",
    pins: dict[str, KnobValue] | None = None,
    profiling: ProfilingMode = "simulate",
) -> Evaluator:
    rules = Rules(workload=workload, cluster=target.cluster, axes=target.axes.model_dump(), pins=pins or {})
    return make_evaluator(rules, mode=mode, profiling_mode=profiling, has_gpu=target.benchmark_host.has_gpu, gemm_backend="roofline")


def open_session(folder: Path, *, mode: Mode = "dry", cluster: dict[str, Any] | None = None, **options: Any) -> TuningSession:
    folder.mkdir(parents=True, exist_ok=True)
    workload, target = setting(folder, **(cluster or {}))
    evaluator = evaluator_for(workload, target, mode, options.get("pins"))
    with mock.patch("primus_mcp.session.engine_version", lambda: "one engine"):  # also while its source is being edited
        return TuningSession.open(workload, target, evaluator, folder / "run", **options)


def plan(count: int = 10**9) -> Iterator[Seed]:
    """Baseline first, then a grid; some of it illegal, some of it too large."""
    yield Seed(trial=TrialConfig(), label="baseline")
    number = 0
    for gbs in (None, 512):
        for recompute in ("none", "full"):
            for mbs in (1, 2, 4, 8):
                for tp in (1, 2):
                    for pp in (1, 2, 4):
                        number += 1
                        if number >= count:
                            return
                        trial = {"tp": tp, "pp": pp, "mbs": mbs, "recompute_granularity": recompute, "gbs": gbs}
                        knobs = {name: value for name, value in trial.items() if value is not None}
                        yield Seed(trial=TrialConfig.model_validate(knobs), label=f"tp{tp} pp{pp} mbs{mbs} {recompute}")


def keys_of(session: TuningSession) -> list[str]:
    return [record.key for record in session.history()]


def test_seeds_end_at_the_budget_and_what_is_illegal_or_does_not_fit_is_free(tmp_path: Path) -> None:
    session = open_session(tmp_path, limits={"seed_budget": 5})
    run = session.run_seeds(plan())
    priced = [record for record in session.history() if record.result.tokens_per_s_per_gpu is not None]
    assert (run.stopped_because, run.priced, len(priced)) == ("seed budget used", 5, 5)
    assert run.note is not None and "--budget seed_budget=N" in run.note
    assert len(session.history()) > 5


def test_a_plan_that_is_shorter_than_the_budget_finishes(tmp_path: Path) -> None:
    assert open_session(tmp_path).run_seeds(plan(3)).stopped_because == "seed plan finished"


def test_a_seed_budget_of_zero_says_that_the_stage_is_off(tmp_path: Path) -> None:
    run = open_session(tmp_path, limits={"seed_budget": 0}).run_seeds(plan())
    assert run.priced == 0 and run.note is not None and "off" in run.note


def test_trials_that_resolve_to_the_same_configuration_are_evaluated_once(tmp_path: Path) -> None:
    session = open_session(tmp_path)
    first = session.evaluate(TrialConfig())
    again = session.evaluate(TrialConfig(tp=1, ep=8, mbs=2))
    assert first == again and first.trial_id == 0 and len(session.history()) == 1


def test_a_trial_that_asks_for_a_contradiction_is_not_mistaken_for_the_legal_one_it_resembles(tmp_path: Path) -> None:
    session = open_session(tmp_path)
    session.evaluate(TrialConfig())
    refused = session.evaluate(TrialConfig(use_turbo_deepep=False, sync_free_stage=2))
    assert not refused.legal and refused.refused_by and refused.reason
    assert refused.tokens_per_s_per_gpu is None and refused.memory_per_gpu_gb is None
    best = session.best().best
    assert best is not None and best.trial_id == 0


def test_resuming_continues_where_the_first_run_stopped(tmp_path: Path) -> None:
    one = open_session(tmp_path / "a", limits={"seed_budget": 4})
    one.run_seeds(plan())
    stopped = keys_of(one)
    resumed = open_session(tmp_path / "a", limits={"seed_budget": 9})
    assert resumed.resumed == len(stopped)
    resumed.run_seeds(plan())
    whole = open_session(tmp_path / "b", limits={"seed_budget": 9})
    whole.run_seeds(plan())
    assert keys_of(resumed)[: len(stopped)] == stopped
    assert keys_of(resumed) == keys_of(whole)
    assert resumed.summary().best and resumed.summary().best == whole.summary().best


RUN = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from test_session import open_session, plan
session = open_session(Path(sys.argv[1]), limits={"seed_budget": None})
print("ready", flush=True)
session.run_seeds(plan())
session.finish("seed plan finished")
"""


def start(folder: Path) -> subprocess.Popen[str]:
    tests = map(str, Path(__file__).parents[:2])
    process = subprocess.Popen([sys.executable, "-c", RUN, str(folder), *tests], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def test_kill_nine_at_any_point_and_resuming_loses_and_repeats_no_trial(tmp_path: Path) -> None:
    delays = random.Random(7)
    killed = tmp_path / "killed"
    for _ in range(3):
        process = start(killed)
        time.sleep(delays.uniform(0.0, 0.25))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    last = open_session(killed, limits={"seed_budget": None})
    last.run_seeds(plan())
    last.finish("seed plan finished")
    whole = open_session(tmp_path / "whole", limits={"seed_budget": None})
    whole.run_seeds(plan())
    assert keys_of(last) == keys_of(whole)
    assert len(set(keys_of(last))) == len(keys_of(last))
    assert [record.trial_id for record in last.history()] == list(range(len(last.history())))
    events = last.journal.events()
    done = [event.key for event in events if isinstance(event, Done)]
    assert sorted(done) == sorted(keys_of(last))
    assert {event.key for event in events if isinstance(event, Reserved)} == set(done)
    overlays = {record.trial_id for record in last.history() if record.result.legal}
    assert {int(path.stem.removeprefix("trial_")) for path in (killed / "run" / "trials").iterdir()} == overlays


def test_two_processes_on_one_out_dir_share_the_work_without_repeating_any(tmp_path: Path) -> None:
    processes = [start(tmp_path) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    session = open_session(tmp_path)
    assert len(set(keys_of(session))) == len(session.history()) > 60
    assert [record.trial_id for record in session.history()] == list(range(len(session.history())))


class InterruptedEvaluator(DryEvaluator):
    """Ctrl-C while the fourth trial is priced."""

    calls = 0

    def price(self, trial: TrialConfig, config: TrainingConfig, *, even_if_over: bool = False) -> EvaluationResult:
        self.calls += 1
        if self.calls == 4:
            raise KeyboardInterrupt
        return super().price(trial, config, even_if_over=even_if_over)


def test_ctrl_c_keeps_what_was_evaluated_and_the_artefacts_can_still_be_written(tmp_path: Path) -> None:
    session = open_session(tmp_path)
    session.evaluator = InterruptedEvaluator(session.evaluator.rules)
    run = session.run_seeds(plan())
    assert run.stopped_because == "interrupted" and run.priced == 3
    assert session.finish(run.stopped_because).stopped_because == "interrupted"
    resumed = open_session(tmp_path)
    before = keys_of(resumed)
    assert resumed.run_seeds(plan()).priced == 12
    assert keys_of(resumed)[: len(before)] == before


def test_a_stop_request_ends_the_seeds_between_two_trials(tmp_path: Path) -> None:
    session = open_session(tmp_path)
    seen: list[tuple[int, int]] = []
    run = session.run_seeds(plan(), progress=lambda done, total, best: seen.append((done, total)), should_stop=lambda: len(seen) >= 3)
    assert run.stopped_because == "cancelled" and len(seen) == 3 and seen[0] == (1, 12)


class UnknownFigureEvaluator(DryEvaluator):
    """A GPU without an FP8 rate."""

    def price(self, trial: TrialConfig, config: TrainingConfig, *, even_if_over: bool = False) -> EvaluationResult:
        if config.fp8 is not None:
            raise UnknownFigureError("no FP8 rate")
        return super().price(trial, config, even_if_over=even_if_over)


def test_a_seed_that_cannot_be_priced_is_skipped_with_its_reason_and_costs_no_budget(tmp_path: Path) -> None:
    session = open_session(tmp_path, limits={"seed_budget": 2})
    session.evaluator = UnknownFigureEvaluator(session.evaluator.rules)
    trials = {"baseline": TrialConfig(), "fp8": TrialConfig(fp8="hybrid"), "mbs 1": TrialConfig(mbs=1)}
    run = session.run_seeds(Seed(trial=trial, label=label) for label, trial in trials.items())
    assert run.skipped == (("fp8", "no FP8 rate"),)
    assert (run.stopped_because, run.priced) == ("seed plan finished", 2)


def test_the_budgets_of_primus_s_own_cluster_file_stop_the_llm_but_neither_seeds_nor_people(tmp_path: Path) -> None:
    budget = {"max_benchmark_calls": 12, "max_proposals": 0, "max_perf_calls": 0, "max_rounds": 0}
    session = open_session(tmp_path, cluster={"optimization": {"budget": budget}})
    with pytest.raises(BudgetExhaustedError, match="max_proposals is 0"):
        session.evaluate(TrialConfig(mbs=1), origin="llm")
    assert session.evaluate(TrialConfig(mbs=1), origin="user").tokens_per_s_per_gpu is not None
    assert session.run_seeds(plan(4)).priced > 0


def test_another_cluster_workload_or_pin_is_refused_until_the_log_is_priced_again(tmp_path: Path) -> None:
    session = open_session(tmp_path)
    session.run_seeds(plan(12))
    other: dict[str, Any] = {"target_cluster": {**TWO_NODES["target_cluster"], "num_nodes": 4}}
    with pytest.raises(RunDirectoryError, match="--reprice"):
        open_session(tmp_path, cluster=other)
    with pytest.raises(RunDirectoryError, match="pins"):
        open_session(tmp_path, pins={"tp": 2})
    again = open_session(tmp_path, cluster=other, reprice=True)
    assert 0 < len(again.history()) <= len(session.history())
    assert [record.label for record in again.history()] == [record.label for record in session.history()][: len(again.history())]
    assert {"trials.before-1.jsonl", "journal.before-1.jsonl", "trials.before-1"} <= {path.name for path in (tmp_path / "run").iterdir()}
    assert again.run_seeds(plan(12)).priced == len([record for record in again.history() if record.result.tokens_per_s_per_gpu])
    again.finish("seed plan finished")
    assert [record.trial_id for record in again.history()] == list(range(len(again.history())))
    assert open_session(tmp_path, cluster=other).history() == again.history()


def test_a_pin_holds_in_every_trial_and_in_the_best(tmp_path: Path) -> None:
    session = open_session(tmp_path, pins={"tp": 2})
    session.run_seeds(plan(40))
    for record in session.history():
        if record.result.legal:
            assert record.result.resolved is not None and record.result.resolved["tp"] == 2
    assert not session.evaluate(TrialConfig(tp=4)).legal


def test_every_overlay_read_again_is_exactly_the_trial_that_was_priced(tmp_path: Path) -> None:
    session = open_session(tmp_path, limits={"seed_budget": 6})
    session.run_seeds(plan())
    for record in session.history():
        if record.result.legal:
            overlay = tmp_path / "run" / f"trials/trial_{record.trial_id:04d}.yaml"
            again = read_workload(overlay, environment={})
            rules = Rules(workload=again, cluster=session.target.cluster, axes={}, pins={})
            assert DryEvaluator(rules).evaluate(TrialConfig()).resolved == record.result.resolved


def test_the_artefacts_are_complete_and_hold_no_secret(tmp_path: Path) -> None:
    agent = {"agent": {"llm": {"api_key": "sk-very-secret", "base_url": "https://me:hunter2@example.com/v1?key=hunter3"}}}
    session = open_session(tmp_path, cluster=agent)
    session.scratchpad.append("a note")
    run = session.run_seeds(plan())
    session.finish(run.stopped_because, ["a warning"])
    files = {str(path.relative_to(tmp_path / "run")) for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert {
        "trials.jsonl",
        "journal.jsonl",
        "session.json",
        "summary.json",
        "trials.png",
        "scratchpad.txt",
        "trials/trial_0000.yaml",
    } <= files
    assert (tmp_path / "run" / "trials.png").read_bytes().startswith(b"\x89PNG")
    assert not [name for name in files if name.endswith(".tmp")]
    everything = b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert b"sk-very-secret" not in everything and b"hunter2" not in everything and b"hunter3" not in everything
    yaml.safe_load((tmp_path / "run" / "trials" / "trial_0000.yaml").read_text())
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["baseline"]["trial"] == {} and summary["best_seed"] == summary["best"]
    assert summary["stopped_because"] == "seed budget used" and "a warning" in summary["warnings"]
    assert summary["accuracy"]["throughput_error"] is None and summary["engine"]["mode"] == "dry"
    assert summary["counts"]["trials"] == len(session.history())


def test_a_full_disk_stops_with_one_line_and_the_run_can_be_continued(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    session = open_session(tmp_path)
    session.run_seeds(plan(4))
    before = (tmp_path / "run" / "trials.jsonl").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, hard))
    try:
        with pytest.raises(RunDirectoryError, match="--resume"):
            session.run_seeds(plan())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "run" / "trials.jsonl").read_bytes() == before
    assert open_session(tmp_path).run_seeds(plan()).priced == 12


def test_measured_runs_without_a_gpu_are_illegal_with_the_guide_s_words_and_nothing_is_recommended(tmp_path: Path) -> None:
    workload, target = setting(tmp_path)
    session = TuningSession.open(workload, target, evaluator_for(workload, target, "full", profiling="benchmark"), tmp_path / "run")
    session.run_seeds(plan(3))
    text = session.report()
    assert text.startswith("no legal trial found")
    assert "--profiling-mode benchmark but available_for_benchmark.has_gpu=false" in text and "has_gpu: true" in text
    assert all(not record.result.legal and record.result.tokens_per_s_per_gpu is None for record in session.history())


def test_a_measured_run_that_fails_is_cancelled_and_counted(tmp_path: Path) -> None:
    def broken(*_: object, **__: object) -> tuple[RankReport, ...]:
        raise MeasurementError("crashed", "the measured run ended with code 1: rank 0 died")

    workload, target = setting(tmp_path, available_for_benchmark={"has_gpu": True, "benchmark_gpus": 8})
    rules = Rules(workload=workload, cluster=target.cluster, axes=dict(target.axes.model_dump()), pins={})
    measuring = make_evaluator(
        rules, profiling_mode="benchmark", has_gpu=True, gemm_backend="roofline", benchmark=BenchmarkSettings(gpus=8, runner=broken)
    )
    session = TuningSession.open(workload, target, measuring, tmp_path / "run", limits={"max_benchmark_calls": 1})
    fitting = TrialConfig(mbs=1, pp=2, recompute_granularity="full", recompute_num_layers=16)
    with pytest.raises(MeasurementError, match="rank 0 died"):
        session.evaluate(fitting)
    with pytest.raises(BudgetExhaustedError, match="max_benchmark_calls"):
        session.evaluate(fitting.model_copy(update={"mbs": 2}))
    assert not session.history()


def test_the_search_s_own_plan_is_fed_with_the_scores_of_its_seeds_and_continues_after_a_stop(tmp_path: Path) -> None:
    one, two = open_session(tmp_path / "a"), open_session(tmp_path / "b", limits={"seed_budget": 5})
    one.run_seeds()
    two.run_seeds()
    resumed = open_session(tmp_path / "b")
    resumed.run_seeds()
    assert keys_of(resumed) == keys_of(one)
    baseline = one.score(TrialConfig())
    best = one.best().best
    assert baseline is not None and best is not None and (best.tokens_per_s_per_gpu or 0) >= baseline
    assert one.score(TrialConfig(tp=3)) is None


@pytest.mark.parametrize("lines", [(), (1,), (0, 2)], ids=str)
def test_trials_removed_from_the_log_are_evaluated_again_and_do_not_count_as_spent(tmp_path: Path, lines: tuple[int, ...]) -> None:
    session = open_session(tmp_path, limits={"seed_budget": 3})
    session.run_seeds(plan())
    keys, log = set(keys_of(session)), session.log.path
    kept = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(kept[number] for number in lines))
    for _ in range(2):
        again = open_session(tmp_path, limits={"seed_budget": 3})
        again.run_seeds(plan())
        assert set(keys_of(again)) == keys
        assert len(again.history()) == len(keys)
        assert {row.name: row.spent for row in again.spending()}["seed_budget"] == 3
