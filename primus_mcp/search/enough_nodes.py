"""How many nodes would do, where nothing fits: sizes by doubling, then by halving the step, each looked at with the engine's own rules and
memory at the configurations that spread a model widest.

An answer is a configuration that was checked, so it holds; that fewer nodes would not do is only as sure as the looks are many.
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
        """`TP8 PP4 EP8 CP1 MBS1 GBS 512 recompute full needs 150.2 GB of 172.8`."""
        c = self.config
        degrees = " ".join(f"{name.upper()}{getattr(c, name)}" for name in ("tp", "pp", "ep", "cp", "vpp", "mbs"))
        recompute = "" if c.recompute.granularity is None else f" recompute {c.recompute.granularity}"
        levers = "".join(
            [f" ETP{c.etp}" if self.moe and c.etp > 1 else "", " FSDP2" if c.use_torch_fsdp2 else "", f" FP8 {c.fp8}" if c.fp8 else ""]
        )
        needs = f"needs {bytes_to_gb(self.memory_bytes):.1f} GB of the {bytes_to_gb(self.cap_bytes):.1f} GB cap"
        return f"{degrees} GBS {c.gbs}{recompute}{levers} {needs}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnoughNodes:
    """`nodes` None: none of `tried` was found to do, and whether more would is not known."""

    nodes: int | None
    held: Held | None
    tried: tuple[int, ...]

    @property
    def text(self) -> str:
        """One line."""
        fewer = [size for size in self.tried if self.nodes is None or size < self.nodes]
        if self.nodes is None or self.held is None:
            return f"how many nodes would do is not known: nothing that was looked at on {_listed(fewer)} nodes fits"
        none = f"; nothing that was looked at on {_listed(fewer)} nodes fits" if fewer else ""
        return f"{self.nodes} nodes would do: {self.held.text}{none}"


def _listed(sizes: list[int]) -> str:
    return ", ".join(f"{size:,}" for size in sorted(sizes))


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


def _fewest(start: int, held_at: Callable[[int], Held | None], looks: _Looks) -> EnoughNodes:
    """Doubles `start` until something is held, then halves the step to the last size where nothing was."""
    tried: dict[int, Held | None] = {}
    size = start
    while size <= min(MOST_TIMES * start, MAX_NODES) and looks.left > 0:
        tried[size] = held_at(size)
        if tried[size] is not None:
            break
        size *= 2
    if tried.get(size) is None:
        return EnoughNodes(nodes=None, held=None, tried=tuple(tried))
    low = size // 2 if size > start else size
    while size - low > 1 and looks.left > 0:
        middle = (low + size) // 2
        tried[middle] = held_at(middle)
        low, size = (low, middle) if tried[middle] is not None else (middle, size)
    return EnoughNodes(nodes=size, held=tried[size], tried=tuple(tried))


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

    return _fewest(2 * rules.cluster.num_nodes if start is None else start, held_at, looks)


def enough_nodes_for(rules: Rules, trial: TrialConfig) -> EnoughNodes:
    """The same for one configuration as it is: more nodes only add replicas, over which optimizer states spread."""
    looks, lifted = _Looks(LOOKS), replace(rules, allow_policy=True)
    return _fewest(2 * rules.cluster.num_nodes, lambda nodes: looks.held(replace(lifted, cluster=_on(rules.cluster, nodes)), trial), looks)


def nodes_text(evaluator: Evaluator) -> str | None:
    """How many nodes would do where nothing was found that fits, the present ones included; None of an evaluator whose memory is not the
    engine's own.
    """
    if not isinstance(evaluator, MemoryRealEvaluator):
        return None
    here = evaluator.cluster.num_nodes
    found = enough_nodes(evaluator.rules, start=here)
    return f"these nodes would do: {found.held.text}" if found.held is not None and found.nodes == here else found.text


def nodes_text_for(evaluator: Evaluator, trial: TrialConfig) -> str | None:
    """How many nodes would do for a configuration that is illegal or does not fit; where no number does, what other settings need."""
    if not isinstance(evaluator, MemoryRealEvaluator):
        return None
    own = enough_nodes_for(evaluator.rules, trial)
    if own.nodes is not None:
        return f"with these settings {own.text}"
    return f"with these settings no more nodes were found to do; with others {nodes_text(evaluator)}"
