"""kill -9 at every record of the journal in turn: the resumed run ends where an undisturbed one ends, and repeats nothing."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from driver_cases import ScriptedAgent, open_session

from primus_mcp.driver.desk import Clock, Desk
from primus_mcp.driver.loop import Loop, SearchEnd
from primus_mcp.session import TuningSession
from primus_mcp.trials.journal import Done, Event, Journal, LlmCall, Reserved, Round, ToolCall
from primus_mcp.trials.log import TrialLog

BUDGET = {"max_rounds": 3, "max_proposals": 7, "max_perf_calls": 5, "max_rlm_iterations": 4, "max_llm_calls": 8, "seed_budget": 0}
ANSWERS = {
    0: "plan: smaller micro-batch",
    100: 'evaluate_simulate {"config_json": {"mbs": 1}}\nget_best {}',
    101: 'evaluate_simulate {"config_json": {"mbs": 1}}\nevaluate_simulate {"config_json": {"tp": 3}}\nSUBMIT one',
    200: 'evaluate_simulate {"config_json": {"mbs": 4}}\nnote_to_scratchpad {"note": "four"}',
    201: 'evaluate_simulate {"config_json": {"mbs": 4, "recompute_granularity": "full"}}',
    202: "SUBMIT two",
    300: 'evaluate_simulate {"config_json": {"ep": 4}}\nevaluate_simulate {"config_json": {"ep": 2}}',
    301: 'evaluate_simulate {"config_json": {"ep": 1}}\nSUBMIT three',
}


def search(session: TuningSession) -> tuple[SearchEnd, int]:
    """The scripted search, and how many requests it sent."""
    desk = Desk(session, model="scripted", clock=Clock(sleep=lambda _: None))
    end = Loop(session, desk, ScriptedAgent(desk, ANSWERS.__getitem__), patience=9).run()
    return end, desk.requests_sent


def in_child(work: Callable[[], Any]) -> int:
    """Status of a forked process that does the work."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1]


def killed_at(folder: Path, number: int, *, after: bool) -> bool:
    """Run until the journal or the log gets its record `number`, and die just before or after it is written. False: it ran through."""
    count = 0

    def work() -> None:
        def dying(append: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                nonlocal count
                count += 1
                if count == number and not after:
                    os.kill(os.getpid(), signal.SIGKILL)
                result = append(*args, **kwargs)
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

            return wrapped

        Journal.append = dying(Journal.append)  # type: ignore[method-assign]
        TrialLog.append = dying(TrialLog.append)  # type: ignore[method-assign]
        search(open_session(folder, mode="dry", budget=BUDGET))

    return os.WIFSIGNALED(in_child(work))


def outcome(session: TuningSession) -> tuple[Any, ...]:
    """What must not depend on kills."""
    best = session.best().best
    spent = {row.name: row.spent for row in session.spending() if row.name != "max_wall_minutes"}
    return best.trial_id if best else None, [record.trial for record in session.history()], spent, session.scratchpad.read().split("\n")[0]


def require_sound(session: TuningSession, events: list[Event]) -> None:
    """No evaluation twice, no budget exceeded, no answer asked for twice."""
    keys = [record.key for record in session.history()]
    assert len(keys) == len(set(keys))
    assert all(row.limit is None or row.spent <= row.limit for row in session.spending())
    answers = Counter(event.key for event in events if isinstance(event, LlmCall) and event.reply is not None)
    assert set(answers.values()) == {1}
    evaluated_twice = Counter(event.key for event in events if isinstance(event, Reserved))
    finished = {event.key for event in events if isinstance(event, Done)}
    assert finished == set(keys)
    assert sum(count - 1 for count in evaluated_twice.values()) <= 1, "only the one in flight"
    assert [event.index for event in events if isinstance(event, Round)] == [1, 2, 3]
    assert sum(isinstance(event, ToolCall) for event in events) == 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_kill_at_any_record_changes_neither_the_winner_nor_what_was_spent_and_repeats_nothing(tmp_path: Path) -> None:
    whole = open_session(tmp_path / "whole", mode="dry", budget=BUDGET)
    _, requests = search(whole)
    assert requests == 8
    expected = outcome(whole)
    require_sound(whole, list(whole.journal.events()))
    number, ran_through = 0, False
    while not ran_through:
        number += 1
        for after in (False, True):
            folder = tmp_path / f"{number}-{after}"
            ran_through = not killed_at(folder, number, after=after)
            session = open_session(folder, mode="dry", budget=BUDGET)
            answered = sum(isinstance(event, LlmCall) for event in session.journal.events())
            _, sent = search(session)
            assert answered + sent == 8, (number, after)
            assert outcome(session) == expected, (number, after)
            require_sound(session, list(session.journal.events()))
    assert number > 40
