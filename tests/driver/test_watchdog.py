"""Code that says nothing for too long is ended, whatever it did before; the sandbox gets its inputs once."""

from __future__ import annotations

import threading

import pytest
from driver_cases import needs_deno

from primus_mcp.driver.sandbox import timed_interpreter
from primus_mcp.driver.watchdog import Watchdog

LONG_S, SOON_S = 600.0, 0.01


def test_silence_is_ended_once_and_the_count_can_begin_again() -> None:
    killed = threading.Semaphore(0)
    watchdog = Watchdog(killed.release)
    for _ in range(2):
        watchdog.start(SOON_S)
        assert killed.acquire(timeout=30)
    assert watchdog.fired


def test_a_shorter_limit_counts_from_its_own_start() -> None:
    killed = threading.Event()
    watchdog = Watchdog(killed.set)
    watchdog.start(LONG_S)
    watchdog.start(SOON_S)
    assert killed.wait(30)


def test_what_was_stopped_is_not_ended_and_one_thread_does_it() -> None:
    killed = threading.Event()
    watchdog = Watchdog(killed.set)
    others = set(threading.enumerate())
    for _ in range(50):
        watchdog.start(LONG_S)
        watchdog.stop()
    (thread,) = {one for one in threading.enumerate() if one.name == "watchdog"} - others
    watchdog.close()
    thread.join(30)
    assert not thread.is_alive() and not killed.is_set() and not watchdog.fired


@needs_deno
def test_code_that_goes_on_after_a_refused_call_is_watched_again() -> None:
    from dspy.primitives.code_interpreter import CodeInterpreterError

    def refuse() -> str:
        raise ValueError("refused")

    sandbox = timed_interpreter(limit_s=2.0)
    sandbox.tools["refuse"] = refuse
    with pytest.raises(CodeInterpreterError):
        sandbox.execute("try:\n  refuse()\nexcept Exception:\n  pass\nwhile True: pass")
    assert sandbox.watchdog.fired
    sandbox.shutdown()


@needs_deno
def test_inputs_are_sent_once_keep_what_the_code_makes_of_them_and_are_sent_again_after_code_that_did_not_run() -> None:
    history = "a"
    sandbox = timed_interpreter()
    with pytest.raises(SyntaxError):
        sandbox.execute("print(", {"history": history})
    assert sandbox.execute("print(history)\nhistory = history * 3", {"history": history}).strip() == "a"
    assert sandbox.execute("print(history)", {"history": history}).strip() == "aaa"
    assert sandbox.execute("print(history)", {"history": "new"}).strip() == "new"
    sandbox.shutdown()
