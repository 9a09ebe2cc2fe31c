"""Degrees, batch and pipeline split of a row, and what stands in for those that nobody states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.hardware_files import gpu_profile
from primus_mcp.inputs.layout import layout_text, parse_layout
from primus_mcp.projection.pipeline.rules import SPLIT_SCHEDULES
from primus_mcp.validation.errors import NotScoredError
from primus_mcp.validation.rows import Row
from primus_mcp.validation.table import Counter
from primus_mcp.validation.words import number_after, runs_interleaved

_DEGREES: Mapping[str, str] = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "ep": "expert_model_parallel_size",
    "cp": "context_parallel_size",
    "etp": "expert_tensor_parallel_size",
    "mbs": "micro_batch_size",
    "gbs": "global_batch_size",
    "seq": "seq_length",
    "fsdp": "use_torch_fsdp2",
    "dist_opt": "use_distributed_optimizer",
}
_MODEL_PARALLEL = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
_ENDS = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
DEFAULT_MICRO_BATCHES = 8


@dataclass(slots=True, kw_only=True)
class Draft:
    """Arguments so far, with what was assumed on the way. `example_gpus`: what the example's batch is written for."""

    arguments: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    shape: dict[str, Any] = field(default_factory=dict)
    assumptions: list[str] = field(default_factory=list)
    presets: bool = False
    operators_only: bool = False
    vocabulary_extra: int = 0
    counter: Counter = "device"
    example_gpus: int | None = None
    guessed_micro_batch: bool = False


def data_parallel(arguments: Mapping[str, Any], gpus: int) -> int:
    """GPUs / (TP PP CP), at least 1."""
    for key in _MODEL_PARALLEL:
        gpus //= arguments.get(key) or 1
    return max(1, gpus)


