"""The words of a verdict: one vocabulary, and what each word compares with what."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_mcp.evaluation.evaluators import FullEvaluator, Rules
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.projection.memory import CACHE_NOTE, COMPONENTS, MEANINGS, WORDS, Fit, cache_note, project_memory, verdict_text, word
from primus_mcp.projection.memory.outside import runtime
from primus_mcp.space.knobs import TrialConfig
from primus_mcp.space.trainer_keys import resolve
from primus_mcp.units import GIB


def test_the_verdict_in_words_compares_the_estimate_with_the_cap_and_the_upper_bound_with_the_gpu() -> None:
    assert [word(fit, within_cap=True) for fit in ("fits", "at_risk")] == ["fits", "at risk"]
    assert [word(fit, within_cap=False) for fit in ("fits", "at_risk", "does_not_fit")] == ["over cap", "over cap", "too large"]
    assert word(None, within_cap=False) == "over cap" and word(None, within_cap=True) == "fits" and word(None, within_cap=None) is None
    assert set(WORDS) == set(MEANINGS)


def test_the_text_of_a_verdict_names_what_is_compared_with_what() -> None:
    def text(fit: Fit, estimate: float, upper: float) -> str:
        return verdict_text(fit, estimate * GIB, upper * GIB, 90 * GIB, 100 * GIB)

    assert text("fits", 80, 95) == "fits: 80.00 GB is within the cap of 90.00 GB, at most 95.00 GB within the 100.00 GB of the GPU"
    assert text("at_risk", 80, 105) == "at risk: 80.00 GB is within the cap of 90.00 GB, at most 105.00 GB beyond the 100.00 GB of the GPU"
    assert text("fits", 95, 99).startswith("over cap: 95.00 GB is above the cap of 90.00 GB, at most 99.00 GB within")
    assert text("does_not_fit", 120, 130) == "too large: 120.00 GB is beyond the 100.00 GB of the GPU"


def test_an_estimate_above_the_gpu_that_is_not_too_large_says_that_only_cache_is_beyond() -> None:
    workload = workload_from_model("mixtral_8x22B_v0.1")
    cluster = make_cluster("mi355x", num_nodes=4)
    config = resolve(workload, TrialConfig(mbs=1, pp=4, ep=8, tp=1, vpp=2))
    memory = project_memory(workload.architecture, config, cluster)
    assert memory.least_bytes <= cluster.hbm_bytes < memory.device_bytes
    assert memory.verdict(cluster) == "over cap" and CACHE_NOTE in memory.verdict_text(cluster)
    assert cache_note("at_risk", 99, 100) is None and cache_note("does_not_fit", 101, 100) is None


def test_the_reason_of_such_an_estimate_and_its_result_say_the_same() -> None:
    workload, cluster = workload_from_model("mixtral_8x22B_v0.1"), make_cluster("mi355x", num_nodes=4)
    evaluator = FullEvaluator(Rules(workload=workload, cluster=cluster, axes={}, pins={}), gemm_backend="roofline")
    result = evaluator.evaluate(TrialConfig(mbs=1, pp=4, ep=8, tp=1, vpp=2), single=True)
    assert result.verdict == "over cap" and result.within_margin is False and result.fits_physically == "at_risk"
    assert result.reason is not None and result.reason.endswith(CACHE_NOTE)


@pytest.mark.parametrize("page", ["README.md", "docs/memory.md"])
def test_documents_explain_every_word(page: str) -> None:
    text = " ".join((Path(__file__).parents[2] / page).read_text(encoding="utf-8").split())
    for found, meaning in MEANINGS.items():
        assert f"`{found}`: {meaning}" in text


def test_the_upper_bound_of_an_amd_run_without_expert_exchange_holds_the_8_gib_that_nobody_knows() -> None:
    """No published AMD run of a dense model states its memory; with expert exchange one fit to runs is known better."""
    without, fitted = runtime("amd", expert_exchange=False), runtime("amd", expert_exchange=True)
    assert without.high_bytes - without.value_bytes == pytest.approx(8 * GIB)
    assert fitted.high_bytes - fitted.value_bytes == pytest.approx(4.2 * GIB)
    workload, cluster = workload_from_model("llama3.1_70B"), make_cluster("mi300x", num_nodes=4)
    memory = project_memory(workload.architecture, resolve(workload, TrialConfig(tp=8, mbs=1)), cluster)
    assert memory.upper_bytes - memory.device_bytes >= 8 * GIB
    assert any("8 GiB" in caveat.text and "upper bound includes" in caveat.text for caveat in memory.caveats)


def test_what_was_fitted_or_estimated_is_never_called_measured() -> None:
    evidence = {name: component.evidence for name, component in COMPONENTS.items()}
    assert evidence["runtime"] == evidence["communicators"] == "estimated" and evidence["fragmentation"] == "fitted"
    text = (Path(__file__).parents[2] / "docs" / "memory.md").read_text(encoding="utf-8")
    assert all(f"`[{kind}]`" in text for kind in set(evidence.values()))
