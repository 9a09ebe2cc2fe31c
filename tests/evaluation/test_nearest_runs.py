"""The band around a throughput comes from the errors of the published runs most like it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from primus_mcp.evaluation import nearest as module
from primus_mcp.evaluation.nearest import UNLIKE, Nearest, Residual, Traits, band_fields, nearest, residuals
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.model_workload import workload_from_model


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
    yield runs
    nearest.cache_clear()


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
