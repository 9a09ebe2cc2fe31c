"""The whole legal space as a tool: the best of the session's cluster become trials, other clusters are only compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any

from pydantic import Field

from primus_mcp.errors import InputError, PrimusMcpError
from primus_mcp.evaluation.evaluators import Evaluator
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.inputs.cluster_file import MAX_USD_PER_GPU_HOUR, StatedPrice
from primus_mcp.inputs.hardware_files import gpu_profile
from primus_mcp.reports.rule_titles import rule_title
from primus_mcp.reports.sweep_document import Swept as SweptCluster
from primus_mcp.reports.sweep_document import keep_sweep, sweep_document
from primus_mcp.reports.sweep_text import note_text, proof_text
from primus_mcp.reports.tables import verdict
from primus_mcp.search.pareto import MOST, FrontPoint, deadline_text, pareto_front
from primus_mcp.search.sensitivity import Sensitivity
from primus_mcp.search.sweep_result import SweepResult, SweptTrial
from primus_mcp.search.sweep_tools import LEVELS, MAX_TOP, RIVALS, analytic, cluster_points, sureness, sweep_space, with_rivals
from primus_mcp.session import TuningSession
from primus_mcp.space.knobs import KnobValue, TrialConfig, knob_values, set_knobs
from primus_mcp.tools.registry import ToolContext, tool
from primus_mcp.tools.results import Swept
from primus_mcp.units import bytes_to_gb

MAX_CLUSTERS = 16
STEPS = 1_000
"""Progress of one cluster counts so much."""
SHOWN_RULES, SHOWN_POINTS = 6, 12
Names = Annotated[Sequence[str], Field(max_length=50)]
Sizes = Annotated[Sequence[Annotated[int, Field(ge=1, le=1_000_000)]], Field(max_length=MAX_CLUSTERS)]
Amount = Annotated[float, Field(ge=0, le=MOST)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A swept cluster; whether it is the session's own; how the baseline was adapted to it."""

    swept: SweptCluster
    own: bool
    adapted: tuple[str, ...]

    def rows(self, session: TuningSession, *, several: bool) -> Iterator[dict[str, Any]]:
        """The top, or of several clusters the best of each; on the session's own cluster as trials of its log."""
        evaluator, result, _ = self.swept
        for place, one in enumerate(result.top[:1] if several else result.top):
            changes = _changes(evaluator, _trial(one))
            priced: EvaluationResult = one.result
            if self.own:
                priced = session.evaluate(TrialConfig.model_validate(changes), origin="sweep", label=f"sweep: number {place + 1}")
            yield {
                "trial_id": priced.trial_id if self.own else None,
                **({"cluster": result.cluster} if several else {}),
                "changes": changes,
                "verdict": verdict(priced),
                "tokens_per_s_per_gpu": priced.tokens_per_s_per_gpu,
                "memory_per_gpu_gb": priced.memory_per_gpu_gb,
                "mfu": priced.mfu,
                "recommended": place == result.recommended,
            }

    def counts(self, *, brief: bool) -> dict[str, Any]:
        """What is proven of the cluster, and unless `brief` where every configuration went."""
        evaluator, result, _ = self.swept
        counts, cluster = result.counts, evaluator.cluster
        told = {
            "cluster": result.cluster,
            "gpu": cluster.gpu.name,
            "nodes": cluster.num_nodes,
            "this_session": self.own,
            "memory_cap_gb": bytes_to_gb(cluster.memory_cap_bytes),
            "global_batch_size": evaluator.workload.baseline.gbs,
            "proof": proof_text(result),
            "combinations": counts.size,
            "legal": counts.legal,
            "equally_fast": result.ties,
            "notes": [*self.adapted, *([note_text(result)] if result.note else [])],
        }
        return told if brief else told | _where_they_went(result)


def _where_they_went(result: SweepResult) -> dict[str, Any]:
    counts, fallen = result.counts, list(result.counts.fallen.items())
    return {
        "of_the_legal": {
            "slower_by_bound": counts.slower,
            "over_memory_cap": counts.over_memory,
            "excluded_by_where": counts.excluded,
            "priced_one_by_one": counts.priced,
            "left_open": counts.open,
        },
        "refused_by_rule": {
            **{" ".join(rule_title(rule).split()): count for rule, count in fallen[:SHOWN_RULES]},
            **({"other rules": sum(count for _, count in fallen[SHOWN_RULES:])} if len(fallen) > SHOWN_RULES else {}),
        },
    }


