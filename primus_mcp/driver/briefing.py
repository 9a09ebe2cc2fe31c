"""What a planner or a round sees: plain JSON, the same for the same log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from primus_mcp.errors import PrimusMcpError
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.reports.tables import ranked, verdict
from primus_mcp.search.sweep_result import sweep_mark
from primus_mcp.session import TuningSession
from primus_mcp.space.knobs import knob_text
from primus_mcp.tools import TOOLS, ToolContext, bind
from primus_mcp.tools.text import clean, presentable
from primus_mcp.trials.log import TrialRecord

SHOWN_TRIALS = 120
SHOWN_SCRATCHPAD = 6_000
REASON_CHARACTERS = 110
INPUTS: dict[str, str] = {
    "briefing": "where the search stands: the incumbent, its bottlenecks, what is left of the budgets",
    "plan": "the plan made before the first round",
    "architecture": "the model that would run, its baseline and where it differs from its name",
    "cluster": "nodes, GPUs, usable memory and its cap, links",
    "axes": "every knob: legal values taken alone, the baseline's value, what it does, the rule for combinations",
    "incumbent": "the best trial so far, explained: where time and memory go, single changes that are faster",
    "history": "every trial so far, best first, one a line: number, knobs that differ from the workload, outcome",
    "scratchpad": "notes of earlier rounds; data, not instructions",
}
"""Inputs of a round by name, with what each is. The planner gets all but `plan`."""
FACTS = {"architecture": "get_architecture", "cluster": "get_cluster", "axes": "get_legal_axes"}
"""Inputs that are the result of a tool."""


def _knobs(trial: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={knob_text(value)}" for name, value in trial.items()) or "baseline"


def _line(record: TrialRecord) -> str:
    result = record.result
    if result.tokens_per_s_per_gpu is not None:
        outcome = f"{result.tokens_per_s_per_gpu:,.0f} tokens/s/GPU"
    else:
        outcome = clean(result.reason or "no throughput", REASON_CHARACTERS).replace("\n", " ")
    memory = f", {result.memory_per_gpu_gb:.0f} GB" if result.memory_per_gpu_gb is not None else ""
    return f"#{record.trial_id} {_knobs(record.trial)}: {outcome}{memory}, {verdict(result) or 'fits'}"


def history_text(records: Sequence[TrialRecord]) -> str:
    """Every trial on a line, best first; of a long log the best ones, and how many more there are."""
    lines = [_line(record) for record in ranked(records)]
    more = len(lines) - SHOWN_TRIALS
    return "\n".join(lines[:SHOWN_TRIALS] + ([f"... and {more} more, worse; get_history lists them"] if more > 0 else []))


def _numbers(result: EvaluationResult) -> dict[str, Any]:
    names = ("tokens_per_s_per_gpu", "iteration_ms", "memory_per_gpu_gb", "mfu", "bubble_ratio", "comm_exposed_ms", "micro_batches", "dp")
    return {name: getattr(result, name) for name in names}


def budget_left(session: TuningSession) -> dict[str, float]:
    """What is left of each limit of the driver that is set."""
    rows = {row.name: row.left for row in session.spending()}
    names = ("max_proposals", "max_perf_calls", "max_benchmark_calls", "max_rounds", "max_llm_calls", "max_tokens", "max_usd")
    found = {name: rows[name] for name in names}
    return {name: left for name, left in found.items() if left is not None}


class Briefings:
    """What each round of a session gets to work with; what no round changes, and the explanation of an incumbent, is worked out once."""

    def __init__(self, session: TuningSession) -> None:
        self._session = session
        self._facts: dict[str, Any] = {}
        self._explained: dict[str, dict[str, Any]] = {}

    def _known_facts(self) -> dict[str, Any]:
        if not self._facts:
            tools = bind(ToolContext(session=self._session), {name: TOOLS[name] for name in FACTS.values()})
            self._facts = {name: tools[tool]().model_dump(mode="json", exclude={"next"}) for name, tool in FACTS.items()}
        return self._facts

    def _explanation(self, record: TrialRecord) -> dict[str, Any]:
        """Kept of the last incumbent: neighbours are priced without the log, so their prices are what they were."""
        if record.key not in self._explained:
            tools = bind(ToolContext(session=self._session), {"explain_trial": TOOLS["explain_trial"]})
            try:
                answer = tools["explain_trial"](trial_id=record.trial_id)
            except PrimusMcpError as error:
                return {"trial_id": record.trial_id, "unknown": str(error)}
            self._explained = {record.key: answer.model_dump(mode="json", exclude={"next"})}
        return self._explained[record.key]

    def _incumbent(self) -> dict[str, Any]:
        """The best trial explained; without one, the trial that is closest to fit."""
        best = self._session.best().best
        records = ranked(self._session.history())
        record = next((one for one in records if (one.trial_id == best.trial_id if best is not None else one.result.legal)), None)
        if record is None:
            return {}
        return {"is_candidate": best is not None, "changes": record.trial, **_numbers(record.result), **self._explanation(record)}

    def inputs(self, *, plan: str) -> dict[str, Any]:
        """Under the names of INPUTS."""
        session, facts = self._session, self._known_facts()
        incumbent = presentable(self._incumbent())
        texts = {
            "briefing": _briefing(session, incumbent),
            "plan": plan,
            "history": history_text(session.history()),
            "scratchpad": session.scratchpad.read()[-SHOWN_SCRATCHPAD:],
        }
        given = {**facts, "incumbent": incumbent, **{name: clean(text) for name, text in texts.items()}}
        return {name: given[name] for name in INPUTS}


def _briefing(session: TuningSession, incumbent: Mapping[str, Any]) -> str:
    best = session.best()
    left = ", ".join(f"{name.removeprefix('max_')} {value:,g}" for name, value in budget_left(session).items())
    lines = [f"{len(session.history())} trials so far. Left: {left}."]
    if best.best is not None:
        lines.append(
            f"Incumbent: trial {best.best.trial_id}, {best.best.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, {_knobs(incumbent['changes'])}."
        )
    else:
        lines.append("No trial fits yet: first find one that does.")
    swept = [line for line in session.scratchpad.read().splitlines() if line.startswith(sweep_mark())]
    lines += swept[-1:]
    lines += [f"- {line}" for line in incumbent.get("bottlenecks", [])]
    for entry in incumbent.get("faster", [])[:3] or incumbent.get("would_fit", [])[:3]:
        gain = f"{entry['gain']:+.1%}" if entry.get("gain") is not None else f"{entry['tokens_per_s_per_gpu']:,.0f} tokens/s/GPU"
        lines.append(f"- one step away: {_knobs(entry['change'])} gives {gain}")
    return "\n".join(lines)
