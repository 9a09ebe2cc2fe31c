"""A GPU file of the user's: what it gives counts, what it leaves out is taken over by a rule that is told, what is wrong is named."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_mcp.cli.main import main
from primus_mcp.errors import InputError
from primus_mcp.inputs.hardware_files import PROFILE_RATES, catalogue_document, gpu_names, gpu_profile
from primus_mcp.inputs.own_gpu import any_gpu, parse_gpu

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpus" / "mi300a.yaml"


def figure(value: object) -> dict[str, object]:
    return {"value": value, "source": "test"}


@pytest.mark.parametrize("name", gpu_names())
def test_a_file_that_gives_nothing_is_the_gpu_it_is_based_on(name: str) -> None:
    ours, theirs = parse_gpu({"based_on": name}, "own", "own.yaml").profile, gpu_profile(name)
    for field in dataclasses.fields(theirs):
        if field.name not in {"name", "sources", "profiles"}:
            assert getattr(ours, field.name) == pytest.approx(getattr(theirs, field.name)) or not isinstance(
                getattr(theirs, field.name), float
            )
    mine, other = ours.profiles[ours.default_profile], theirs.profiles[theirs.default_profile]
    assert dict(mine.sustained_flops) == pytest.approx(dict(other.sustained_flops))
    assert dict(mine.figures) == pytest.approx(dict(other.figures))
    assert mine.attention_backward_flops == pytest.approx(other.attention_backward_flops)


def test_own_figures_count_and_rates_follow_the_ratio_of_the_peaks() -> None:
    own = parse_gpu({"based_on": "mi300x", "device": {"peak_tflops": {"bf16": figure(653.7)}}}, "half", "half.yaml")
    base = gpu_profile("mi300x")
    mine, theirs = own.profile.profiles[own.profile.default_profile], base.profiles[base.default_profile]
    assert mine.sustained_flops["bf16"] == pytest.approx(theirs.sustained_flops["bf16"] / 2)
    assert mine.attention_forward_flops == pytest.approx(theirs.attention_forward_flops / 2)
    assert "fp8" not in own.profile.peak_flops
    assert "fp8" not in mine.sustained_flops
    assert own.given == ("device.peak_tflops.bf16",)
    assert ("network.nic_gb_per_s", "as mi300x") in own.filled


def alone(node: Any) -> Any:
    """A part of a catalogue file as a user would write it out, figures that follow from a sibling as 1."""
    if not isinstance(node, dict):
        return node
    if "source" in node:
        return figure(node.get("value", 1.0))
    return {key: alone(value) for key, value in node.items() if key not in {"aliases", "like"}}


def whole_file() -> dict[str, Any]:
    document = alone(dict(catalogue_document("mi355x")))
    newest = gpu_profile("mi355x").default_profile
    return {**document, "profiles": {"mine": document["profiles"][newest]}}


def test_a_file_with_every_figure_needs_no_base_and_its_profile_may_have_any_name() -> None:
    own = parse_gpu(whole_file(), "own", "own.yaml")
    assert (own.based_on, own.filled, own.profile.default_profile) == (None, (), "mine")
    assert own.profile.hbm_bytes == gpu_profile("mi355x").hbm_bytes


@pytest.mark.parametrize(
    "path",
    [
        "vendor",
        "arch",
        "supports_mxfp8",
        "network.node_topology",
        "network.switch_topology",
        "profiles.mine.date",
        "network.nic_gb_per_s",
        "device.l2_kib",
    ],
)
def test_a_file_without_a_base_that_leaves_a_word_or_a_figure_out_is_refused_by_its_name(path: str) -> None:
    document = whole_file()
    node, *folders = document, *path.split(".")
    for folder in folders[:-1]:
        node = node[folder]
    del node[folders[-1]]
    with pytest.raises(InputError, match=rf"lacks (.*, )?{path}[,;].*based_on"):
        parse_gpu(document, "own", "own.yaml")


def test_a_rate_that_the_catalogue_keeps_for_a_whole_family_may_be_ones_own() -> None:
    for rate in PROFILE_RATES:
        document = {"based_on": "mi355x", "profiles": {"mine": {"date": "2026-11", "since": "2026-10", rate: figure(0.5)}}}
        assert getattr(parse_gpu(document, "own", "own.yaml").profile.profiles["mine"], rate) == 0.5


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({"based_on": "mi300"}, "did you mean mi300x"),
        ({"based_on": 3}, "based_on"),
        ({}, "lacks device.compute_units"),
        ({"vendor": "intel", "based_on": "mi300x"}, "vendor"),
        ({"based_on": "mi300x", "device": {"hbm_usabel_mib": figure(1)}}, "hbm_usable_mib"),
        ({"based_on": "mi300x", "device": {"hbm_usable_mib": 5}}, "value: N, source: TEXT"),
        ({"based_on": "mi300x", "device": {"hbm_usable_mib": {"value": 5}}}, "no source"),
        ({"based_on": "mi300x", "device": {"hbm_usable_mib": figure(-5)}}, "finite number above 0"),
        ({"based_on": "mi300x", "device": {"hbm_usable_mib": figure("5")}}, "finite number above 0"),
        ({"based_on": "mi300x", "device": {"hbm_usable_mib": {**figure(5), "unit": "MiB"}}}, "unknown key 'unit'"),
        ({"based_on": "mi300x", "network": {"node_topology": "ring"}}, "mesh, switch"),
        ({"based_on": "mi300x", "profiles": {"a": {}, "b": {}}}, "exactly one"),
        ({"based_on": "mi300x", "profiles": 3}, "exactly one"),
        ({"based_on": "mi300x", "device": [1]}, "device"),
        ({"based_on": "mi300x", "device": {"peak_tflops": {"fp8": figure(2000)}}}, "lacks device.peak_tflops.bf16"),
    ],
)
def test_what_is_wrong_with_a_file_is_named_in_one_line(document: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_gpu(document, "own", "own.yaml")
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_shipped_example_is_checked_and_used(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["gpus", "--check", str(EXAMPLE)]) == 0
    said = capsys.readouterr().out
    assert "usable" in said
    assert "profiles.rocm-2026.sustained_tflops.bf16: as mi300x by the ratio of device.peak_tflops.bf16" in said
    assert main(["axes", "--model", "llama3.1_8B", "--gpu", str(EXAMPLE), "--gpus-per-node", "4"]) == 0
    broken = tmp_path / "gpu.yaml"
    broken.write_text(yaml.safe_dump({"based_on": "mi300x", "device": {"compute_units": 3}}), encoding="utf-8")
    assert main(["gpus", "--check", str(broken)]) == 2
    assert "gpu.yaml" in capsys.readouterr().err
    assert main(["axes", "--model", "llama3.1_8B", "--gpu", str(tmp_path / "gone.yaml")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_a_gpu_file_is_looked_for_in_the_working_directory_and_else_beside_the_cluster_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, beside = tmp_path / "here", tmp_path / "beside"
    for folder, base in ((here, "mi300x"), (beside, "mi355x")):
        folder.mkdir()
        (folder / "gpu.yaml").write_text(yaml.safe_dump({"based_on": base}), encoding="utf-8")
    monkeypatch.chdir(here)
    assert any_gpu("gpu.yaml", beside).arch == "gfx942"
    assert any_gpu(str(beside / "gpu.yaml"), None).arch == "gfx950"
    monkeypatch.chdir(tmp_path)
    assert any_gpu("gpu.yaml", beside).arch == "gfx950"
    assert any_gpu("mi300x", beside) is gpu_profile("mi300x")
    with pytest.raises(InputError, match=r"gone\.yaml: does not exist"):
        any_gpu("gone.yaml", beside)
