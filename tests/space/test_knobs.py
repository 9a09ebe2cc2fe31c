"""The registry is complete: whoever loops over it sees every knob whole."""

from __future__ import annotations

from typing import Any

import pytest
from space_cases import make_workload, nodes

from primus_mcp.inputs.cluster_file import AxisToggles
from primus_mcp.space.axes import legal_axes
from primus_mcp.space.knobs import KNOBS, TrialConfig, knob_values


def test_every_field_of_a_trial_is_a_knob_with_a_description_and_a_legality() -> None:
    assert list(KNOBS) == list(TrialConfig.model_fields)
    for knob in KNOBS.values():
        assert knob.description
        assert knob.legal
        assert knob.trainer_keys or knob.name == "target_ep_size"


def test_the_axes_of_knobs_are_the_toggles_of_the_cluster_file() -> None:
    assert {knob.axis for knob in KNOBS.values() if knob.axis} == set(AxisToggles.model_fields)


def test_a_trial_is_immutable_and_hashable() -> None:
    assert len({TrialConfig(tp=8), TrialConfig(tp=8), TrialConfig()}) == 2


@pytest.mark.parametrize(
    ("arguments", "value"),
    [({}, "none"), ({"fp8": "hybrid"}, "hybrid"), ({"fp8": "e4m3"}, "e4m3"), ({"fp8": "e4m3", "fp8_recipe": "mxfp8"}, "mxfp8")],
)
def test_a_precision_of_the_workload_is_a_value_of_the_knob(arguments: dict[str, Any], value: str) -> None:
    assert knob_values(make_workload("dense", **arguments).baseline)["fp8"] == value


def test_every_knob_has_a_value_in_every_configuration_and_on_every_axis() -> None:
    workload = make_workload("moe")
    values, axes = knob_values(workload.baseline), legal_axes(workload, nodes())
    assert list(values) == list(axes) == list(KNOBS)
    for name, value in values.items():
        assert value is None or value in axes[name]
