"""report.html: complete, self-contained, harmless whatever the log says, and rendered by a real browser without an error."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from base64 import b64encode
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from primus_mcp.cli.main import main
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
    assert "1 line of the log could not be read" in page and "Winner: trial 0" in page


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


def browse(page: str, folder: Path, *, dark: bool = False) -> subprocess.CompletedProcess[str]:
    """The page's document after a real browser has run it."""
    file = folder / "browsed.html"
    file.write_text(page, encoding="utf-8")
    command = [str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr"]
    command += ["--v=0", "--window-size=1200,900", *(["--blink-settings=preferredColorScheme=0"] if dark else [])]
    command += [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=10000", "--dump-dom", file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_a_browser_renders_five_thousand_hostile_trials_without_running_any(tmp_path: Path) -> None:
    records = [record(i, rate=None if i % 3 else 1000.0 + i, label=HOSTILE if i % 7 == 0 else f"seed {i}") for i in range(5000)]
    page = report_html(read_report(folder_of(tmp_path, records, summary={"workload": HOSTILE})))
    assert len(page) < 5_000_000
    done = browse(page, tmp_path)
    assert "200 of 5000 trials" in done.stdout, done.stderr[-2000:]
    assert "<title>owned" not in done.stdout
    assert done.stdout.count("<tr class=") == 200 and 'aria-sort="ascending"' in done.stdout
    assert "CONSOLE" not in done.stderr, [line for line in done.stderr.splitlines() if "CONSOLE" in line][:5]


PROBE = """<script>addEventListener("load", () => {
  const styleOf = (one, name) => getComputedStyle(one)[name];
  const texts = (svg) => [...svg.querySelectorAll("text")].filter((one) => one.textContent);
  const boxes = (svg) => texts(svg).map((one) => [one.textContent, one.getBoundingClientRect()]);
  const meet = ([, a], [, b]) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3;
  const charts = [...document.querySelectorAll("figure svg")].map((svg) => ({
    name: svg.getAttribute("aria-label"),
    width: svg.getBoundingClientRect().width,
    tips: svg.querySelectorAll("title").length,
    texts: [...new Set(texts(svg).map((one) => styleOf(one, "fill")))],
    marks: [...new Set([...svg.querySelectorAll("path:has(title)")].map((one) => styleOf(one, "fill")))],
    meeting: boxes(svg).flatMap((one, i, all) => all.slice(0, i).filter((two) => meet(one, two)).map((two) => [one[0], two[0]])),
  }));
  document.title = "PROBE" + JSON.stringify({ ground: styleOf(document.body, "backgroundColor"), charts });
})</script></body>"""


def probe(page: str, folder: Path, *, dark: bool) -> Any:
    """What a browser computes for the charts of a page; the policy of the page, which admits no probe, is taken out."""
    bare = re.sub(r"<meta http-equiv=[^>]*>", "", page).replace("</body>", PROBE)
    found = re.search(r"<title>PROBE(.*?)</title>", browse(bare, folder, dark=dark).stdout, re.DOTALL)
    assert found is not None
    return json.loads(unescape(found[1]))


def luminance(color: str) -> float:
    return sum(int(part) for part in re.findall(r"\d+", color)[:3]) / (3 * 255)


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_charts_are_readable_in_light_and_in_dark_with_tips_and_no_text_over_another(dark: bool, tmp_path: Path) -> None:
    records = [record(0, knobs={}), *(record(i, rate=None if i % 5 == 0 else 1000.0 + i, label="long " * 30) for i in range(1, 40))]
    page = report_html(read_report(folder_of(tmp_path, records, summary={"workload": "w", "memory_cap_gb": 259.0})))
    seen = probe(page, tmp_path, dark=dark)
    assert luminance(seen["ground"]) < 0.1 if dark else luminance(seen["ground"]) > 0.9
    assert len(seen["charts"]) == 5
    for chart in seen["charts"]:
        assert chart["tips"] > 0 and chart["width"] > 700, chart
        assert not chart["meeting"], (chart["name"], chart["meeting"])
        inks = [color for color in (*chart["texts"], *chart["marks"]) if color != seen["ground"] and color != "none"]
        assert inks and all(abs(luminance(color) - luminance(seen["ground"])) > 0.3 for color in inks), chart


def test_every_chart_of_the_page_is_two_files_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(tmp_path, [record(0, label=HOSTILE, knobs={}), record(1, rate=1500.0)])
    page = report_html(read_report(folder))
    assert main(["report", str(folder), "--charts", str(tmp_path / "charts")]) == 0
    assert {file.suffix for file in (tmp_path / "charts").iterdir()} == {".svg", ".png"}
    drawings, pictures = sorted((tmp_path / "charts").glob("*.svg")), sorted((tmp_path / "charts").glob("*.png"))
    assert len(drawings) == sum(tag == "svg" for tag, _ in tags(page)) and [one.stem for one in drawings] == [one.stem for one in pictures]
    told = capsys.readouterr().out
    assert all(str(file) in told for file in (*drawings, *pictures))
    for drawing, picture in zip(drawings, pictures, strict=True):
        assert re.fullmatch(r"\d\d-[a-z0-9-]+\.svg", drawing.name)
        assert ElementTree.fromstring(drawing.read_text(encoding="utf-8")).tag.endswith("svg")
        assert picture.read_bytes().startswith(b"\x89PNG")


def test_numbers_that_are_none_in_a_log_do_not_break_the_page(tmp_path: Path) -> None:
    line = (
        record(1, rate=2000.0)
        .model_dump_json()
        .replace("400.0", "NaN")
        .replace('"tokens_per_s_per_gpu":2000.0', '"tokens_per_s_per_gpu":Infinity')
    )
    page = report_html(read_report(folder_of(tmp_path, [record(0, knobs={})], tail=line + "\n")))
    assert page.count("<svg") >= 3


def test_a_page_that_cannot_be_written_says_where_else_it_can_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(tmp_path, [record(0, knobs={})])
    (folder / "report.html").mkdir()
    (folder / "file").write_text("", encoding="utf-8")
    assert main(["report", str(folder)]) == 2
    assert main(["report", str(folder), "--output", str(folder / "file" / "x.html")]) == 2
    assert "--output FILE" in capsys.readouterr().err
    assert main(["report", str(folder), "--output", str(folder / "new" / "x.html")]) == 0
    assert [file.name for file in (folder / "new").iterdir()] == ["x.html"]
    assert not list(folder.rglob("*.tmp"))


def test_a_trial_that_is_faster_or_slower_than_any_number_costs_its_place_and_not_the_page(tmp_path: Path) -> None:
    for rate in (1e308, -1e308, 1e-300, 0.0):
        odd = record(1)
        result = odd.result.model_copy(
            update={"tokens_per_s_per_gpu": rate, "mfu": rate, "time_breakdown": {"gemm": rate}, "memory_breakdown": {"weights": abs(rate)}}
        )
        page = report_html(read_report(folder_of(tmp_path, [record(0, knobs={}), odd.model_copy(update={"result": result})])))
        assert page.count("<svg") == 5 and "Infinity" not in page and "NaN" not in page, rate
