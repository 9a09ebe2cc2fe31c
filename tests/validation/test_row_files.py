"""Row files: what is read, and what a bad line is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from primus_mcp.errors import InputError
from primus_mcp.validation.rows import parse_rows, read_rows, release_date, shipped_rows

ROW = {"id": "a", "model": "Llama 3.1 8B", "gpu": "MI355X", "n_gpus": 8, "gbs": 32, "seq": 8192, "iter_s": 1.0}


def line(**changes: object) -> str:
    return json.dumps({**ROW, **changes})


def test_throughput_follows_from_the_iteration_time_where_only_that_was_measured() -> None:
    (row,) = parse_rows(line(), "rows")
    assert row.tokens_per_s_per_gpu == 32 * 8192 / 1.0 / 8


def test_a_row_may_carry_columns_that_nobody_reads() -> None:
    (row,) = parse_rows(line(notes="fast", mfu=0.4), "rows")
    assert row.id == "a"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{not json", "line 1: not JSON"),
        (line().replace("1.0", "NaN"), "NaN is no number"),
        (line(iter_s="fast"), "iter_s"),
        (line(n_gpus=-8), "n_gpus"),
        (line(n_gpus=8.5), "n_gpus"),
        (line(tp=True), "tp"),
        (line(config_completeness="Z"), "config_completeness"),
        (line(suite="amd-headline"), "suite"),
        ("[1, 2]", "not an object"),
        (line().replace('"id": "a"', '"id": ""'), "id"),
    ],
)
def test_a_bad_line_is_named_with_its_number_and_field(text: str, said: str) -> None:
    with pytest.raises(InputError, match="rows: line 1") as caught:
        parse_rows(text, "rows")
    assert said in str(caught.value)


def test_all_bad_lines_are_counted_and_the_first_ones_listed() -> None:
    with pytest.raises(InputError, match=r"line 2: .*line 3: .*and 3 more lines") as caught:
        parse_rows("\n".join([line(), *[line(gbs=0)] * 8]), "rows")
    assert "\n" not in str(caught.value)


def test_an_empty_file_and_a_missing_file_are_input_errors(tmp_path: Path) -> None:
    empty = tmp_path / "rows.jsonl"
    empty.write_text("\n", encoding="utf-8")
    with pytest.raises(InputError, match="has no rows"):
        read_rows(empty)
    with pytest.raises(InputError, match="cannot be read"):
        read_rows(tmp_path / "absent.jsonl")


@pytest.mark.parametrize(
    ("cited", "date"),
    [
        ("docs/performance-summary.md, container 26.06", "2026-06"),
        ("docs/performance-summary.md, container 26.04.01", "2026-05"),
        ("mlcommons/training_results_v5.1 AMD/results", "2025-11"),
        ("results/eos_ngc25.01_nemo/llama31", "2025-01"),
        ("Megatron-LM SC21 (arXiv 2104.04473) Table 1", "2021-04"),
        ("a figure", None),
    ],
)
def test_the_date_of_the_software_is_read_from_the_citation(cited: str, date: str | None) -> None:
    assert release_date(cited) == date


def test_a_part_that_is_not_the_catalogues_is_read_from_the_notes() -> None:
    (row,) = parse_rows(line(notes="non-standard H100: H100 (96GB HBM2e 2.4TB/s, 500W)."), "rows")
    assert row.part is not None
    assert (row.part.hbm_gb, row.part.hbm_tb_per_s) == (96, 2.4)


def test_shipped_rows_are_unique_measured_and_carry_no_row_that_is_known_to_be_wrong() -> None:
    rows = shipped_rows()
    assert len({row.id for row in rows}) == len(rows)
    assert all(row.tokens_per_s_per_gpu or row.mem_gb or row.ran_out_of_memory for row in rows)
    assert not any("suspect" in row.suite for row in rows)


def test_shipped_rows_say_what_the_published_ones_say(shared: Path) -> None:
    published = {row.id: row for row in read_rows(shared / "truth" / "measured.jsonl")}
    for row in shipped_rows():
        original = published[row.id]
        for name in (
            "model",
            "gpu",
            "n_gpus",
            "tp",
            "pp",
            "ep",
            "cp",
            "mbs",
            "gbs",
            "seq",
            "recompute",
            "flags",
            "suite",
            "released",
            "part",
        ):
            assert getattr(row, name) == getattr(original, name), (row.id, name)
        for own, stated in ((row.tokens_per_s_per_gpu, original.tokens_per_s_per_gpu), (row.mem_gb, original.mem_gb)):
            assert own == (None if stated is None else pytest.approx(stated, rel=1e-5)), row.id
