"""Coordinate search: from the best trial, the step that should relieve its bottleneck most is priced next. No language model.

Levers (precision, expert exchange, fusions) are tried one at a time on the incumbent, shapes in the order of their forecast. Legality and
memory are free, so nothing that is illegal or does not fit is proposed.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from primus_mcp.driver.forecast import corrected, flat_parts, forecast, nearness
from primus_mcp.driver.loop import MIN_GAIN, Nobody, Observer, SearchEnd, stop_reason
from primus_mcp.driver.shapes import SELECTIVE, Column, batch_of, knobs_of_shape, shape_of, shapes_of
from primus_mcp.errors import InputError, UnknownFigureError
from primus_mcp.evaluation.rank import is_candidate
from primus_mcp.session import TuningSession
from primus_mcp.space.axes import legal_axes, with_pins
from primus_mcp.space.knobs import KNOBS, TrialConfig, knob_text
from primus_mcp.tools.configuration import config_of
from primus_mcp.trials.budget import BudgetExhaustedError
from primus_mcp.trials.journal import Round, RoundStarted
from primus_mcp.trials.log import TrialRecord

SHAPE = (
    "tp",
    "pp",
    "ep",
    "expert_tensor_parallel_size",
    "cp",
    "vpp",
    "mbs",
    "recompute_granularity",
    "recompute_num_layers",
    "pp_schedule",
)
EXCHANGE = ("use_turbo_deepep", "sync_free_stage")
USUAL_EXCHANGE = {"use_turbo_deepep": True, "sync_free_stage": 1}
PLAIN_EXCHANGE = {"use_turbo_deepep": False, "sync_free_stage": 0}
FALLBACKS: tuple[dict[str, Any], ...] = ({"use_turbo_deepep": True, "sync_free_stage": 0}, PLAIN_EXCHANGE)
"""For shapes in which the wanted exchange is illegal."""
LEVERS: dict[str, tuple[dict[str, Any], ...]] = {
    "exchange": tuple({"use_turbo_deepep": True, "sync_free_stage": stage} for stage in (1, 3, 2)),
    "fp8": tuple({"fp8": value} for value in ("hybrid", "mxfp8")),
    "loss": ({"cross_entropy_loss_fusion": True},),
    "data parallel": ({"overlap_grad_reduce": True, "overlap_param_gather": True}, {"use_distributed_optimizer": True}),
    "plain exchange": FALLBACKS,
}
"""Settings that multiply every shape's speed, each tried once on the incumbent of its turn."""
COORDINATE_BUDGETS = ("max_rounds", "max_proposals", "max_perf_calls", "max_wall_minutes")
LEVER_TURN = 3
SLIGHT = 0.05
"""What selective recompute frees, on the scale of shares of layers, for the order of shapes by memory."""
MAX_PROBES = 1_500
"""Memory checks for one proposal."""
SLACK = 0.25
"""The forecast may be wrong by this much: shapes up to this much slower are tried too."""


