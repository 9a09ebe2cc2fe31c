"""Which configurations of a block are legal, from the real rules asked once for each combination that they can tell apart.

A rule sees few knobs. Judged with every other knob at rest (where it breaks least), its verdict holds for all of their values, so the
rules are asked about projections of the space: topologies; pipeline and batch; levers with what kind of block they are in; levers with
the shapes; recompute with the pipeline; recompute with the levers. `random_disagreements` checks the whole construction on random points.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from primus_mcp.evaluation.evaluators import Rules
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.search.sweep_choices import Choices, Knobs, trial_of
from primus_mcp.space.knobs import KnobValue
from primus_mcp.space.legality import check_legality
from primus_mcp.space.rules.parallelism import book as topology_rules
from primus_mcp.space.trainer_keys import resolve

Codes = NDArray[np.int16]
"""0: legal; else the number of the first rule that refuses (`Masks.rule_names`)."""
_SHAPE_RULES = frozenset({"F12", "F13", "E10", "E11", "T17"})
"""Lever rules that look at sizes, not only at what kind of block it is."""
_TOPOLOGY_RULES = frozenset(rule.id for rule in topology_rules.rules) | {"E1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Topology, pipeline and batch, with what they resolve to when every lever rests."""

    topology: Knobs
    pipeline: Knobs
    batch: Knobs
    config: TrainingConfig

    @property
    def knobs(self) -> dict[str, KnobValue]:
        """All three."""
        return {**self.topology, **self.pipeline, **self.batch}


