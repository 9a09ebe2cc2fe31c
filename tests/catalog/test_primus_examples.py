"""Every example workload that Primus ships: resolved to the values of its files, or refused in one line that names the feature.

`pytest -s` prints the tally.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from primus_mcp.errors import InputError, UnsupportedFeatureError
from primus_mcp.inputs.workload import Workload, read_workload
from primus_mcp.inputs.yaml_loader import load_yaml

PRETRAIN_FILES, RESOLVED_AT_LEAST = 92, 86
NOT_THE_FILES = {"mtp_num_layers"}
"""Keys that resolution corrects because the trainer would stop otherwise (a finding says so)."""


def examples(shared: Path) -> list[Path]:
    root = shared / "primus" / "examples"
    return sorted((*(root / "megatron" / "configs" / "MI355X").glob("*.yaml"), *(root / "moe_package").rglob("*.yaml")))


def is_pretraining(path: Path) -> bool:
    return "pre_trainer" in load_yaml(path).get("modules", {})


def resolve(path: Path) -> Workload | InputError:
    try:
        return read_workload(path, environment={})
    except InputError as error:
        return error


def test_the_tally_of_primus_examples(shared: Path) -> None:
    results = {path: resolve(path) for path in examples(shared)}
    pretraining = [path for path in results if is_pretraining(path) and "moe_package" not in str(path)]
    resolved = [path for path, result in results.items() if isinstance(result, Workload)]
    refused = {path: result for path, result in results.items() if isinstance(result, InputError)}
    done = len(set(resolved) & set(pretraining))
    lines = [f"{len(resolved)} of {len(results)} examples resolve, {done} of {len(pretraining)} pretraining"]
    lines += [f"  {path.name}: {error.problem}" for path, error in refused.items()]
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
    assert len(pretraining) == PRETRAIN_FILES
    assert done >= RESOLVED_AT_LEAST
    assert all("\n" not in str(error) for error in refused.values())
    by_kind = Counter(type(error) for path, error in refused.items() if is_pretraining(path))
    assert set(by_kind) <= {UnsupportedFeatureError}


def test_every_resolved_example_has_the_values_of_its_model_file_unless_it_overrides_them(shared: Path) -> None:
    facts = json.loads((shared / "facts" / "primus_resolved.json").read_text())
    compared = 0
    for path in examples(shared):
        result = resolve(path)
        if not isinstance(result, Workload):
            continue
        overrides = result.document["modules"][result.module].get("overrides") or {}
        for key, value in facts[result.architecture.name].items():
            if key not in overrides and key not in NOT_THE_FILES | {"bases"}:
                assert result.arguments[key] == value, (path.name, key)
                compared += 1
    assert compared > 1000


def test_every_example_resolves_alike_without_a_checkout(shared: Path, tmp_path: Path) -> None:
    for path in examples(shared):
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    for path in examples(shared):
        alone = tmp_path / path.name
        inside, outside = resolve(path), resolve(alone)
        if isinstance(inside, InputError) or isinstance(outside, InputError):
            assert type(inside) is type(outside) or "not found" in str(outside), path.name
            continue
        assert (inside.architecture, inside.baseline, inside.digest) == (outside.architecture, outside.baseline, outside.digest)
        assert {file.origin for file in outside.files} == {"workload", "bundled"}
