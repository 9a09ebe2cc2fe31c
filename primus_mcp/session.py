"""TuningSession: one workload on one cluster with one evaluator, an out-dir, and everything that was tried there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from primus_mcp.errors import InputError, PrimusMcpError, RunDirectoryError
from primus_mcp.evaluation.cheapest import cheapest_fitting_change
from primus_mcp.evaluation.digest import digest, plain
from primus_mcp.evaluation.evaluators import Evaluator
from primus_mcp.evaluation.rank import Ranking, is_candidate, rank
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.reports import summary as summaries
from primus_mcp.reports.best import best_block, exports_block, proof_line
from primus_mcp.reports.charts.render import ChartError, picture
from primus_mcp.reports.charts.trials import trials_picture
from primus_mcp.reports.measured import MeasuredComparison, compare_with_measured
from primus_mcp.reports.tables import closest_to_fit, reasons_text
from primus_mcp.search.prices import cost_of
from primus_mcp.search.seeds import Seed, seed_plan
from primus_mcp.space.axes import with_pins
from primus_mcp.space.knobs import KnobValue, TrialConfig, set_knobs
from primus_mcp.space.overlay import exports, overlay_yaml
from primus_mcp.trials.budget import MAX_EVALUATIONS, SEED_BUDGET, Budget, BudgetExhaustedError, Spending
from primus_mcp.trials.journal import Cancelled, Done, Journal, Reserved, Swept, done_keys
from primus_mcp.trials.log import Digests, Origin, TrialLog, TrialRecord
from primus_mcp.trials.reprice import reprice_log
from primus_mcp.trials.scratchpad import Scratchpad
from primus_mcp.trials.session_file import SessionFile
from primus_mcp.trials.storage import RunDirectory
from primus_mcp.units import bytes_to_gb
from primus_mcp.version import engine_version

if TYPE_CHECKING:
    from primus_mcp.inputs.cluster import TargetCluster
    from primus_mcp.inputs.workload import Workload
    from primus_mcp.search.enough_nodes import EnoughNodes

Progress = Callable[[int, int, EvaluationResult | None], None]
SUMMARY_NAME, PLOT_NAME = "summary.json", "trials.png"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedRun:
    """How a seed plan ended, with the budget's own words in `note`. `skipped`: seeds that could not be priced, with the reason."""

    stopped_because: summaries.StoppedBecause
    priced: int
    skipped: tuple[tuple[str, str], ...]
    note: str | None = None


def session_digests(workload: Workload, target: TargetCluster, pins: Mapping[str, KnobValue]) -> Digests:
    """What trials must share to stand in one log. Budgets, LLM settings and the clock are not part of it."""
    return Digests(
        workload=digest(workload.digest, workload.architecture, workload.baseline),
        cluster=digest(target.cluster, target.axes, pins),
        engine=engine_version(),
    )


def compare_baseline(
    evaluator: Evaluator, target: TargetCluster, tokens_per_s_per_gpu: float | None = None, memory_gb: float | None = None
) -> MeasuredComparison:
    """See `TuningSession.compare_baseline`; needs no out-dir."""
    legality = evaluator.rules.check(TrialConfig())
    if legality.config is None or not legality.legal:
        raise InputError(f"the baseline cannot run here: {legality.reason}", where="--measured-tokens-per-s")
    projected = evaluator.price(TrialConfig(), legality.config, even_if_over=True)
    return compare_with_measured(projected, tokens_per_s_per_gpu, memory_gb, world_size=target.cluster.world_size)


def is_single(origin: Origin) -> bool:
    """What a person or client asks for is a single evaluation, which the search's policy does not refuse."""
    return origin == "user"


def _priced_again(
    evaluator: Evaluator, pins: Mapping[str, KnobValue], trial: TrialConfig, origin: Origin
) -> tuple[TrialConfig, str, EvaluationResult]:
    """A trial of an old log as `TuningSession.evaluate` would price it today."""
    pinned, single = with_pins(trial, pins), is_single(origin)
    return pinned, evaluator.key(pinned, single=single), evaluator.evaluate(pinned, single=single)


