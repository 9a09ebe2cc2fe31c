"""Fronts, prices and deadlines."""

from __future__ import annotations

import random

import pytest
from sweep_cases import evaluator

from primus_mcp.errors import InputError
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.inputs.cluster import make_cluster, parse_cluster
from primus_mcp.search.pareto import FrontPoint, dominates, front_point, pareto_front, parse_days, parse_tokens, smallest_in_time
from primus_mcp.search.prices import price_of, quotes
from primus_mcp.search.sweep import sweep
from primus_mcp.search.sweep_result import SweptTrial


def point(rate: float, memory_gb: float, nodes: int = 1, price: float | None = 2.0, tokens: float = 1e12) -> FrontPoint:
    result = EvaluationResult(legal=True, engine_version="1", tokens_per_s_per_gpu=rate, memory_per_gpu_gb=memory_gb, mfu=0.4)
    cluster = make_cluster("mi300x", num_nodes=nodes)
    return front_point(SweptTrial(trial={}, result=result), cluster, price_of("mi300x", price) if price else None, tokens)


def test_money_and_time_by_hand() -> None:
    one = point(1000.0, 100.0, nodes=2)
    assert one.usd_per_million_tokens == pytest.approx(2.0 / 3600 / 1000 * 1e6)
    assert one.days == pytest.approx(1e12 / (1000 * 16) / 86400)
    assert one.days is not None and one.usd == pytest.approx(2.0 * 16 * one.days * 24)


def test_an_unknown_price_stays_unknown() -> None:
    assert price_of("mi355x") is None
    one = point(1000.0, 100.0, price=None)
    assert (one.usd_per_million_tokens, one.usd, one.price_source) == (None, None, None)


@pytest.mark.parametrize("text", ["\x1b[31mred", "\x9b31m", "two\nlines", "\u202egnp", "bell\a"])
def test_a_price_cannot_write_to_the_terminal(text: str) -> None:
    block = {"gpu_arch": "mi300x", "price": {"usd_per_gpu_hour": 2, "source": text}}
    with pytest.raises(InputError, match="control characters") as error:
        parse_cluster({"target_cluster": block}, where="cluster.yaml")
    assert str(error.value).isprintable()


def test_every_quote_is_dated_and_sourced_and_the_median_lies_between_them() -> None:
    for gpu in quotes():
        price = price_of(gpu)
        assert price is not None and price.low <= price.usd_per_gpu_hour <= price.high


def test_the_front_is_what_nothing_dominates_and_dominates_the_rest() -> None:
    rng = random.Random(5)
    points = [point(rng.randrange(500, 2000), rng.randrange(20, 180), rng.choice([1, 2, 4])) for _ in range(120)]
    front = pareto_front(points)
    assert not any(dominates(a, b) for a in front for b in front)
    assert all(any(dominates(a, b) for a in front) for b in points if b not in front)


def test_the_smallest_cluster_in_time_is_chosen() -> None:
    points = [point(1000.0, 100.0, nodes) for nodes in (1, 2, 4, 8)]
    days = {p.nodes: p.days or 0.0 for p in points}
    found = smallest_in_time(points, (days[2] + days[4]) / 2)
    assert found is not None and found.nodes == 4
    assert smallest_in_time(points, 1.0) is None


def test_amounts_are_read_or_refused() -> None:
    assert (parse_tokens("1T"), parse_tokens("300b"), parse_tokens("5e11")) == (1e12, 3e11, 5e11)
    assert (parse_days("30d"), parse_days("36h"), parse_days("2w")) == (30.0, 1.5, 14.0)
    for text in ("", "T", "-1T", "1X", "nan", "1e999"):
        with pytest.raises(InputError):
            parse_tokens(text)


def test_less_memory_never_makes_the_fastest_faster_and_each_level_holds() -> None:
    price = evaluator("mixtral_8x7B_v0.1", 1)
    only = ["tp", "pp", "ep", "vpp", "mbs", "recompute_granularity", "recompute_num_layers"]
    levels = [0.9, 0.75, 0.6, 0.5]
    found = sweep(price, only=only, levels=levels, gemm_backend="roofline", top=3)
    assert found.proven and found.by_memory[0].result == price.evaluate(price_trial(found.by_memory[0]))
    rates = [one.result.tokens_per_s_per_gpu or 0.0 for one in found.by_memory]
    assert rates == sorted(rates, reverse=True)
    cap_gb = price.cluster.memory_cap_bytes / 2**30
    for level in levels:
        tight = sweep(price, only=only, where=f"memory_per_gpu_gb<={cap_gb * level}", gemm_backend="roofline", top=1)
        inside = [one for one in found.by_memory if (one.result.memory_per_gpu_gb or 0.0) <= cap_gb * level]
        best = max((one.result.tokens_per_s_per_gpu or 0.0 for one in inside), default=None)
        assert best == (tight.top[0].result.tokens_per_s_per_gpu if tight.top else None)


def price_trial(one: SweptTrial):  # type: ignore[no-untyped-def]
    from primus_mcp.space.knobs import TrialConfig

    return TrialConfig(**one.trial)
