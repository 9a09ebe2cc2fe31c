"""The desk: budgets before requests, retries with pauses, what ends a round and what ends the stage."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from driver_cases import open_session

from primus_mcp.driver.desk import MAX_ATTEMPTS, MAX_REFUSALS, MAX_TOOL_CALLS, Clock, Desk, Reply
from primus_mcp.driver.stops import ProviderError, Stop, ToolFailedError
from primus_mcp.errors import InputError
from primus_mcp.trials.budget import BudgetExhaustedError
from primus_mcp.trials.journal import LlmCall, LlmReserved, Round


class FakeTime:
    """A clock that moves by sleeping and by `pass_s`."""

    def __init__(self) -> None:
        self.now_s, self.slept = 100.0, list[float]()
        self.clock = Clock(now_s=lambda: self.now_s, sleep=self.sleep)

    def sleep(self, duration_s: float) -> None:
        self.slept.append(duration_s)
        self.now_s += duration_s


def desk_with(folder: Path, **budget: float) -> tuple[Desk, FakeTime]:
    time = FakeTime()
    return Desk(open_session(folder, mode="dry", budget=budget), model="m", clock=time.clock), time


def answering(*items: Reply | ProviderError) -> Callable[[], Reply]:
    left = list(items)

    def send() -> Reply:
        item = left.pop(0)
        if isinstance(item, ProviderError):
            raise item
        return item

    return send


BUSY = ProviderError("429", retryable=True)
HELLO = Reply(text="hello", model="m", input_tokens=6, output_tokens=4, usd=0.5)


def test_errors_that_may_pass_are_tried_again_with_growing_pauses_and_each_request_counts(tmp_path: Path) -> None:
    desk, time = desk_with(tmp_path)
    assert desk.ask(answering(BUSY, BUSY, BUSY, HELLO), purpose="plan") == "hello"
    assert time.slept == [1.0, 2.0, 4.0]
    spent = {row.name: row.spent for row in desk.session.spending()}
    assert (spent["max_llm_calls"], spent["max_tokens"], spent["max_usd"]) == (4, 10, 0.5)
    assert [type(event) for event in desk.session.journal.events()] == [LlmReserved, LlmCall] * 4


def test_a_provider_that_stays_away_ends_the_stage_and_one_that_refuses_is_not_asked_again(tmp_path: Path) -> None:
    desk, _ = desk_with(tmp_path)
    with pytest.raises(Stop, match=f"did not answer \\({MAX_ATTEMPTS} requests\\): 429") as caught:
        desk.ask(answering(*[BUSY] * MAX_ATTEMPTS), purpose="plan")
    assert (caught.value.scope, caught.value.cause) == ("stage", "provider")
    with pytest.raises(Stop, match="did not answer: 401"):
        desk.ask(answering(ProviderError("401", retryable=False)), purpose="plan")
    with pytest.raises(Stop) as full:
        desk.ask(answering(ProviderError("too long", retryable=False, scope="round")), purpose="rlm")
    assert full.value.scope == "round"


@pytest.mark.parametrize(("name", "limit", "scope"), [("max_llm_calls", 2, "stage"), ("max_tokens", 15, "stage"), ("max_usd", 1, "stage")])
def test_no_request_leaves_once_a_budget_is_used_up(tmp_path: Path, name: str, limit: float, scope: str) -> None:
    desk, _ = desk_with(tmp_path, **{name: limit})
    for _ in range(2):
        desk.ask(lambda: HELLO, purpose="plan")
    with pytest.raises(Stop, match=name) as caught:
        desk.ask(answering(), purpose="plan")
    assert (caught.value.scope, caught.value.cause, desk.requests_sent) == (scope, "budget", 2)


def test_inner_iterations_end_the_round_and_start_anew_in_the_next(tmp_path: Path) -> None:
    desk, _ = desk_with(tmp_path, max_rlm_iterations=2)
    for _ in range(2):
        desk.begin_round(dict)
        for _ in range(2):
            desk.ask(lambda: HELLO, purpose="rlm")
        with pytest.raises(Stop, match="max_rlm_iterations") as caught:
            desk.ask(answering(), purpose="rlm")
        assert caught.value.scope == "round"
        desk.end_round(improved=True)
    assert desk.requests_sent == 4


def test_the_wall_clock_stops_questions_calls_and_pauses(tmp_path: Path) -> None:
    desk, time = desk_with(tmp_path, max_wall_minutes=1)
    desk.session.journal.append(Round(index=1, duration_s=50))
    desk.begin_round(dict)
    time.now_s += 7
    with pytest.raises(Stop, match="max_wall_minutes"):
        desk.ask(answering(BUSY, BUSY, BUSY), purpose="rlm")
    assert time.slept == [1.0, 2.0], "no longer than what is left"
    with pytest.raises(Stop, match="max_wall_minutes"):
        desk.call("get_best", {}, dict)


def test_a_request_that_takes_longer_than_the_wall_clock_leaves_is_given_up(tmp_path: Path) -> None:
    desk, _ = desk_with(tmp_path, max_wall_minutes=0.2 / 60)
    never = Event()

    def hang() -> Reply:
        never.wait(60)
        return HELLO

    with pytest.raises(Stop, match=r"did not answer .*no answer within 0 s|max_wall_minutes"):
        desk.ask(hang, purpose="plan")
    never.set()
    assert [event.error for event in desk.session.journal.events() if isinstance(event, LlmCall)][:1] == ["no answer within 0 s"]


def test_the_model_sees_errors_as_one_line_and_refusals_with_what_to_do_until_it_is_stopped(tmp_path: Path) -> None:
    desk, _ = desk_with(tmp_path)
    desk.begin_round(dict)

    def fails() -> None:
        raise InputError("is wrong", where="tp")

    def refused() -> None:
        raise BudgetExhaustedError("max_proposals", 3, 3)

    with pytest.raises(ToolFailedError, match=r"^tp: is wrong$"):
        desk.call("evaluate_simulate", {"config_json": {"tp": 3}}, fails)
    for _ in range(MAX_REFUSALS - 1):
        with pytest.raises(ToolFailedError, match=r"max_proposals is used up: 3 of 3; .* call SUBMIT now"):
            desk.call("evaluate_simulate", {}, refused)
    with pytest.raises(Stop, match="went on after budget max_proposals") as caught:
        desk.call("evaluate_simulate", {}, refused)
    assert not isinstance(caught.value, Exception)


def test_a_loop_of_calls_ends(tmp_path: Path) -> None:
    desk, _ = desk_with(tmp_path)
    desk.begin_round(dict)
    for _ in range(MAX_TOOL_CALLS):
        desk.call("get_best", {}, dict)
    with pytest.raises(Stop, match="tool calls in a round"):
        desk.call("get_best", {}, dict)


def test_code_that_takes_another_way_after_a_kill_goes_on_live(tmp_path: Path) -> None:
    desk, _ = desk_with(tmp_path)
    desk.begin_round(lambda: {"given": 1})
    assert [desk.call("a", {"n": n}, partial(int, n)) for n in range(3)] == [0, 1, 2]
    again = Desk(open_session(tmp_path, mode="dry"), model="m")
    assert again.begin_round(lambda: {"given": 2}) == {"given": 1}, "what the round saw when it began"
    assert again.call("a", {"n": 0}, lambda: "live") == 0
    assert again.call("a", {"n": 7}, lambda: "live") == "live"
    assert again.call("a", {"n": 2}, lambda: "live") == "live"
