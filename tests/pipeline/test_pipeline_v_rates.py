"""What V schedules cost where F, B and W differ: built for equal tasks, V-Min waits for the longest of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primus_mcp.projection.pipeline import simulate


def a_micro_batch(schedule: str, pp: int, times: tuple[float, float, float]) -> float:
    """Seconds that one more micro-batch adds, on the mean of 60, times of a rank spread over its two chunks."""
    forward, backward, weight = ((time / 2,) * (2 * pp) for time in times)
    step = [
        simulate(schedule, pp=pp, vpp=2, micro_batches=m, forward_s=forward, backward_s=backward, weight_s=weight).step_s
        for m in (2000, 2000 + 60)
    ]
    return (step[1] - step[0]) / 60


time = st.floats(0.3, 2.0)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([4, 6, 7, 8]), st.tuples(time, time, time))
def test_v_min_runs_at_three_times_its_longest_task(pp: int, times: tuple[float, float, float]) -> None:
    forward, backward, weight = times
    mean = (forward + backward + weight) / 3
    assert a_micro_batch("v-min", pp, times) == pytest.approx(3 * max(forward, backward, mean), rel=1e-6)


@pytest.mark.parametrize("pp", [4, 8])
def test_long_input_gradients_slow_v_min_most_and_zbv_not_at_all(pp: int) -> None:
    # Attention and the expert exchange lie in F and B, never in W: B > W in every real model.
    even, real = (1.0, 1.0, 1.0), (1.0, 1.3, 0.7)
    assert [a_micro_batch(schedule, pp, even) for schedule in ("zbv-formatted", "v-half", "v-min")] == pytest.approx([3, 3, 3])
    zbv, half, least = (a_micro_batch(schedule, pp, real) for schedule in ("zbv-formatted", "v-half", "v-min"))
    assert [zbv, least] == pytest.approx([3, 3.9])
    assert zbv <= half <= least
