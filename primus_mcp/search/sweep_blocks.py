"""Walks the legal space block by block: masks, tables, bounds; keeps what may still be among the best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from primus_mcp.inputs.training import Recompute, TrainingConfig
from primus_mcp.search.sweep_bounds import BlockBounds, Index, Pricing
from primus_mcp.search.sweep_choices import Choices, Knobs, trial_of
from primus_mcp.search.sweep_masks import Block, Masks
from primus_mcp.search.sweep_tables import Levers, Pricer, Table, lever_set
from primus_mcp.search.sweep_where import Condition
from primus_mcp.space.knobs import KnobValue, TrialConfig
from primus_mcp.space.trainer_keys import read_trial, resolve, trainer_keys

_TABLES_KEPT = 64


@dataclass
class Walk:
    """One pass over the topologies that it is given. `legal` counts configurations that obey every rule."""

    masks: Masks
    pricing: Pricing
    cap_bytes: float
    where: Condition
    legal: int = 0
    excluded: int = 0
    blocks: int = 0
    fallen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Empty tables."""
        self._choices: Choices = self.masks.choices
        self._tables: dict[object, Table] = {}
        self._lever_sets: dict[object, Levers] = {}
        self._records: dict[object, Recompute] = {}
        workload = self.pricing.workload
        probe = TrialConfig(recompute_granularity="selective")
        modules = resolve(workload, probe).recompute.modules
        self._pricer = Pricer(self.pricing.rates, workload.architecture, modules)

    def topology(self, topology: Knobs) -> Iterator[tuple[Block, BlockBounds, Index, Index]]:
        """Every block of a topology with the bounds of its legal configurations."""
        for block in self.masks.blocks(topology):
            codes = self.masks.lever_codes(block)
            levers = np.argwhere(codes == 0)
            self._count(codes)
            if not len(levers):
                continue
            allowed = self.masks.recompute_codes(block)
            lever, choice = np.nonzero(allowed[levers[:, 1]] == 0)
            self._count_recompute(allowed[levers[:, 1]])
            self.blocks += 1
            self.legal += len(lever)
            if not len(lever):
                continue
            lever, choice = self._where(block, levers, lever, choice)
            if not len(lever):
                continue
            used, choice_index = np.unique(choice, return_inverse=True)
            table = self._table(block, levers)
            records = [self._record(block, int(r)) for r in used]
            bounds = BlockBounds(self.pricing, table, block.config, records, lever, choice_index)
            yield block, bounds, self._flat(levers)[lever], choice

    def _flat(self, levers: NDArray[np.intp]) -> Index:
        flat: Index = np.ravel_multi_index(tuple(levers.T), self._choices.lever_shape)
        return flat

    def _count(self, codes: NDArray[np.int16]) -> None:
        names = self.masks.rule_names
        for code, count in zip(*np.unique(codes, return_counts=True), strict=True):
            if code:
                self.fallen[names[int(code)]] += int(count) * len(self._choices.recompute)

    def _count_recompute(self, codes: NDArray[np.int16]) -> None:
        for code, count in zip(*np.unique(codes, return_counts=True), strict=True):
            if code:
                self.fallen[self.masks.rule_names[int(code)]] += int(count)

    def _where(self, block: Block, levers: NDArray[np.intp], lever: Index, choice: Index) -> tuple[Index, Index]:
        """Drops what the condition excludes already; what only priced figures can tell is kept."""
        if self.where.always:
            return lever, choice
        own = self.pricing.workload.baseline
        values: dict[str, Any] = {"nodes": self.pricing.rates.cluster.num_nodes, "gpus": self.pricing.world}
        for name in ("tp", "pp", "ep", "cp", "vpp", "mbs", "gbs"):
            values[name] = getattr(block.config, name)
        values["expert_tensor_parallel_size"] = block.config.etp
        values["pp_schedule"] = block.pipeline.get("pp_schedule", "auto")
        values["dp"] = self.pricing.world // (block.config.tp * block.config.pp * block.config.cp)
        for group, column in zip(self._choices.levers, levers.T, strict=True):
            for name in group[0]:
                known = np.array([knobs.get(name) for knobs in group], dtype=object)
                values[name] = known[column][lever]
        values["recompute_granularity"] = np.array(
            [choice.granularity or own.recompute.granularity for choice in self._choices.recompute], dtype=object
        )[choice]
        keep = np.broadcast_to(np.asarray(self.where.partial(values), dtype=bool), lever.shape)
        self.excluded += int(len(lever) - keep.sum())
        return lever[keep], choice[keep]

    def _table(self, block: Block, levers: NDArray[np.intp]) -> Table:
        """Levers priced once for every block that layers cannot tell apart."""
        rest = replace(
            block.config, pp=1, vpp=1, mbs=1, gbs=1, schedule="1f1b", pipeline_layout=None, overlap_p2p=False, microbatch_group_size=None
        )
        key = (rest, levers.tobytes())
        mbs = block.config.mbs
        if (key, mbs) not in self._tables:
            if key not in self._lever_sets:
                configs = [replace(self._config(block, tuple(int(i) for i in index)), mbs=1) for index in levers]
                self._lever_sets[key] = lever_set(self.pricing.rates, self.pricing.workload.architecture, configs)
            while len(self._tables) >= _TABLES_KEPT:
                self._tables.pop(next(iter(self._tables)))
            self._tables[key, mbs] = self._pricer.table(self._lever_sets[key], mbs)
        return self._tables[key, mbs]

    def _config(self, block: Block, index: tuple[int, ...]) -> TrainingConfig:
        trial = trial_of(self._choices.held, block.knobs, self._choices.lever_knobs(index))
        workload = self.pricing.workload
        return read_trial(workload, trial, trainer_keys(trial, workload))

    def _record(self, block: Block, choice: int) -> Recompute:
        key = (block.config.pp, block.config.vpp, choice)
        if key not in self._records:
            knobs: dict[str, KnobValue] = {**block.knobs, **self._choices.recompute[choice].knobs}
            self._records[key] = resolve(self.pricing.workload, trial_of(knobs)).recompute
        return self._records[key]

    def trial(self, block: Block, lever: int, choice: int) -> TrialConfig:
        """The configuration as a trial."""
        index: Sequence[int] = [int(i) for i in np.unravel_index(lever, self._choices.lever_shape)]
        knobs = {**self._choices.held, **block.knobs, **self._choices.lever_knobs(index), **self._choices.recompute[choice].knobs}
        return TrialConfig(**knobs)  # type: ignore[arg-type]
