"""A calibration on a result: every component is multiplied, the answer says by how much, and another machine's is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from workload_cases import evaluator_of

from primus_mcp.errors import InputError
from primus_mcp.evaluation.measured_calibration import with_calibration
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.measurement.calibration import TERMS, Calibration, Term, term_of
from primus_mcp.space.knobs import TrialConfig
from primus_mcp.version import engine_version

CLUSTER = make_cluster("mi300x")
MULTIPLIERS: dict[Term, float] = {**dict.fromkeys(TERMS, 1.0), "gemm": 1.5, "communication": 2.0}


def calibration(**changes: Any) -> Calibration:
    known: dict[str, Any] = {
        "gpu": CLUSTER.gpu.name,
        "profile": CLUSTER.profile.name,
        "engine": engine_version(),
        "multipliers": MULTIPLIERS,
        "points": 1,
        "names": ("mine",),
        "error_before": 0.3,
        "error_after": 0.1,
        "log_band": None,
    }
    return Calibration.model_validate(known | changes)


@pytest.fixture
def result(tmp_path: Path) -> EvaluationResult:
    return evaluator_of(tmp_path, "llama3.1_8B").evaluate(TrialConfig(tp=2, mbs=1))


def test_each_component_is_multiplied_and_the_rest_follows(result: EvaluationResult) -> None:
    found = with_calibration(result, calibration(), CLUSTER)
    assert result.time_breakdown and result.iteration_ms and result.tokens_per_s_per_gpu and result.mfu
    wanted = {name: ms * MULTIPLIERS[term_of(name)] for name, ms in result.time_breakdown.items()}
    assert found.time_breakdown == pytest.approx(wanted) and found.iteration_ms == pytest.approx(sum(wanted.values()))
    slower = result.iteration_ms / sum(wanted.values())
    assert found.tokens_per_s_per_gpu == pytest.approx(result.tokens_per_s_per_gpu * slower)
    assert found.mfu == pytest.approx(result.mfu * slower)
    assert found.memory_breakdown == result.memory_breakdown and found.throughput_band is None


def test_the_answer_says_before_and_after_and_a_band_only_where_there_is_one(result: EvaluationResult) -> None:
    alone = with_calibration(result, calibration(), CLUSTER).warnings[0]
    assert alone.code == "calibrated" and f"{result.iteration_ms:,.1f} ms before" in alone.text
    assert "too few for a confidence band" in alone.text and alone.text.endswith("ms corrected")
    fits = tuple(tuple(MULTIPLIERS[term] * share for term in TERMS) for share in (0.9, 1.0, 1.1))
    banded = with_calibration(result, calibration(points=3, log_band=0.0, left_out=fits), CLUSTER)
    assert banded.iteration_ms is not None
    assert f"corrected, {0.9 * banded.iteration_ms:,.1f} to {1.1 * banded.iteration_ms:,.1f} ms" in banded.warnings[0].text


@pytest.mark.parametrize("changes", [{"gpu": "mi355x"}, {"profile": "other"}, {"engine": "0+0"}])
def test_a_calibration_of_another_machine_or_engine_is_refused_by_name(result: EvaluationResult, changes: dict[str, str]) -> None:
    (other,) = changes.values()
    with pytest.raises(InputError, match=f"{re.escape(other)} instead of"):
        with_calibration(result, calibration(**changes), CLUSTER)


def test_a_result_without_a_time_stays_as_it_is(tmp_path: Path) -> None:
    refused = evaluator_of(tmp_path, "llama3.1_8B").evaluate(TrialConfig(tp=3))
    assert with_calibration(refused, calibration(), CLUSTER) == refused