@dataclass
class _Search:
    session: TuningSession
    watch: Observer
    seen: set[str] = field(default_factory=set)
    tried_levers: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        session = self.session
        self.seen = {record.key for record in session.history()}
        arch, cluster = session.workload.architecture, session.target.cluster
        self.layers, self.moe = arch.num_layers, arch.is_moe
        self.shapes = shapes_of(session)
        self.too_large = np.zeros(len(self.shapes), dtype=bool)
        self.checked: set[tuple[float, ...]] = set()
        self.near: dict[int, Column] = {}
        self.node = cluster.tightly_linked_gpus
        self.gap = cluster.network.node_bandwidth_bytes_per_s / cluster.network.nic_bandwidth_bytes_per_s
        self.values = legal_axes(session.workload, cluster, axes=session.target.axes.model_dump(), pins=session.pins)

    def incumbent(self) -> TrialRecord | None:
        """The fastest candidate, at risk or not: the ranking decides at the end."""
        records = [record for record in self.session.history() if is_candidate(record.result)]
        return max(records, key=lambda record: record.result.tokens_per_s_per_gpu or 0.0, default=None)

    def shape(self, record: TrialRecord) -> dict[str, float]:
        """The shape of a priced trial."""
        assert record.result.resolved is not None
        return shape_of(config_of(record.result.resolved), self.layers, record.result.dp or 1)

    def levers(self, best: TrialRecord | None) -> dict[str, Any]:
        """What the incumbent sets that is no shape and no exchange of experts."""
        held = best.trial if best is not None else {}
        return {name: value for name, value in held.items() if name not in (*SHAPE, *EXCHANGE)}

    def exchange(self, best: TrialRecord | None) -> dict[str, Any]:
        """How experts exchange tokens in other shapes: as in the incumbent, or by the usual best where it exchanges nothing."""
        if not self.moe:
            return {}
        if best is None or self.shape(best)["ep"] == 1:
            return dict(USUAL_EXCHANGE)
        return {name: best.trial[name] for name in EXCHANGE if name in best.trial}

    def _comparable(self, record: TrialRecord, best: TrialRecord) -> bool:
        """Whether a trial tells of shapes with the incumbent's levers."""
        wanted = {} if self.shape(record)["ep"] == 1 else self.exchange(best)
        held = {name: record.trial[name] for name in EXCHANGE if name in record.trial} if wanted else {}
        return self.levers(record) == self.levers(best) and held == wanted

    def trial(self, knobs: Mapping[str, Any]) -> tuple[TrialConfig, str] | None:
        """Knobs that may move as a trial that was not tried, is legal and fits; None for others."""
        free = {name: value for name, value in knobs.items() if name not in self.session.pins and self._movable(name)}
        try:
            trial = with_pins(TrialConfig(**free), self.session.pins)
            key = self.session.evaluator.key(trial)
            if key in self.seen or not self.session.evaluator.fits(trial):
                return None
        except (InputError, UnknownFigureError):
            return None
        return trial, key

    def _movable(self, name: str) -> bool:
        axis = KNOBS[name].axis
        return axis is None or bool(getattr(self.session.target.axes, axis))

    def lever_steps(self, best: TrialRecord) -> Iterator[tuple[str, dict[str, Any]]]:
        """Levers that were not tried, on the incumbent."""
        for group, settings in LEVERS.items():
            for setting in settings:
                label = f"{group}: " + ", ".join(f"{name} {knob_text(value)}" for name, value in setting.items())
                wanted = {name: value for name, value in setting.items() if value in self.values[name]}
                if label in self.tried_levers or len(wanted) < len(setting) or all(best.trial.get(n) == v for n, v in setting.items()):
                    continue
                yield label, {**best.trial, **setting}

    def expected(self, best: TrialRecord | None) -> tuple[Column, float]:
        """Forecast of every shape, corrected by what was priced with the incumbent's levers, and the incumbent's own time."""
        if best is None or best.result.time_breakdown is None:
            base = {"tp": 1.0, "pp": 1.0, "ep": 1.0, "cp": 1.0, "mbs": 1.0, "vpp": 1.0, "recompute": 0.0, "schedule": 0.0, "dp": 1.0}
            parts, now = flat_parts(), math.inf
        else:
            base, parts, now = self.shape(best), best.result.time_breakdown, best.result.iteration_ms or math.inf
        gbs = batch_of(self.session)
        times = forecast(parts, base, self.shapes, gbs=gbs, node=self.node, gap=self.gap)
        return corrected(times, self._ratios(best, parts, base, gbs)), now

    def _ratios(
        self, best: TrialRecord | None, parts: Mapping[str, float], base: Mapping[str, float], gbs: int
    ) -> list[tuple[Column, float]]:
        """Nearness, and measured over forecast, of every priced trial that has the incumbent's levers."""
        found = []
        for record in self.session.history():
            if best is None or not is_candidate(record.result) or not record.result.iteration_ms:
                continue
            if not self._comparable(record, best) or record.result.resolved is None or record.result.resolved["gbs"] != gbs:
                continue
            shape = self.shape(record)
            one = type(self.shapes)(**{name: np.array([shape[name]]) for name in shape})
            time_ms = float(forecast(parts, base, one, gbs=gbs, node=self.node, gap=self.gap)[0])
            if record.trial_id not in self.near:
                self.near[record.trial_id] = nearness(self.shapes, shape)
            found.append((self.near[record.trial_id], record.result.iteration_ms / time_ms))
        return found

    def shape_step(self, best: TrialRecord | None) -> tuple[str, TrialConfig, str] | None:
        """The shape with the best forecast that is new and fits; None when no forecast is good enough."""
        times, now = self.expected(best)
        levers, exchange = self.levers(best), self.exchange(best)
        order = np.argsort(times, kind="stable")
        probes = 0
        for index in (int(index) for index in order if not self.too_large[index]):
            if times[index] > now * (1 + SLACK) or probes >= MAX_PROBES:
                return None
            if self.too_large[index] or not self._topology_fits(index, {**levers, **exchange}):
                continue
            row = self.shapes.row(index)
            knobs = knobs_of_shape(row, {**levers, **exchange}, self.layers, moe=self.moe)
            probes += 1
            found = self.trial(knobs)
            for setting in FALLBACKS if found is None and exchange and row["ep"] > 1 else ():
                if self._legal(knobs):
                    break
                knobs |= setting
                found = self.trial(knobs)
            if found is not None:
                gain = f"{now / times[index] - 1:+.1%} expected" if math.isfinite(now) else "smallest expected time"
                return f"shape TP{row['tp']:.0f} PP{row['pp']:.0f} EP{row['ep']:.0f} CP{row['cp']:.0f}: {gain}", *found
            self._mark(index, knobs)
        return None

    def _topology_fits(self, index: int, levers: Mapping[str, Any]) -> bool:
        """Whether the smallest shape with these degrees fits, asked once; all of them are too large where it does not."""
        row, s = self.shapes.row(index), self.shapes
        degrees = tuple(row[name] for name in ("tp", "pp", "ep", "cp"))
        if degrees in self.checked:
            return True
        self.checked.add(degrees)
        same = (s.tp == row["tp"]) & (s.pp == row["pp"]) & (s.ep == row["ep"]) & (s.cp == row["cp"])
        row |= {
            "mbs": float(s.mbs[same].min()),
            "vpp": float(s.vpp[same].min()),
            "recompute": float(s.recompute[same].max()),
            "schedule": 0.0,
        }
        for setting in ({}, *(FALLBACKS if self.moe else ())):
            knobs = knobs_of_shape(row, {**levers, **setting}, self.layers, moe=self.moe)
            if self._legal(knobs):
                if self.session.evaluator.fits(TrialConfig(**knobs)):
                    return True
                break
        self.too_large |= same
        return False

    def _mark(self, index: int, knobs: Mapping[str, Any]) -> None:
        """A shape that is too large rules out those of its degrees and schedule that are no smaller, an illegal schedule all of it."""
        self.too_large[index] = True
        s, row = self.shapes, self.shapes.row(index)
        same = (s.tp == row["tp"]) & (s.pp == row["pp"]) & (s.ep == row["ep"]) & (s.cp == row["cp"]) & (s.schedule == row["schedule"])
        if not self._legal(knobs):
            if row["schedule"]:
                self.too_large |= same
            return
        if self.session.evaluator.key(TrialConfig(**knobs)) not in self.seen:
            freed = np.where(s.recompute == SELECTIVE, SLIGHT, s.recompute)
            held = SLIGHT if row["recompute"] == SELECTIVE else row["recompute"]
            self.too_large |= same & (s.mbs >= row["mbs"]) & (s.vpp >= row["vpp"]) & (freed <= held)

    def _legal(self, knobs: Mapping[str, Any]) -> bool:
        try:
            return self.session.evaluator.rules.check(TrialConfig(**knobs)).legal
        except InputError:
            return False

    def propose(self, turn: int) -> tuple[str, TrialConfig, str] | None:
        """The next trial: every third turn a lever, as long as there are any."""
        best = self.incumbent()
        if best is not None and turn % LEVER_TURN == 0:
            for label, knobs in self.lever_steps(best):
                if (found := self.trial(knobs)) is not None:
                    self.tried_levers.add(label)
                    return label, *found
        if (step := self.shape_step(best)) is not None:
            return step
        if best is not None and turn % LEVER_TURN:
            return self.propose(0)
        return None


