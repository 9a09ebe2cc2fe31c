"""The page's section about the whole space: counts, the best, whether they are proven, the pipeline and how sure the first is."""

from __future__ import annotations

from collections.abc import Iterable

from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.reports.best import band_text
from primus_mcp.reports.html_parts import Figures, folded, headed, listed, number, paragraph, section, table, warnings_of
from primus_mcp.reports.html_source import Swept
from primus_mcp.reports.page_charts import pipeline_name, sensitivity_name
from primus_mcp.reports.rule_titles import rule_title
from primus_mcp.reports.sweep_text import line_words, lines_of, note_text, proof_text, ties_text

OTHER_ENGINE = "Priced by another version of the engine ({}) than {}: do not compare the numbers; run the sweep again."
_HEADS = ("place", "tokens/s/GPU", "GB", "configuration")


def other_engine(results: Iterable[EvaluationResult], engine: str, *, trials: bool) -> str:
    """That results are of another engine than the trials beside them or, where there are none, than the one that is installed."""
    others = sorted({result.engine_version for result in results} - {engine})
    return OTHER_ENGINE.format(", ".join(others), "the trials" if trials else "this one") if others else ""


def sweep_section(place: int, swept: Swept, figures: Figures, engine: str, *, trials: bool) -> str:
    """One cluster's sweep, the `place`-th of sweep.json. `engine`: see `other_engine`."""
    first = swept.best.result if swept.best else None
    proof = proof_text(swept)
    fallen = [f"{count:,} refused: {rule_title(rule)}" for rule, count in swept.counts.fallen.items()]
    return section(
        f"Whole space: {swept.workload} on {swept.cluster}",
        paragraph(other_engine((one.result for one in swept.top), engine, trials=trials), "bad"),
        paragraph(f"{swept.counts.size:,} combinations, {swept.counts.legal:,} legal. {proof[:1].upper()}{proof[1:]}."),
        paragraph(note_text(swept), "bad"),
        paragraph(swept.more_nodes or ""),
        folded("why the others fell", listed(fallen)),
        _table(swept),
        paragraph(ties_text(swept), "soft"),
        paragraph(f"The first: {band_text(first)}" if first is not None and first.throughput_band else ""),
        paragraph(f"Accuracy: {first.confidence}" if first is not None and first.confidence else "", "soft"),
        warnings_of(first) if first is not None else "",
        headed("Pipeline", figures.get(pipeline_name(place), "")),
        headed("How sure", figures.get(sensitivity_name(place), "")),
        listed(swept.sensitivity.text.splitlines()) if swept.sensitivity else "",
    )


def _table(swept: Swept) -> str:
    rows = []
    for places in lines_of(swept.top):
        result = swept.top[places[0]].result
        place, what = line_words(swept, places)
        rows.append((place, number(result.tokens_per_s_per_gpu, "{:,.0f}"), number(result.memory_per_gpu_gb, "{:.1f}"), what))
    return table(_HEADS, rows, "the fastest of the whole space")
