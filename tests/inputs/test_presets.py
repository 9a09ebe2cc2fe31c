"""Where presets come from, and how `extends:` chains flatten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from primus_mcp.errors import InputError
from primus_mcp.inputs.presets import ConfigRoot, PresetReader, bundled_root, config_roots, deep_merge


def write(root: Path, name: str, text: str) -> None:
    path = root / "models" / "megatron" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def flatten(root: Path, name: Any, **environment: str) -> dict[str, Any]:
    reader = PresetReader(roots=(ConfigRoot(path=root, origin="checkout"),), environment=environment)
    return reader.flatten(name, "models", "megatron", "model")


def test_later_bases_win_over_earlier_and_the_file_over_all_with_nested_mappings_merged(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "x: a\ny: a\nz: a\nn: {p: 1, q: 1}\n")
    write(tmp_path, "b.yaml", "extends: c.yaml\ny: b\nn: {q: 2}\n")
    write(tmp_path, "c.yaml", "z: c\nw: c\n")
    write(tmp_path, "m.yaml", "extends:\n  - a.yaml\n  - b.yaml\nx: m\n")
    assert flatten(tmp_path, "m") == {"x": "m", "y": "b", "z": "c", "w": "c", "n": {"p": 1, "q": 2}}


def test_a_cycle_is_shown_from_where_it_starts(tmp_path: Path) -> None:
    write(tmp_path, "m.yaml", "extends: [a.yaml]\n")
    write(tmp_path, "a.yaml", "extends: [b.yaml]\n")
    write(tmp_path, "b.yaml", "extends: [a.yaml]\n")
    with pytest.raises(InputError, match=r"models/megatron/a.yaml -> models/megatron/b.yaml -> models/megatron/a.yaml"):
        flatten(tmp_path, "m.yaml")


def test_a_chain_too_deep_and_a_base_that_is_no_name_are_refused(tmp_path: Path) -> None:
    for index in range(40):
        write(tmp_path, f"{index}.yaml", f"extends: {index + 1}.yaml\n")
    write(tmp_path, "40.yaml", "x: 1\n")
    with pytest.raises(InputError, match="more than 32 files deep"):
        flatten(tmp_path, "0")
    assert flatten(tmp_path, "20") == {"x": 1}
    write(tmp_path, "m.yaml", "extends: {a: 1}\n")
    with pytest.raises(InputError, match="extends is"):
        flatten(tmp_path, "m")


def test_files_that_extend_the_same_two_over_and_over_are_refused_by_their_number(tmp_path: Path) -> None:
    for index in range(12):
        write(tmp_path, f"{index}.yaml", f"extends: [{index + 1}.yaml, {index + 1}.yaml]\n")
    write(tmp_path, "12.yaml", "x: 1\n")
    with pytest.raises(InputError, match="more than 200 files"):
        flatten(tmp_path, "0")


@pytest.mark.parametrize("name", ["../../../etc/passwd", "/etc/passwd", "", None, 3, "../../../../x.yaml"])
def test_a_preset_outside_the_configs_is_refused(tmp_path: Path, name: object) -> None:
    write(tmp_path, "m.yaml", "x: 1\n")
    with pytest.raises(InputError):
        flatten(tmp_path, name)


def test_a_missing_base_says_who_extends_it_and_where_it_was_looked_for(tmp_path: Path) -> None:
    write(tmp_path, "m.yaml", "extends: [gone.yaml]\n")
    with pytest.raises(InputError, match=r"m\.yaml: models/megatron/gone\.yaml was not found .*--primus-root"):
        flatten(tmp_path, "m.yaml")


def test_a_misspelt_preset_is_answered_with_the_nearest_name(tmp_path: Path) -> None:
    write(tmp_path, "llama3_70B.yaml", "x: 1\n")
    with pytest.raises(InputError, match=r"llama3_70\.yaml was not found .*did you mean llama3_70B\.yaml\?"):
        flatten(tmp_path, "llama3_70.yaml")


def test_bases_are_ignored_with_a_finding_as_primus_ignores_them(tmp_path: Path) -> None:
    write(tmp_path, "base.yaml", "x: 1\n")
    write(tmp_path, "m.yaml", "bases: [base.yaml]\ny: 2\n")
    reader = PresetReader(roots=(ConfigRoot(path=tmp_path, origin="checkout"),), environment={})
    assert reader.flatten("m.yaml", "models", "megatron", "model") == {"y": 2}
    assert [finding.code for finding in reader.findings] == ["bases-ignored"]


def test_the_explicit_root_comes_first_then_the_checkout_then_the_bundle(tmp_path: Path) -> None:
    explicit, checkout = tmp_path / "explicit", tmp_path / "checkout"
    for root in (explicit, checkout):
        (root / "primus" / "configs" / "models").mkdir(parents=True)
    workload = checkout / "examples" / "w.yaml"
    roots = config_roots(workload, explicit)
    assert [root.origin for root in roots] == ["--primus-root", "checkout", "bundled"]
    assert config_roots(tmp_path / "w.yaml", None) == (bundled_root(),)
    with pytest.raises(InputError, match="no primus/configs"):
        config_roots(workload, tmp_path / "elsewhere")


def test_merging_leaves_its_inputs_alone() -> None:
    base: dict[str, Any] = {"n": {"p": 1}}
    assert deep_merge(base, {"n": {"q": 2}}) == {"n": {"p": 1, "q": 2}}
    assert base == {"n": {"p": 1}}
