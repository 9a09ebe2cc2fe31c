"""What the charts show: bars that add up, limits at their value, nothing left out in silence, colours that stand out."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.reports.charts.bars import MOST_ROWS, OTHERS, stacked_bars, tornado
from primus_mcp.reports.charts.chart import Chart
from primus_mcp.reports.charts.points import scatter
from primus_mcp.reports.charts.theme import DARK, LIGHT, PARTS, ink, painted
from primus_mcp.reports.charts.timeline import MOST_A_RANK, pipeline_timeline
from primus_mcp.reports.charts.trials import search_curve, trials_picture
from primus_mcp.reports.charts.words import distinct, shown

NAN, INF = float("nan"), float("inf")


def layers(chart: Chart, mark: str) -> list[dict[str, Any]]:
    """The layers of a kind, of all panels."""
    panels = chart.spec.get("vconcat", [chart.spec])
    return [layer for panel in panels for layer in panel["layer"] if layer["mark"]["type"] == mark]


def rows(chart: Chart, mark: str) -> list[dict[str, Any]]:
    return [row for layer in layers(chart, mark) for row in layer["data"]["values"]]


def trial(number: int, **fields: Any) -> EvaluationResult:
    values = {"legal": True, "within_margin": True, "fits_physically": "fits", "tokens_per_s_per_gpu": 1000.0, "memory_per_gpu_gb": 100.0}
    return EvaluationResult.model_validate({"trial_id": number, "engine_version": "1", "resolved": {"tp": 1}} | values | fields)


REFUSED = {"legal": False, "tokens_per_s_per_gpu": None, "memory_per_gpu_gb": None, "within_margin": None}
TOO_LARGE = {"tokens_per_s_per_gpu": None, "memory_per_gpu_gb": 9000.0, "within_margin": False}


def test_the_parts_of_a_bar_lie_end_to_end_and_reach_its_sum() -> None:
    chart = stacked_bars("m", "memory", [("a", {"x": 1.5, "y": 4.0}), ("b", {"y": 2.0, "z": 0.25})], "GB")
    for label, total in (("a", 5.5), ("b", 2.25)):
        parts = [row for row in rows(chart, "bar") if row["row"] == label]
        assert parts[0]["start"] == 0 and all(left["end"] == right["start"] for left, right in pairwise(parts))
        assert parts[-1]["end"] == pytest.approx(total)
    assert [row["text"] for row in rows(chart, "text") if "start" not in row] == ["5.5 GB", "2.2 GB"]


def test_small_parts_are_joined_where_there_are_more_than_colours_and_no_byte_is_lost() -> None:
    sizes = {f"part {number}": float(number + 1) for number in range(3 * len(PARTS))}
    chart = stacked_bars("m", "memory", [("a", sizes)], "GB")
    parts = rows(chart, "bar")
    assert len(parts) == len(PARTS) and parts[-1]["part"] == OTHERS
    assert parts[-1]["end"] == pytest.approx(sum(sizes.values()))
    color = layers(chart, "bar")[0]["encoding"]["color"]["scale"]
    assert len(color["domain"]) == len(set(color["range"])) == len(PARTS)


def test_limits_stand_at_their_value_inside_the_axis_and_bounds_start_where_the_bar_ends() -> None:
    chart = stacked_bars("m", "memory", [("a", {"x": 100.0})], "GB", limits=[("cap", 259.2), ("HBM", 288.0)], upper=[120.0])
    lines = [row for row in rows(chart, "rule") if "at" in row]
    assert [line["at"] for line in lines] == [259.2, 288.0]
    assert layers(chart, "bar")[0]["encoding"]["x"]["scale"]["domain"] == [0.0, 288.0]
    assert [(row["start"], row["end"]) for row in rows(chart, "rule") if "end" in row] == [(100.0, 120.0)]


def test_what_is_no_number_is_not_drawn_and_the_chart_says_so() -> None:
    bars = stacked_bars("m", "t", [("a", {"x": 1.0, "nan": NAN, "inf": INF, "less": -1.0})], "ms", upper=[NAN])
    assert [row["part"] for row in rows(bars, "bar")] == ["x"] and bars.note.startswith("3 parts")
    points = scatter("s", "t", [(1.0, 2.0, "g", "p"), (NAN, 2.0, "g", "p"), (1.0, INF, "g", "p")], ("x", "y"))
    assert len(rows(points, "circle")) == 1 and "2 points have no place" in points.note
    assert "1 row is not drawn" in tornado("t", "t", [("a", NAN, 1.0), ("b", 0.9, 1.1)], 1.0).note
    assert "1 task has" in pipeline_timeline("p", "t", [(0, "F", 0, 0, 0.0, 1.0), (0, "F", 1, 0, 1.0, NAN)]).note
    for chart in (bars, points):
        json.dumps(chart.spec, allow_nan=False)


def test_of_very_many_rows_the_largest_are_shown_in_their_order() -> None:
    chart = stacked_bars("m", "t", [(f"rank {i}", {"x": float(i + 1)}) for i in range(1000)], "GB")
    assert [row["row"] for row in rows(chart, "bar")] == [f"rank {i}" for i in range(1000 - MOST_ROWS, 1000)]
    assert f"the {MOST_ROWS} largest of 1,000 rows" in chart.note


def test_both_ends_of_a_swing_start_at_the_base_and_the_smaller_one_is_drawn_over_the_larger() -> None:
    chart = tornado("t", "t", [("speed", 80.0, 90.0)], 100.0)
    bars = rows(chart, "bar")
    assert [(bar["start"], bar["end"]) for bar in bars] == [(100.0, 80.0), (100.0, 90.0)]
    assert "-20.0% -10.0%" in [row["text"] for row in rows(chart, "text")]


def test_points_that_lie_under_others_are_left_out_and_counted() -> None:
    spread_out = [(float(i), float(i % 7), "g", f"trial {i}") for i in range(50)]
    assert not scatter("s", "t", spread_out, ("x", "y")).note
    chart = scatter("s", "t", spread_out * 100, ("x", "y"))
    assert len(rows(chart, "circle")) == 50 and chart.note.startswith("4,950 points lie under others")


def test_the_cap_and_the_best_are_inside_the_axes() -> None:
    chart = scatter("s", "t", [(100.0, 10.0, "g", "p")], ("x", "y"), best=(120.0, 20.0, "best"), cap=259.2)
    encoding = layers(chart, "circle")[0]["encoding"]
    (low_x, high_x), (low_y, high_y) = encoding["x"]["scale"]["domain"], encoding["y"]["scale"]["domain"]
    assert low_x < 100 and high_x > 259.2 and low_y < 10 and high_y > 20
    assert [row["at"] for row in rows(chart, "rule")] == [259.2]


def test_the_line_of_the_search_is_the_best_so_far_and_every_trial_is_on_the_chart() -> None:
    rates = [1000.0, 900.0, 1200.0, 1100.0]
    results = [trial(n, tokens_per_s_per_gpu=rate) for n, rate in enumerate(rates)] + [trial(4, **REFUSED), trial(5, **TOO_LARGE)]
    chart = search_curve("s", "t", results)
    assert [(row["x"], row["y"]) for row in rows(chart, "line")] == [(0, 1000.0), (2, 1200.0), (5.5, 1200.0)]
    kinds = [row["kind"] for row in rows(chart, "point") if "kind" in row]
    assert kinds == ["within the cap"] * 4 + ["illegal", "over the cap"]
    assert [row["text"] for row in rows(chart, "text")] == ["1,200"]


@pytest.mark.parametrize(("fidelity", "heading"), [("synthetic", "SYNTHETIC"), ("heuristic", "HEURISTIC")])
def test_an_axis_of_numbers_that_are_no_estimate_says_so(fidelity: str, heading: str) -> None:
    chart = search_curve("s", "t", [trial(0, fidelity=fidelity, source="memory_only")])
    assert layers(chart, "point")[0]["encoding"]["y"]["title"].startswith(heading)


def test_memory_beyond_twice_the_hbm_is_cut_and_marked_with_its_true_size_in_the_tip() -> None:
    chart = trials_picture("t", "t", [trial(0), trial(1, **TOO_LARGE)], cap_gb=259.2, hbm_gb=288.0)
    small, large = rows(chart, "bar")
    assert small["y"] == 100.0 and not small["text"]
    assert large["y"] == 576.0 and large["text"] == "↑" and "9,000.0 GB" in large["tip"]


def test_a_task_begins_and_ends_in_milliseconds_on_its_rank() -> None:
    chart = pipeline_timeline("p", "t", [(0, "F", 3, 1, 0.5, 0.75), (1, "D", 3, 1, 0.75, 1.0)])
    boxes = [row for row in rows(chart, "bar") if "kind" in row]
    assert [(box["rank"], box["kind"], box["start"], box["end"]) for box in boxes] == [(0, "forward", 500, 750), (1, "backward", 750, 1000)]
    assert "micro-batch 3, chunk 1" in boxes[0]["tip"]


def test_more_tasks_than_pixels_are_lines_with_the_same_ends_above_the_beginning_as_boxes() -> None:
    tasks = [(rank, "F", n, 0, n * 1.0, n + 0.5) for rank in range(4) for n in range(MOST_A_RANK + 1)]
    chart = pipeline_timeline("p", "t", tasks)
    ends = [row["start"] for row in rows(chart, "line") if row["rank"] == 0]
    assert ends[:6] == [0.0, 500.0, None, 1000.0, 1500.0, None] and len(ends) == 3 * (MOST_A_RANK + 1)
    boxes = [row for row in rows(chart, "bar") if "kind" in row]
    assert {box["rank"] for box in boxes} == {0, 1, 2, 3} and len(boxes) < len(tasks) / 2
    last = layers(chart, "bar")[-1]["encoding"]["x"]["scale"]["domain"][1]
    assert all(box["start"] < box["end"] <= last for box in boxes)
    assert f"all {len(tasks):,} tasks" in chart.note and f"the first {len(boxes):,}" in chart.note


def test_two_names_are_never_one_category() -> None:
    labels = distinct(["x" * 500, "x" * 501, "a", "a", "", "\n"], 20)
    assert len(set(labels)) == 6 and all(0 < len(label) < 30 for label in labels)


@pytest.mark.parametrize("text", ["\x00\x01\x1f", "\ud800", "\ufffe\uffff", "a\u202eb", "line\nline\r\n\ttab", "x" * 1_000_000])
def test_text_on_a_chart_is_one_printable_line_of_bounded_length(text: str) -> None:
    assert shown(text).isprintable() and len(shown(text)) <= 240
    shown(text).encode("utf-8")


def _contrast(one: str, other: str) -> float:
    def luminance(color: str) -> float:
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_parts_stand_out_from_their_ground_as_wcag_asks(colors: dict[str, str]) -> None:
    for name in ("fg", "soft", "bad", "link", *PARTS):
        assert _contrast(colors[name], colors["bg"]) >= 4.5, name
    assert _contrast(colors["fg"], colors["card"]) >= 4.5


def test_a_light_colour_names_one_dark_colour() -> None:
    assert set(LIGHT) == set(DARK) and len(set(LIGHT.values())) == len(LIGHT)


def test_colours_of_a_file_are_written_out_but_never_in_what_the_user_wrote() -> None:
    spec = {"color": ink("c0"), "range": [ink("c1")], "data": {"values": [{"tip": ink("c0")}]}, "scale": {"domain": [ink("c9")]}}
    assert painted(spec, LIGHT) == {
        "color": LIGHT["c0"],
        "range": [LIGHT["c1"]],
        "data": {"values": [{"tip": ink("c0")}]},
        "scale": {"domain": [ink("c9")]},
    }


def test_rows_that_move_nothing_are_counted_instead_of_drawn() -> None:
    chart = tornado("t", "t", [("speed", 80.0, 110.0), ("still", 100.0, 100.0), ("nearly", 99.99, 100.01)], 100.0)
    assert {row["row"] for row in rows(chart, "bar")} == {"speed"}
    assert chart.note == "2 rows of less than 0.05% are left out" and chart.gist == "100 tokens/s/GPU, speed -20.0% +10.0%"
