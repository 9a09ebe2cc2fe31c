"""Budgets are counted event by event: the same as counting all events at every question, by definitions that are written out here."""

from __future__ import annotations

import random

import pytest

from primus_mcp.trials.budget import LIMIT_NAMES, Budget, BudgetExhaustedError
from primus_mcp.trials.journal import Cancelled, Done, Event, LlmCall, LlmReserved, Note, Reserved, Round, ToolCall
from primus_mcp.trials.log import Origin

SEARCHERS = ("llm", "coordinate")


def open_reservations(events: list[Event]) -> set[tuple[str, Origin]]:
    found: set[tuple[str, Origin]] = set()
    for event in events:
        if isinstance(event, Reserved):
            found.add((event.key, event.origin))
        elif isinstance(event, Done | Cancelled):
            found = {(key, origin) for key, origin in found if key != event.key}
    return found


def priced(events: list[Event], origins: tuple[str, ...]) -> int:
    done: set[str] = set()
    for event in events:
        if isinstance(event, Cancelled):
            done.discard(event.key)
        elif isinstance(event, Done) and event.origin in origins and event.priced and not event.repeated:
            done.add(event.key)
    return len(done | {key for key, origin in open_reservations(events) if origin in origins})


def proposals(events: list[Event]) -> int:
    done = [event for event in events if isinstance(event, Done) and event.origin in SEARCHERS]
    started = {key for key, origin in open_reservations(events) if origin in SEARCHERS}
    return len({event.key for event in done if not event.repeated}) + sum(event.repeated for event in done) + len(started)


def present_round(events: list[Event]) -> list[Event]:
    return events[max((number + 1 for number, event in enumerate(events) if isinstance(event, Round)), default=0) :]


def questions(events: list[Event]) -> set[str]:
    return {event.key for event in present_round(events) if isinstance(event, LlmReserved | LlmCall) and event.purpose == "rlm"}


def counted(events: list[Event]) -> dict[str, float]:
    calls = [event for event in events if isinstance(event, LlmCall)]
    rounds = [event for event in events if isinstance(event, Round)]
    return {
        "max_proposals": proposals(events),
        "max_perf_calls": priced(events, SEARCHERS),
        "max_rounds": len(rounds),
        "max_rlm_iterations": len(questions(events)),
        "max_benchmark_calls": sum(isinstance(event, Reserved) and event.measured for event in events),
        "max_llm_calls": len({(event.key, event.attempt) for event in events if isinstance(event, LlmReserved | LlmCall)}),
        "max_tokens": sum(call.input_tokens + call.output_tokens for call in calls),
        "max_usd": sum(call.usd or 0.0 for call in calls),
        "max_wall_minutes": sum(event.duration_s for event in rounds) / 60,
        "seed_budget": priced(events, ("seed",)),
        "max_evaluations": len({event.key for event in events if isinstance(event, Reserved) and event.origin == "user"}),
    }


def some_event(dice: random.Random) -> Event:
    key, question = dice.choice("abcdef"), f"question {dice.randrange(4)}"
    origin: Origin = dice.choice(("seed", "llm", "coordinate", "sweep", "user"))
    sent = {"key": question, "attempt": dice.randrange(1, 3), "purpose": dice.choice(("plan", "rlm"))}
    makers = (
        lambda: Reserved(key=key, origin=origin, measured=dice.random() < 0.2),
        lambda: Done(key=key, origin=origin, trial_id=0, priced=dice.random() < 0.7, repeated=dice.random() < 0.3),
        lambda: Cancelled(key=key, reason=""),
        lambda: LlmReserved.model_validate(sent),
        lambda: LlmCall.model_validate({"model": "m", "input_tokens": 7, "output_tokens": 2, "usd": dice.choice((None, 0.25)), **sent}),
        lambda: Round(index=1, duration_s=30.0),
        lambda: ToolCall(round=1, tool="get_best"),
        lambda: Note(text=""),
    )
    made: Event = dice.choices(makers, weights=(4, 4, 1, 4, 4, 1, 1, 1))[0]()
    return made


@pytest.mark.parametrize("seed", range(20))
def test_counting_event_by_event_is_counting_them_all(seed: int) -> None:
    dice, budget, events = random.Random(seed), Budget({}), list[Event]()
    for _ in range(60):
        events.append(some_event(dice))
        assert {row.name: row.spent for row in budget.status(events)} == counted(events)
    assert set(counted(events)) == set(LIMIT_NAMES)


def test_events_that_do_not_go_on_from_those_before_are_counted_anew() -> None:
    budget = Budget({})
    one, two, three = (Reserved(key=key, origin="llm") for key in "abc")
    assert [budget.status(events, ["max_proposals"])[0].spent for events in ([one, two, three], [two], [one, three], [])] == [3, 1, 2, 0]


@pytest.mark.parametrize("seed", range(20))
def test_what_a_kill_cut_short_is_left_out_where_the_same_is_asked_again(seed: int) -> None:
    """Refused exactly where all events but the reservation's own are at the limit."""
    dice = random.Random(seed)
    events = [some_event(dice) for _ in range(25)]
    for name in ("max_llm_calls", "max_rlm_iterations"):
        for question in range(5):
            request = LlmReserved(key=f"question {question}", attempt=1, purpose="rlm")
            others = [event for event in events if not (isinstance(event, LlmReserved) and (event.key, event.attempt) == (request.key, 1))]
            known = any(isinstance(event, LlmReserved | LlmCall) and event.key == request.key for event in others)
            full = counted(others)[name] >= 2 and not (name == "max_rlm_iterations" and known)
            assert refused(lambda name=name, request=request: Budget({name: 2}).require_request(events, request)) is full
    for key in "abcdefg":
        trial = Reserved(key=key, origin="llm")
        others = [event for event in events if not (isinstance(event, Reserved) and event.key == key)]
        for name in ("max_proposals", "max_perf_calls"):
            assert refused(lambda name=name, trial=trial: Budget({name: 3}).require_trial(events, trial)) is (counted(others)[name] >= 3)


def refused(ask: object) -> bool:
    assert callable(ask)
    try:
        ask()
    except BudgetExhaustedError:
        return True
    return False
