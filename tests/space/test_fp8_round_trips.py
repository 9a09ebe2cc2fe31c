"""Every FP8 recipe that is priced is the one that what we write selects: overlay, flags of primus-cli, arguments of Megatron-LM."""

from __future__ import annotations

import ast
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from workload_cases import workload_text

from primus_mcp.inputs.megatron_workload import export_megatron, workload_from_megatron
from primus_mcp.inputs.workload import Workload, read_workload
from primus_mcp.space.knobs import TrialConfig
from primus_mcp.space.overlay import TRAINER_FLAGS, exports, overlay_yaml
from primus_mcp.space.trainer_keys import read_trial, resolve, trainer_keys

OWN: dict[str, dict[str, Any]] = {
    "BF16": {},
    "delayed": {"fp8": "hybrid", "fp8_recipe": "delayed"},
    "tensorwise": {"fp8": "e4m3", "fp8_recipe": "tensorwise"},
    "blockwise": {"fp8": "e4m3", "fp8_recipe": "blockwise"},
    "mxfp8": {"fp8": "e4m3", "fp8_recipe": "mxfp8"},
}
TRIALS = (None, "none", "hybrid", "e4m3", "delayed", "mxfp8")
CASES = [(own, fp8) for own in OWN for fp8 in TRIALS]


def _workload(folder: Path, overrides: dict[str, Any]) -> Workload:
    (path := folder / "own.yaml").write_text(workload_text("llama3.1_8B", **overrides), encoding="utf-8")
    return read_workload(path, environment={})


def _as_the_trainer_reads(words: list[str]) -> dict[str, Any]:
    """Keys as they are spelled; True, False, None and numbers by their Python form, everything else as text."""
    read: dict[str, Any] = {}
    for key, text in zip(words[::2], words[1::2], strict=True):
        try:
            read[key.removeprefix("--")] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            read[key.removeprefix("--")] = text
    return read


@pytest.mark.parametrize(("own", "fp8"), CASES)
def test_overlay_flags_and_megatron_arguments_select_the_recipe_that_was_priced(own: str, fp8: str | None, tmp_path: Path) -> None:
    workload = _workload(tmp_path, OWN[own])
    trial = TrialConfig.model_validate({"fp8": fp8})
    priced = resolve(workload, trial)

    (path := tmp_path / "overlay.yaml").write_text(overlay_yaml(workload, trial), encoding="utf-8")
    stated = yaml.safe_load(path.read_text(encoding="utf-8"))["modules"]["pre_trainer"]["overrides"]
    assert read_workload(path, environment={}).baseline == priced
    assert priced.fp8 is None or (stated["fp8"], stated["fp8_recipe"]) == (priced.fp8, priced.fp8_recipe)

    line = next(line for line in exports(workload, trial) if line.startswith(TRAINER_FLAGS))
    flags = _as_the_trainer_reads(shlex.split(line.removeprefix(TRAINER_FLAGS)))
    assert set(flags) <= set(workload.arguments), "a key that the trainer does not have"
    assert _workload(tmp_path, {**OWN[own], **flags}).baseline == priced
    assert priced.fp8 is None or (flags["fp8"], flags["fp8_recipe"]) == (priced.fp8, priced.fp8_recipe)

    keys = trainer_keys(trial, workload)
    export = export_megatron({**workload.arguments, **keys}, workload.architecture, read_trial(workload, trial, keys))
    again = workload_from_megatron(export.text("fp8"), name="fp8").baseline
    assert (again.fp8, again.fp8_recipe if again.fp8 else None) == (priced.fp8, priced.fp8_recipe if priced.fp8 else None)
    assert priced.fp8 is None or f"--fp8-recipe {priced.fp8_recipe}" in export.words


def test_each_kind_of_the_knob_is_a_recipe_of_its_own(tmp_path: Path) -> None:
    """Delayed is FP8 hybrid with the delayed recipe whatever the workload has; hybrid and e4m3 keep the workload's recipe."""
    recipes = {fp8: resolve(_workload(tmp_path, OWN["blockwise"]), TrialConfig.model_validate({"fp8": fp8})) for fp8 in TRIALS[2:]}
    assert {fp8: (found.fp8, found.fp8_recipe) for fp8, found in recipes.items()} == {
        "hybrid": ("hybrid", "blockwise"),
        "e4m3": ("e4m3", "blockwise"),
        "delayed": ("hybrid", "delayed"),
        "mxfp8": ("e4m3", "mxfp8"),
    }
