"""Calibration: known distortions are recovered, the band holds for unseen runs, and nothing is corrected without evidence."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from architecture_cases import decoder

from primus_mcp.errors import InputError
from primus_mcp.inputs.architecture import Architecture, MixtureOfExperts
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.measurement.calibration import (
    TERMS,
    Calibration,
    Point,
    Term,
    apply_calibration,
    calibrate,
    corrected_s,
    load_calibration,
    save_calibration,
    term_of,
    terms_of,
)
from primus_mcp.projection.performance import project_performance

TRUE: dict[Term, float] = {"gemm": 1.25, "attention": 0.8, "memory_bound": 1.4, "communication": 1.6, "host_and_bubble": 1.1}


def architecture(hidden: int, seq: int, *, moe: bool) -> Architecture:
    experts = MixtureOfExperts(num_experts=32, top_k=4, expert_ffn_hidden_size=hidden) if moe else None
    return decoder(16, hidden, 4 * hidden, hidden // 128, 8, 64_000, seq, experts=experts, moe_layers=(moe,) * 16)


@cache
def simulated(seed: int) -> dict[Term, float]:
    """A projection of a random configuration, by term: what a user's run would be compared with."""
    rng = random.Random(seed)
    moe = rng.random() < 0.5
    arch = architecture(rng.choice([2048, 4096, 8192]), rng.choice([2048, 8192, 32_768]), moe=moe)
    config = TrainingConfig(
        tp=rng.choice([1, 2, 8]), pp=rng.choice([1, 2, 4]), ep=rng.choice([1, 4]) if moe else 1, mbs=rng.choice([1, 2]), gbs=256
    )
    cluster = make_cluster("mi300x", num_nodes=rng.choice([4, 8]))
    return terms_of(project_performance(arch, config, cluster, gemm_backend="roofline").time_breakdown_s)


def point(seed: int, noise: float, multipliers: dict[Term, float] = TRUE, draw: int = 0) -> Point:
    terms = simulated(seed)
    measured = corrected_s(terms, multipliers) * math.exp(random.Random(f"{seed} {draw}").gauss(0.0, noise))
    return Point(name=f"run {seed}", measured_s=measured, terms_s=terms)


def as_components(terms: Mapping[Term, float]) -> dict[str, float]:
    names = {"gemm": "mlp", "attention": "attention_core", "memory_bound": "norm", "communication": "a2a", "host_and_bubble": "bubble"}
    return {names[term]: seconds for term, seconds in terms.items()}


def fitted(points: list[Point]) -> Calibration:
    return calibrate(points, gpu="mi300x", profile="test", engine="1")


def test_the_terms_of_a_breakdown_sum_to_it() -> None:
    parts = {"mlp": 1.0, "attention_core": 2.0, "norm": 3.0, "a2a": 4.0, "bubble": 5.0, "recompute": 6.0}
    assert terms_of(parts) == {"gemm": 7.0, "attention": 2.0, "memory_bound": 3.0, "communication": 4.0, "host_and_bubble": 5.0}
    assert term_of("something new") == "memory_bound"


def test_known_distortions_of_the_simulator_are_recovered() -> None:
    found = fitted([point(seed, 0.0) for seed in range(60)])
    for term in TERMS:
        assert found.multipliers[term] == pytest.approx(TRUE[term], abs=0.1), term
    assert found.error_after < 0.01 < found.error_before


def test_the_band_covers_nine_of_ten_unseen_runs_over_many_calibrations() -> None:
    """Coverage is a property of the method, not of one set of runs: 40 sets of 20 runs, each held against 40 others."""
    inside = []
    for draw in range(40):
        seeds = random.Random(draw).sample(range(120), 60)
        found = fitted([point(seed, 0.05, draw=draw) for seed in seeds[:20]])
        for run in (point(seed, 0.05, draw=draw) for seed in seeds[20:]):
            corrected = apply_calibration(as_components(run.terms_s), found)
            assert corrected.low_s is not None and corrected.high_s is not None
            inside.append(corrected.low_s <= run.measured_s <= corrected.high_s)
    assert sum(inside) / len(inside) >= 0.9


def test_runs_as_projected_change_nothing() -> None:
    found = fitted([point(seed, 0.0, dict.fromkeys(TERMS, 1.0)) for seed in range(5)])
    assert all(value == pytest.approx(1.0) for value in found.multipliers.values())


def test_one_run_corrects_part_of_its_error_and_has_no_band() -> None:
    one = replace(point(1, 0.0, dict.fromkeys(TERMS, 1.3)))
    found = fitted([one])
    assert found.log_band is None and one.projected_s < corrected_s(one.terms_s, found.multipliers) < one.measured_s
    corrected = apply_calibration({"mlp": 1.0}, found)
    assert corrected.low_s is None and "too few" in corrected.text


def test_a_corrected_iteration_lies_inside_its_band_and_names_its_evidence() -> None:
    found = fitted([point(seed, 0.05) for seed in range(12)])
    corrected = apply_calibration({"mlp": 0.5, "a2a": 0.5}, found)
    assert corrected.low_s is not None and corrected.high_s is not None
    assert corrected.low_s < corrected.iteration_s < corrected.high_s
    assert "12 measured runs" in corrected.text and "90%" in corrected.text


def test_runs_that_no_positive_time_explains_are_refused() -> None:
    terms = simulated(1)
    with pytest.raises(InputError, match="no positive time"):
        fitted([Point(name="broken", measured_s=math.nan, terms_s=terms)])
    with pytest.raises(InputError, match="no run"):
        fitted([])


def test_runs_that_would_need_negative_time_are_refused_with_the_terms() -> None:
    """One run of the same shares is far too fast, the other as modelled: only a negative term would explain both."""
    fast: dict[Term, float] = {**dict.fromkeys(TERMS, 0.0), "gemm": 1.0}
    both: dict[Term, float] = {**fast, "communication": 1.0}
    points = [Point(name=str(n), measured_s=1.0, terms_s=fast) for n in range(20)]
    points += [Point(name=f"x{n}", measured_s=0.2, terms_s=both) for n in range(20)]
    with pytest.raises(InputError, match="negative time for communication"):
        fitted(points)


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"format": "primus-mcp-calibration", "version": 2}'])
def test_a_file_that_is_no_calibration_is_one_line_with_its_remedy(tmp_path: Path, content: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(content, encoding="utf-8")
    for file, told in ((path, "is no calibration"), (tmp_path / "gone.json", "cannot be read")):
        with pytest.raises(InputError, match=told) as caught:
            load_calibration(file)
        assert "calibrate --save" in (caught.value.remedy or "") and "\n" not in str(caught.value)


def test_a_calibration_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = fitted([point(seed, 0.05) for seed in range(4)])
    save_calibration(found, tmp_path / "calibration.json")
    assert load_calibration(tmp_path / "calibration.json") == found
