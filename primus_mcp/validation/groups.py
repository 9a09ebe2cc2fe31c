"""Which rows are reported together. A group is a condition on a row's fields and on what it resolved to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from primus_mcp.validation.score import Scored, What
from primus_mcp.validation.statistics import Statistics, spearman, statistics

MIN_LADDER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """`headline`: its error is quoted; the others explain it."""

    name: str
    what: What
    holds: Callable[[Scored], bool]
    headline: bool = False


def _suite(item: Scored, suite: str) -> bool:
    return suite in item.row.suite


def _framework(item: Scored, start: str) -> bool:
    return (item.row.framework or "").lower().startswith(start)


def is_formula(item: Scored) -> bool:
    """A published formula bar, not a run."""
    return "formula" in (item.row.mem_kind or "")


def is_inferred(item: Scored) -> bool:
    """The source left so much out that the configuration is a guess."""
    return item.row.config_completeness == "C"


def _stated(item: Scored) -> bool:
    return not is_formula(item) and not is_inferred(item) and not item.row.ran_out_of_memory


def _amd_headline(item: Scored) -> bool:
    return _suite(item, "amd-headline") and item.row.config_completeness == "A" and item.row.trust != "text"


def _nv(item: Scored) -> bool:
    return _suite(item, "nv-headline") and item.row.config_completeness == "A"


GROUPS: tuple[Group, ...] = (
    Group(name="AMD headline", what="time", holds=_amd_headline, headline=True),
    Group(name="AMD headline, dense", what="time", holds=lambda s: _amd_headline(s) and not s.is_moe),
    Group(name="AMD headline, MoE", what="time", holds=lambda s: _amd_headline(s) and s.is_moe),
    Group(
        name="AMD, at most two fields missing", what="time", holds=lambda s: _suite(s, "amd-headline") and s.row.config_completeness == "B"
    ),
    Group(name="AMD, configuration inferred", what="time", holds=lambda s: _suite(s, "amd-headline") and is_inferred(s)),
    Group(name="NVIDIA headline", what="time", holds=_nv, headline=True),
    Group(name="NVIDIA headline, dense", what="time", holds=lambda s: _nv(s) and not s.is_moe, headline=True),
    Group(name="NVIDIA headline, MoE", what="time", holds=lambda s: _nv(s) and s.is_moe, headline=True),
    Group(name="NVIDIA headline, one node", what="time", holds=lambda s: _nv(s) and (s.row.n_gpus or 0) <= 8),
    Group(name="NVIDIA headline, multi-node", what="time", holds=lambda s: _nv(s) and (s.row.n_gpus or 0) > 8, headline=True),
    Group(name="vTrain (A100, Megatron-DeepSpeed)", what="time", holds=lambda s: _framework(s, "megatron-deepspeed"), headline=True),
    Group(name="MosaicML (PyTorch FSDP)", what="time", holds=lambda s: _framework(s, "llm foundry"), headline=True),
    Group(name="GPT-3 and Megatron 22B, 2022", what="time", holds=lambda s: _framework(s, "megatron-lm 2022"), headline=True),
    Group(name="PTD-P table, 2021", what="time", holds=lambda s: _framework(s, "megatron-lm 2021")),
    Group(name="other rows", what="time", holds=lambda s: not s.row.suite),
    Group(name="Megatron-Core, allocated", what="memory", holds=lambda s: _stated(s) and s.counter == "allocated", headline=True),
    Group(name="AMD, device", what="memory", holds=lambda s: _stated(s) and s.counter == "device", headline=True),
    Group(name="torchtitan, reserved", what="memory", holds=lambda s: _stated(s) and s.counter == "reserved", headline=True),
    Group(name="all runs with a stated configuration", what="memory", holds=_stated, headline=True),
    Group(name="configuration inferred", what="memory", holds=lambda s: is_inferred(s) and not s.row.ran_out_of_memory),
    Group(name="runs that went out of memory", what="memory", holds=lambda s: s.row.ran_out_of_memory),
    Group(name="published formula bars", what="memory", holds=is_formula),
)


def grouped(scored: Sequence[Scored]) -> Mapping[Group, Statistics]:
    """Statistics of every group that has a figure; skipped rows are not counted."""
    found: dict[Group, Statistics] = {}
    for group in GROUPS:
        own = [item for item in scored if item.what == group.what and item.skipped_reason is None and group.holds(item)]
        if own:
            found[group] = statistics(own)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """Rows that change features, layout or schedule of one model on the same GPUs: what counts is their order. `regret`: by how much the
    run that the engine ranks first is slower, measured, than the fastest.
    """

    name: str
    rows: int
    spearman: float
    regret: float


def ladders(scored: Sequence[Scored]) -> tuple[Ladder, ...]:
    """Rank correlation of every set of at least four different runs of one model, release, GPU and number of GPUs."""
    found: dict[tuple[object, ...], list[Scored]] = defaultdict(list)
    for item in scored:
        if item.what == "time" and item.error_fraction is not None and item.row.task == "pretrain" and item.row.flags:
            row = item.row
            found[row.model, row.framework, row.gpu, row.n_gpus, row.precision, row.seq, row.released].append(item)
    result = []
    for key, items in found.items():
        measured = [item.measured or 0.0 for item in items]
        predicted = [item.predicted or 0.0 for item in items]
        correlation = spearman(measured, predicted)
        if len(set(measured)) >= MIN_LADDER and correlation is not None and len({(i.row.flags, i.row.vpp, i.row.mbs) for i in items}) > 1:
            name = f"{key[0]} on {key[3]} {key[2]}" + (f", {key[4]}" if key[4] else "")
            chosen = max(range(len(items)), key=lambda i: predicted[i])
            regret = 1 - measured[chosen] / max(measured)
            result.append(Ladder(name=name, rows=len(items), spearman=correlation, regret=regret))
    return tuple(result)