def _rate(session: TuningSession) -> float:
    return max((r.result.tokens_per_s_per_gpu or 0.0 for r in session.history() if is_candidate(r.result)), default=0.0)


def coordinate_search(session: TuningSession, *, observer: Observer | None = None) -> SearchEnd:
    """Until a budget is used up or no step promises a gain. A round is an equal share of the proposals. Ctrl-C passes through."""
    watch = observer or Nobody()
    search = _Search(session, watch)
    proposals, rounds = session.budget.limits.get("max_proposals") or 0, session.budget.limits.get("max_rounds") or 1
    a_round = max(1, math.ceil(proposals / rounds))
    turn = 0
    while True:
        if (stop := stop_reason(session, patience=sys.maxsize, limits=COORDINATE_BUDGETS)) is not None:
            return SearchEnd(ending=stop[0], reason=stop[1])
        index = max((event.index for event in session.journal.events() if isinstance(event, Round | RoundStarted)), default=0) + 1
        watch.round_started(index)
        began_s, before, tried = time.monotonic(), _rate(session), 0
        reason: str | None = None
        while tried < a_round:
            step = search.propose(turn)
            if step is None:
                reason = "no step from the best trial promises a gain"
                break
            label, trial, key = step
            search.seen.add(key)
            try:
                result = session.evaluate(trial, origin="coordinate", label=label)
            except BudgetExhaustedError as error:
                return SearchEnd(ending="budget exhausted", reason=str(error))
            turn, tried = turn + 1, tried + 1
            watch.trial(result.model_dump(mode="json"))
        improved = _rate(session) > before * (1 + MIN_GAIN)
        ended = Round(index=index, iterations=tried, duration_s=time.monotonic() - began_s, improved=improved)
        session.journal.append(ended)
        watch.round_ended(ended, "")
        if reason is not None:
            return SearchEnd(ending="agent finished", reason=reason)
