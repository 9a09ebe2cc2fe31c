"""The band around a throughput comes from the errors of the published runs most like it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from primus_mcp.evaluation import nearest as module
from primus_mcp.evaluation.evaluators import FullEvaluator, Rules
from primus_mcp.evaluation.nearest import (
    BAND_OF_ALL,
    UNLIKE,
    Nearest,
    Residual,
    Traits,
    band_fields,
    band_words,
    nearest,
    of_all,
    residuals,
)
from primus_mcp.inputs.catalogue import catalogue_yaml
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.projection.performance.warnings import UNVALIDATED
from primus_mcp.space.knobs import TrialConfig


def traits(**changed: object) -> Traits:
    known: dict[str, object] = {
        "vendor": "amd",
        "gpu": "mi355x",
        "moe": True,
        "nodes": True,
        "pipeline": True,
        "latent": True,
        "adapters": False,
        "low_precision": False,
    }
    return Traits.model_validate(known | changed)


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Residual]]:
    """Four runs of two families on several nodes, three on one node."""
    runs = [Residual(family=family, traits=traits(), error=error) for family, error in (("a", 0.25), ("a", 0.1), ("b", -0.2), ("b", 0.0))]
    runs += [Residual(family=family, traits=traits(nodes=False), error=error) for family, error in (("a", 0.02), ("b", 0.03), ("c", 0.04))]
    monkeypatch.setattr(module, "residuals", lambda: tuple(runs))
    nearest.cache_clear()
    of_all.cache_clear()
    yield runs
    nearest.cache_clear()
    of_all.cache_clear()


def test_a_run_projected_too_fast_lowers_the_band_and_one_too_slow_raises_it(published: list[Residual]) -> None:
    """25% too fast: 1 / 1.25 of the projection; 20% too slow: 1 / 0.8."""
    found = nearest(traits())
    assert found is not None and found.runs == 4
    assert "mi355x, mixture of experts, several nodes, pipelined, latent attention, BF16" in found.text
    assert found.low == pytest.approx(0.8) and found.high == pytest.approx(1.25)


def test_the_band_always_holds_the_projection_itself(published: list[Residual]) -> None:
    found = nearest(traits(nodes=False))
    assert found is not None and found.high == 1.0 and found.low == pytest.approx(1 / 1.04)


def test_one_family_alone_never_speaks_for_another_model(published: list[Residual]) -> None:
    published[2:4] = [Residual(family="a", traits=traits(), error=0.3) for _ in range(2)]
    module_runs = tuple(published)
    found = nearest(traits())
    assert found is not None and found.runs == len(module_runs)


def test_a_vendor_without_runs_has_no_band(published: list[Residual]) -> None:
    assert nearest(traits(vendor="nvidia", gpu="b200")) is None


def test_every_shipped_error_is_one_of_a_published_run_and_amd_mixtures_on_several_nodes_have_a_wide_band() -> None:
    nearest.cache_clear()
    assert len(residuals()) > 300
    assert {run.traits.vendor for run in residuals()} == {"amd", "nvidia"}
    own = [run.error for run in residuals() if run.traits.vendor == "amd" and run.traits.moe and run.traits.nodes]
    found = nearest(traits())
    assert isinstance(found, Nearest)
    assert found.low == pytest.approx(1 / (1 + max(own))) and found.high == pytest.approx(1 / (1 + min(own)))


def test_a_configuration_whose_like_were_far_off_is_told_so_with_the_range() -> None:
    nearest.cache_clear()
    workload = workload_from_model("deepseek_v2", seq_length=4096, gbs=256, mbs=1)
    fields = band_fields(workload.architecture, workload.baseline, make_cluster("mi355x", num_nodes=4), 2000.0)
    low, high = fields["throughput_band"]
    assert low < 1800 and high > 2000
    (warning,) = fields["warnings"]
    assert warning.code == UNLIKE and f"{low:,.0f} to {high:,.0f} tokens/s/GPU" in warning.text


@pytest.mark.parametrize("code", sorted(UNVALIDATED))
def test_where_no_run_validates_a_part_the_band_spans_all_published_runs_of_the_vendor(published: list[Residual], code: str) -> None:
    """25% too fast and 20% too slow are the outermost of all seven; the three alike on one node would give 96% to 100%."""
    workload = workload_from_model("llama3.1_70B", seq_length=8192, gbs=128, mbs=1)
    cluster = make_cluster("mi355x", num_nodes=1)
    narrow = band_fields(workload.architecture, workload.baseline, cluster, 1000.0)
    wide = band_fields(workload.architecture, workload.baseline, cluster, 1000.0, [code])
    assert wide["throughput_band"] == pytest.approx([800.0, 1250.0])
    assert wide["throughput_band"][0] <= narrow["throughput_band"][0] <= narrow["throughput_band"][1] <= wide["throughput_band"][1]
    (warning,) = wide["warnings"]
    assert warning.code == BAND_OF_ALL and code in warning.text and "all 7 published AMD runs" in warning.text
    assert "all published runs" in band_words([BAND_OF_ALL]) and "most similar" in band_words([UNLIKE])


def test_those_codes_speak_of_amd_runs_so_that_nvidia_keeps_its_own_band(published: list[Residual]) -> None:
    workload = workload_from_model("llama3.1_70B", seq_length=8192, gbs=128, mbs=1)
    fields = band_fields(workload.architecture, workload.baseline, make_cluster("b200", num_nodes=1), 1000.0, sorted(UNVALIDATED))
    assert fields == {"throughput_band": None, "warnings": []}


def test_the_widest_band_holds_every_other_and_the_blind_errors_of_amd() -> None:
    nearest.cache_clear()
    of_all.cache_clear()
    widest = of_all("amd")
    assert widest is not None
    blind = catalogue_yaml("measured/accuracy.yaml")["amd"]["time"]["blind_mean_error"]
    assert widest.low <= 1 / (1 + blind) and 1 / (1 - blind) <= widest.high
    for moe, nodes, pipeline, latent, gpu in product((True, False), (True, False), (True, False), (True, False), ("mi300x", "mi355x")):
        found = nearest(traits(moe=moe, nodes=nodes, pipeline=pipeline, latent=latent, gpu=gpu))
        assert found is not None and widest.low <= found.low and found.high <= widest.high


@pytest.mark.parametrize("nodes", [1, 4])
def test_a_dense_model_with_tensor_parallelism_has_the_same_wide_band_on_one_node_and_on_several(nodes: int) -> None:
    """A band of 6% beside `no published AMD run validates the time of TP traffic` would contradict it."""
    nearest.cache_clear()
    of_all.cache_clear()
    workload = workload_from_model("llama3.1_70B", seq_length=8192, gbs=128, mbs=1)
    rules = Rules(workload=workload, cluster=make_cluster("mi355x", num_nodes=nodes), axes={}, pins={})
    result = FullEvaluator(rules, gemm_backend="roofline").evaluate(TrialConfig(tp=8, mbs=1))
    codes, widest = {warning.code for warning in result.warnings}, of_all("amd")
    assert {"not_validated", BAND_OF_ALL} <= codes and widest is not None
    assert result.tokens_per_s_per_gpu is not None
    ends = [result.tokens_per_s_per_gpu * widest.low, result.tokens_per_s_per_gpu * widest.high]
    assert result.throughput_band == pytest.approx(ends)
