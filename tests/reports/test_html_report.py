"""report.html: complete, self-contained, harmless whatever the log says, and rendered by a real browser without an error."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest

from primus_mcp.errors import RunDirectoryError
from primus_mcp.evaluation.result import EvaluationResult, ResultWarning
from primus_mcp.reports.html import report_html
from primus_mcp.reports.html_source import read_report
from primus_mcp.trials.log import Digests, TrialRecord

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">'\"&]]>\u2028"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def record(number: int, *, rate: float | None = 1000.0, label: str = "", knobs: dict[str, object] | None = None) -> TrialRecord:
    resolved = dict.fromkeys(("tp", "pp", "ep", "cp", "vpp", "mbs", "gbs"), 1)
    resolved |= {"schedule": "1f1b", "recompute_granularity": "none"}  # type: ignore[dict-item]
    result = EvaluationResult(
        trial_id=number,
        legal=rate is not None,
        reason=None if rate is not None else f"refused {label}",
        resolved=resolved,
        engine_version="1",
        tokens_per_s_per_gpu=rate,
        memory_per_gpu_gb=None if rate is None else 100.0 + number % 50,
        within_margin=None if rate is None else True,
        fits_physically=None if rate is None else "fits",
        iteration_ms=500.0,
        time_breakdown={"gemm": 400.0, label or "bubble": 100.0},
        memory_breakdown={"weights": 60.0, "saved": 40.0},
        per_rank_memory_gb=[100.0, 90.0],
        warnings=[ResultWarning(code="x", text=label or "none")],
    )
    return TrialRecord(
        trial_id=number,
        time="2026-01-01T00:00:00Z",
        origin="seed",
        label=label,
        key=str(number),
        digests=Digests(workload="w", cluster="c", engine="e"),
        trial=knobs if knobs is not None else {"tp": number},
        result=result,
    )


def folder_of(folder: Path, records: list[TrialRecord], tail: str = "", summary: dict[str, object] | None = None) -> Path:
    lines = "".join(one.model_dump_json() + "\n" for one in records)
    (folder / "trials.jsonl").write_text(lines + tail, encoding="utf-8")
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    return folder


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def tags(page: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = _Tags()
    parser.feed(page)
    return parser.seen


def test_nothing_is_fetched_and_only_our_own_script_may_run(tmp_path: Path) -> None:
    page = report_html(
        read_report(folder_of(tmp_path, [record(0, knobs={}), record(1)], summary={"workload": "w", "memory_cap_gb": 259.0}))
    )
    for tag, attributes in tags(page):
        assert tag not in {"link", "iframe", "img", "object", "base"}
        assert not {"src", "href", "style", "onclick", "onerror"} & set(attributes), (tag, attributes)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 1
    assert f"'sha256-{b64encode(sha256(scripts[0].encode()).digest()).decode()}'" in page.replace("&#x27;", "'")


def test_hostile_names_and_notes_stay_text(tmp_path: Path) -> None:
    summary = {"workload": HOSTILE, "cluster": HOSTILE, "warnings": [HOSTILE], "memory_cap_gb": 259.0}
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "trial_0001.yaml").write_text(HOSTILE, encoding="utf-8")
    page = report_html(read_report(folder_of(tmp_path, [record(0, knobs={}), record(1, rate=2000.0, label=HOSTILE)], summary=summary)))
    assert not [tag for tag, _ in tags(page) if tag == "img"]
    assert page.count("<script") == 2
    data = json.loads(re.search(r'<script id="trials" type="application/json">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    assert data["rows"][1][8] == HOSTILE


def test_a_half_written_log_still_reports_and_says_so(tmp_path: Path) -> None:
    page = report_html(read_report(folder_of(tmp_path, [record(0, knobs={}), record(1)], tail='{"trial_id": 2, "ti')))
    assert "1 lines of the log could not be read" in page and "Winner: trial 0" in page


def test_a_folder_without_anything_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="tune"):
        read_report(tmp_path)


def test_a_log_without_a_fitting_trial_shows_why(tmp_path: Path) -> None:
    page = report_html(read_report(folder_of(tmp_path, [record(0, rate=None, label="no room")])))
    assert "No trial can be recommended" in page and "refused no room" in page


def test_every_chart_says_in_words_what_it_shows(tmp_path: Path) -> None:
    page = report_html(read_report(folder_of(tmp_path, [record(0, knobs={}), record(1, rate=1500.0)])))
    charts = [attributes for tag, attributes in tags(page) if tag == "svg"]
    assert len(charts) >= 4 and all(chart["role"] == "img" and chart["aria-label"] for chart in charts)


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_a_browser_renders_five_thousand_hostile_trials_without_running_any(tmp_path: Path) -> None:
    records = [record(i, rate=None if i % 3 else 1000.0 + i, label=HOSTILE if i % 7 == 0 else f"seed {i}") for i in range(5000)]
    page = tmp_path / "report.html"
    page.write_text(report_html(read_report(folder_of(tmp_path, records, summary={"workload": HOSTILE}))), encoding="utf-8")
    command = [
        str(CHROMIUM),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--enable-logging=stderr",
        "--v=0",
    ]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=10000", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert "200 of 5000 trials" in done.stdout, done.stderr[-2000:]
    assert "<title>owned" not in done.stdout
    assert done.stdout.count("<tr class=") == 200 and 'aria-sort="ascending"' in done.stdout
    assert "CONSOLE" not in done.stderr, [line for line in done.stderr.splitlines() if "CONSOLE" in line][:5]


def test_every_chart_is_a_file_of_its_own_that_any_viewer_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from xml.etree import ElementTree

    from primus_mcp.cli.main import main

    folder = folder_of(tmp_path, [record(0, label=HOSTILE.replace("\u2028", ""), knobs={}), record(1, rate=1500.0)])
    page = report_html(read_report(folder))
    assert main(["report", str(folder), "--charts", str(tmp_path / "charts")]) == 0
    files = sorted((tmp_path / "charts").glob("*.svg"))
    assert len(files) == sum(tag == "svg" for tag, _ in tags(page)) and str(files[0]) in capsys.readouterr().out
    for file in files:
        assert re.fullmatch(r"\d\d-[a-z0-9-]+\.svg", file.name)
        root = ElementTree.fromstring(file.read_text(encoding="utf-8"))
        assert root.tag.endswith("svg") and not [node for node in root.iter() if node.tag.endswith("script")]
