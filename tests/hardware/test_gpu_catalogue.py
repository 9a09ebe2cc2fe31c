"""The GPU catalogue: every figure sourced, aliases, sibling rules."""

from __future__ import annotations

import re
from copy import deepcopy
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_mcp.errors import InputError, UnknownFigureError
from primus_mcp.inputs.cluster import make_cluster, read_cluster, software_profile
from primus_mcp.inputs.hardware_files import Figures, catalogue_document, gpu_aliases, gpu_names, gpu_profile, read_profile
from primus_mcp.inputs.own_gpu import read_gpu_file
from primus_mcp.units import GIB

AMD = ("mi300x", "mi325x", "mi350x", "mi355x")


def _documents() -> dict[str, dict[str, Any]]:
    folder = files("primus_mcp") / "catalog" / "hardware"
    return {entry.name: yaml.safe_load(entry.read_text(encoding="utf-8")) for entry in folder.iterdir() if entry.name.endswith(".yaml")}


def _entries(node: object, path: str) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(node, dict):
        return []
    if "value" in node or "derived_from" in node:
        return [(path, node)]
    return [entry for key, value in node.items() for entry in _entries(value, f"{path}.{key}")]


ENTRIES = [entry for name, document in sorted(_documents().items()) for entry in _entries(document, name)]


def test_every_figure_has_a_source_and_a_value_inside_its_range() -> None:
    assert len(ENTRIES) > 300
    for path, entry in ENTRIES:
        assert len(str(entry["source"])) > 3, path
        assert ("value" in entry) != ("derived_from" in entry), path
        if "range" in entry:
            assert entry["range"][0] <= entry["value"] <= entry["range"][1], path


def test_no_bare_number_stands_beside_the_figures() -> None:
    for name, document in _documents().items():
        for block in ("device", "network", "profiles", "rates", "figures"):
            for key, value in document.get(block, {}).items():
                assert isinstance(value, dict) or key in ("node_topology", "switch_topology", "spans_nodes"), f"{name}: {block}.{key}"


def test_the_four_instinct_gpus_have_the_published_memory_and_peaks() -> None:
    usable = {"mi300x": 191.98, "mi325x": 255.98, "mi350x": 287.98, "mi355x": 287.98, "h100": 79.19, "b200": 178.35}
    for name, gib in usable.items():
        assert gpu_profile(name).hbm_bytes / GIB == pytest.approx(gib, abs=0.005)
    # 256 CU x 4096 FLOP x 2.4 GHz, 304 CU x 2048 x 2.1 GHz
    assert gpu_profile("mi355x").peak_flops["bf16"] == pytest.approx(256 * 4096 * 2.4e9, rel=1e-4)
    assert gpu_profile("mi300x").peak_flops["bf16"] == pytest.approx(304 * 2048 * 2.1e9, rel=1e-4)
    assert gpu_profile("mi355x").supports_mxfp8
    assert not gpu_profile("mi300x").supports_mxfp8


def test_one_gpu_of_an_mi250x_is_one_of_its_two_dies() -> None:
    """torch sees a module as two devices: 110 CU x 1024 FLOP x 1.7 GHz and 64 GB each; CDNA2 has no FP8."""
    gpu = gpu_profile("mi250x")
    assert gpu.compute_units == 110
    assert gpu.peak_flops["bf16"] == pytest.approx(110 * 1024 * 1.7e9, rel=1e-3)
    assert gpu.hbm_bytes / GIB == pytest.approx(63.98, abs=0.005)
    assert set(gpu.peak_flops) == {"bf16"}
    assert gpu.network.nics_per_node * 2 == gpu.network.node_size


def test_mi300a_is_three_quarters_of_an_mi300x_with_the_memory_that_hip_may_allocate() -> None:
    own, sibling = gpu_profile("mi300a"), gpu_profile("mi300x")
    assert own.compute_units / sibling.compute_units == 0.75
    for precision in ("bf16", "fp8"):
        assert own.peak_flops[precision] == pytest.approx(0.75 * sibling.peak_flops[precision], rel=1e-3)
        assert software_profile(own).sustained_flops[precision] == pytest.approx(
            0.75 * software_profile(sibling).sustained_flops[precision], rel=1e-3
        )
    assert own.hbm_bytes == 96 * GIB
    example = read_gpu_file(Path(__file__).parents[2] / "examples" / "gpus" / "mi300a.yaml").profile
    assert (example.hbm_bytes, example.peak_flops) == (own.hbm_bytes, own.peak_flops)


@pytest.mark.parametrize("name", gpu_names())
def test_every_gpu_has_a_reference_pod_that_is_read_without_a_warning_of_its_size(name: str) -> None:
    path = Path(__file__).parents[2] / "examples" / "clusters" / f"pod_{name}.yaml"
    target = read_cluster(path)
    assert target.cluster.gpu is gpu_profile(name)
    assert target.cluster.network == gpu_profile(name).network
    assert not [line for line in target.warnings if "links join" in line]


