"""Proposals are strict: one spelling a value, one line a mistake."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_mcp.errors import InputError
from primus_mcp.space.knobs import KNOBS, TrialConfig
from primus_mcp.space.parsing import parse_pins, parse_trial


@pytest.mark.parametrize(
    ("proposal", "told"),
    [
        ('{"tp": "8"}', ["tp", '"8"', "integer >= 1"]),
        ('{"tp": true}', ["tp", "true", "integer"]),
        ('{"tp": 8.0}', ["tp", "8.0"]),
        ('{"tp": NaN}', ["NaN"]),
        ('{"tp": 0}', ["tp", "0", ">= 1"]),
        ('{"tp": 1, "tp": 2}', ["tp", "2 times"]),
        ('{"use_turbo_deepep": 1}', ["use_turbo_deepep", "1", "true, false"]),
        ('{"sync_free_stage": 4}', ["sync_free_stage", "4", "<= 3"]),
        ('{"fp8": "bf16"}', ["fp8", "bf16", "none, hybrid, e4m3, delayed, mxfp8"]),
        ('{"tpp": 2}', ["tpp", "did you mean 'tp'?"]),
        ('{"tensor_model_parallel_size": 2}', ["did you mean 'tp'?"]),
        ('{"recompute": "none"}', ["recompute", "did you mean"]),
        ('{"zzz": 1}', ["knobs are tp, pp"]),
        ("[1]", ["object of knobs"]),
        ("{", ["not JSON"]),
        ("[" * 10_000, ["JSON"]),
        ('{"gbs": ' + "9" * 30 + "}", ["gbs"]),
        ("x" * 30_000, ["30000 characters"]),
    ],
)
def test_a_mistake_is_told_in_one_line_with_the_remedy(proposal: str, told: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        parse_trial(proposal)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 600
    for words in told:
        assert words in text


def test_null_means_inherit() -> None:
    assert parse_trial('{"tp": null, "fp8": null}') == TrialConfig()


def test_a_trial_survives_its_own_json() -> None:
    trial = TrialConfig(tp=8, fp8="mxfp8", use_turbo_deepep=False, sync_free_stage=0)
    assert parse_trial(trial.model_dump_json()) == trial
    assert parse_trial(trial.model_dump_json(exclude_none=True)) == trial


@given(st.text(max_size=200) | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(repr))
def test_any_text_is_a_trial_or_an_input_error(text: str) -> None:
    try:
        assert isinstance(parse_trial(text), TrialConfig)
    except InputError as error:
        assert "\n" not in str(error)


@given(st.dictionaries(st.sampled_from(sorted(KNOBS)), st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)))
def test_any_mapping_of_knobs_is_a_trial_or_an_input_error(proposal: dict[str, object]) -> None:
    try:
        trial = parse_trial(proposal)
    except InputError:
        return
    assert {name: value for name, value in proposal.items() if value is not None} == trial.model_dump(exclude_none=True)


def test_pins_take_every_kind_of_knob() -> None:
    assert parse_pins(["tp=8", "fp8=none", "use_turbo_deepep=True"]) == {"tp": 8, "fp8": "none", "use_turbo_deepep": True}


@pytest.mark.parametrize("pin", ["tp", "tp=", "tp=eight", "tq=8", "fp8=int4"])
def test_a_wrong_pin_is_an_input_error(pin: str) -> None:
    with pytest.raises(InputError):
        parse_pins([pin])
    with pytest.raises(InputError, match="tp is given twice"):
        parse_pins(["tp=8", "tp=4"])
