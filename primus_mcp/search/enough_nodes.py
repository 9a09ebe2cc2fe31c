"""How many nodes are enough, where nothing fits: sizes by doubling, then by halving the step, each tried with the engine's own rules and
memory at the configurations that spread a model widest.

An answer is a configuration that was checked, so it holds; that fewer nodes are not enough is only as sure as the tries are many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from primus_mcp.errors import InputError, UnknownFigureError
from primus_mcp.evaluation.evaluators import Evaluator, MemoryRealEvaluator, Rules
from primus_mcp.inputs.cluster_file import MAX_NODES
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.memory import project_memory
from primus_mcp.search.seeds import smallest_trials
from primus_mcp.space.adapted import adapt_baseline
from primus_mcp.space.knobs import TrialConfig
from primus_mcp.units import bytes_to_gb

MOST_TIMES = 128
"""Of the nodes that are too few: where the doubling ends."""
LOOKS_A_SIZE, LOOKS, TRIALS_A_SIZE = 64, 1200, 2000
"""Memory projections of one cluster size and of a whole answer, and trials of a size that may be asked whether they are legal: a few
seconds.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A legal configuration within the cap, and what it was held against."""

    config: TrainingConfig
    moe: bool
    memory_bytes: float
    cap_bytes: float

    @property
    def text(self) -> str:
        """`TP8 PP4 EP8 CP1 VPP1 MBS1 GBS 512 recompute full, 150.2 GB of the 172.8 GB cap`."""
        c = self.config
        degrees = " ".join(f"{name.upper()}{getattr(c, name)}" for name in ("tp", "pp", "ep", "cp", "vpp", "mbs"))
        recompute = "" if c.recompute.granularity is None else f" recompute {c.recompute.granularity}"
        levers = "".join(
            [f" ETP{c.etp}" if self.moe and c.etp > 1 else "", " FSDP2" if c.use_torch_fsdp2 else "", f" FP8 {c.fp8}" if c.fp8 else ""]
        )
        return f"{degrees} GBS {c.gbs}{recompute}{levers}, {self.memory_text}"

    @property
    def memory_text(self) -> str:
        """What it needs and may need."""
        return f"{bytes_to_gb(self.memory_bytes):.1f} GB of the {bytes_to_gb(self.cap_bytes):.1f} GB cap"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnoughNodes:
    """`nodes` None: none of `tried` was found to be enough, and whether more are is not known. `present`: the nodes that there are."""

    nodes: int | None
    held: Held | None
    tried: tuple[int, ...]
    present: int

    @property
    def text(self) -> str:
        """One line, of a search."""
        if self.nodes is None or self.held is None:
            nothing = (
                f"nothing that was tried on {_counted(self.fewer)} fits" if self.tried else f"{MAX_NODES:,} are the most that are tried"
            )
            return f"it is not known how many nodes are enough: {nothing}"
        if self.nodes == self.present:
            return f"{'this node is' if self.nodes == 1 else f'these {self.nodes:,} nodes are'} enough: {self.held.text}"
        none_fits = f"; nothing that was tried on {_counted(self.fewer)} fits" if self.fewer else ""
        return f"{_counted([self.nodes])} are enough: {self.held.text}{none_fits}"

    @property
    def fewer(self) -> list[int]:
        """Sizes that were tried and are not enough."""
        return sorted(size for size in self.tried if self.nodes is None or size < self.nodes)


def _counted(sizes: list[int]) -> str:
    return f"{', '.join(f'{size:,}' for size in sizes)} node{'' if sizes == [1] else 's'}"


class _Looks:
    """Counts memory projections, so that the same question has the same answer on any machine."""

    def __init__(self, left: int) -> None:
        self.left = left

    def held(self, rules: Rules, trial: TrialConfig) -> Held | None:
        """A trial that is legal and within the cap."""
        legality = rules.check(trial)
        if not legality.legal or legality.config is None or self.left <= 0:
            return None
        self.left -= 1
        try:
            memory = project_memory(rules.workload.architecture, legality.config, rules.cluster)
        except (InputError, UnknownFigureError):
            return None
        cap, moe = rules.cluster.memory_cap_bytes, rules.workload.architecture.is_moe
        if memory.device_bytes > cap:
            return None
        return Held(config=legality.config, moe=moe, memory_bytes=memory.device_bytes, cap_bytes=cap)


def _fewest(present: int, start: int, held_at: Callable[[int], Held | None], looks: _Looks) -> EnoughNodes:
    """Doubles `start` until something is held, then halves the step to the last size where nothing was."""
    tried: dict[int, Held | None] = {}
    size = start
    while size <= min(MOST_TIMES * start, MAX_NODES) and looks.left > 0:
        tried[size] = held_at(size)
        if tried[size] is not None:
            break
        size *= 2
    if tried.get(size) is None:
        return EnoughNodes(nodes=None, held=None, tried=tuple(tried), present=present)
    low = size // 2 if size > start else size
    while size - low > 1 and looks.left > 0:
        middle = (low + size) // 2
        tried[middle] = held_at(middle)
        low, size = (low, middle) if tried[middle] is not None else (middle, size)
    return EnoughNodes(nodes=size, held=tried[size], tried=tuple(tried), present=present)


def _on(cluster: Cluster, nodes: int) -> Cluster:
    return replace(cluster, num_nodes=nodes)


def _smallest(rules: Rules, nodes: int) -> Iterator[tuple[Rules, TrialConfig]]:
    """The widest spread trials on so many nodes, with the baseline adapted to them."""
    cluster = _on(rules.cluster, nodes)
    try:
        there = replace(rules, cluster=cluster, workload=adapt_baseline(rules.workload, cluster).workload)
    except InputError:
        return
    trials = smallest_trials(there.workload, cluster, axes=there.axes, pins=there.pins, allow_policy=there.allow_policy)
    yield from ((there, trial) for trial in trials)


def enough_nodes(rules: Rules, *, start: int | None = None) -> EnoughNodes:
    """The fewest nodes, of those looked at from `start` (None: twice the present ones) on, on which a configuration of the search fits."""
    looks = _Looks(LOOKS)

    def held_at(nodes: int) -> Held | None:
        last = looks.left - LOOKS_A_SIZE
        for there, trial in islice(_smallest(rules, nodes), TRIALS_A_SIZE):
            if looks.left <= last:
                break
            if (held := looks.held(there, trial)) is not None:
                return held
        return None

    here = rules.cluster.num_nodes
    return _fewest(here, 2 * here if start is None else start, held_at, looks)


def enough_nodes_for(rules: Rules, trial: TrialConfig) -> EnoughNodes:
    """The same for one configuration as it is: more nodes only add replicas, over which optimizer states spread."""
    looks, lifted, here = _Looks(LOOKS), replace(rules, allow_policy=True), rules.cluster.num_nodes
    return _fewest(here, 2 * here, lambda nodes: looks.held(replace(lifted, cluster=_on(rules.cluster, nodes)), trial), looks)


def enough_of(evaluator: Evaluator) -> EnoughNodes | None:
    """How many nodes are enough where nothing was found that fits, the present ones included; None of an evaluator whose memory is not
    the engine's own.
    """
    if not isinstance(evaluator, MemoryRealEvaluator):
        return None
    return enough_nodes(evaluator.rules, start=evaluator.cluster.num_nodes)


def nodes_text_for(evaluator: Evaluator, trial: TrialConfig) -> str | None:
    """How many nodes are enough for a configuration that is illegal or does not fit; where no number is, for other settings."""
    if not isinstance(evaluator, MemoryRealEvaluator):
        return None
    own = enough_nodes_for(evaluator.rules, trial)
    if own.nodes is not None and own.held is not None:
        not_on = f", not on {_counted(own.fewer)}" if own.fewer else ""
        return f"this configuration fits on {_counted([own.nodes])} ({own.held.memory_text}){not_on}"
    tried = f" (up to {max(own.tried):,} were tried)" if own.tried else ""
    return f"more nodes do not help this configuration{tried}; with other settings {enough_nodes(evaluator.rules, start=own.present).text}"
