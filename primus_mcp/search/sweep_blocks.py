"""Walks the legal space block by block: masks, tables, bounds; keeps what may still be among the best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from primus_mcp.inputs.training import Recompute, TrainingConfig
from primus_mcp.search.sweep_bounds import BlockBounds, Chosen, Index, Pricing
from primus_mcp.search.sweep_choices import Choices, Knobs, trial_of
from primus_mcp.search.sweep_masks import Block, Masks
from primus_mcp.search.sweep_tables import Pricer, Table, lever_set
from primus_mcp.search.sweep_where import Condition
from primus_mcp.space.knobs import KnobValue, TrialConfig
from primus_mcp.space.trainer_keys import read_trial, resolve, trainer_keys


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lot:
    """The configurations of one block, as arrays: batch, flat lever, recompute choice."""

    block: Block
    batch: Index
    lever: Index
    choice: Index


@dataclass
class Walk:
    """One pass over the topologies that it is given. `legal` counts configurations that obey every rule."""

    masks: Masks
    pricing: Pricing
    where: Condition
    legal: int = 0
    excluded: int = 0
    blocks: int = 0
    fallen: Counter[str] = field(default_factory=Counter)
    records: dict[object, Recompute] = field(default_factory=dict)
    """Recompute choices as they resolve; may be shared between walks."""

    def __post_init__(self) -> None:
        """Nothing is priced yet."""
        self._choices: Choices = self.masks.choices
        workload = self.pricing.workload
        modules = resolve(workload, TrialConfig(recompute_granularity="selective")).recompute.modules
        self._pricer = Pricer(self.pricing.rates, workload.architecture, modules)

    def unit(self, topologies: Sequence[Knobs], should_stop: Callable[[], bool] = lambda: False) -> Iterator[tuple[Lot, BlockBounds]]:
        """Every block of topologies that share TP, EP, ETP and CP (others cost more time), with the bounds of its legal configurations."""
        alike: dict[TrainingConfig, list[Lot]] = {}
        for topology in topologies:
            if should_stop():
                return
            for block in self.masks.blocks(topology):
                lot = self._lot(block)
                if len(lot.lever):
                    alike.setdefault(_to_levers(block.config), []).append(lot)
        for lots in alike.values():
            table, position = self._table(lots)
            for lot in lots:
                if should_stop():
                    return
                used, choice = np.unique(lot.choice, return_inverse=True)
                records = [self._record(lot.block, int(r)) for r in used]
                at = Chosen(batch=lot.batch, lever=position[lot.lever], choice=choice)
                yield lot, BlockBounds(self.pricing, table, lot.block, records, at)

    def _lot(self, block: Block) -> Lot:
        """The legal configurations that the condition does not exclude already; all are counted."""
        parts = []
        for batch in range(len(block.batches)):
            found = self.masks.legal(block, batch)
            self.fallen.update(found.fallen)
            self.legal += len(found.lever)
            lever, choice = (found.lever, found.choice) if self.where.always else self._where(block, batch, found.lever, found.choice)
            parts.append((np.full(len(lever), batch), lever, choice))
        self.blocks += len(parts)
        batch_of, lever, choice = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return Lot(block=block, batch=batch_of, lever=lever, choice=choice)

    def _where(self, block: Block, batch: int, lever: Index, choice: Index) -> tuple[Index, Index]:
        """Drops what the condition excludes already; what only priced figures can tell is kept."""
        own, config = self.pricing.workload.baseline, block.config
        values: dict[str, Any] = {"nodes": self.pricing.rates.cluster.num_nodes, "gpus": self.pricing.world}
        values |= {name: getattr(config, name) for name in ("tp", "pp", "ep", "cp", "vpp")}
        values |= {"mbs": block.batches[batch].mbs, "gbs": block.batches[batch].gbs, "expert_tensor_parallel_size": config.etp}
        values["pp_schedule"] = block.pipeline.get("pp_schedule", "auto")
        values["dp"] = self.pricing.world // (config.tp * config.pp * config.cp)
        for group, column in zip(self._choices.levers, np.unravel_index(lever, self._choices.lever_shape), strict=True):
            for name in group[0]:
                values[name] = np.array([knobs.get(name) for knobs in group], dtype=object)[column]
        values["recompute_granularity"] = np.array(
            [choice.granularity or own.recompute.granularity for choice in self._choices.recompute], dtype=object
        )[choice]
        keep = np.broadcast_to(np.asarray(self.where.partial(values), dtype=bool), lever.shape)
        self.excluded += int(len(lever) - keep.sum())
        return lever[keep], choice[keep]

    def _table(self, lots: Sequence[Lot]) -> tuple[Table, Index]:
        """The levers of all lots priced once at every micro-batch size, and the place of each flat lever among them.

        FSDP2, which holds other things under a pipeline, exists without one only: the lot of the lowest PP stands for all.
        """
        flats = np.unique(np.concatenate([np.unique(lot.lever) for lot in lots]))
        position = np.zeros(int(np.prod(self._choices.lever_shape)), dtype=np.intp)
        position[flats] = np.arange(len(flats))
        block, arch = min((lot.block for lot in lots), key=lambda block: block.config.pp), self.pricing.workload.architecture
        configs = [replace(self._config(block, int(flat)), mbs=1) for flat in flats]
        sizes = tuple(sorted({batch.mbs for lot in lots for batch in lot.block.batches}))
        return self._pricer.table(lever_set(self.pricing.rates, arch, configs), sizes), position

    def _config(self, block: Block, lever: int) -> TrainingConfig:
        index = [int(i) for i in np.unravel_index(lever, self._choices.lever_shape)]
        trial = trial_of(self._choices.held, block.knobs(), self._choices.lever_knobs(index))
        workload = self.pricing.workload
        return read_trial(workload, trial, trainer_keys(trial, workload))

    def _record(self, block: Block, choice: int) -> Recompute:
        key = (block.config.pp, block.config.vpp, choice)
        if key not in self.records:
            knobs: dict[str, KnobValue] = {**block.knobs(), **self._choices.recompute[choice].knobs}
            self.records[key] = resolve(self.pricing.workload, trial_of(knobs)).recompute
        return self.records[key]

    def trial(self, knobs: Knobs, lever: int, choice: int) -> TrialConfig:
        """The configuration of a batch of a block (its knobs) as a trial."""
        index = [int(i) for i in np.unravel_index(lever, self._choices.lever_shape)]
        return TrialConfig(
            **{**self._choices.held, **knobs, **self._choices.lever_knobs(index), **self._choices.recompute[choice].knobs}  # type: ignore[arg-type]
        )


def _to_levers(config: TrainingConfig) -> TrainingConfig:
    """What levers may depend on: everything but the pipeline and the batch."""
    return replace(config, pp=1, vpp=1, mbs=1, gbs=1, schedule="1f1b", pipeline_layout=None, overlap_p2p=False, microbatch_group_size=None)
