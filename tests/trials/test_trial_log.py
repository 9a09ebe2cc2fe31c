"""trials.jsonl and journal.jsonl: ids in order, no key twice, foreign lines named, several writers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from primus_mcp.errors import RunDirectoryError
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.trials import log as log_module
from primus_mcp.trials.budget import Budget, BudgetExhaustedError
from primus_mcp.trials.journal import Cancelled, Done, Event, Journal, LlmCall, Reserved, Round
from primus_mcp.trials.log import Digests, Origin, TrialLog
from primus_mcp.trials.storage import RunDirectory

DIGESTS = Digests(workload="w", cluster="c", engine="e")
RESULT = EvaluationResult(legal=True, engine_version="test")


def open_log(path: Path, digests: Digests = DIGESTS) -> TrialLog:
    return TrialLog(RunDirectory(path), digests)


def add(log: TrialLog, key: str) -> bool:
    return log.append(key=key, trial={"tp": 1}, result=RESULT, origin="seed")[1]


def test_trials_are_numbered_from_zero_in_the_order_they_were_added(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert [add(log, key) for key in "abc"] == [True] * 3
    assert [(r.trial_id, r.key, r.result.trial_id) for r in open_log(tmp_path).records()] == [(0, "a", 0), (1, "b", 1), (2, "c", 2)]


def test_a_key_that_is_there_is_not_added_again_and_the_old_trial_is_returned(tmp_path: Path) -> None:
    one, two = open_log(tmp_path), open_log(tmp_path)
    add(one, "a")
    record, new = two.append(key="a", trial={"tp": 2}, result=RESULT, origin="user")
    assert (record.trial_id, record.trial, new) == (0, {"tp": 1}, False)
    assert len(one.records()) == len(two.records()) == 1


def test_two_open_logs_see_each_other(tmp_path: Path) -> None:
    one, two = open_log(tmp_path), open_log(tmp_path)
    add(one, "a")
    add(two, "b")
    add(one, "c")
    assert [r.trial_id for r in one.records()] == [r.trial_id for r in two.records()] == [0, 1, 2]
    assert two.find("c") == one.find("c") is not None


def test_a_clock_that_goes_back_does_not_change_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    for key, now in (("a", "2030-01-01T00:00:00Z"), ("b", "2020-01-01T00:00:00Z")):
        monkeypatch.setattr(log_module, "utc_now", lambda now=now: now)
        add(log, key)
    assert [r.key for r in open_log(tmp_path).records()] == ["a", "b"]


@pytest.mark.parametrize("name", ["workload", "cluster", "engine"])
def test_a_log_of_another_workload_cluster_or_engine_is_refused_with_the_remedy(tmp_path: Path, name: str) -> None:
    add(open_log(tmp_path), "a")
    with pytest.raises(RunDirectoryError, match=rf"another {name} .*--out-dir.*--resume --reprice"):
        open_log(tmp_path, DIGESTS.model_copy(update={name: "other"}))


@pytest.mark.parametrize("line", ["not json", '{"schema_version": 2}', "[1]", '{"foreign": true}'])
def test_a_foreign_line_is_named_by_its_number(tmp_path: Path, line: str) -> None:
    add(open_log(tmp_path), "a")
    with (tmp_path / "trials.jsonl").open("a") as file:
        file.write("\n" + line + "\n")
    with pytest.raises(RunDirectoryError, match=r"trials\.jsonl: line 3 ") as error:
        open_log(tmp_path)
    assert "\n" not in str(error.value)


def test_a_torn_trial_is_dropped_on_open_and_its_id_used_again(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    add(log, "a")
    add(log, "b")
    data = log.path.read_bytes()
    log.path.write_bytes(data[:-20])
    again = open_log(tmp_path)
    assert [r.key for r in again.records()] == ["a"]
    add(again, "c")
    assert [(r.trial_id, r.key) for r in again.records()] == [(0, "a"), (1, "c")]


def test_a_line_in_the_making_is_left_for_later(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    add(log, "a")
    data = log.path.read_bytes()
    with log.path.open("ab") as file:
        file.write(data[:30])
    assert len(log.records()) == 1
    with log.path.open("ab") as file:
        file.write(data[30:].replace(b'"key":"a"', b'"key":"b"'))
    assert [r.key for r in log.records()] == ["a", "b"]


def test_every_line_is_plain_json_with_the_documented_fields(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    add(log, "a")
    line = json.loads(log.path.read_text(encoding="utf-8"))
    assert set(line) == {"schema_version", "trial_id", "time", "origin", "label", "key", "digests", "trial", "result"}
    assert line["schema_version"] == 1 and line["time"].endswith("Z")


WRITER = """
import sys, pathlib
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.trials.journal import Journal, Reserved, Done
from primus_mcp.trials.log import Digests, TrialLog
from primus_mcp.trials.storage import RunDirectory
folder = RunDirectory(pathlib.Path(sys.argv[1]))
log, journal = TrialLog(folder, Digests(workload="w", cluster="c", engine="e")), Journal(folder)
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    journal.append(Reserved(key=str(number), origin="sweep"))
    log.append(key=str(number), trial={}, result=EvaluationResult(legal=True, engine_version="test"), origin="sweep", label=sys.argv[2])
