"""Which configurations of a block are legal, from the real rules asked once for each combination that they can tell apart.

A rule sees few knobs. Judged with every other knob at rest (where it breaks least), its verdict holds for all of their values, so the
rules are asked about projections of the space: topologies; pipeline and batch; levers with what kind of block they are in; levers with
the shapes; recompute with the pipeline; recompute with the levers. `random_disagreements` checks the whole construction on random points.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from primus_mcp.evaluation.evaluators import Rules
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.search.sweep_choices import LEVER_GROUPS, Choices, Knobs, trial_of
from primus_mcp.space.knobs import KnobValue
from primus_mcp.space.legality import check_legality
from primus_mcp.space.rules.parallelism import book as topology_rules
from primus_mcp.space.trainer_keys import resolve

Codes = NDArray[np.int16]
"""0: legal; else the number of the first rule that refuses (`Masks.rule_names`)."""
_SHAPE_RULES = frozenset({"F12", "F13", "E10", "E11", "T17"})
"""Lever rules that look at sizes, not only at what kind of block it is."""
_PIPELINE_RULES = frozenset({"Z1", "v-layout", "S2", "S3", "P1", "L6", "L20", "vpp-limit"})
"""Rules on a pipeline that look at no batch: asked once, before the batches."""
_TOPOLOGY_RULES = frozenset(rule.id for rule in topology_rules.rules) | {"E1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A micro and global batch size, the knobs that set them, and the micro-batches that they make."""

    knobs: Knobs
    mbs: int
    gbs: int
    micro_batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Topology and pipeline with the batches that are legal there. `config`: what the first of them resolves to when every lever rests;
    the others differ from it in MBS and GBS alone (tested).
    """

    topology: Knobs
    pipeline: Knobs
    batches: tuple[Batch, ...]
    config: TrainingConfig

    def knobs(self, batch: int = 0) -> dict[str, KnobValue]:
        """Of one batch."""
        return {**self.topology, **self.pipeline, **self.batches[batch].knobs}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Legal:
    """The legal configurations of a batch: flat lever and recompute choice of each. `fallen`: the others by rule."""

    lever: NDArray[np.intp]
    choice: NDArray[np.intp]
    fallen: Counter[str]


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
        groups = zip(LEVER_GROUPS, self.choices.levers, strict=True)
        self._groups = [[self._inheriting(names, choice) for choice in group] for names, group in groups]
        self._pipelines: dict[object, str | None] = {}
        self._batches: dict[object, str | None] = {}
        self._levers: dict[object, Codes] = {}
        self._recompute: dict[object, Codes] = {}
        self._legal: dict[object, Legal] = {}
        self._numbers: dict[str, int] = {}

    def _inheriting(self, names: Sequence[str], choice: Knobs) -> Knobs:
        """A choice that also names what it inherits where something else rests: a knob that no sweep moves stays the workload's."""
        return {**{name: None for name in names if name in self._rest}, **choice}

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
        return list(self._legal_topologies())

    def _legal_topologies(self) -> Iterator[Knobs]:
        inner = self.choices.size // max(1, len(self.choices.topologies))
        batch = min(self.choices.batches, key=lambda knobs: int(knobs.get("mbs") or 0))
        for topology in self.choices.topologies:
            broken = [rule for rule in self.violations(topology, batch)[0] if rule in _TOPOLOGY_RULES]
            if broken:
                self.fallen[broken[0]] += inner
            else:
                yield topology

    def any_legal(self) -> bool:
        """Whether anything is legal, as soon as that is known."""
        for topology in self._legal_topologies():
            for block in self.blocks(topology):
                if any(len(self.legal(block, batch).lever) for batch in range(len(block.batches))):
                    return True
        return False

    def least_broken(self) -> tuple[frozenset[str], Knobs]:
        """(rules that every topology breaks with the pins and the smallest batch, other levers at rest; the knobs of one that breaks the
        fewest, with a pipeline if any).
        """
        batch = min(self.choices.batches, key=lambda knobs: int(knobs.get("mbs") or 0))
        tried = [{**self.rules.pins, **topology, **batch} for topology in self.choices.topologies]
        broken = [frozenset(self.violations(knobs)[0]) for knobs in tried]
        return frozenset.intersection(*broken), min(zip(broken, tried, strict=True), key=lambda one: (len(one[0]), one[1].get("pp") == 1))[
            1
        ]

    def blocks(self, topology: Knobs) -> list[Block]:
        """Legal pipelines of a topology with their legal batches; the others are counted."""
        inner = int(np.prod(self.choices.lever_shape)) * len(self.choices.recompute)
        found: list[Block] = []
        for pipeline in self.choices.pipelines:
            rule = self._pipeline_rule(topology, pipeline)
            if rule is not None:
                self.fallen[rule] += inner * len(self.choices.batches)
                continue
            legal = []
            for batch in self.choices.batches:
                rule = self._batch_rule(topology, pipeline, batch)
                if rule is None:
                    legal.append(batch)
                else:
                    self.fallen[rule] += inner
            if legal:
                found.append(self.block(topology, pipeline, legal))
        return found

    def block(self, topology: Knobs, pipeline: Knobs, batches: Sequence[Knobs]) -> Block:
        """A pipeline with batches that are legal there."""
        config = resolve(self.rules.workload, trial_of(self._rest, self._held, topology, pipeline, batches[0]))
        dp = self.rules.cluster.world_size // (config.tp * config.pp * config.cp)
        sizes = [(int(knobs.get("mbs") or config.mbs), int(knobs.get("gbs") or config.gbs)) for knobs in batches]
        made = (
            Batch(knobs=knobs, mbs=mbs, gbs=gbs, micro_batches=gbs // (mbs * dp)) for knobs, (mbs, gbs) in zip(batches, sizes, strict=True)
        )
        return Block(topology=topology, pipeline=pipeline, batches=tuple(made), config=config)

    def _degrees(self, topology: Knobs) -> tuple[int, int, tuple[bool, ...]]:
        """(PP, GPUs that share a batch, which of TP, CP, EP split anything)."""
        own = self.rules.workload.baseline
        tp, pp, cp, ep = (int(topology.get(name) or getattr(own, name)) for name in ("tp", "pp", "cp", "ep"))
        return pp, tp * cp, (tp > 1, cp > 1, ep > 1)

    def _pipeline_rule(self, topology: Knobs, pipeline: Knobs) -> str | None:
        """The first rule that refuses the pipeline whatever its batch."""
        pp, _, split = self._degrees(topology)
        kind = (pp, split, *pipeline.items())
        if kind not in self._pipelines:
            broken = self.violations(topology, pipeline, self.choices.batches[0])[0]
            self._pipelines[kind] = next((rule for rule in broken if rule in _PIPELINE_RULES), None)
        return self._pipelines[kind]

    def _batch_rule(self, topology: Knobs, pipeline: Knobs, batch: Knobs) -> str | None:
        pp, shared, split = self._degrees(topology)
        kind = (pp, shared, split, *pipeline.items(), *batch.items())
        if kind not in self._batches:
            broken, _ = self.violations(topology, pipeline, batch)
            self._batches[kind] = broken[0] if broken else None
        return self._batches[kind]

    def legal(self, block: Block, batch: int) -> Legal:
        """Every legal configuration of a batch, judged once for all that the rules cannot tell apart."""
        key = (self._kind_key(block), self._shape_key(block, batch), self._recompute_key(block))
        if key not in self._legal:
            codes = self.lever_codes(block, batch)
            levers = np.argwhere(codes == 0)
            allowed = self.recompute_codes(block)[levers[:, 0], levers[:, 1]]
            lever, choice = np.nonzero(allowed == 0)
            flat = np.asarray(np.ravel_multi_index(tuple(levers.T), self.choices.lever_shape), dtype=np.intp)
            fallen = self._counted(codes, len(self.choices.recompute)) + self._counted(allowed, 1)
            self._legal[key] = Legal(lever=flat[lever], choice=choice, fallen=fallen)
        return self._legal[key]

    def _counted(self, codes: Codes, times: int) -> Counter[str]:
        found = zip(*np.unique(codes, return_counts=True), strict=True)
        return Counter({self.rule_names[int(code)]: int(count) * times for code, count in found if code})

    def lever_codes(self, block: Block, batch: int) -> Codes:
        """The verdict on every combination of levers, shaped as `choices.lever_shape`."""
        kind = self._kind_codes(block, batch)
        return np.where(kind != 0, kind, self._shape_codes(block, batch))

    def _kind_key(self, block: Block) -> tuple[object, ...]:
        c = block.config
        pp = c.pp if self.rules.workload.arguments.get("first_last_layers_bf16") else c.pp > 1  # F6 counts the layers of a stage
        return "kind", pp, c.vpp > 1, c.schedule, c.tp > 1, c.ep > 1, c.etp > 1, c.cp > 1, block.pipeline.get("pp_schedule")

    def _shape_key(self, block: Block, batch: int) -> tuple[object, ...]:
        c = block.config
        whole = block.batches[batch].mbs * self.rules.workload.architecture.seq_length // c.cp % 8 == 0
        return "shape", c.tp, c.ep, c.etp, c.cp, whole

    def _recompute_key(self, block: Block) -> tuple[object, ...]:
        c = block.config
        return c.pp, c.vpp, c.schedule, c.ep > 1, block.pipeline.get("pp_schedule")

    def _kind_codes(self, block: Block, batch: int) -> Codes:
        kind, own = self._kind_key(block), block.knobs(batch)
        if kind not in self._levers:
            base = self.violations(own)[0]
            codes = np.zeros(self.choices.lever_shape, dtype=np.int16)
            groups = self._groups
            for x, q, d, o in product(range(len(groups[0])), range(len(groups[1])), range(len(groups[3])), range(len(groups[4]))):
                knobs = {**own, **groups[0][x], **groups[1][q], **groups[3][d], **groups[4][o]}
                codes[x, q, :, d, o] = self.code(self._own_rule(knobs, base, shapes=False))
            for loss in range(len(groups[2])):
                code = self.code(self._own_rule({**own, **groups[2][loss]}, base, shapes=False))
                codes[:, :, loss][codes[:, :, loss] == 0] = code
            self._levers[kind] = codes
        return self._levers[kind]

    def _shape_codes(self, block: Block, batch: int) -> Codes:
        kind, own = self._shape_key(block, batch), block.knobs(batch)
        if kind not in self._levers:
            base = self.violations(own)[0]
            groups = self._groups
            codes = np.zeros((len(groups[0]), len(groups[1]), 1, 1, 1), dtype=np.int16)
            for x, q in product(range(len(groups[0])), range(len(groups[1]))):
                codes[x, q] = self.code(self._own_rule({**own, **groups[0][x], **groups[1][q]}, base, shapes=True))
            self._levers[kind] = codes
        return self._levers[kind]

    def recompute_codes(self, block: Block) -> Codes:
        """The verdict on (exchange choice, fp8 choice, recompute choice). An exchange matters only where DeepEP turns a workload's
        shared-expert overlap off, which recomputing shared experts excludes (R6).
        """
        kind, own = self._recompute_key(block), block.knobs()
        if kind not in self._recompute:
            exchanges = self._groups[0]
            if self.rules.workload.arguments.get("moe_shared_expert_overlap"):
                self._recompute[kind] = np.stack([self._recompute_block({**own, **exchange}) for exchange in exchanges])
            else:
                self._recompute[kind] = np.stack([self._recompute_block(own)] * len(exchanges))
        return self._recompute[kind]

    def _recompute_block(self, own: Knobs) -> Codes:
        """The verdict on (fp8 choice, recompute choice) in a block with an exchange."""
        base = self.violations(own)[0]
        fp8, names = self._groups[1], ("recompute_granularity",)
        recompute = [self._inheriting(names, choice.knobs) for choice in self.choices.recompute]
        codes = np.zeros((len(fp8), len(recompute)), dtype=np.int16)
        seen: dict[tuple[int, str | None], int] = {}
        for r, knobs in enumerate(recompute):
            codes[:, r] = self.code(self._own_rule({**own, **knobs}, base))
        for q, r in product(range(len(fp8)), range(len(recompute))):
            if codes[q, r]:
                continue
            key = (q, self.choices.recompute[r].granularity)
            if key not in seen:
                known = base + self.violations({**own, **fp8[q]})[0]
                seen[key] = self.code(self._own_rule({**own, **fp8[q], **recompute[r]}, known))
            codes[q, r] = seen[key]
        return codes

    def random_disagreements(self, points: int, seed: int = 0, among: Sequence[Knobs] | None = None) -> list[str]:
        """Random configurations whose verdict differs from `check_legality`'s own; empty when all agree.

        `among`: legal topologies to draw from; None: of the whole space, illegal ones too.
        """
        rng = random.Random(seed)  # noqa: S311  not for secrets
        legal = Masks(self.rules, self.choices).topologies() if among is None else among
        known = {tuple(topology.items()) for topology in legal}
        found: list[str] = []
        for _ in range(points):
            topology, pipeline = rng.choice(self.choices.topologies), rng.choice(self.choices.pipelines)
            if legal and (among is not None or rng.random() < 0.9):
                topology = rng.choice(legal)
            batch, r = rng.choice(self.choices.batches), rng.randrange(len(self.choices.recompute))
            index = tuple(rng.randrange(size) for size in self.choices.lever_shape)
            trial = trial_of(self._held, topology, pipeline, batch, self.choices.lever_knobs(index), self.choices.recompute[r].knobs)
            ours = tuple(topology.items()) in known and self._allows(topology, pipeline, batch, index, r)
            if self.rules.check(trial).legal != ours:
                found.append(trial.model_dump_json(exclude_none=True))
        return found

    def _allows(self, topology: Knobs, pipeline: Knobs, batch: Knobs, index: tuple[int, ...], r: int) -> bool:
        if self._pipeline_rule(topology, pipeline) is not None or self._batch_rule(topology, pipeline, batch) is not None:
            return False
        block = self.block(topology, pipeline, [batch])
        return not self.lever_codes(block, 0)[index] and not self.recompute_codes(block)[index[0], index[1], r]