def _model_parallel(draft: Draft, row: Row) -> None:
    """TP and CP that a row leaves out: what DP leaves over, else what the batch is too small for, else the example's, else 1.

    It is TP where a switch joins the GPUs of a node, and CP on a mesh, which gives two GPUs one link of seven.
    """
    assert row.n_gpus is not None
    pp = draft.arguments.get("pipeline_model_parallel_size") or 1
    if row.tp is None and row.cp is None and "tensor_model_parallel_size" not in draft.arguments:
        mesh = gpu_profile(row.gpu).network.node_topology == "mesh"
        key, name = ("context_parallel_size", "CP") if mesh else ("tensor_model_parallel_size", "TP")
        if row.dp is not None:
            draft.arguments[key] = max(1, row.n_gpus // (row.dp * pp))
        elif row.gbs is not None:
            ranks = row.gbs // (row.mbs or 1)
            draft.arguments[key] = max(1, row.n_gpus // (ranks * pp))
        draft.assumptions.append(f"{name} {draft.arguments.get(key, 1)}: what GPUs and batch leave over")


def _micro_batch(draft: Draft, row: Row, flags: str) -> None:
    """The row's, else its local batch over PP, else the example's."""
    local = number_after("local_batch", flags)
    if row.mbs is not None:
        return
    if (said := number_after("micro_batch_size", flags)) is not None:
        draft.arguments["micro_batch_size"] = said
        return
    if local is not None:
        draft.arguments["micro_batch_size"] = max(1, local // (draft.arguments.get("pipeline_model_parallel_size") or 1))
        draft.assumptions.append("micro-batch: local batch / PP")
    elif "micro_batch_size" not in draft.arguments:
        raise NotScoredError("micro-batch size not stated")
    else:
        draft.guessed_micro_batch = True


def _global_batch(draft: Draft, row: Row, flags: str, template: tuple[int | None, int | None]) -> None:
    """The row's, else its number of micro-batches, else the example's number of them, else 8."""
    if row.gbs is not None:
        return
    assert row.n_gpus is not None
    arguments, (mbs, gbs) = draft.arguments, template
    ranks = data_parallel(arguments, row.n_gpus)
    count = number_after("micro_batches", flags)
    if count is None and mbs and gbs:
        count = gbs // mbs // (data_parallel(arguments, draft.example_gpus) if draft.example_gpus else ranks)
        draft.assumptions.append("GBS: the example's number of micro-batches")
    elif count is None:
        count = DEFAULT_MICRO_BATCHES
        draft.assumptions.append(f"GBS: {count} micro-batches")
    arguments["global_batch_size"] = arguments["micro_batch_size"] * ranks * max(1, count)


def apply_batch(draft: Draft, row: Row, flags: str) -> None:
    """Degrees and batch of the row over what the draft has. Raises NotScoredError where no micro-batch is known."""
    arguments = draft.arguments
    template = arguments.get("micro_batch_size"), arguments.get("global_batch_size")
    arguments |= {key: value for name, key in _DEGREES.items() if (value := getattr(row, name)) is not None}
    if arguments.get("use_torch_fsdp2"):
        arguments["use_distributed_optimizer"] = False
    _model_parallel(draft, row)
    _micro_batch(draft, row, flags)
    _global_batch(draft, row, flags, template)
    vpp = row.vpp or number_after("virtual_stages", flags)
    if vpp is None and runs_interleaved(flags):
        vpp = 2
        draft.assumptions.append("interleaved: two virtual stages")
    before = chunks_a_rank(arguments)
    _virtual_stages(arguments, vpp, arguments.get("pipeline_model_parallel_size") or 1)
    if row.recompute is None:
        _inherited_recompute(draft, before)


def chunks_a_rank(arguments: Mapping[str, Any]) -> int:
    """Virtual stages of a pipeline rank."""
    layout, pp = arguments.get("pipeline_model_parallel_layout"), arguments.get("pipeline_model_parallel_size") or 1
    return len(parse_layout(layout)) // pp if layout is not None else arguments.get("num_virtual_stages_per_pipeline_rank") or 1


def recompute_over(arguments: Mapping[str, Any], before: int, after: int) -> dict[str, Any]:
    """Block recomputation written for `before` virtual stages a rank: as many layers of a rank over `after`, each of which counts anew."""
    layers = arguments.get("recompute_num_layers")
    if not layers or arguments.get("recompute_method") != "block":
        return {}
    return {"recompute_num_layers": ceil(layers * before / after)}


def _inherited_recompute(draft: Draft, before: int) -> None:
    """Recomputation that only the example states: none under a split backward, which Primus does not combine with it (AMD-AGI/Primus
    core/projection/config_validation.py:99,133), else the same layers of a rank.
    """
    arguments = draft.arguments
    if arguments.get("recompute_granularity") != "full":
        return
    if arguments.get("patch_primus_pipeline") and arguments.get("pp_algorithm") in SPLIT_SCHEDULES:
        arguments |= {"recompute_granularity": None, "recompute_method": None, "recompute_num_layers": None}
        draft.assumptions.append("recompute: none, a split backward excludes it")
        return
    changed = recompute_over(arguments, before, chunks_a_rank(arguments))
    if changed and changed["recompute_num_layers"] != arguments["recompute_num_layers"]:
        arguments |= changed
        draft.assumptions.append(f"recompute: as many layers of a rank as the example, {changed['recompute_num_layers']} a virtual stage")


def halve_micro_batch(draft: Draft) -> bool:
    """Half the micro-batch and the global batch; False at 1."""
    arguments = draft.arguments
    if arguments["micro_batch_size"] < 2:
        return False
    arguments["global_batch_size"] = arguments["global_batch_size"] * (arguments["micro_batch_size"] // 2) // arguments["micro_batch_size"]
    arguments["micro_batch_size"] //= 2
    return True


def _virtual_stages(arguments: dict[str, Any], vpp: int | None, pp: int) -> None:
    """VPP of the row; a layout of another number of stages is dropped."""
    layout = arguments.get("pipeline_model_parallel_layout")
    if vpp is None and layout is None:
        return
    if layout is not None:
        stages = len(parse_layout(layout))
        if stages == pp * (vpp or stages // pp):
            arguments["num_virtual_stages_per_pipeline_rank"] = None
            return
        arguments["pipeline_model_parallel_layout"] = None
    arguments["num_virtual_stages_per_pipeline_rank"] = vpp if vpp and vpp > 1 else None


def split_arguments(draft: Draft, arch: Architecture) -> dict[str, Any]:
    """Layers that do not divide over the stages: embedding and loss count as one each if that divides, else full stages and a light last.

    As NVIDIA's recipes and Primus's layouts do it; TorchTitan gives the middle stages one more (generate_split_points). With a layout,
    or if the layers divide, nothing changes.
    """
    arguments, ends = draft.arguments, _ENDS
    stages = (arguments.get("pipeline_model_parallel_size") or 1) * (arguments.get("num_virtual_stages_per_pipeline_rank") or 1)
    counted = sum(bool(arguments.get(key)) for key in ends)
    if arguments.get("pipeline_model_parallel_layout") or (arch.num_layers + counted) % stages == 0:
        return {}
    if arguments.get("use_torch_fsdp2"):
        few, more = divmod(arch.num_layers, stages)
        middle = [few + (stage < more) for stage in range(stages - 2)]
        draft.assumptions.append("uneven split: stages after the first hold a layer more")
        return _split((few, *middle, arch.num_layers - few - sum(middle)), arch)
    if (arch.num_layers + len(ends)) % stages == 0 and not arch.mtp_num_layers:
        draft.assumptions.append("uneven split: embedding and loss count as one layer each")
        return dict.fromkeys(ends, True)
    draft.assumptions.append("uneven split: equal stages, a lighter last one")
    most = ceil(arch.num_layers / stages)
    counts = [most] * (arch.num_layers // most) + [arch.num_layers % most]
    if len(counts) != stages:
        few, more = divmod(arch.num_layers, stages)
        counts = [few + (stage < more) for stage in range(stages)]
    return _split(tuple(counts), arch)


def _split(counts: tuple[int, ...], arch: Architecture) -> dict[str, Any]:
    """Arguments of a split by a layout."""
    layout = layout_text(counts, arch.mtp_num_layers)
    return {**dict.fromkeys(_ENDS, False), "num_virtual_stages_per_pipeline_rank": None, "pipeline_model_parallel_layout": layout}
