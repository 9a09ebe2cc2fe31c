"""What sweep.json says on the page: the proof, the recommendation, and nothing of another version or of a broken file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from primus_mcp.cli.main import main
from primus_mcp.errors import RunDirectoryError
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.reports.html import report_html
from primus_mcp.reports.html_source import read_report
from primus_mcp.search.pareto import FrontPoint
from primus_mcp.search.sensitivity import Sensitivity, Swing
from primus_mcp.search.sweep_result import SweepCounts, SweepResult, SweptTrial
from primus_mcp.version import engine_version


def swept(rate: float, **knobs: object) -> SweptTrial:
    shape = dict.fromkeys(("tp", "pp", "ep", "cp", "vpp", "mbs", "gbs"), 1)
    result = EvaluationResult(
        legal=True, resolved=shape, engine_version="1", tokens_per_s_per_gpu=rate, memory_per_gpu_gb=100.0, within_margin=True
    )
    return SweptTrial(trial=dict(knobs), result=result)


def document(**changes: Any) -> dict[str, Any]:
    top = [swept(1000.0, tp=1, fp8="hybrid"), swept(1000.0, tp=1, fp8="e4m3"), swept(990.0, tp=2)]
    told: dict[str, Any] = {
        "workload": "mixtral",
        "cluster": "pod",
        "gpus": 32,
        "counts": SweepCounts(size=10, fallen={"W1": 4}, legal=6, excluded=0, slower=3, over_memory=0, priced=3, open=0),
        "top": top,
        "by_memory": [],
        "proven": True,
        "top_proven": True,
        "gap": 0.0,
        "ties": 2,
        "recommended": 2,
        "note": "#2 avoids a risk of memory",
        "checked_points": 200,
        "disagreements": [],
        "where": "",
        "only": None,
        "stopped": None,
        "wall_s": 1.0,
        "cpu_s": 1.0,
    }
    swing = Swing(name="gemm_rate", what="sustained GEMM rate", ends=("-10%", "+10%"), low=900.0, high=1080.0, leader_low=0, leader_high=0)
    sure = Sensitivity(
        trial={}, tokens_per_s_per_gpu=1000.0, swing=0.1, steps=[], swings=[swing], rivals=[], basin=0.5, robust=0, text="a broad basin"
    )
    result = SweepResult(**{**told, **changes}).model_dump(mode="json")
    timeline = [[0, "F", 0, 0, 0.0, 0.5], [1, "B", 0, 0, 0.5, 1.0]]
    point = FrontPoint(
        cluster="pod",
        gpu="mi355x",
        nodes=4,
        gpus=32,
        trial={},
        result=top[0].result,
        tokens_per_s_per_gpu=1000.0,
        tokens_per_s=32000.0,
        headroom_gb=50.0,
        mfu=None,
        usd_per_million_tokens=None,
        price_source=None,
        days=None,
        usd=None,
    )
    return {
        "sweeps": [{**result, "sensitivity": sure.model_dump(mode="json"), "timeline": timeline}],
        "front": [point.model_dump(mode="json")],
    }


def page_of(folder: Path, content: Mapping[str, Any] | str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "sweep.json").write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return report_html(read_report(folder))


def test_the_page_says_what_is_proven_what_is_recommended_and_why(tmp_path: Path) -> None:
    page = page_of(tmp_path, document())
    assert "Proven under the model: the first 3 are the fastest of all 6 legal configurations." in page
    assert "number 3 avoids a risk of memory" in page and page.count("&lt;- recommended") == 1
    assert "fp8=hybrid or e4m3" in page and "<td>1-2.</td>" in page and "<td>3.</td>" in page
    assert "each uncertain rate 10% lower and higher" in page and "a broad basin" in page
    assert page.count("<svg") == 2 and "could not be read" not in page


def test_rules_that_differ_from_the_space_withdraw_the_proof_on_the_page_too(tmp_path: Path) -> None:
    page = page_of(tmp_path, document(proven=False, disagreements=["tp 3"]))
    assert "6 legal. NOT proven: 1 of 200 random configurations" in page and "please report it" in page


DAMAGE: tuple[tuple[tuple[str | int, ...], object], ...] = (
    (("sweeps", 1, "counts"), None),
    (("sweeps", 1, "counts", "size"), "x"),
    (("sweeps", 1, "top", 0, "result"), {}),
    (("sweeps", 1, "top", 0, "result", "of_another_version"), 1),
    (("sweeps", 1, "sensitivity", "swings", 0, "low"), float("nan")),
    (("sweeps", 1, "timeline", 0), [1, 2]),
    (("sweeps", 1), "not an object"),
    (("front", 0, "nodes"), []),
    (("front",), 3),
)


@pytest.mark.parametrize(("path", "value"), DAMAGE, ids=[".".join(map(str, path)) for path, _ in DAMAGE])
def test_what_is_of_another_version_is_left_out_and_told_and_the_rest_is_shown(
    path: tuple[str | int, ...], value: object, tmp_path: Path
) -> None:
    content = document()
    content["sweeps"].append(deepcopy(content["sweeps"][0]))
    place: Any = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    page = page_of(tmp_path, content)
    named = " (pod)" if path[:1] == ("sweeps",) and value != "not an object" else ""
    assert f"1 part of sweep.json{named} could not be read: broken or of another version; left out here; run the sweep again." in page
    assert page.count("Whole space: mixtral on pod") == (1 if path[0] == "sweeps" else 2)


def test_what_another_engine_priced_says_so_beside_trials_and_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = page_of(tmp_path, document())
    assert page.count("Priced by another version of the engine (1) than this one") == 2, "the sweep and the front"
    own = json.loads(json.dumps(document()).replace('"engine_version": "1"', f'"engine_version": "{engine_version()}"'))
    assert "another version of the engine" not in page_of(tmp_path, own)
    own["sweeps"].append({**own["sweeps"][0], "of_a_later_version": 1})
    page_of(tmp_path, own)
    assert main(["report", str(tmp_path)]) == 0
    assert "note: 1 part of sweep.json (pod) could not be read" in capsys.readouterr().err


@pytest.mark.parametrize("content", ['{"sweeps": [', "[1, 2]", "[" * 100_000, "\x00", '{"sweeps": 3}'])
def test_a_broken_sweep_is_refused_with_the_remedy_where_there_is_nothing_else(content: str, tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="broken or of another version; run `primus-mcp sweep` again"):
        page_of(tmp_path, content)
    (tmp_path / "trials.jsonl").write_text("", encoding="utf-8")
    page = report_html(read_report(tmp_path))
    assert "1 part of sweep.json could not be read" in page and "There is no trial yet." in page


def test_a_foreign_summary_costs_its_lines_and_not_the_page(tmp_path: Path) -> None:
    (tmp_path / "trials.jsonl").write_text("", encoding="utf-8")
    for text in (
        '{"engine": "x", "counts": 3, "warnings": "y"}',
        '{"workload": "\\ud800", "memory_cap_gb": 1e999}',
        '{"counts": {"trials": 1}}',
    ):
        (tmp_path / "summary.json").write_text(text, encoding="utf-8")
        report_html(read_report(tmp_path)).encode("utf-8")
