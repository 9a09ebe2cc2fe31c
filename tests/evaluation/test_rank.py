"""The best trial: one class at a time, inside the margin, not at risk for a trifle."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from primus_mcp.evaluation.rank import incumbents, is_candidate, rank
from primus_mcp.evaluation.result import EvaluationResult


def priced(trial_id: int, tokens: float, **fields: Any) -> EvaluationResult:
    values: dict[str, Any] = {
        "trial_id": trial_id,
        "legal": True,
        "tokens_per_s_per_gpu": tokens,
        "memory_per_gpu_gb": 100.0,
        "memory_upper_gb": 110.0,
        "within_margin": True,
        "fits_physically": "fits",
        "engine_version": "test",
    }
    return EvaluationResult.model_validate(values | fields)


def best_id(*results: EvaluationResult) -> int | None:
    best = rank(results).best
    return None if best is None else best.trial_id


def test_nothing_to_rank_has_no_best() -> None:
    assert rank([]).best is None
    assert best_id(priced(0, 10, legal=False), priced(1, 10, within_margin=False), priced(2, 10, tokens_per_s_per_gpu=None)) is None


def test_the_fastest_inside_the_margin_wins() -> None:
    assert best_id(priced(0, 10), priced(1, 30, within_margin=False), priced(2, 20)) == 2


def test_equal_speed_goes_to_less_memory_then_to_the_earlier_trial() -> None:
    assert best_id(priced(0, 10), priced(1, 10, memory_per_gpu_gb=90), priced(2, 10, memory_per_gpu_gb=90)) == 1


def test_of_trials_as_fast_as_each_other_less_memory_wins_and_a_note_names_the_fastest() -> None:
    found = rank([priced(0, 1000.5), priced(1, 1000.0, memory_per_gpu_gb=99.0), priced(2, 998.0, memory_per_gpu_gb=10.0)])
    assert (found.best and found.best.trial_id) == 1
    assert found.note is not None and "#0 is as fast" in found.note and "#2" not in found.note


def test_of_trials_as_fast_and_as_large_to_the_shown_digit_the_one_nearest_to_the_workload_wins() -> None:
    two, one = priced(0, 1000.5, memory_per_gpu_gb=99.98, settings_changed=2), priced(1, 1000, settings_changed=1)
    assert best_id(two, one) == best_id(one, two) == 1
    assert best_id(priced(3, 1000, settings_changed=2), priced(4, 1000, settings_changed=1)) == 4


def test_of_trials_as_fast_as_each_other_a_safe_one_wins_whatever_its_memory() -> None:
    found = rank([priced(0, 1000.5, fits_physically="at_risk", memory_per_gpu_gb=50), priced(1, 1000)])
    assert (found.best and found.best.trial_id) == 1
    assert found.note is not None and "at risk" in found.note


def test_a_higher_class_wins_however_slow_and_the_lower_one_is_the_runner_up() -> None:
    found = rank([priced(0, 900, fidelity="heuristic"), priced(1, 5), priced(2, 800, fidelity="synthetic")])
    assert (found.best and found.best.trial_id) == 1
    assert (found.runner_up and found.runner_up.trial_id) == 0


def test_a_higher_class_without_a_candidate_does_not_hide_a_lower_one() -> None:
    assert best_id(priced(0, 900, fidelity="heuristic"), priced(1, 5, within_margin=False)) == 0


def test_at_risk_loses_to_a_safe_trial_within_three_percent_and_says_so() -> None:
    found = rank([priced(0, 100, fits_physically="at_risk", memory_upper_gb=300.0), priced(1, 97.0)])
    assert (found.best and found.best.trial_id) == 1
    assert found.note is not None and "#0" in found.note and "300.0 GB" in found.note


def test_at_risk_wins_when_the_safe_one_is_slower_by_more_and_says_so() -> None:
    found = rank([priced(0, 100, fits_physically="at_risk"), priced(1, 96.9)])
    assert (found.best and found.best.trial_id) == 0
    assert found.note is not None and found.note.startswith("at risk") and "#1" in found.note


def test_at_risk_alone_wins_and_says_that_nothing_is_surely_inside() -> None:
    found = rank([priced(0, 100, fits_physically="at_risk")])
    assert (found.best and found.best.trial_id) == 0
    assert found.note is not None and "no trial is surely inside" in found.note


RESULTS = st.lists(
    st.builds(
        lambda tokens, fits, margin, fidelity: (tokens, fits, margin, fidelity),
        st.floats(1, 1e4),
        st.sampled_from(["fits", "at_risk"]),
        st.booleans(),
        st.sampled_from(["synthetic", "heuristic", "simulate"]),
    ),
    max_size=12,
)


@given(RESULTS)
def test_the_best_is_a_candidate_within_three_percent_of_the_fastest_of_its_class(rows: list[tuple[float, str, bool, str]]) -> None:
    results = [priced(i, t, fits_physically=f, within_margin=m, fidelity=c) for i, (t, f, m, c) in enumerate(rows)]
    best = rank(results).best
    candidates = [result for result in results if is_candidate(result)]
    assert (best is None) == (not candidates)
    if best is not None:
        peers = [r.tokens_per_s_per_gpu or 0 for r in candidates if r.fidelity == best.fidelity]
        assert (best.tokens_per_s_per_gpu or 0) >= 0.97 * max(peers) * (1 - 1e-12)


@given(RESULTS)
def test_the_incumbent_never_falls(rows: list[tuple[float, str, bool, str]]) -> None:
    results = [priced(i, t, fits_physically=f, within_margin=m, fidelity=c) for i, (t, f, m, c) in enumerate(rows)]
    curve = [value for value in incumbents(results) if value is not None]
    assert curve == sorted(curve)


def test_a_trial_priced_with_the_all_to_all_of_another_ep_is_never_best() -> None:
    what_if = priced(0, 30, resolved={"ep": 256, "a2a_ep_size": 1})
    assert best_id(what_if, priced(1, 10, resolved={"ep": 8, "a2a_ep_size": None})) == 1
    assert best_id(priced(2, 10, resolved={"ep": 8, "a2a_ep_size": 8})) == 2