def test_an_architecture_name_chooses_its_most_common_gpu() -> None:
    assert gpu_profile("gfx950").name == "mi355x"
    assert gpu_profile("gfx942") is gpu_profile("MI300X")
    assert gpu_aliases()["gfx950"] == "mi355x"


def test_an_unknown_gpu_names_the_closest_and_the_list() -> None:
    with pytest.raises(InputError, match=r"unknown GPU 'mi35x'; did you mean mi3\d\dx\? known: .*mi355x"):
        gpu_profile("mi35x")


@pytest.mark.parametrize("name", gpu_names())
def test_every_gpu_sustains_less_than_its_peak_and_names_its_dated_profile(name: str) -> None:
    gpu = gpu_profile(name)
    assert 1 <= len(gpu.profiles) <= 2
    for profile in gpu.profiles.values():
        assert re.fullmatch(r"\d{4}-\d{2}", profile.date)
        for precision, rate in profile.sustained_flops.items():
            assert 0.3 * gpu.peak_flops[precision] < rate < 0.9 * gpu.peak_flops[precision]
        assert profile.attention_backward_flops < profile.attention_forward_flops < gpu.peak_flops["bf16"]
        for rate_name in (
            "link_efficiency",
            "all_to_all_link_efficiency",
            "deepep_link_efficiency",
            "nic_efficiency",
            "elementwise_hbm_efficiency",
        ):
            assert 0.3 < getattr(profile, rate_name) <= 1.0


@pytest.mark.parametrize("name", AMD)
def test_each_used_figure_carries_its_source_in_the_record(name: str) -> None:
    profile = software_profile(gpu_profile(name))
    for key in ("sustained_tflops.bf16", "attention_forward_tflops", "link_efficiency", "figures.attention_ramp_seq_forward"):
        assert profile.sources[key]
    assert "rates.elementwise_hbm_efficiency" in profile.sources


def test_a_sibling_rule_scales_by_the_declared_ratio_and_says_so() -> None:
    own, sibling = gpu_profile("mi350x"), gpu_profile("mi355x")
    ratio = own.peak_flops["bf16"] / sibling.peak_flops["bf16"]
    mine, theirs = software_profile(own), software_profile(sibling)
    assert mine.sustained_flops["bf16"] == pytest.approx(ratio * theirs.sustained_flops["bf16"])
    assert mine.attention_forward_flops == pytest.approx(ratio * theirs.attention_forward_flops)
    assert mine.sources["sustained_tflops.bf16"].startswith("derived from mi355x by the ratio of device.peak_tflops.bf16")


def test_a_figure_that_nobody_knows_raises_instead_of_defaulting() -> None:
    with pytest.raises(UnknownFigureError, match="warp_speed"):
        _ = Figures({"known": 1.0})["warp_speed"]


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"value": 1.0}, "figure device.l2_kib has no source"),
        ({"value": 1.0, "source": "x", "unit": "KiB"}, "unknown key 'unit'"),
        ({"derived_from": "mi355x", "source": "x"}, "derived in a circle"),
    ],
)
def test_a_figure_of_the_catalogue_without_a_source_or_an_end_is_refused(entry: dict[str, Any], told: str) -> None:
    document = deepcopy(dict(catalogue_document("mi355x")))
    document["device"]["l2_kib"] = entry
    with pytest.raises(InputError, match=told):
        read_profile("mi355x", document, changed={"mi355x": document})


def test_an_unknown_profile_is_refused_with_the_list() -> None:
    with pytest.raises(InputError, match="rocm-2026"):
        make_cluster("mi355x", profile="rocm-2019")


def test_an_older_profile_states_only_what_differs_from_the_newer_one_that_it_is_like() -> None:
    """Before 2025-11 no image had a backward kernel for the heads of latent attention (ROCm/TransformerEngine pull 364)."""
    old, new = make_cluster("mi355x", profile="rocm-2025").profile, make_cluster("mi355x").profile
    assert old.sustained_flops == new.sustained_flops
    assert old.attention_backward_flops == new.attention_backward_flops
    assert old.figures["attention_latent_backward"] < 0.5 * new.figures["attention_latent_backward"]
    assert old.sources["figures.attention_latent_backward"] != new.sources.get("figures.attention_latent_backward")
    assert old.sources["sustained_tflops.bf16"] == new.sources["sustained_tflops.bf16"]


def test_a_profile_like_one_that_is_not_there_is_refused() -> None:
    document = dict(catalogue_document("mi355x"))
    document["profiles"] = {"rocm-2025": document["profiles"]["rocm-2025"]}
    with pytest.raises(InputError, match="rocm-2025 is like rocm-2026"):
        read_profile("mi355x", document)


def test_loading_is_cached_so_that_a_cluster_is_a_cheap_key() -> None:
    assert make_cluster("mi355x") == make_cluster("mi355x")
    assert hash(make_cluster("mi355x")) == hash(make_cluster("mi355x"))