def _own_price(session: TuningSession, evaluator: Evaluator) -> StatedPrice | None:
    """What the cluster file states, for the GPU that it is about."""
    return session.target.price if evaluator.cluster.gpu.name == session.target.cluster.gpu.name else None


@tool("Search the whole space", toolset="search", idempotent=True, long=True)
def sweep(
    context: ToolContext,
    axes: Annotated[Names, Field(description="only these knobs move")] = (),
    where: Annotated[str, Field(max_length=1000, description="e.g. tp<=8 and memory_per_gpu_gb<200")] = "",
    top: Annotated[int, Field(ge=1, le=MAX_TOP)] = 5,
    nodes: Annotated[Sizes, Field(description="sweep each of these cluster sizes")] = (),
    gpus: Names = (),
    front: Annotated[bool, Field(description="also speed against memory and price")] = False,
    target_tokens: Amount = 0.0,
    deadline_days: Amount = 0.0,
    usd_per_gpu_hour: Annotated[float, Field(ge=0, le=MAX_USD_PER_GPU_HOUR)] = 0.0,
) -> Swept:
    """The fastest of all legal configurations, proven under the model; the top become trials. Seconds to minutes a cluster."""
    if deadline_days and not target_tokens:
        raise InputError("is given without target_tokens", where="deadline_days", remedy="give both")
    session, before = context.session, context.session.target.cluster
    analytic(session.evaluator)
    clusters = _clusters(session, gpus, nodes)
    found: list[_Found] = []
    failed: list[dict[str, Any]] = []
    for number, (gpu, size) in enumerate(clusters):
        progress = _progress(context, number, len(clusters))
        try:
            found.append(_swept(context, gpu, size, axes, where, top, LEVELS if front else (), progress))
        except PrimusMcpError as error:
            if len(clusters) == 1:
                raise
            failed.append({"gpu": gpu or before.gpu.name, "nodes": size or before.num_nodes, "error": str(error)})
            continue
        if context.should_stop():
            break
    points = [
        point
        for evaluator, result, _ in (one.swept for one in found)
        for point in cluster_points(
            evaluator, result, price=usd_per_gpu_hour or _own_price(session, evaluator), target_tokens=target_tokens or None
        )
    ]
    keep_sweep(session.folder, sweep_document([one.swept for one in found], points))
    compared = front or bool(target_tokens) or len(clusters) > 1
    in_time = deadline_text(points, target_tokens, deadline_days) if deadline_days else None
    shown = [_point(point, target_tokens) for point in pareto_front(points)] if compared else None
    return _answer(session, found, failed, shown, in_time)


def _swept(
    context: ToolContext,
    gpu: str,
    nodes: int,
    axes: Sequence[str],
    where: str,
    top: int,
    levels: Sequence[float],
    progress: Callable[[int, int, int, float], None],
) -> _Found:
    """One cluster, named as by `_clusters`."""
    own = not gpu and not nodes
    evaluator, adapted = (context.session.evaluator, ()) if own else _elsewhere(context, gpu, nodes)
    result = sweep_space(evaluator, axes=axes, where=where, top=top, levels=levels, progress=progress, should_stop=context.should_stop)
    return _Found(swept=(evaluator, result, _sure(evaluator, result, axes, where)), own=own, adapted=adapted)


def _clusters(session: TuningSession, gpus: Sequence[str], nodes: Sequence[int]) -> list[tuple[str, int]]:
    """(GPU, nodes) of every cluster to sweep; "" and 0 are the session's own, so that ("", 0) is its own cluster."""
    own = session.target.cluster
    names = dict.fromkeys("" if gpu_profile(gpu).name == own.gpu.name else gpu for gpu in gpus) or {"": None}
    sizes = dict.fromkeys(0 if size == own.num_nodes else size for size in nodes) or {0: None}
    clusters = list(product(names, sizes))
    if len(clusters) > MAX_CLUSTERS:
        raise InputError(f"{len(clusters)} clusters are too many", where="gpus x nodes", remedy=f"sweep at most {MAX_CLUSTERS} in a call")
    return clusters


