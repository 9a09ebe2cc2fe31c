"""Swings move the throughput the way physics says, and the recommendation is the one that regrets least."""

from __future__ import annotations

from sweep_cases import evaluator

from primus_mcp.search.sensitivity import BAND, sensitivity
from primus_mcp.space.knobs import TrialConfig


def found(model: str, **knobs: object):  # type: ignore[no-untyped-def]
    return sensitivity(evaluator(model, 1), TrialConfig(**knobs), gemm_backend="roofline")  # type: ignore[arg-type]


def test_faster_hardware_is_never_slower_and_longer_launches_are_never_faster() -> None:
    answer = found("mixtral_8x7B_v0.1", tp=1, pp=1, ep=8, expert_tensor_parallel_size=1, mbs=1)
    for swing in answer.swings:
        if swing.name in ("launch", "imbalance"):
            assert swing.low >= answer.tokens_per_s_per_gpu * (1 - 1e-12) >= swing.high * (1 - 2e-12)
        else:
            assert swing.low <= answer.tokens_per_s_per_gpu * (1 + 1e-12) <= swing.high * (1 + 2e-12)
    sizes = [abs(swing.high - swing.low) for swing in answer.swings]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 0


def test_a_dense_model_has_no_swing_of_experts() -> None:
    names = {swing.name for swing in found("llama3.1_8B", tp=1, pp=1, mbs=1).swings}
    assert not names & {"grouped_gemm", "all_to_all", "deepep", "imbalance"}


def test_steps_are_told_against_the_centre_and_what_does_not_fit_has_no_ratio() -> None:
    answer = found("llama3.1_8B", tp=1, pp=1, mbs=2)
    for step in answer.steps:
        if step.ratio is None:
            assert step.tokens_per_s_per_gpu is None and step.reason
        else:
            assert step.tokens_per_s_per_gpu == step.ratio * answer.tokens_per_s_per_gpu or step.tokens_per_s_per_gpu
    ratios = [step.ratio or 0.0 for step in answer.steps]
    assert ratios == sorted(ratios, reverse=True)


def test_the_robust_choice_is_within_the_band_and_regrets_least() -> None:
    answer = found("llama3.1_8B", tp=1, pp=1, mbs=2)
    fastest = max(rival.tokens_per_s_per_gpu for rival in answer.rivals)
    near = [rival for rival in answer.rivals if rival.tokens_per_s_per_gpu >= fastest * (1 - BAND)]
    chosen = answer.rivals[answer.robust]
    assert chosen in near and chosen.worst_regret <= min(rival.worst_regret for rival in near) + 1e-6


def test_constants_over_their_credible_ranges_count_too_and_today_is_untouched() -> None:
    price = evaluator("mixtral_8x7B_v0.1", 1)
    centre = TrialConfig(tp=1, pp=1, ep=8, expert_tensor_parallel_size=1, mbs=1)
    before = price.evaluate(centre)
    answer = sensitivity(price, centre, gemm_backend="roofline", ranges=True)
    ranged = [swing for swing in answer.swings if swing.name.startswith("range ")]
    assert 3 <= len(ranged) <= 10 and price.evaluate(centre) == before
    assert answer.tokens_per_s_per_gpu == before.tokens_per_s_per_gpu
    rate = next(swing for swing in ranged if swing.name == "range sustained_tflops.bf16")
    assert rate.low < answer.tokens_per_s_per_gpu < rate.high and rate.ends == ("at its low end", "at its high end")
    narrow = sensitivity(price, centre, gemm_backend="roofline")
    assert not [swing for swing in narrow.swings if swing.name.startswith("range ")]
    assert all(wide.worst_regret >= few.worst_regret - 1e-12 for wide, few in zip(answer.rivals, narrow.rivals, strict=True))


def test_the_range_of_a_constant_is_what_the_catalogue_states() -> None:
    from primus_mcp.inputs.cluster import make_cluster
    from primus_mcp.search.credible import figures

    found = {figure.name: figure for figure in figures(make_cluster("mi355x"))}
    assert found["link_efficiency"].text == "link_efficiency 0.65 to 0.78"
    assert found["dp_overlap"].at(high=True)[("time", ("dp_overlap",))] >= found["dp_overlap"].at(high=False)[("time", ("dp_overlap",))]
    assert len(found["launches"].paths) > 20
