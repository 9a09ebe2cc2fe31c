"""Swings move the throughput the way physics says, and the recommendation is the one that regrets least."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sweep_cases import evaluator

from primus_mcp.errors import InputError
from primus_mcp.inputs.catalogue import catalogue_yaml
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.hardware_files import catalogue_document, gpu_names, gpu_profile
from primus_mcp.reports.sweep_text import sensitivity_text
from primus_mcp.search.constant_words import CONSTANTS
from primus_mcp.search.credible import LAUNCHES, figures
from primus_mcp.search.sensitivity import BAND, _basin_text, sensitivity
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


def test_what_is_out_says_why_and_no_verdict_comes_from_a_few_steps() -> None:
    answer = found("mixtral_8x7B_v0.1", tp=1, pp=1, ep=8, expert_tensor_parallel_size=1, mbs=1)
    by_outcome = {step.outcome for step in answer.steps if step.ratio is None}
    assert "over the cap" in by_outcome and all(step.outcome == "priced" for step in answer.steps if step.ratio is not None)
    assert all((step.memory_per_gpu_gb is None) == (step.outcome in ("illegal", "policy", "not priced")) for step in answer.steps)
    assert _basin_text(0, 2) == "0 of the 2 single steps that fit cost less than 3%: too few to tell a broad basin from a sharp peak"
    assert _basin_text(0, 5).startswith("a sharp peak: 0 of the 5") and _basin_text(5, 5).startswith("a broad basin")
    assert "not known" in _basin_text(0, 0)


def test_a_figure_that_is_not_used_is_named_without_numbers_and_a_step_between_fp8_formats_names_the_format() -> None:
    answer = found("mixtral_8x7B_v0.1", tp=1, pp=1, ep=8, expert_tensor_parallel_size=1, mbs=1, fp8="delayed")
    printed = sensitivity_text(answer).splitlines()
    assert not [line for line in printed if "+0.0%   +0.0%" in line or "-0.0%   -0.0%" in line]
    assert any("not used by this configuration: " in line and "NIC bandwidth" in line for line in printed)
    assert "FP8" not in {step.label for step in answer.steps}


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
    found = {figure.name: figure for figure in figures(make_cluster("mi355x"))}
    assert found["link_efficiency"].text == "collective bandwidth inside a node, 65% to 78%"
    assert found["launch_us"].text == "host time to launch a kernel, 12 to 25 us (AMD's)"
    assert found["dp_overlap"].at(high=True)[("time", ("dp_overlap",))] >= found["dp_overlap"].at(high=False)[("time", ("dp_overlap",))]
    assert len(found["launches"].paths) > 20


def test_a_smaller_swing_moves_less_and_names_itself_and_an_endless_one_is_refused() -> None:
    price, centre = evaluator("llama3.1_8B", 1), TrialConfig(tp=1, pp=1, mbs=1)
    narrow, wide = (sensitivity(price, centre, gemm_backend="roofline", swing=swing) for swing in (0.025, 0.5))
    assert narrow.swings[0].ends == ("-2.5%", "+2.5%") and wide.swing == 0.5
    by_name = {swing.name: swing for swing in wide.swings}
    for swing in narrow.swings:
        other = by_name[swing.name]
        assert min(other.low, other.high) <= min(swing.low, swing.high) and max(swing.low, swing.high) <= max(other.low, other.high)
    for bad in (0.0, -0.2, 0.51, float("nan"), float("inf")):
        with pytest.raises(InputError, match="swing"):
            sensitivity(price, centre, gemm_backend="roofline", swing=bad)


@pytest.mark.parametrize("name", ["mi300x", "mi325x", "mi355x", "mi250x", "h100", "gb200"])
def test_what_a_profile_inherits_has_its_range_where_it_is_stated(name: str) -> None:
    cluster = make_cluster(name)
    found = {figure.name: figure for figure in figures(cluster)}
    for figure in found.values():
        for file, keys, low, high in figure.paths:
            node: object = catalogue_document(file) if file != "time" else catalogue_yaml("engine/time.yaml")
            for key in keys:
                node = node[key]  # type: ignore[index]
            assert node["range"] == [low, high] and low < high  # type: ignore[index]
    family = f"family_{cluster.gpu.vendor}"
    step = found["figures.step_efficiency"]
    assert step.paths[0][0] in (name, family) and found["launch_us"].paths[0][0] == family
    assert sum(figure.paths[0][0] == family for figure in found.values()) > 10


def test_a_family_constant_that_is_inherited_moves_the_throughput() -> None:
    price = evaluator("mixtral_8x7B_v0.1", 1)
    centre = TrialConfig(tp=1, pp=1, ep=8, expert_tensor_parallel_size=1, mbs=1)
    names = {swing.name: swing for swing in sensitivity(price, centre, gemm_backend="roofline", ranges=True).swings}
    swing = names["range figures.step_efficiency"]
    assert swing.low < price.evaluate(centre).tokens_per_s_per_gpu < swing.high  # type: ignore[operator]
    assert swing.what.endswith("(AMD's)")


def test_every_constant_that_can_be_shown_has_words_that_fit_on_a_label() -> None:
    """Names of the catalogue are for the engine; a chart's labels hold 60 characters."""
    found: dict[str, str] = {}
    for gpu in gpu_names():
        profile = gpu_profile(gpu)
        for software in profile.profiles.values():
            cluster = replace(make_cluster("mi355x"), gpu=profile, profile=software)
            found |= {figure.name: figure.text for figure in figures(cluster)}
    assert set(found) - {LAUNCHES} == set(CONSTANTS)
    texts = {name: text.lower() for name, text in found.items()}
    assert not {name: text for name, text in texts.items() if len(text) > 60 or "_" in text or "e-0" in text or "e+0" in text}
    assert len({words for words, _ in CONSTANTS.values()}) == len(CONSTANTS)
