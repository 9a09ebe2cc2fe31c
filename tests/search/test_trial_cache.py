"""The cache outlives runs, never mixes engines, and survives many writers and a broken file."""

from __future__ import annotations

import json
import multiprocessing
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from primus_mcp.cli.main import main
from primus_mcp.errors import RunDirectoryError
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.search import cache as module
from primus_mcp.search.cache import TrialCache, cache_file
from primus_mcp.trials.log import Digests
from primus_mcp.version import engine_version

HERE = Digests(workload="w", cluster="c", engine="1")


def result(rate: float | None) -> EvaluationResult:
    return EvaluationResult(legal=True, engine_version="1", tokens_per_s_per_gpu=rate, memory_per_gpu_gb=1.0)


def in_format(fp8: str) -> EvaluationResult:
    return result(5.0).model_copy(update={"resolved": {"fp8": fp8}})


@pytest.mark.parametrize("keys", ["ab", "ba"])
def test_of_fp8_formats_at_one_price_hybrid_comes_back_first_whatever_the_keys(tmp_path: Path, keys: str) -> None:
    cache = TrialCache(tmp_path / "best.sqlite")
    formats = list(zip(keys, ("e4m3", "hybrid"), strict=True))
    cache.remember(HERE, "n", [(key, {"fp8": fp8}, in_format(fp8)) for key, fp8 in formats])
    assert [one.trial["fp8"] for one in cache.best(HERE)] == ["hybrid", "e4m3"]
    assert [one.trial["fp8"] for one in cache.proposals(HERE)] == ["hybrid"]


def _write(path: Path, worker: int) -> None:
    for i in range(20):
        TrialCache(path).remember(HERE, "n", [(f"{worker}-{i}", {"tp": worker}, result(1.0 + i))])


def test_entries_come_back_fastest_first_and_once_a_key(tmp_path: Path) -> None:
    cache = TrialCache(tmp_path / "deep" / "best.sqlite")
    assert cache.best(HERE) == [] and cache.entries() == [] and cache.clear() == 0
    cache.remember(HERE, "n", [("a", {"tp": 1}, result(5.0)), ("b", {"tp": 2}, result(9.0)), ("c", {"tp": 4}, result(None))])
    cache.remember(HERE, "n", [("a", {"tp": 1}, result(7.0))])
    assert [(entry.key, entry.result.tokens_per_s_per_gpu) for entry in cache.best(HERE)] == [("b", 9.0), ("a", 7.0)]


def test_numbers_of_another_engine_are_proposals_only(tmp_path: Path) -> None:
    cache = TrialCache(tmp_path / "best.sqlite")
    cache.remember(HERE, "n", [("a", {"tp": 1}, result(5.0))])
    newer = HERE.model_copy(update={"engine": "2"})
    assert cache.best(newer) == []
    assert [(one.trial, one.name) for one in cache.proposals(newer)] == [({"tp": 1}, "n")]
    assert cache.proposals(newer.model_copy(update={"workload": "other"})) == []
    assert cache.clear(keep_engine="2") == 1


def test_configurations_that_were_priced_alike_are_one_proposal(tmp_path: Path) -> None:
    cache = TrialCache(tmp_path / "best.sqlite")
    alike: list[tuple[str, dict[str, Any], EvaluationResult]] = [
        ("a", {"fp8": "delayed"}, result(5.0)),
        ("b", {"fp8": "e4m3"}, result(5.0)),
        ("c", {"tp": 2}, result(4.0)),
    ]
    cache.remember(HERE, "n", alike)
    assert [one.trial for one in cache.proposals(HERE, 2)] == [{"fp8": "delayed"}, {"tp": 2}]


def test_only_the_fastest_of_a_problem_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_A_PROBLEM", 3)
    cache = TrialCache(tmp_path / "best.sqlite")
    cache.remember(HERE, "n", [(str(i), {}, result(float(i + 1))) for i in range(9)])
    other = HERE.model_copy(update={"cluster": "d"})
    cache.remember(other, "n", [("x", {}, result(0.5))])
    assert [entry.key for entry in cache.best(HERE)] == ["8", "7", "6"] and len(cache.best(other)) == 1


