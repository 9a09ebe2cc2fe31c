"""The printed best configuration and exports, in the form that users of the reference know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from primus_mcp.evaluation.nearest import band_words
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.reports.part_words import baseline_warnings, deciding_warnings
from primus_mcp.space.knobs import knob_text, schedule_text
from primus_mcp.trials.journal import Swept

BEST_HEADING = "=== BEST CONFIGURATION ==="
EXPORTS_HEADING = "=== EXPORTS for primus-cli ==="
HEADERS = {
    "synthetic": "SYNTHETIC: made-up numbers that exercise the search; they say nothing about any GPU",
    "heuristic": "HEURISTIC: memory is projected, throughput is a rule of thumb that only orders configurations",
}
_IN_BLOCK = {"tp", "pp", "ep", "cp", "mbs", "gbs", "vpp", "pp_schedule", "recompute_granularity", "recompute_num_layers"}


def best_block(
    result: EvaluationResult,
    *,
    trial: Mapping[str, Any],
    baseline: EvaluationResult | None = None,
    note: str | None = None,
    cost: str | None = None,
    proof: str | None = None,
    caution: str = "",
) -> str:
    """The block of one priced trial. `trial` holds the knobs it sets; what the fixed lines do not show follows as `also`.

    `caution`: what the user's own run of the baseline contradicts.
    """
    assert result.resolved is not None and result.tokens_per_s_per_gpu is not None and result.memory_per_gpu_gb is not None
    c = result.resolved
    source = result.source if result.fidelity not in HEADERS else result.fidelity
    lines = [HEADERS[result.fidelity]] if result.fidelity in HEADERS else []
    number = f"trial #{result.trial_id}  " if result.trial_id is not None else ""
    lines += [
        BEST_HEADING,
        f"  {number}source={source}",
        f"  TP={c['tp']} PP={c['pp']} EP={c['ep']} CP={c['cp']}",
        f"  MBS={c['mbs']} GBS={c['gbs']} VPP={c['vpp']} schedule={schedule_text(c['schedule'])}",
        f"  recompute={c['recompute_granularity']}/{c['recompute_num_layers']}",
    ]
    also = " ".join(f"{name}={knob_text(value)}" for name, value in trial.items() if name not in _IN_BLOCK and value is not None)
    if also:
        lines.append(f"  also: {also}")
    lines.append(f"  → tokens/s/GPU = {result.tokens_per_s_per_gpu:,.0f}{_against(result, baseline, ran=bool(caution))}")
    lines.append(f"  → memory/GPU   = {result.memory_per_gpu_gb:.1f} GB{_upper(result)}")
    lines += [f"  cost: {cost}"] if cost else []
    lines += [f"  band: {band}"] if (band := band_text(result)) else []
    lines += [f"  proof: {proof}"] if proof else []
    shown = [*deciding_warnings(result), *baseline_warnings(result, baseline)]
    lines += [f"  note: {text}" for text in (caution, note, *shown, result.confidence) if text]
    return "\n".join(lines)


def proof_line(swept: Swept | None) -> str:
    """What a sweep has proven about a trial of the log; empty without one."""
    if swept is None:
        return ""
    return f"trial #{swept.trial_id} is the fastest of all {swept.legal:,} legal configurations that fit, under the model, by a sweep"


def _against(result: EvaluationResult, baseline: EvaluationResult | None, *, ran: bool) -> str:
    """The gain over the baseline, where both are numbers of one class."""
    if baseline is None or baseline.trial_id == result.trial_id:
        return ""
    if baseline.fidelity != result.fidelity or baseline.tokens_per_s_per_gpu is None:
        said = "by the projection the baseline, which you have run, does not fit" if ran else "the baseline does not fit"
        return f"  ({said})" if baseline.within_margin is False else ""
    assert result.tokens_per_s_per_gpu is not None
    return f"  ({result.tokens_per_s_per_gpu / baseline.tokens_per_s_per_gpu:.2f} x the baseline's {baseline.tokens_per_s_per_gpu:,.0f})"


def band_text(result: EvaluationResult) -> str:
    """The range that the errors of similar published runs allow; empty where there are none."""
    if result.throughput_band is None:
        return ""
    low, high = result.throughput_band
    return f"{low:,.0f} to {high:,.0f} tokens/s/GPU {band_words(warning.code for warning in result.warnings)}"


def _upper(result: EvaluationResult) -> str:
    return f"  (upper estimate {result.memory_upper_gb:.1f} GB)" if result.memory_upper_gb is not None else ""


def exports_block(exports: Sequence[str], overlay: str | None = None) -> str:
    """Ready-to-paste exports and the flags to pass; `overlay` is the file that carries every knob."""
    lines = [EXPORTS_HEADING, *(f"  {line}" for line in exports)]
    if overlay is not None:
        lines.append(f"  # or run the workload file that holds all of it: {overlay}")
    return "\n".join(lines)
