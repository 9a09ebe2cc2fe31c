"""Charts as files and in the page: well-formed, of the size that was asked for, harmless whatever names say, without side effects."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.reports.charts import render
from primus_mcp.reports.charts.bars import stacked_bars, tornado
from primus_mcp.reports.charts.chart import Chart, layer, layered
from primus_mcp.reports.charts.points import scatter
from primus_mcp.reports.charts.render import CONVERTER, PNG_SCALE, ChartError, chart_files, page_figures, picture
from primus_mcp.reports.charts.theme import DARK, LIGHT, WIDTH
from primus_mcp.reports.charts.timeline import MOST_BOXES, pipeline_timeline
from primus_mcp.reports.charts.trials import search_curve, trials_picture

HOSTILE = (
    "</svg></title><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>'\"&]]>\u2028",
    "datum.row",
    "${datum['a']}",
    "a.b[0]['c']",
    "\\'); alert(1); ('",
    'var(--c0)"/><script>',
    "\x00\x01\x1b[31m\ud800\ufffe",
    "x" * 1_000_000,
    "__proto__",
    "constructor",
    "null",
    "",
)
BARS = stacked_bars("bars", "Memory", [("one", {"a": 100.0, "b": 50.0}), ("two", {"a": 30.0})], "GB", limits=[("cap", 200.0)])


def hostile_charts() -> list[Chart]:
    parts = {name: float(place + 1) for place, name in enumerate(HOSTILE)}
    return [
        stacked_bars("bars", HOSTILE[0], [(name, parts) for name in HOSTILE], HOSTILE[1], limits=[(name, 5.0) for name in HOSTILE[:2]]),
        scatter("points", HOSTILE[7], [(i, i, name, name) for i, name in enumerate(HOSTILE)], ("x", "y"), best=(1.0, 1.0, HOSTILE[0])),
        tornado("swings", HOSTILE[2], [(name, 90.0, 110.0) for name in HOSTILE], 100.0),
        pipeline_timeline("tasks", HOSTILE[8], [(0, "F", 1, 0, 0.0, 1.0), (0, HOSTILE[0], 1, 0, 0.0, 1.0)]),
        search_curve("course", HOSTILE[6], [EvaluationResult(legal=False, reason=name, engine_version="1") for name in HOSTILE]),
    ]


def size_of(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n") and png.endswith(b"IEND\xaeB`\x82")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_hostile_names_draw_as_text_in_well_formed_files() -> None:
    charts = hostile_charts()
    for chart, drawn in zip(charts, chart_files(charts), strict=True):
        root = ElementTree.fromstring(drawn.svg)
        names = {node.tag.rpartition("}")[2] for node in root.iter()}
        assert names <= {"svg", "g", "path", "rect", "line", "circle", "text", "title", "style"}, names
        assert not [name for node in root.iter() for name in node.attrib if name.startswith("on") or "href" in name]
        assert len(drawn.svg) < 200_000, chart.name
        assert size_of(drawn.png)[0] > 0
    assert any("<script>alert(1)" in (node.text or "") for node in ElementTree.fromstring(chart_files(charts[:1])[0].svg).iter())


def test_hostile_names_in_the_page_are_escaped() -> None:
    page = "".join(page_figures(hostile_charts()).values())
    assert page.count("<svg") == len(hostile_charts()) and "<script" not in page and "<img" not in page and "\x01" not in page


def test_every_bar_of_the_page_has_a_tip_and_the_chart_a_name() -> None:
    figure = ElementTree.fromstring(page_figures([BARS])["bars"])
    root = next(figure.iter("svg"))
    assert root.get("role") == "img" and root.get("aria-label") == "Memory: one 150.0 GB, two 30.0 GB, cap 200 GB"
    assert root.get("viewBox", "").startswith("0 0 760 ") and not {"width", "height", "style"} & set(root.attrib)
    tips = [node.text for node in root.iter("title")]
    assert tips == ["one, a: 100.0 GB", "one, b: 50.0 GB", "two, a: 30.0 GB", "cap: 200.0 GB"]
    assert "Memory" in next(figure.iter("figcaption")).itertext()


def _bar_ends(root: ElementTree.Element, tip: str) -> tuple[float, float]:
    """Left and right edge of the mark with this tip: its path is M left,top h width ..."""
    parents = [node for node in root.iter() for child in node if child.tag == "title" and child.text == tip]
    assert len(parents) == 1
    left, width = parents[0].get("d", "").removeprefix("M").split(",")[0], parents[0].get("d", "").split("h")[1].split("v")[0]
    return float(left), float(left) + float(width)


def test_bars_and_the_cap_are_drawn_at_the_right_place() -> None:
    root = next(ElementTree.fromstring(page_figures([BARS])["bars"]).iter("svg"))
    start, middle = _bar_ends(root, "one, a: 100.0 GB")
    again, end = _bar_ends(root, "one, b: 50.0 GB")
    assert again == pytest.approx(middle, abs=0.1) and middle - start == pytest.approx(2 * (end - again), abs=0.2)
    cap = next(node for node in root.iter("line") if any(child.text == "cap: 200.0 GB" for child in node))
    place = float(cap.get("transform", "").removeprefix("translate(").split(",")[0])
    assert place - start == pytest.approx(2 * (middle - start), abs=1.0)


def test_a_file_has_light_colours_in_it_and_dark_ones_by_its_style() -> None:
    drawn = chart_files([BARS])[0]
    assert "var(--" not in drawn.svg and f'fill="{LIGHT["bg"]}"' in drawn.svg
    assert f'[fill="{LIGHT["c0"]}"]{{fill:{DARK["c0"]}}}' in drawn.svg and "prefers-color-scheme:dark" in drawn.svg
    root = ElementTree.fromstring(drawn.svg)
    assert (root.findtext("{http://www.w3.org/2000/svg}title"), root.get("width")) == ("Memory", "760")
    assert size_of(drawn.png)[0] == PNG_SCALE * WIDTH


def test_the_suffix_says_what_a_picture_is() -> None:
    assert size_of(picture(BARS, ".png"))
    assert picture(BARS, ".svg").startswith(b"<svg")


def test_charts_without_anything_to_show_are_drawn_empty() -> None:
    refused = EvaluationResult(legal=False, engine_version="1")
    empty = [
        stacked_bars("bars", "t", [], "GB"),
        scatter("points", "t", [], ("x", "y")),
        tornado("swings", "t", [], 0.0),
        pipeline_timeline("tasks", "t", []),
        search_curve("course", "t", []),
        search_curve("refused", "t", [refused]),
        trials_picture("trials", "t", [], cap_gb=1.0, hbm_gb=2.0),
    ]
    for drawn in chart_files(empty):
        assert size_of(drawn.png)[1] > 0


def test_thousands_of_trials_and_of_tasks_stay_below_a_megabyte_and_a_half() -> None:
    points = [((i * 7919) % 5000, (i * 104729) % 4999, "fits", f"trial {i}: " + "TP1 PP4 EP8 " * 8) for i in range(5000)]
    tasks = [(i % 64, "FBW"[i % 3], i // 64, 0, i * 0.01, i * 0.01 + 0.005) for i in range(4 * MOST_BOXES)]
    figures = page_figures([scatter("points", "t", points, ("x", "y")), pipeline_timeline("tasks", "t", tasks)])
    assert all("<svg" in figure and len(figure) < 1_500_000 for figure in figures.values())
    assert "all 24,000 tasks" in figures["tasks"]


def foreign(**data: Any) -> Chart:
    spec = layered([layer([], "point", {"x": {"field": "a", "type": "quantitative"}})], 10)
    spec["layer"][0]["data"] = data
    return Chart(name="foreign", title="t", spec=spec)


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/x.json", "https://example.invalid/x.json"])
def test_a_specification_cannot_fetch_anything(address: str) -> None:
    with pytest.raises(ChartError, match="not allowed"):
        chart_files([foreign(url=address)])


def test_a_specification_cannot_read_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('[{"a": 424242}]', encoding="utf-8")
    for address in (str(secret), secret.as_uri()):
        try:
            svg = chart_files([foreign(url=address)])[0].svg
        except ChartError:
            continue
        assert "424,242" not in svg and "circle" not in svg


def test_a_chart_that_cannot_be_drawn_is_one_line_and_the_others_are_drawn() -> None:
    broken = Chart(name="broken", title="t", spec={"mark": "nonsense", "data": {"values": []}})
    with pytest.raises(ChartError, match="broken cannot be drawn") as caught:
        chart_files([BARS, broken])
    assert "\n" not in str(caught.value)
    figures = page_figures([BARS, broken])
    assert "<svg" in figures["bars"] and 'class="bad"' in figures["broken"]


def test_without_the_library_the_page_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "vl_convert.py").write_text("raise ModuleNotFoundError(\"No module named 'vl_convert'\")", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "pip install" in page_figures([BARS])["bars"]
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    with pytest.raises(ChartError, match="cannot be drawn"):
        chart_files([BARS])


def test_drawing_prints_nothing_and_works_in_a_thread_while_others_go_on(capfd: pytest.CaptureFixture[str]) -> None:
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(picture(BARS, ".png")))
    thread.start()
    turns = 0
    while thread.is_alive():
        thread.join(0.005)
        turns += 1
    assert size_of(found[0]) and turns > 3
    assert capfd.readouterr() == ("", "")


def test_the_library_never_enters_this_process() -> None:
    picture(BARS, ".png")
    assert "vl_convert" not in sys.modules


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="no process groups here")
def test_an_interrupt_from_the_terminal_does_not_reach_the_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    run = subprocess.run

    def spy(*args: Any, **options: Any) -> Any:
        seen.update(options)
        return run(*args, **options)

    monkeypatch.setattr(subprocess, "run", spy)
    picture(BARS, ".png")
    assert seen["start_new_session"] is True and "shell" not in seen


def converter(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Another converter: `jobs` are its jobs, `real` draws them."""
    head = f"import json, os, signal, sys, time\nsys.path.insert(0, {str(CONVERTER.parent)!r})\nfrom converter import drawing\n"
    text = head + "jobs = json.load(sys.stdin.buffer)\nreal = lambda: json.dumps([drawing(job) for job in jobs])\n" + code
    (folder / "other.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr(render, "CONVERTER", folder / "other.py")


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_a_chart_that_ends_its_process_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deadly = Chart(name="deadly", title="t", spec={"deadly": True})
    kill = "os.kill(os.getpid(), signal.SIGKILL) if 'deadly' in json.dumps(jobs) else sys.stdout.write(real())"
    converter(tmp_path, monkeypatch, kill)
    figures = page_figures([BARS, deadly])
    assert "<svg" in figures["bars"] and "its process ended with -9" in figures["deadly"]
    with pytest.raises(ChartError, match="deadly cannot be drawn"):
        chart_files([BARS, deadly])


@pytest.mark.parametrize("code", ["print('loading'); print(real())", "pass", "print('[]')", "print('{}')", "print('[3]')"])
def test_an_answer_that_is_not_the_converters_is_told_in_place_of_the_chart(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    converter(tmp_path, monkeypatch, code)
    assert "not the converter" in page_figures([BARS])["bars"]


def test_a_converter_that_is_too_slow_is_ended_and_names_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    converter(tmp_path, monkeypatch, "time.sleep(600)")
    monkeypatch.setattr(render, "LIMIT_S", 0.5)
    figure = page_figures([BARS])["bars"]
    assert "longer than 0.5 s" in figure and str(tmp_path) not in figure and sys.executable not in figure