class TuningSession:
    """Open one with `TuningSession.open`. Several sessions, in one or many processes, may share an out-dir."""

    def __init__(
        self,
        workload: Workload,
        target: TargetCluster,
        evaluator: Evaluator,
        out_dir: Path,
        *,
        limits: Mapping[str, float | None],
        pins: Mapping[str, KnobValue],
    ) -> None:
        self.workload, self.target, self.evaluator, self.pins = workload, target, evaluator, dict(pins)
        evaluator.keep_in(out_dir)
        self.folder = RunDirectory(out_dir)
        self.digests = session_digests(workload, target, pins)
        self.budget = Budget(limits)
        self.log = TrialLog(self.folder, self.digests)
        self.journal = Journal(self.folder)
        self.scratchpad = Scratchpad(self.folder)
        self._ranked: tuple[Sequence[TrialRecord], Ranking] | None = None

    @classmethod
    def open(
        cls,
        workload: Workload,
        target: TargetCluster,
        evaluator: Evaluator,
        out_dir: Path,
        *,
        reprice: bool = False,
        limits: Mapping[str, float | None] | None = None,
        pins: Mapping[str, KnobValue] | None = None,
        seed: int = 0,
    ) -> TuningSession:
        """Create the out-dir or continue what lies there (`resumed` says how many trials that is).

        `limits` override those of the cluster file (see trials/budget.py). `pins` are knobs that the search may not change. With
        `reprice`, a log of another workload, cluster or engine is set aside and its trials are priced again; without it, it is refused.
        """
        table = {"seed_budget": SEED_BUDGET, "max_evaluations": MAX_EVALUATIONS, **plain(target.budget), **(limits or {})}
        pinned = pins or {}
        if reprice:
            reprice_log(RunDirectory(out_dir), session_digests(workload, target, pinned), partial(_priced_again, evaluator, pinned))
        session = cls(workload, target, evaluator, out_dir, limits=table, pins=pinned)
        session.settle()
        SessionFile(
            digests=session.digests,
            mode=evaluator.mode,
            evaluator=evaluator.identity,
            seed=seed,
            pins=dict(pinned),
            limits=table,
            workload={"name": workload.name, "path": str(workload.path) if workload.path else None, "document": plain(workload.document)},
            cluster=plain(target),
        ).write(session.folder)
        return session

    def settle(self) -> None:
        """Close what a kill left open: every trial in the log is done, and one whose line was removed from it is not."""
        done = done_keys(self.journal.events())
        records = self.log.records()
        for record in records:
            if record.key not in done:
                self.journal.append(Done.of(record, record.origin))
        for key in sorted(done - {record.key for record in records}):
            self.journal.append(Cancelled(key=key, reason=f"its line is no longer in {self.log.path.name}"))

    @property
    def resumed(self) -> int:
        """Trials in the log."""
        return len(self.log.records())

    def evaluate(self, trial: TrialConfig, *, origin: Origin = "user", label: str = "") -> EvaluationResult:
        """Price a trial, with the pins, once: one that resolves to a configuration in the log is answered from there.

        What a person or client asks for (`origin` user) is a single evaluation: the search's policy does not refuse it, and it is never
        the best. Reserved in the journal before, in the log and done in the journal after, so a kill at any point loses and repeats
        nothing; a measured run is reserved only where something is measured.
        Raises BudgetExhaustedError when `origin` may not start another, and what the evaluator raises.
        """
        trial = with_pins(trial, self.pins)
        single = is_single(origin)
        key = self.evaluator.key(trial, single=single)
        if (known := self.log.find(key)) is not None:
            if origin != "seed":
                self.journal.append(Done.of(known, origin, repeated=True))
            return known.result
        measured = self.evaluator.starts_a_run(trial, single=single)
        reservation = Reserved(key=key, origin=origin, label=label, measured=measured)
        self.journal.append(reservation, partial(self.budget.require_trial, reservation=reservation))
        try:
            result = self.evaluator.evaluate(trial, single=single)
        except PrimusMcpError as error:
            self.journal.append(Cancelled(key=key, reason=str(error)))
            raise
        record, new = self.log.append(key=key, trial=set_knobs(trial), result=result, origin=origin, label=label)
        self._write_overlay(record)
        self.journal.append(Done.of(record, origin, repeated=not new))
        return record.result

    def _write_overlay(self, record: TrialRecord) -> None:
        if record.result.legal:
            text = overlay_yaml(self.workload, TrialConfig.model_validate(record.trial))
            self.folder.write(summaries.overlay_name(record.trial_id), text, durable=False)

    def seed_plan(self) -> Iterator[Seed]:
        """The search's own plan for this workload and cluster, fed back with what its seeds turned out to be. Where no configuration with
        the pins is legal: the baseline alone.
        """
        rules = self.evaluator.rules
        plan = seed_plan(
            self.workload,
            self.target.cluster,
            score=self.score,
            fits=self.evaluator.fits,
            axes=rules.axes,
            pins=rules.pins,
            allow_policy=rules.allow_policy,
        )
        return islice(plan, 1) if self.impossible_pins is not None else plan

    @cached_property
    def impossible_pins(self) -> str | None:
        """Which pins no legal configuration can have, and why; None where some can."""
        from primus_mcp.search.impossible import impossible_pins

        return impossible_pins(self.evaluator.rules)

    def score(self, trial: TrialConfig) -> float | None:
        """Tokens/s/GPU of a trial in the log that is legal and inside the margin; None for any other."""
        record = self.log.find(self.evaluator.key(with_pins(trial, self.pins)))
        return record.result.tokens_per_s_per_gpu if record is not None and is_candidate(record.result) else None

    def run_seeds(
        self,
        plan: Iterable[Seed] | None = None,
        *,
        progress: Progress | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> SeedRun:
        """Evaluate the plan (default: `seed_plan`) in its order until the seed budget is used. Ctrl-C ends it; what was evaluated stays.

        `progress(priced, seed budget, best)` is called after every seed.
        """
        skipped: list[tuple[str, str]] = []
        reason: summaries.StoppedBecause = "seed plan finished"
        note: str | None = None
        try:
            for seed in self.seed_plan() if plan is None else plan:
                if should_stop():
                    reason = "cancelled"
                    break
                try:
                    self.evaluate(seed.trial, origin="seed", label=seed.label)
                except BudgetExhaustedError as error:
                    reason, note = "seed budget used", str(error)
                    break
                except RunDirectoryError:
                    raise
                except PrimusMcpError as error:
                    skipped.append((seed.label, str(error)))
                if progress is not None:
                    progress(self._seeds_priced(), int(self.budget.limits["seed_budget"] or 0), self.best().best)
        except KeyboardInterrupt:
            reason = "interrupted"
        return SeedRun(stopped_because=reason, priced=self._seeds_priced(), skipped=tuple(skipped), note=note)

    def _seeds_priced(self) -> int:
        return sum(record.origin == "seed" and record.result.tokens_per_s_per_gpu is not None for record in self.log.records())

    def history(self) -> Sequence[TrialRecord]:
        """Every trial, by id."""
        return self.log.records()

    def spending(self) -> tuple[Spending, ...]:
        """State of every budget."""
        return self.budget.status(self.journal.events())

    def proof(self) -> Swept | None:
        """The last sweep under the digests of this session, where it proved a trial that stands in the log to be the fastest."""
        if self.evaluator.fidelity != "simulate":
            return None
        found = [event for event in self.journal.events() if isinstance(event, Swept) and event.digests == self.digests]
        ids = {record.trial_id for record in self.log.records()}
        return found[-1] if found and found[-1].proven and found[-1].trial_id in ids else None

    def best(self) -> Ranking:
        """The best trial so far, see evaluation/rank.py."""
        records = self.log.records()
        if self._ranked is None or self._ranked[0] is not records:
            self._ranked = records, rank([record.result for record in records])
        return self._ranked[1]

    def summary(
        self,
        stopped_because: summaries.StoppedBecause = "running",
        warnings: Sequence[str] = (),
        agent: summaries.AgentSummary | None = None,
    ) -> summaries.Summary:
        """The fixed fields of summary.json, of the present state."""
        return summaries.summarise(
            self.log.records(),
            workload=self.workload.name,
            cluster=self.target.cluster,
            mode=self.evaluator.mode,
            evaluator=self.evaluator.identity,
            fidelity=self.evaluator.fidelity,
            pins=self.pins,
            stopped_because=stopped_because,
            warnings=[*self.target.warnings, *(finding.text for finding in self.workload.findings), *warnings],
            agent=agent,
        )

    def report(self, measured: MeasuredComparison | None = None) -> str:
        """The best block with its exports, or why no trial can be recommended. Synthetic numbers export nothing.

        `measured`: the user's own run of the baseline, which may contradict what the block says.
        """
        records = self.log.records()
        ranking = rank([record.result for record in records])
        record = summaries.record_of(records, ranking.best)
        if record is None:
            return self._reasons([entry.result for entry in records])
        baseline = summaries.baseline_of(records, self.pins)
        cost = cost_of(record.result, self.target.cluster.gpu.name, self.target.price)
        before, caution = baseline.result if baseline else None, measured.caution if measured else ""
        text = best_block(
            record.result,
            trial=record.trial,
            baseline=before,
            note=ranking.note,
            cost=cost,
            proof=proof_line(self.proof()),
            caution=caution,
        )
        if record.result.fidelity == "synthetic":
            return text
        lines = exports(self.workload, TrialConfig.model_validate(record.trial))
        return f"{text}\n\n{exports_block(lines, str(self.folder.path / summaries.overlay_name(record.trial_id)))}"

    def _reasons(self, results: Sequence[EvaluationResult]) -> str:
        if self.impossible_pins is not None:
            return f"no legal trial found: {self.impossible_pins}; remedy: change the pin{self._nodes_for_pins()}"
        closest = summaries.record_of(self.log.records(), closest_to_fit(results))
        fitting = cheapest_fitting_change(self.evaluator, TrialConfig.model_validate(closest.trial)) if closest else None
        cluster = self.target.cluster
        change = fitting.text if fitting else None
        sizes = bytes_to_gb(cluster.memory_cap_bytes), bytes_to_gb(cluster.hbm_bytes)
        return reasons_text(results, *sizes, change, None if change else self.more_nodes)

    @cached_property
    def more_nodes(self) -> str | None:
        """How many nodes are enough where nothing fits here, or that it is not known; None of figures that are made up."""
        return self._enough_nodes.text if self._enough_nodes else None

    @cached_property
    def _enough_nodes(self) -> EnoughNodes | None:
        from primus_mcp.search.enough_nodes import enough_of

        return enough_of(self.evaluator)

    def _nodes_for_pins(self) -> str:
        found = self._enough_nodes
        return "" if found is None or found.nodes is None else f", or use more nodes: {found.text}"

    def compare_baseline(self, tokens_per_s_per_gpu: float | None = None, memory_gb: float | None = None) -> MeasuredComparison:
        """The workload as it is, priced even if it needs more than the margin leaves (it ran), against the user's own run of it.

        Raises InputError when the baseline is illegal on this cluster, or the measurement impossible.
        """
        return compare_baseline(self.evaluator, self.target, tokens_per_s_per_gpu, memory_gb)

    def finish(
        self, stopped_because: summaries.StoppedBecause, warnings: Sequence[str] = (), agent: summaries.AgentSummary | None = None
    ) -> summaries.Summary:
        """Write every artefact that is not written trial by trial, and overlays that a kill prevented."""
        records = self.log.records()
        for record in records:
            overlay = self.folder.path / summaries.overlay_name(record.trial_id)
            if not overlay.exists() or overlay.stat().st_size == 0:
                self._write_overlay(record)
        outcome = self.summary(stopped_because, warnings, agent)
        self.folder.write(SUMMARY_NAME, summaries.summary_json(outcome))
        if problem := self._draw(records):
            outcome = self.summary(stopped_because, (*warnings, problem), agent)
            self.folder.write(SUMMARY_NAME, summaries.summary_json(outcome))
        return outcome

    def _draw(self, records: Sequence[TrialRecord]) -> str | None:
        """Write trials.png; a run is not lost for want of a picture: why there is none."""
        cluster = self.target.cluster
        chart = trials_picture(
            "trials",
            f"{self.workload.name} on {cluster.name} ({cluster.num_nodes} x {cluster.gpus_per_node} {cluster.gpu.name})",
            [record.result for record in records],
            cap_gb=bytes_to_gb(cluster.memory_cap_bytes),
            hbm_gb=bytes_to_gb(cluster.hbm_bytes),
        )
        try:
            self.folder.write(PLOT_NAME, picture(chart, ".png"))
        except ChartError as error:
            (self.folder.path / PLOT_NAME).unlink(missing_ok=True)
            return f"{PLOT_NAME}: {error}"
        return None