"""


def test_two_processes_on_one_folder_lose_nothing_and_repeat_nothing_in_a_thousand_trials(tmp_path: Path) -> None:
    arguments = [("0", "600"), ("400", "1000")]
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), *pair]) for pair in arguments]
    assert [writer.wait() for writer in writers] == [0, 0]
    records = open_log(tmp_path).records()
    assert [r.trial_id for r in records] == list(range(1000))
    assert sorted(int(r.key) for r in records) == list(range(1000))
    assert len(Journal(RunDirectory(tmp_path)).events()) == 1200


def test_a_writer_killed_at_any_point_leaves_a_log_that_the_next_one_continues(tmp_path: Path) -> None:
    for delay_s in (0.0, 0.004, 0.009, 0.015, 0.022):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), "0", "100000"])
        size = (tmp_path / "trials.jsonl").stat().st_size if (tmp_path / "trials.jsonl").exists() else 0
        while not (tmp_path / "trials.jsonl").exists() or (tmp_path / "trials.jsonl").stat().st_size <= size:
            assert writer.poll() is None
            time.sleep(0.002)
        time.sleep(delay_s)
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        records = open_log(tmp_path).records()
        assert [r.trial_id for r in records] == [int(r.key) for r in records] == list(range(len(records)))


def reserved(key: str, origin: Origin = "seed", *, measured: bool = False) -> Reserved:
    return Reserved(key=key, origin=origin, measured=measured)


def done(key: str, origin: Origin = "seed", *, priced: bool = True, repeated: bool = False) -> Done:
    return Done(key=key, origin=origin, trial_id=0, priced=priced, repeated=repeated)


def spent(name: str, *events: Event) -> float:
    return next(row.spent for row in Budget({}).status(events) if row.name == name)


def test_seeds_count_when_priced_and_while_reserved_but_not_when_illegal_or_given_up() -> None:
    assert spent("seed_budget", reserved("a"), done("a"), reserved("b"), done("b", priced=False), reserved("c")) == 2
    assert spent("seed_budget", reserved("c"), Cancelled(key="c", reason="x")) == 0
    assert spent("seed_budget", reserved("a", "llm"), done("a", "llm")) == 0


def test_proposals_count_illegal_and_repeated_ones_but_performance_calls_do_not() -> None:
    events: list[Event] = [
        reserved("a", "llm"),
        done("a", "llm"),
        reserved("b", "llm"),
        done("b", "llm", priced=False),
        done("a", "llm", repeated=True),
    ]
    assert spent("max_proposals", *events) == 3
    assert spent("max_perf_calls", *events) == 1


def test_a_measured_run_counts_each_time_it_starts() -> None:
    assert spent("max_benchmark_calls", reserved("a", "user", measured=True), reserved("a", "user", measured=True), reserved("b")) == 2


def test_calls_of_a_model_count_in_calls_tokens_and_dollars_and_iterations_start_anew_each_round() -> None:
    call = LlmCall(purpose="rlm", model="m", input_tokens=10, output_tokens=5, usd=0.25)
    events: list[Event] = [call, call, Round(index=0, duration_s=90), call, LlmCall(purpose="rlm", model="m")]
    assert [spent(name, *events) for name in ("max_llm_calls", "max_tokens", "max_usd", "max_rlm_iterations", "max_rounds")] == [
        4,
        45,
        0.75,
        2,
        1,
    ]
    assert spent("max_wall_minutes", *events) == 1.5


def test_a_limit_refuses_whom_it_limits_and_nobody_else() -> None:
    budget = Budget({"seed_budget": 1, "max_proposals": 0, "max_benchmark_calls": None})
    events: list[Event] = [reserved("a"), done("a")]
    with pytest.raises(BudgetExhaustedError, match=r"seed_budget is used up: 1 of 1; raise it with --budget seed_budget=N"):
        budget.require_trial(events, reserved("b"))
    with pytest.raises(BudgetExhaustedError, match=r"max_proposals is 0: that stage is off"):
        budget.require_trial(events, reserved("b", "llm"))
    budget.require_trial(events, reserved("b", "user", measured=True))


def test_a_trial_that_a_kill_cut_short_may_be_evaluated_again() -> None:
    Budget({"seed_budget": 1}).require_trial([reserved("a")], reserved("a"))


def test_a_limit_holds_over_two_journals_of_one_folder(tmp_path: Path) -> None:
    budget = Budget({"seed_budget": 3})
    journals = [Journal(RunDirectory(tmp_path)) for _ in range(2)]
    for number in range(3):
        event = reserved(str(number))
        journals[number % 2].append(event, partial(budget.require_trial, reservation=event))
    late = reserved("late")
    for journal in journals:
        with pytest.raises(BudgetExhaustedError):
            journal.append(late, partial(budget.require_trial, reservation=late))
    assert len(journals[0].events()) == 3


def test_a_line_of_another_version_says_so_and_that_it_can_be_priced_again(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    add(log, "a")
    log.path.write_text(log.path.read_text().replace('"schema_version":1', '"schema_version":2'))
    with pytest.raises(RunDirectoryError, match=r"line 1 .*schema_version: .*--resume --reprice") as error:
        open_log(tmp_path)
    assert "pydantic" not in str(error.value)


@pytest.mark.parametrize("order", [(0, 1, 1), (0, 0), (1, 0), (0, 1, 0)], ids=str)
def test_a_log_joined_from_several_is_refused_because_ids_would_be_mistaken(tmp_path: Path, order: tuple[int, ...]) -> None:
    log = open_log(tmp_path)
    add(log, "a")
    add(log, "b")
    lines = log.path.read_text().splitlines()
    log.path.write_text("".join(f"{lines[number]}\n" for number in order))
    with pytest.raises(RunDirectoryError, match=r"trial \d (is there twice|stands after trial \d).*--resume --reprice"):
        open_log(tmp_path)


def test_a_log_with_a_gap_in_its_ids_is_taken_as_after_a_removed_line(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for key in "abc":
        add(log, key)
    lines = log.path.read_text().splitlines()
    log.path.write_text(f"{lines[0]}\n{lines[2]}\n")
    again = open_log(tmp_path)
    add(again, "d")
    assert [(r.trial_id, r.key) for r in again.records()] == [(0, "a"), (2, "c"), (3, "d")]


def test_a_trial_that_was_cancelled_after_it_was_done_costs_nothing_until_it_is_reserved_again() -> None:
    gone: list[Event] = [reserved("a"), done("a"), Cancelled(key="a", reason="removed")]
    assert spent("seed_budget", *gone) == 0
    assert spent("seed_budget", *gone, reserved("a")) == 1
    assert spent("seed_budget", *gone, reserved("a"), done("a")) == 1


def test_a_proposal_that_two_writers_reported_as_done_counts_once() -> None:
    assert spent("max_proposals", reserved("a", "llm"), done("a", "llm"), done("a", "llm")) == 1