def _elsewhere(context: ToolContext, gpu: str, nodes: int) -> tuple[Evaluator, tuple[str, ...]]:
    if context.elsewhere is None:
        raise InputError("only the session's own cluster can be swept here", where="gpus, nodes", remedy="open a session on the other one")
    problem = context.elsewhere(gpu, nodes)
    return problem.evaluator, problem.adapted.lines


def _progress(context: ToolContext, number: int, clusters: int) -> Callable[[int, int, int, float], None]:
    which = f"cluster {number + 1} of {clusters}: " if clusters > 1 else ""

    def report(done: int, total: int, legal: int, best: float) -> None:
        text = f"{which}{legal:,} legal configurations, best {best:,.0f} tokens/s/GPU"
        share = min(done * STEPS // max(1, total), STEPS - 1)
        context.progress(number * STEPS + share, clusters * STEPS, text if done < total else f"{text}; pricing those that may be faster")

    return report


def _sure(evaluator: Evaluator, result: SweepResult, axes: Sequence[str], where: str) -> Sensitivity | None:
    if result.best is None:
        return None
    return sureness(evaluator, _trial(result.best), rivals=[_trial(one) for one in result.top[1 : 1 + RIVALS]], axes=axes, where=where)


def _words(sure: Sensitivity) -> list[str]:
    """How sure the first is, line by line; its rivals are the places after it."""
    names = [f"number {place}" for place in range(2, 2 + RIVALS)]
    return [with_rivals(line, names) for line in sure.text.splitlines()]


def _trial(one: SweptTrial) -> TrialConfig:
    return TrialConfig.model_validate(one.trial)


def _changes(evaluator: Evaluator, trial: TrialConfig) -> dict[str, KnobValue]:
    """The knobs that differ from the baseline, where they alone say the same; else all that the sweep set."""
    own = knob_values(evaluator.workload.baseline)
    few = {name: value for name, value in set_knobs(trial).items() if value != own.get(name)}
    return few if evaluator.key(TrialConfig.model_validate(few)) == evaluator.key(trial) else dict(set_knobs(trial))


def _point(point: FrontPoint, target_tokens: float) -> dict[str, Any]:
    """A point of the front; what was not asked for is left out, an unknown price is null."""
    shown = {"cluster", "gpus", "tokens_per_s_per_gpu", "headroom_gb", "mfu", "usd_per_million_tokens"}
    shown |= {"price_source"} if point.price_source else set()
    shown |= {"days", "usd"} if target_tokens else set()
    return {**point.model_dump(include=shown), "config_json": point.trial}


def _answer(
    session: TuningSession,
    found: list[_Found],
    failed: list[dict[str, Any]],
    front: list[dict[str, Any]] | None,
    in_time: str | None,
) -> Swept:
    several = len(found) + len(failed) > 1
    rows = [row for one in found for row in one.rows(session, several=several)]
    results = [one.swept[1] for one in found]
    sure = found[0].swept[2] if found and not several else None
    best = next((result.best for result in results if result.best is not None), None)
    return Swept(
        proven=bool(rows) and not failed and all(result.proven for result in results),
        top=sorted(rows, key=lambda row: -(row["tokens_per_s_per_gpu"] or 0.0)) if several else rows,
        clusters=[*(one.counts(brief=several) for one in found), *failed],
        front=None if front is None else front[:SHOWN_POINTS],
        in_time=in_time,
        how_sure=_words(sure) if sure else [],
        confidence=best.result.confidence if best else None,
        next=_next(
            logged=any(row["trial_id"] is not None for row in rows),
            several=several,
            empty=not rows,
            nodes=next((result.more_nodes for result in results if result.more_nodes), None),
            early=any(result.stopped for result in results),
        ),
    )


def _next(*, logged: bool, several: bool, empty: bool, nodes: str | None, early: bool) -> str:
    if empty and early:
        return "nothing was found before the sweep ended early: sweep again, of fewer axes or clusters"
    if empty:
        return f"nothing legal fits: evaluate_simulate and explain_trial of the baseline name what would; {nodes or 'or more nodes'}"
    if several:
        return "set_cluster moves the session to the cluster you choose; sweep or evaluate_simulate there before export_best"
    return "get_best, explain_trial and export_best work on these trials; write_report makes a page of it" if logged else "set_cluster"
