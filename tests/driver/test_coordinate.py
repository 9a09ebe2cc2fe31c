"""Coordinate search: no language model, the same budgets, only what is legal and fits; and the forecast behind its order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from driver_cases import open_session

import primus_mcp
from primus_mcp.driver.coordinate import coordinate_search
from primus_mcp.driver.forecast import corrected, forecast, nearness
from primus_mcp.driver.shapes import Shapes, shapes_of
from primus_mcp.driver.stage import run_coordinate_stage
from primus_mcp.evaluation.rank import is_candidate
from primus_mcp.session import TuningSession
from primus_mcp.trials.journal import Round

BASE = {"tp": 2.0, "pp": 4.0, "ep": 8.0, "cp": 2.0, "mbs": 2.0, "vpp": 2.0, "recompute": 1.0, "schedule": 0.0, "dp": 4.0}
PARTS = {"experts": 100.0, "tp": 10.0, "cp": 5.0, "a2a": 8.0, "recompute": 30.0, "host": 2.0, "output_layer": 3.0, "optimizer": 1.0}


def one(**changes: float) -> Shapes:
    shape = {**BASE, **changes}
    return Shapes(**{name: np.array([value]) for name, value in shape.items()})


def expected(**changes: float) -> float:
    return float(forecast(PARTS, BASE, one(**changes), gbs=256, node=8, gap=10.0)[0])


def test_it_improves_on_the_seeds_proposes_only_what_fits_and_keeps_to_the_budgets(tmp_path: Path) -> None:
    session = open_session(tmp_path, budget={"seed_budget": 3, "max_proposals": 8, "max_perf_calls": 8, "max_rounds": 4})
    session.run_seeds()
    before = session.best().best
    stage = run_coordinate_stage(session)
    best = session.best().best
    assert best is not None
    assert before is None or (best.tokens_per_s_per_gpu or 0.0) >= (before.tokens_per_s_per_gpu or 0.0)
    own = [record for record in session.history() if record.origin == "coordinate"]
    assert own
    assert all(is_candidate(record.result) for record in own)
    assert stage.summary.proposals == stage.summary.perf_calls == len(own) <= 8
    assert sum(isinstance(event, Round) for event in session.journal.events()) <= 4
    assert (stage.summary.strategy, stage.summary.model, stage.summary.llm_requests) == ("coordinate", None, 0)


def test_the_same_start_gives_the_same_trials(tmp_path: Path) -> None:
    trials = []
    for name in "ab":
        session = open_session(tmp_path / name, budget={"seed_budget": 2, "max_proposals": 5})
        session.run_seeds()
        coordinate_search(session)
        trials.append([record.trial for record in session.history()])
    assert trials[0] == trials[1]


def test_it_finds_a_configuration_that_fits_where_no_trial_does(tmp_path: Path) -> None:
    session = open_session(tmp_path, budget={"max_proposals": 2})
    coordinate_search(session)
    assert session.best().best is not None


def test_pins_and_axes_hold(tmp_path: Path) -> None:
    session = open_session(tmp_path, budget={"max_proposals": 6})
    session.pins["tp"] = 2
    session.run_seeds()
    coordinate_search(session)
    assert {record.trial["tp"] for record in session.history() if record.origin == "coordinate"} == {2}
    assert set(shapes_of(session).tp) == {2.0}


@pytest.mark.parametrize(
    ("slower", "why"),
    [
        ({"tp": 4.0}, "more tensor-parallel exchange"),
        ({"cp": 4.0, "mbs": 4.0}, "more exchange of keys and values"),
        ({"pp": 16.0}, "a longer bubble and a larger share of the head"),
        ({"vpp": 1.0}, "a longer bubble"),
        ({"ep": 32.0}, "the exchange leaves the node"),
        ({"mbs": 1.0}, "narrower GEMMs and more launches"),
    ],
)
def test_a_step_is_forecast_to_cost_what_it_adds(slower: dict[str, float], why: str) -> None:
    assert expected(**slower) > expected(), why


def test_a_step_gains_no_more_than_the_part_that_it_relieves() -> None:
    whole = expected()
    assert expected() > expected(recompute=0.0) > whole * (1 - 30 / sum(PARTS.values())) * 0.95
    assert expected(tp=1.0) > whole - 10.0 * 1.3 - whole * 0.05


def test_what_was_priced_corrects_the_forecast_near_it_and_hardly_far_from_it() -> None:
    def factor(shape: Shapes) -> float:
        return float(corrected(np.array([1.0]), [(nearness(shape, BASE), 2.0)])[0])

    assert factor(one()) > factor(one(mbs=4.0)) > factor(one(tp=8.0, pp=1.0, ep=1.0, cp=1.0)) > 0.99
    assert factor(one(tp=8.0, pp=1.0, ep=1.0, cp=1.0)) < 1.05
    assert nearness(one(), BASE)[0] == 1.0
    assert corrected(np.array([1.0]), [])[0] == 1.0


def test_a_pinned_batch_is_the_one_of_every_shape(tmp_path: Path) -> None:
    problem = primus_mcp.problem("llama3.1_8B", "mi300x", nodes=1, pins={"gbs": 24}, gemm_backend="roofline")
    session = TuningSession.open(problem.workload, problem.target, problem.evaluator, tmp_path, pins=problem.rules.pins)
    shapes = shapes_of(session)
    assert len(shapes.dp) and all(24 % (mbs * dp) == 0 for mbs, dp in zip(shapes.mbs, shapes.dp, strict=True))
    assert {3 * mbs * dp for mbs, dp in zip(shapes.mbs, shapes.dp, strict=True)} & {24.0}, "sizes that the workload's own batch lacks"