def test_many_processes_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "best.sqlite"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_write, args=(path, worker)) for worker in range(3)]
    for process in workers:
        process.start()
    for process in workers:
        process.join(120)
    assert [process.exitcode for process in workers] == [0, 0, 0] and len(TrialCache(path).entries()) == 60


def test_a_broken_file_is_named_with_the_remedy_and_a_foreign_row_is_left_out(tmp_path: Path) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"not a database, but long enough to be read as one" * 50)
    with pytest.raises(RunDirectoryError, match="delete it"):
        TrialCache(broken).entries()
    cache = TrialCache(tmp_path / "best.sqlite")
    cache.remember(HERE, "n", [("a", {}, result(5.0))])
    with sqlite3.connect(cache.path) as connection:
        for key, trial in (("x", "{"), ("y", "[" * 100_000), ("z", "[1]"), ("blob", b"\xff")):
            values = (key, trial, result(99.0).model_dump_json())
            connection.execute("INSERT INTO best VALUES ('w', 'c', '1', ?, 'n', 't', 99.0, 1.0, ?, ?)", values)
    assert [entry.key for entry in cache.entries()] == ["a"]


def test_the_list_never_shows_what_another_engine_computed_nor_obeys_what_a_row_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PRIMUS_MCP_CACHE_DIR", str(tmp_path))
    own = HERE.model_copy(update={"engine": engine_version()})
    TrialCache().remember(HERE, "\x1b[31mold\x9b", [("a", {"tp": 1}, result(77_777.0))])
    TrialCache().remember(own, "new", [("b", {"tp": 1}, result(55_555.0))])
    assert main(["cache"]) == 0
    listed = capsys.readouterr().out
    assert "55,555" in listed and "77,777" not in listed and all(line.isprintable() for line in listed.splitlines())
    assert main(["cache", "export"]) == 0
    exported = json.loads(capsys.readouterr().out)
    assert {entry["key"]: entry["result"] is None for entry in exported} == {"a": True, "b": False}


def test_the_place_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PRIMUS_MCP_CACHE_DIR", str(tmp_path))
    assert cache_file() == tmp_path / "best.sqlite"
    monkeypatch.delenv("PRIMUS_MCP_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_file() == tmp_path / "primus-mcp" / "best.sqlite"


def test_the_list_shows_the_newest_says_how_many_there_are_and_json_has_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PRIMUS_MCP_CACHE_DIR", str(tmp_path))
    days = iter(range(1, 99))
    monkeypatch.setattr(module, "utc_now", lambda: f"2026-01-01T00:00:{next(days):02}Z")
    here = HERE.model_copy(update={"engine": engine_version()})
    for number in range(25):
        TrialCache().remember(here, f"job {number}", [(str(number), {"tp": 1}, result(1.0 + number))])
    assert main(["cache"]) == 0
    first, *shown, last = capsys.readouterr().out.splitlines()
    assert (
        first.startswith("25 entries in")
        and first.endswith("the 20 newest")
        and last == "5 more: `primus-mcp cache list --all`, or `--json`"
    )
    assert len(shown) == 20 and "job 24:" in shown[0] and "job 5:" in shown[-1]
    assert main(["cache", "list", "--all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 26
    assert main(["cache", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 25
    assert main(["cache", "clear", "--all"]) == 2
    assert "--all: goes with list only" in capsys.readouterr().err
    assert main(["cache", "clear"]) == 0


def test_reading_needs_no_right_to_write_and_leaves_an_empty_file_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = TrialCache(tmp_path / "a b#%?" / "best.sqlite")
    cache.remember(HERE, "n", [("a", {"tp": 1}, result(5.0))])
    asked = []

    def opened(name: str, **options: Any) -> sqlite3.Connection:
        asked.append(name)
        made: sqlite3.Connection = real(name, **options)
        return made

    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", opened)
    assert len(cache.best(HERE)) == len(cache.entries()) == len(cache.proposals(HERE)) == 1
    assert all(name.endswith("?mode=ro") for name in asked) and len(asked) == 3
    (tmp_path / "empty").mkdir()
    empty = tmp_path / "empty" / "best.sqlite"
    empty.touch()
    assert TrialCache(empty).entries() == [] and empty.stat().st_size == 0 and len(list(empty.parent.iterdir())) == 1
