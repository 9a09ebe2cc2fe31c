"""The condition language."""

from __future__ import annotations

import math

import numpy as np
import pytest

from primus_mcp.errors import InputError
from primus_mcp.search.sweep_where import parse_where
from primus_mcp.space.knobs import KNOBS

ROW = {"tp": 4, "mbs": 2, "fp8": "hybrid", "memory_per_gpu_gb": 150.0, "use_turbo_deepep": True, "mfu": None}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("tp<=8 and memory_per_gpu_gb<200", True),
        ("tp<4 or mbs=2", True),
        ("not tp==4", False),
        ("not not tp==4", True),
        ("(tp=1 or tp=4) and fp8 != none", True),
        ("1 < tp <= 4 and fp8=hybrid", True),
        ("use_turbo_deepep = true", True),
        ("mfu > 0.3", False),
        ("fp8 == 'hybrid'", True),
        ("", True),
    ],
)
def test_conditions_mean_what_they_say(text: str, holds: bool) -> None:
    assert parse_where(text).holds(ROW) is holds


@pytest.mark.parametrize(
    "text",
    [
        "tp", "tp <", "tp <= 8 and", "tq < 8", "(tp<8", "tp<8)", "tp<8 tp<4", "__import__('os')", "tp.real<8", "tp[0]<8", "tp<8;mbs<2",
        "lambda: 1", "1" * 2000, "(" * 500 + "tp<8", "not " * 10, "tp < 8 and or mbs < 2", "and", "\x00tp<8",
    ],
)  # fmt: skip
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError) as error:
        parse_where(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "text",
    ["fp8 != hybird", "fp8 == true", "tp == 'eight'", "dp <= exper_dp", "fp8 < hybrid", "memory_per_gpu_gb < nan", "1 < tp <= infinity",
     "fits_physically == yes", "use_turbo_deepep = on", "'x' = recompute_granularity"],
)  # fmt: skip
def test_a_value_that_the_name_never_has_is_a_typing_error(text: str) -> None:
    with pytest.raises(InputError, match=r"never|word"):
        parse_where(text)


@pytest.mark.parametrize(
    ("text", "rate", "memory_gb"),
    [
        ("", 0.0, math.inf),
        ("tp<=8", 0.0, math.inf),
        ("tokens_per_s_per_gpu>5000 and 20<memory_per_gpu_gb<=90.5", 5000.0, 90.5),
        ("5000<=tokens_per_s_per_gpu<=6000 and tokens_per_s_per_gpu>5500", 5500.0, math.inf),
        ("tokens_per_s_per_gpu>5000 or tp=8", 0.0, math.inf),
        ("memory_per_gpu_gb<80 or memory_per_gpu_gb<60", 0.0, 80.0),
        ("not memory_per_gpu_gb<80 and not tokens_per_s_per_gpu>5000", 0.0, math.inf),
        ("tokens_per_s_per_gpu<5000 and memory_per_gpu_gb>80", 0.0, math.inf),
    ],
)
def test_a_condition_says_what_speed_and_memory_it_cannot_do_without(text: str, rate: float, memory_gb: float) -> None:
    condition = parse_where(text)
    assert (condition.least_rate, condition.most_memory_gb) == (rate, memory_gb)


@pytest.mark.parametrize("name", ["fp8", "pp_schedule", "recompute_granularity"])
def test_every_word_of_a_knob_may_be_asked_for(name: str) -> None:
    for word in KNOBS[name].choices or ():
        assert parse_where(f"{name} == '{word}'").holds({name: word})
    assert parse_where("fits_physically = at_risk or sync_free_stage <= 1 or use_turbo_deepep = 1 or tp != null")


def test_a_mistyped_name_gets_a_suggestion() -> None:
    with pytest.raises(InputError, match="memory_per_gpu_gb"):
        parse_where("memory_per_gpu < 200")


def test_what_is_not_known_yet_may_still_hold_also_below_not() -> None:
    known = {"tp": np.array([1, 4, 8], dtype=object)}
    assert parse_where("tp<=4 and memory_per_gpu_gb<200").partial(known).tolist() == [True, True, False]
    assert np.all(parse_where("not memory_per_gpu_gb<200").partial(known))
    assert parse_where("not (tp<=4 and memory_per_gpu_gb<200)").partial(known).tolist() == [True, True, True]
    assert parse_where("not (tp<=4 or memory_per_gpu_gb<200)").partial(known).tolist() == [False, False, True]