@dataclass
class Masks:
    """The rules over the choices of one workload and cluster. `fallen`: configurations by the first rule that refuses them."""

    rules: Rules
    choices: Choices
    fallen: Counter[str] = field(default_factory=Counter)
    rule_names: list[str] = field(default_factory=lambda: [""])

    def __post_init__(self) -> None:
        """What rests, and empty memories."""
        own = self.rules.workload.baseline
        moe = self.rules.workload.architecture.is_moe
        self._rest: dict[str, KnobValue] = {"fp8": "none", "recompute_granularity": "none"}
        if moe:
            self._rest |= {"use_turbo_deepep": False, "sync_free_stage": 0}
        if own.use_torch_fsdp2:
            self._rest |= {"use_torch_fsdp2": False, "use_distributed_optimizer": True}
        self._rest = {name: value for name, value in self._rest.items() if name not in self.rules.pins}
        self._held = {**self.choices.held}
        self._batches: dict[object, tuple[str | None, TrainingConfig | None]] = {}
        self._levers: dict[object, Codes] = {}
        self._recompute: dict[object, Codes] = {}
        self._numbers: dict[str, int] = {}

    def violations(self, *parts: Knobs) -> tuple[tuple[str, ...], TrainingConfig | None]:
        """(rules broken in order, what it resolves to) with every unnamed lever at rest."""
        trial = trial_of(self._rest, self._held, *parts)
        verdict = check_legality(self.rules.workload, trial, self.rules.cluster, allow_policy=self.rules.allow_policy)
        return tuple(found.rule for found in verdict.violations), verdict.config

    def code(self, rule: str | None) -> int:
        """The number of a rule, 0 for none."""
        if rule is None:
            return 0
        if rule not in self._numbers:
            self._numbers[rule] = len(self.rule_names)
            self.rule_names.append(rule)
        return self._numbers[rule]

    def _own_rule(self, knobs: Knobs, base: tuple[str, ...], *, shapes: bool | None = None) -> str | None:
        """The first rule that `knobs` break and their base does not. shapes: only (True) or never (False) shape rules."""
        for rule in self.violations(knobs)[0]:
            if rule not in base and (shapes is None or (rule in _SHAPE_RULES) == shapes):
                return rule
        return None

    def topologies(self) -> list[Knobs]:
        """Legal topologies; the others are counted."""
        inner = self.choices.size // max(1, len(self.choices.topologies))
        legal: list[Knobs] = []
        batch = min(self.choices.batches, key=lambda knobs: int(knobs.get("mbs") or 0))
        for topology in self.choices.topologies:
            broken = [rule for rule in self.violations(topology, batch)[0] if rule in _TOPOLOGY_RULES]
            if broken:
                self.fallen[broken[0]] += inner
            else:
                legal.append(topology)
        return legal

    def blocks(self, topology: Knobs) -> list[Block]:
        """Legal pipelines and batches of a topology; the others are counted."""
        inner = int(np.prod(self.choices.lever_shape)) * len(self.choices.recompute)
        legal: list[Block] = []
        for pipeline, batch in product(self.choices.pipelines, self.choices.batches):
            rule, config = self._batch_rule(topology, pipeline, batch)
            if rule is not None or config is None:
                self.fallen[rule or "unreadable"] += inner
            else:
                legal.append(Block(topology=topology, pipeline=pipeline, batch=batch, config=config))
        return legal

    def _batch_rule(self, topology: Knobs, pipeline: Knobs, batch: Knobs) -> tuple[str | None, TrainingConfig | None]:
        own = self.rules.workload.baseline
        tp, pp, cp = (int(topology.get(name) or getattr(own, name)) for name in ("tp", "pp", "cp"))
        ep = int(topology.get("ep") or own.ep)
        kind = (pp, tp * cp, tp > 1, cp > 1, ep > 1, *pipeline.items(), *batch.items())
        if kind not in self._batches:
            broken, _ = self.violations(topology, pipeline, batch)
            self._batches[kind] = (broken[0] if broken else None, None)
        rule = self._batches[kind][0]
        if rule is not None:
            return rule, None
        return None, resolve(self.rules.workload, trial_of(self._rest, self._held, topology, pipeline, batch))

    def lever_codes(self, block: Block) -> Codes:
        """The verdict on every combination of levers, shaped as `choices.lever_shape`."""
        return np.where(self._kind_codes(block) != 0, self._kind_codes(block), self._shape_codes(block))

    def _kind_codes(self, block: Block) -> Codes:
        c = block.config
        kind = ("kind", c.pp > 1, c.vpp > 1, c.schedule, c.tp > 1, c.ep > 1, c.etp > 1, c.cp > 1, block.pipeline.get("pp_schedule"))
        if kind not in self._levers:
            base = self.violations(block.knobs)[0]
            codes = np.zeros(self.choices.lever_shape, dtype=np.int16)
            groups = self.choices.levers
            for x, q, d, o in product(range(len(groups[0])), range(len(groups[1])), range(len(groups[3])), range(len(groups[4]))):
                knobs = {**block.knobs, **groups[0][x], **groups[1][q], **groups[3][d], **groups[4][o]}
                codes[x, q, :, d, o] = self.code(self._own_rule(knobs, base, shapes=False))
            for loss in range(len(groups[2])):
                code = self.code(self._own_rule({**block.knobs, **groups[2][loss]}, base, shapes=False))
                codes[:, :, loss][codes[:, :, loss] == 0] = code
            self._levers[kind] = codes
        return self._levers[kind]

    def _shape_codes(self, block: Block) -> Codes:
        c = block.config
        whole = c.mbs * self.rules.workload.architecture.seq_length // c.cp % 8 == 0
        kind = ("shape", c.tp, c.ep, c.etp, c.cp, whole)
        if kind not in self._levers:
            base = self.violations(block.knobs)[0]
            groups = self.choices.levers
            codes = np.zeros((len(groups[0]), len(groups[1]), 1, 1, 1), dtype=np.int16)
            for x, q in product(range(len(groups[0])), range(len(groups[1]))):
                codes[x, q] = self.code(self._own_rule({**block.knobs, **groups[0][x], **groups[1][q]}, base, shapes=True))
            self._levers[kind] = codes
        return self._levers[kind]

    def recompute_codes(self, block: Block) -> Codes:
        """The verdict on (fp8 choice, recompute choice)."""
        c = block.config
        kind = (c.pp, c.vpp, c.schedule, c.ep > 1, block.pipeline.get("pp_schedule"))
        if kind not in self._recompute:
            base = self.violations(block.knobs)[0]
            fp8 = self.choices.levers[1]
            codes = np.zeros((len(fp8), len(self.choices.recompute)), dtype=np.int16)
            seen: dict[tuple[int, str | None], int] = {}
            for r, choice in enumerate(self.choices.recompute):
                codes[:, r] = self.code(self._own_rule({**block.knobs, **choice.knobs}, base))
            for q, r in product(range(len(fp8)), range(len(self.choices.recompute))):
                choice = self.choices.recompute[r]
                if codes[q, r]:
                    continue
                key = (q, choice.granularity)
                if key not in seen:
                    known = base + self.violations({**block.knobs, **fp8[q]})[0]
                    seen[key] = self.code(self._own_rule({**block.knobs, **fp8[q], **choice.knobs}, known))
                codes[q, r] = seen[key]
            self._recompute[kind] = codes
        return self._recompute[kind]

    def random_disagreements(self, points: int, seed: int = 0) -> list[str]:
        """Random configurations of the whole space whose verdict differs from `check_legality`'s own; empty when all agree."""
        rng = random.Random(seed)  # noqa: S311  not for secrets
        legal = {tuple(topology.items()) for topology in Masks(self.rules, self.choices).topologies()}
        fresh = Masks(self.rules, self.choices)
        found: list[str] = []
        for _ in range(points):
            topology, pipeline = rng.choice(self.choices.topologies), rng.choice(self.choices.pipelines)
            if rng.random() < 0.9 and legal:
                topology = dict(rng.choice(sorted(legal, key=str)))
            batch, r = rng.choice(self.choices.batches), rng.randrange(len(self.choices.recompute))
            index = tuple(rng.randrange(size) for size in self.choices.lever_shape)
            trial = trial_of(self._held, topology, pipeline, batch, self.choices.lever_knobs(index), self.choices.recompute[r].knobs)
            real = self.rules.check(trial).legal
            ours = tuple(topology.items()) in legal and fresh._allows(topology, pipeline, batch, index, r)
            if real != ours:
                found.append(trial.model_dump_json(exclude_none=True))
        return found

    def _allows(self, topology: Knobs, pipeline: Knobs, batch: Knobs, index: tuple[int, ...], r: int) -> bool:
        rule, config = self._batch_rule(topology, pipeline, batch)
        if rule is not None or config is None:
            return False
        block = Block(topology=topology, pipeline=pipeline, batch=batch, config=config)
        return not self.lever_codes(block)[index] and not self.recompute_codes(block)[index[1], r]
