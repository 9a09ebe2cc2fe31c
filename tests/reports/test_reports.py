"""What a run prints and writes: the reference's formats, honest headings, no number that was not computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from primus_mcp.errors import InputError
from primus_mcp.evaluation.convert import AT_EXPERT_LOAD, FITS_ONLY_BALANCED
from primus_mcp.evaluation.nearest import UNLIKE
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.reports.best import best_block, exports_block
from primus_mcp.reports.measured import compare_with_measured
from primus_mcp.reports.part_words import ALWAYS_SHOWN, NOT_VALIDATED
from primus_mcp.reports.tables import ranked, reasons_text, trials_table
from primus_mcp.space.notes import GBS_DIFFERS, PRECISION_DIFFERS
from primus_mcp.trials.log import Digests, TrialRecord

RESOLVED = {
    "tp": 1,
    "pp": 4,
    "ep": 8,
    "cp": 1,
    "mbs": 2,
    "gbs": 128,
    "vpp": 2,
    "schedule": "interleaved",
    "recompute_granularity": "selective",
    "recompute_num_layers": None,
    "fp8": "hybrid",
    "fp8_recipe": "delayed",
    "dispatcher": "deepep",
    "sync_free_stage": 1,
    "use_torch_fsdp2": False,
}


def result(trial_id: int = 17, **fields: Any) -> EvaluationResult:
    values: dict[str, Any] = {
        "trial_id": trial_id,
        "legal": True,
        "tokens_per_s_per_gpu": 3260.4,
        "memory_per_gpu_gb": 182.84,
        "within_margin": True,
        "fits_physically": "fits",
        "source": "simulate",
        "resolved": RESOLVED,
        "engine_version": "test",
    }
    return EvaluationResult.model_validate(values | fields)


def record(outcome: EvaluationResult, label: str = "") -> TrialRecord:
    return TrialRecord(
        trial_id=outcome.trial_id or 0,
        time="2026-01-01T00:00:00Z",
        origin="seed",
        label=label,
        key=str(outcome.trial_id),
        digests=Digests(workload="w", cluster="c", engine="e"),
        trial={},
        result=outcome,
    )


def test_the_best_block_is_the_guide_s_line_by_line() -> None:
    assert best_block(result(), trial={}).splitlines() == [
        "=== BEST CONFIGURATION ===",
        "  trial #17  source=simulate",
        "  TP=1 PP=4 EP=8 CP=1",
        "  MBS=2 GBS=128 VPP=2 schedule=interleaved_1f1b",
        "  recompute=selective/None",
        "  → tokens/s/GPU = 3,260",
        "  → memory/GPU   = 182.8 GB",
    ]


def test_the_exports_block_is_the_guide_s_line_by_line() -> None:
    lines = ("export PRIMUS_TP=1", "export PRIMUS_PP=4", "export PRIMUS_EP=8", "# then pass --micro-batch-size 2 --global-batch-size 128")
    assert exports_block(lines).splitlines() == ["=== EXPORTS for primus-cli ===", *(f"  {line}" for line in lines)]


@pytest.mark.parametrize(("fidelity", "heading"), [("synthetic", "SYNTHETIC"), ("heuristic", "HEURISTIC")])
def test_numbers_that_are_no_estimate_are_headed_as_what_they_are(fidelity: str, heading: str) -> None:
    text = best_block(result(fidelity=fidelity, source="memory_only"), trial={})
    assert text.startswith(heading) and f"source={fidelity}" in text


def test_knobs_without_a_line_of_their_own_follow_and_the_gain_over_the_baseline_is_told() -> None:
    text = best_block(result(), trial={"pp": 4, "fp8": "hybrid", "use_turbo_deepep": True}, baseline=result(0, tokens_per_s_per_gpu=1630.2))
    assert "  also: fp8=hybrid use_turbo_deepep=true" in text.splitlines()
    assert "3,260  (2.00 x the baseline's 1,630)" in text


def test_classes_of_numbers_are_not_compared_with_each_other() -> None:
    assert " x the baseline" not in best_block(result(), trial={}, baseline=result(0, fidelity="heuristic"))


def test_the_block_says_that_a_hotter_expert_rank_does_not_fit() -> None:
    warning = {"code": FITS_ONLY_BALANCED, "text": "210.0 GB at 1.5 times the mean (does not fit)"}
    assert "  note: 210.0 GB at 1.5 times the mean (does not fit)" in best_block(result(warnings=[warning]), trial={}).splitlines()
    assert "1.5 times" not in best_block(result(warnings=[warning | {"code": AT_EXPERT_LOAD}]), trial={})


def test_the_block_says_what_no_run_validates_of_the_winner_and_of_the_baseline_that_it_is_told_against() -> None:
    codes = {NOT_VALIDATED: "CP", UNLIKE: "unlike", PRECISION_DIFFERS: "FP8", "expert_load_assumed": "load", "launch_bound": "host"}
    warnings = [{"code": code, "text": text} for code, text in codes.items()]
    before = result(0, tokens_per_s_per_gpu=1630.2, warnings=[{"code": NOT_VALIDATED, "text": "TP"}])
    lines = best_block(result(warnings=warnings, throughput_band=[1.0, 2.0]), trial={}, baseline=before).splitlines()
    assert [line for line in lines if "note" in line] == ["  note: load", "  note: CP", "  note: FP8", "  note: of the baseline: TP"]
    assert "  note: unlike" in best_block(result(warnings=warnings), trial={}).splitlines()
    always = [{"code": code, "text": code} for code in ALWAYS_SHOWN]
    assert best_block(result(warnings=always), trial={}).count("note: ") == len(ALWAYS_SHOWN)


def test_upper_estimate_notes_and_another_batch_size_stand_in_the_block() -> None:
    warning = {"code": GBS_DIFFERS, "text": "GBS 512 instead of 128"}
    text = best_block(result(memory_upper_gb=201.26, confidence="not validated", warnings=[warning]), trial={}, note="at risk")
    for part in ("(upper estimate 201.3 GB)", "  note: at risk", "  note: GBS 512 instead of 128", "  note: not validated"):
        assert part in text


def test_the_band_and_the_cost_stand_beside_the_throughput_that_they_qualify() -> None:
    lines = best_block(result(throughput_band=[2510.4, 3455.6]), trial={}, cost="$0.1/Mtoken").splitlines()
    assert lines.index("  cost: $0.1/Mtoken") < lines.index(
        "  band: 2,510 to 3,456 tokens/s/GPU by the errors of the most similar published runs"
    )


def test_nothing_found_says_which_rule_removed_how_many_what_lacks_and_what_would_help() -> None:
    illegal = {"legal": False, "tokens_per_s_per_gpu": None, "memory_per_gpu_gb": None, "within_margin": None}
    large = {"tokens_per_s_per_gpu": None, "within_margin": False, "memory_breakdown": {"weights": 50.0, "saved_moe": 200.0}}
    results = [
        result(0, **illegal, reason="32 GPUs are not ...", refused_by=["W1", "W2"]),
        result(1, **illegal, reason="32 GPUs are not either", refused_by=["W2"]),
        result(2, **{**large, "memory_per_gpu_gb": 300.0}),
        result(3, **{**large, "memory_per_gpu_gb": 270.0}),
    ]
    text = reasons_text(results, 259.2, 288.0, "mbs=1")
    assert text.startswith("no legal trial found\n  4 tried: 2 illegal, 2 need more memory than 259.2 GB/GPU")
    assert "  2 x W2: 32 GPUs are not either" in text and "  1 x W1: 32 GPUs are not ..." in text
    assert "trial #3" in text and "10.8 GB too much" in text and "saved: experts: 200.0 GB" in text and "mbs=1" in text
    assert "memory_safety_margin 0.06 or lower" in text


def test_a_lower_margin_is_no_remedy_where_it_would_not_be_enough() -> None:
    large = result(0, tokens_per_s_per_gpu=None, within_margin=False, memory_per_gpu_gb=289.0)
    assert "margin" not in reasons_text([large], 259.2, 288.0) and "more nodes" in reasons_text([large], 259.2, 288.0)


def test_the_table_has_the_best_first_names_its_levers_and_fits_the_width() -> None:
    records = [
        record(result(0, tokens_per_s_per_gpu=None, within_margin=False, fits_physically="does_not_fit"), "baseline"),
        record(result(1, tokens_per_s_per_gpu=100.0), "slow"),
        record(result(2, tokens_per_s_per_gpu=12345.0), "a label that is much longer than the column that is left for it at the end"),
        record(result(3, legal=False, tokens_per_s_per_gpu=None, memory_per_gpu_gb=None, resolved=None), "illegal"),
    ]
    assert [entry.trial_id for entry in ranked(records)] == [2, 1, 0, 3]
    console = Console(width=120, record=True, file=Path("/dev/null").open("w"))  # noqa: SIM115
    console.print(trials_table(records, rows=3))
    lines = console.export_text().splitlines()
    assert len(lines) == 5 and all(len(line) <= 120 for line in lines)
    assert lines[1].split()[:6] == ["2", "12,345", "182.8", "fits", "1/4/8/1/2/2", "selective"]
    assert "FP8, DeepEP, sync-free 1" in lines[1]
    assert "too large" in lines[3] and "1 more" in lines[4]


def test_trials_that_no_column_tells_apart_share_a_row_that_names_what_differs() -> None:
    alike = [record(result(number), "sweep").model_copy(update={"trial": {"fp8": kind}}) for number, kind in ((1, "delayed"), (2, "e4m3"))]
    console = Console(width=200, record=True, file=Path("/dev/null").open("w"))  # noqa: SIM115
    console.print(trials_table([*alike, record(result(3, memory_per_gpu_gb=150.0))]))
    shown = console.export_text().splitlines()
    row = next(line for line in shown if "alike" in line)
    assert len(shown) == 3 and "2 alike" in row and row.rstrip().endswith("sweep; alike: #2 (other fp8)")


@pytest.mark.parametrize("label", ["[/fp8]", "[bold]x[/bold]", "\x1b[31mred\x9b0m", "two\nlines", "\u202edesrever"])
def test_a_label_is_text_and_neither_markup_nor_commands_for_the_terminal(label: str) -> None:
    console = Console(width=120, record=True, file=Path("/dev/null").open("w"))  # noqa: SIM115
    console.print(trials_table([record(result(1, tokens_per_s_per_gpu=100.0), label)]))
    shown = console.export_text().splitlines()
    assert len(shown) == 2 and all(line.isprintable() for line in shown)
    assert "[" not in label[:1] or label in shown[1]


def test_a_measured_run_is_compared_as_projected_over_measured() -> None:
    found = compare_with_measured(result(mfu=0.4), 3000.0, 190.0, world_size=32)
    assert found.throughput_ratio == pytest.approx(3260.4 / 3000) and found.memory_ratio == pytest.approx(182.84 / 190)
    assert "ratio 1.09" in found.text and "ratio 0.96" in found.text


def test_a_run_that_the_projection_contradicts_is_told_in_the_block_and_memory_alone_has_its_ratio() -> None:
    assert compare_with_measured(result(mfu=0.4), 3000.0, 190.0).caution == ""
    found = compare_with_measured(result(mfu=0.4, within_margin=False), memory_gb=100.0)
    assert found.text == "baseline: projected 182.8 GB, your run 100.0: ratio 1.83" and found.throughput_ratio is None
    assert "memory by 1.83 x" in found.caution and "over the memory cap" in found.caution and "--profiling-mode benchmark" in found.caution
    assert "primus-mcp calibrate" in compare_with_measured(result(mfu=0.2), 1500.0).caution
    over = result(0, tokens_per_s_per_gpu=None, within_margin=False)
    block = best_block(result(), trial={}, baseline=over, caution=found.caution)
    assert f"  note: {found.caution}" in block.splitlines() and "which you have run, does not fit" in block


def test_a_measurement_beyond_the_peak_is_taken_for_a_total_over_all_gpus() -> None:
    with pytest.raises(InputError, match=r"3,260\.4.*|more than its peak"):
        compare_with_measured(result(mfu=0.4), 3260.4 * 32, world_size=32)
    with pytest.raises(InputError, match="no projected throughput"):
        compare_with_measured(result(tokens_per_s_per_gpu=None, reason="needs 300 GB"), 1.0)
