"""Predictions, groups and statistics."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from primus_mcp.errors import InputError
from primus_mcp.inputs.constants import TIME
from primus_mcp.validation.constants import audit
from primus_mcp.validation.figures import MEMORY_GROUP, TIME_GROUP, figures, residuals, write
from primus_mcp.validation.groups import GROUPS, grouped, ladders
from primus_mcp.validation.refit import LeftOut, collect, family_of, halves, leave_out, mean_of
from primus_mcp.validation.report import document, leave_out_report, report
from primus_mcp.validation.resolve import resolve
from primus_mcp.validation.rows import Row, shipped_rows
from primus_mcp.validation.score import Scored, score
from primus_mcp.validation.statistics import percentile, spearman, statistics
from primus_mcp.validation.trial_constants import Pricer


def scored(measured: float, predicted: float, **changes: object) -> Scored:
    own = Row(id=str(changes.pop("id", measured)), model="m", gpu="MI355X", suite=("amd-headline",), flags=str(changes.pop("flags", "")))
    return Scored(row=own, what="time", measured=measured, predicted=predicted, **changes)  # type: ignore[arg-type]


def test_statistics_of_four_errors_by_hand() -> None:
    found = statistics([scored(100, 110), scored(200, 180), scored(50, 50), scored(10, 13)])
    assert (found.figures, found.rows) == (4, 4)
    assert found.mape == pytest.approx((0.1 + 0.1 + 0 + 0.3) / 4)
    assert found.bias == pytest.approx((0.1 - 0.1 + 0 + 0.3) / 4)
    assert found.median == pytest.approx(0.1) and found.p90 == pytest.approx(0.3) and found.worst == pytest.approx(0.3)


def test_runs_of_one_configuration_count_once_with_their_median_error() -> None:
    first = scored(100, 110, id="a")
    twins = [replace(scored(100, 130, id="b"), same_as="a"), replace(scored(100, 120, id="c"), same_as="a")]
    found = statistics([first, *twins])
    assert (found.figures, found.rows) == (1, 3) and found.mape == pytest.approx(0.2)


def test_submissions_of_one_fine_tuning_run_count_once_a_gpu_and_size() -> None:
    rows = [row for row in shipped_rows() if row.task == "lora" and row.gpu.startswith("MI") and row.n_gpus == 8]
    found = score(rows, what=("time",), backend="roofline")
    assert len(rows) > 10 and len({item.same_as or item.row.id for item in found}) == 2


def test_pretraining_runs_of_one_configuration_count_apart_so_that_no_median_hides_a_release() -> None:
    rows = [row for row in shipped_rows() if row.model == "GPT OSS 120B" and row.gpu == "GB200"]
    found = score(rows, what=("time",), backend="roofline")
    assert len(found) > 4 and all(item.same_as is None for item in found)


def test_spearman_is_one_for_any_rising_map_and_minus_one_for_a_falling_one() -> None:
    values = [3.0, 1.0, 2.0, 5.0]
    assert spearman(values, [value**3 for value in values]) == pytest.approx(1.0)
    assert spearman(values, [-value for value in values]) == pytest.approx(-1.0)
    assert spearman(values, [1.0] * 4) is None
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.0


def test_verdicts_are_judged_by_what_happened() -> None:
    ran = Row(id="ran", model="m", gpu="MI355X", mem_gb=10.0)
    failed = Row(id="oom", model="m", gpu="MI355X", mem_kind="OOM: needs more")
    assert Scored(row=ran, what="memory", verdict="does_not_fit").verdict_is_wrong is True
    assert Scored(row=ran, what="memory", verdict="at_risk").verdict_is_wrong is False
    assert Scored(row=failed, what="memory", verdict="fits").verdict_is_wrong is True
    assert Scored(row=failed, what="memory", verdict="does_not_fit").verdict_is_wrong is False


def test_the_memory_of_megatron_core_runs_is_within_a_fifth_of_a_per_cent() -> None:
    found = grouped(score(shipped_rows(), what=("memory",), suite="memory"))
    by_name = {group.name: numbers for group, numbers in found.items()}
    allocated = by_name["Megatron-Core, allocated"]
    assert allocated.figures == 14 and allocated.rows == 34
    assert allocated.mape is not None and allocated.mape <= 0.002
    device = by_name["AMD, device"]
    assert device.mape is not None and device.mape <= 0.025
    everything = by_name["all runs with a stated configuration"]
    assert everything.mape is not None and everything.mape <= 0.03 and everything.verdicts_wrong == 0
    assert everything.at_risk <= 0.15 * everything.figures


def test_a_group_that_has_rows_is_never_silently_missing() -> None:
    found = grouped(score(shipped_rows(), what=("time",), backend="roofline"))
    assert {group.name for group in GROUPS if group.what == "time"} == {group.name for group in found}


def test_the_order_of_a_ladder_of_features_is_kept() -> None:
    rows = [row for row in shipped_rows() if row.model.startswith("DeepSeek-V2") and row.gpu == "MI355X" and row.task == "pretrain"]
    found = ladders(score(rows, what=("time",), backend="roofline"))
    assert len(found) == 2 and min(ladder.spearman for ladder in found) >= 0.9


def test_the_document_has_a_row_a_figure_and_is_plain_json() -> None:
    rows = shipped_rows()[:30]
    found = score(rows, backend="roofline")
    text = json.loads(json.dumps(document(found), allow_nan=False))
    assert set(text["rows"][0]) == {"id", "what", "measured", "predicted", "error_fraction", "verdict", "skipped_reason", "assumptions"}
    assert len(text["rows"]) == len(found)
    for entry in text["rows"]:
        assert (entry["skipped_reason"] is None) == (entry["predicted"] is not None)
        if entry["error_fraction"] is not None:
            assert entry["error_fraction"] == pytest.approx(entry["predicted"] / entry["measured"] - 1)
    assert all(entry["assumptions"] for entry in text["rows"] if entry["predicted"] is not None)


def test_the_report_lists_the_worst_row_first_and_counts_what_was_left_out() -> None:
    rows = (*shipped_rows()[:12], Row(id="x", model="Nobody-7B", gpu="MI355X", n_gpus=8, mem_gb=1.0, framework="Primus/Megatron-LM"))
    text = report(score(rows, what=("memory",)))
    errors = [abs(float(line.split("%")[0])) for line in text.splitlines()[:10]]
    assert errors == sorted(errors, reverse=True)
    assert "skipped   1 (memory): model is not in the catalogue" in text


def test_every_constant_says_which_families_of_runs_set_it() -> None:
    found = audit()
    assert found.total > 200 and 0 < len(found.fitted) < 60
    assert all(constant.low <= constant.value <= constant.high and constant.families for constant in found.fitted)


def test_a_fitted_constant_has_a_range_that_its_source_gives() -> None:
    single = [constant.name for constant in audit().fitted if constant.low == constant.high]
    assert not single, f"nothing to refit in {single}"


def test_other_constants_price_a_case_otherwise_and_leave_the_shipped_ones_alone() -> None:
    row = next(row for row in shipped_rows() if row.id == "amd-primus-dsv2lite-mi355x-mbs1-baseline")
    case, pricer = resolve(row, row.flags or ""), Pricer("roofline")
    before = pricer.tokens_per_s(case)
    (more_host,) = pricer.speeds([case], {("time", ("host_work.moe",)): 2 * TIME["host_work.moe"]})
    (slow_links,) = pricer.speeds([case], {("mi355x", ("profiles", "rocm-2026", "all_to_all_link_efficiency")): 0.1})
    (slow_hbm,) = pricer.speeds([case], {("family_amd", ("rates", "elementwise_hbm_efficiency")): 0.2})
    assert max(more_host, slow_links, slow_hbm) < before == pricer.tokens_per_s(case)


def test_families_are_names_without_sizes() -> None:
    assert [family_of(name) for name in ("llama3.1_70B", "qwen3_30B_A3B", "deepseek_v2_lite", "mixtral_8x7B_v0.1", "MPT 30b")] == [
        "llama3.1",
        "qwen3",
        "deepseek_v2_lite",
        "mixtral",
        "mpt",
    ]


def test_a_family_is_scored_with_constants_that_did_not_see_it() -> None:
    (found,) = leave_out(shipped_rows(), "qwen3", suites=("amd-headline",), backend="roofline")
    ranges = {constant.name: (constant.low, constant.high) for constant in audit().fitted}
    assert found.vendor == "amd" and found.fitted_on >= 6 and 0 < found.refitted < 1
    assert all("qwen3" in next(c.families for c in audit().fitted if c.name == name) for name, _ in found.constants)
    assert all(ranges[name][0] * 0.999 <= value <= ranges[name][1] * 1.001 for name, value in found.constants)


def test_halves_share_no_family_and_leave_none_out() -> None:
    samples = collect(shipped_rows(), ("amd-headline",), "roofline")
    first, second = halves(samples)
    assert not set(first) & set(second) and set(first) | set(second) == {sample.family for sample in samples}


def test_memory_of_a_run_that_its_source_contradicts_is_skipped() -> None:
    stated = Row(id="x", model="Llama 2 7B", gpu="MI300X", n_gpus=8, framework="Primus/Megatron-LM", mem_gb=16.3, precision="BF16")
    plain, suspect = score([stated], what=("memory",)) + score([stated.model_copy(update={"suite": ("suspect",)})], what=("memory",))
    assert plain.predicted is not None and plain.skipped_reason is None
    assert suspect.predicted is None and "contradict" in (suspect.skipped_reason or "")


def left_out(vendor: str, *families: str, shipped: float, blind: float, configurations: int = 1) -> LeftOut:
    return LeftOut(
        families=families,
        vendor=vendor,
        configurations=configurations,
        fitted_on=9,
        shipped=shipped,
        shipped_bias=-shipped,
        refitted=blind,
        refitted_bias=blind,
        constants=(("time: x", 1.0),),
    )


BLIND = [
    left_out("amd", "a", shipped=0.1, blind=0.2, configurations=3),
    left_out("amd", "b", shipped=0.3, blind=0.4),
    left_out("amd", "a", "b", shipped=0.9, blind=0.9),
    left_out("nvidia", "c", shipped=0.05, blind=0.06),
]


def test_errors_of_families_are_weighted_by_their_configurations_and_halves_stand_apart() -> None:
    assert mean_of(BLIND[:2], "shipped") == pytest.approx((3 * 0.1 + 0.3) / 4)
    lines = leave_out_report(BLIND).splitlines()
    assert len(lines) == 1 + len(BLIND) + 1
    assert lines[-1].startswith("mean of families left out in turn") and "15.0%" in lines[-1] and "25.0%" in lines[-1]


def test_an_unknown_family_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"'zebra'.*known: each, .*qwen3"):
        leave_out(shipped_rows()[:60], "zebra", suites=("amd-headline",), backend="roofline")


def test_the_figures_beside_an_answer_are_the_groups_and_the_families_left_out(tmp_path: Path) -> None:
    found = [*score(shipped_rows(), what=("time",), backend="roofline"), *score(shipped_rows(), what=("memory",))]
    groups = {group.name: numbers for group, numbers in grouped(found).items()}
    table = figures(found, BLIND)
    assert table["amd"]["time"]["runs"] == 4 and table["amd"]["time"]["mean_error"] == 0.15
    assert table["amd"]["time"]["blind_mean_error"] == 0.25 and table["amd"]["memory"]["blind_mean_error"] is None
    for vendor in ("amd", "nvidia"):
        assert table[vendor]["time"]["median_error"] == pytest.approx(groups[TIME_GROUP[vendor]].median, abs=1e-4)
        assert table[vendor]["memory"]["mean_error"] == pytest.approx(groups[MEMORY_GROUP[vendor]].mape, abs=1e-4)
    assert table["amd"]["time"]["gpus"] == ["mi300x", "mi355x"]
    write(found, BLIND, tmp_path / "accuracy.yaml")
    assert len((tmp_path / "residuals.jsonl").read_text(encoding="utf-8").splitlines()) == len(residuals(found))


def test_a_residual_is_the_median_error_of_one_configuration() -> None:
    rows = [row for row in shipped_rows() if row.task == "lora" and row.gpu.startswith("MI") and row.n_gpus == 8]
    found = score(rows, what=("time",), backend="roofline")
    wanted = sorted(
        round(median(item.error_fraction or 0.0 for item in found if (item.same_as or item.row.id) == first), 4)
        for first in {item.same_as or item.row.id for item in found}
    )
    own = residuals(found)
    assert sorted(entry["error"] for entry in own) == wanted
    assert {entry["family"] for entry in own} == {"llama2"} and all(entry["traits"]["adapters"] for entry in own)
