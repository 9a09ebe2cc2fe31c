"""A row to what the projections take: architecture, training configuration, cluster, and what had to be assumed.

Order, later wins: trainer defaults, presets (Primus), the settings table, the framework's example or recipe, flags, precision,
recompute, degrees and batch of the row. Nothing is read from a row but its fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from primus_mcp.errors import InputError
from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.argument_values import complete_arguments
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.hardware import Cluster, GpuProfile
from primus_mcp.inputs.hardware_files import gpu_profile
from primus_mcp.inputs.layout import parse_layout
from primus_mcp.inputs.model_workload import bundled_presets, has_preset
from primus_mcp.inputs.trainer_arguments import read_training
from primus_mcp.inputs.training import Recompute, TrainingConfig
from primus_mcp.inputs.workload import workload_from_arguments
from primus_mcp.projection.memory import project_memory
from primus_mcp.units import BF16_BYTES, FP32_BYTES, TB_PER_S, bytes_to_gb
from primus_mcp.validation.errors import NotScoredError
from primus_mcp.validation.layout import Draft, apply_batch, chunks_a_rank, halve_micro_batch, recompute_over, split_arguments
from primus_mcp.validation.models import FoundModel, find_architecture, qualifiers
from primus_mcp.validation.rows import Row
from primus_mcp.validation.table import RECIPE_KEYS, Counter, Settings, find_example, find_recipe, settings_table
from primus_mcp.validation.words import inherits, is_ladder, node_bytes_per_s, read_flags, read_precision, read_recompute

_PLACEHOLDER_SEQ = 4096
OTHER_PART = 0.05
"""A GPU whose bandwidth is off by more than this is another part than the catalogue's of its name."""
BY_OPERATOR = Recompute(granularity="selective", modules=("alternate_matmuls",))
"""Selection by torch operator (TorchTitan's default): every second matmul is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What a row resolves to. `counter` is the memory counter that its framework prints; `other_part`: the GPU is not the catalogue's."""

    arch: Architecture
    config: TrainingConfig
    cluster: Cluster
    counter: Counter
    other_part: bool
    assumptions: tuple[str, ...]


class Ladders:
    """Flags of rows that inherit those of the rows before them on the same model, GPU, size and framework."""

    def __init__(self) -> None:
        self._flags: dict[tuple[Any, ...], str] = {}

    def flags(self, row: Row) -> str:
        """The row's flags, with the inherited ones."""
        own = row.flags or ""
        if not is_ladder(own):
            return own
        key = (row.model, row.gpu, row.n_gpus, row.framework, row.task, row.precision)
        whole = f"{self._flags.get(key, '')}; {own}" if inherits(own) else own
        self._flags[key] = whole
        return whole


def _apply_table(draft: Draft, row: Row, model: str | None) -> list[Settings]:
    entries = [entry for entry in settings_table() if entry.holds(row, model)]
    if not entries:
        raise NotScoredError(f"framework {row.framework} has no settings in the table")
    for entry in entries:
        draft.arguments |= entry.arguments
        draft.config |= {key: tuple(value) if isinstance(value, list) else value for key, value in entry.config.items()}
        draft.shape |= entry.shape
        draft.presets |= entry.presets
        draft.operators_only |= entry.operators_only
        draft.vocabulary_extra += entry.vocabulary_extra
        draft.counter = entry.counter or draft.counter
        draft.assumptions.append(f"{entry.name}: {entry.source}")
    return entries


def _apply_example(draft: Draft, row: Row, model: str, entries: list[Settings]) -> None:
    example = find_example(row, model, ladder=is_ladder(row.flags))
    if example is None:
        draft.assumptions.append("no example workload of this model: Primus's presets alone")
        return
    table = dict(draft.arguments)
    draft.example_gpus = example.gpus
    draft.config |= example.config
    draft.arguments |= example.arguments | (table if row.task != "pretrain" else {})
    for entry in entries:
        draft.arguments |= entry.example_arguments
    draft.assumptions.append(f"example: {example.source}")


def _apply_recipe(draft: Draft, row: Row, model: str) -> None:
    """Features of the nearest recipe: dispatcher, graphs, overlap, recomputed modules, split. Degrees only where the row has none."""
    recipe = find_recipe(row, model)
    if recipe is None:
        draft.assumptions.append("no published recipe of this model on this GPU")
        return
    settings = recipe.settings
    keys = {
        key: value
        for key, value in settings.items()
        if key in RECIPE_KEYS and key not in ("num_gpus", "virtual_pipeline_model_parallel_size")
    }
    draft.arguments |= keys
    if settings.get("virtual_pipeline_model_parallel_size"):
        draft.arguments["num_virtual_stages_per_pipeline_rank"] = settings["virtual_pipeline_model_parallel_size"]
    if settings.get("pp_layout"):
        draft.arguments["pipeline_model_parallel_layout"] = settings["pp_layout"]
    if settings.get("moe_flex_dispatcher_backend"):
        draft.arguments |= {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "deepep"}
    if settings.get("recompute_modules"):
        draft.arguments |= {"recompute_granularity": "selective", "recompute_modules": settings["recompute_modules"]}
    elif settings.get("recompute_num_layers"):
        layers = {"recompute_method": "block", "recompute_num_layers": settings["recompute_num_layers"]}
        draft.arguments |= {"recompute_granularity": "full", **layers}
    if settings.get("moe_a2a_overlap"):
        draft.arguments["overlap_moe_expert_parallel_comm"] = True
    if settings.get("use_megatron_fsdp"):
        draft.arguments |= {"use_torch_fsdp2": True, "use_distributed_optimizer": False}
        draft.config["fsdp_reduce_bytes"] = BF16_BYTES if draft.arguments.get("grad_reduce_in_bf16") else FP32_BYTES
    draft.arguments |= _graph_arguments(settings)
    if settings.get("cuda_graph_impl") == "transformer_engine":
        draft.config["graphed"] = tuple(settings.get("cuda_graph_scope") or ())
    draft.config["fused_expert_mlp"] = bool(settings.get("cutedsl_fused_grouped_mlp"))
    draft.config["fp8_attention"] = bool(settings.get("fp8_dot_product_attention"))
    draft.assumptions.append(f"recipe of {recipe.released[-1]} for {recipe.gpu} {recipe.precision or 'any precision'}")


def _graph_arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    """CUDA graphs of the whole iteration."""
    scope = settings.get("cuda_graph_scope") or []
    scopes = {scope} if isinstance(scope, str) else set(scope)
    whole = settings.get("cuda_graph_impl") == "full_iteration" or "full_iteration" in scopes
    return {"enable_cuda_graph": True} if whole else {}


def _apply_texts(draft: Draft, row: Row, flags: str) -> None:
    for word in qualifiers(row.model):
        meaning = read_flags(word)
        draft.arguments |= meaning.arguments
        if word in ("w/o mtp", "w/ mtp"):
            draft.shape["mtp_num_layers"] = int(word == "w/ mtp")
    meaning = read_flags(f"{flags}; {row.recompute or ''}")
    draft.arguments |= meaning.arguments
    draft.config |= meaning.config
    if "expert_load_imbalance" in meaning.config:
        draft.assumptions.append("real routing: the hottest expert rank holds twice the mean")
    draft.arguments |= read_precision(row.precision, draft.arguments)
    if row.recompute is not None:
        changes = read_recompute(row.recompute)
        if draft.operators_only and changes["recompute_granularity"] == "selective":
            draft.config["recompute"] = BY_OPERATOR
        else:
            draft.arguments |= changes


def _cluster(row: Row, draft: Draft, profile: str | None) -> tuple[Cluster, bool]:
    """The row's GPUs on its software profile: the newest begun by the row's date, else the oldest; undated rows take the newest."""
    assert row.n_gpus is not None
    gpu = _gpu(row)
    per_node = min(row.n_gpus, gpu.network.nics_per_node)
    if row.n_gpus % per_node:
        raise NotScoredError("GPUs are no whole number of nodes")
    chosen = profile if profile in gpu.profiles else profile_of(gpu, row.released)
    part = row.part
    other = part is not None and abs(part.hbm_tb_per_s * TB_PER_S / gpu.hbm_bandwidth_bytes_per_s - 1) > OTHER_PART
    stated = node_bytes_per_s(row.flags)
    network = gpu.network if stated is None else replace(gpu.network, nic_bandwidth_bytes_per_s=stated / gpu.network.nics_per_node)
    cluster = make_cluster(
        gpu.name,
        network=network,
        num_nodes=row.n_gpus // per_node,
        gpus_per_node=per_node,
        profile=chosen,
        hbm_capacity_gb=part.hbm_gb / gpu.hbm_nominal_gb * bytes_to_gb(gpu.hbm_bytes) if part is not None and other else None,
        memory_safety_margin=0.0,
    )
    draft.assumptions.append(f"software profile {chosen}")
    return cluster, other


def _gpu(row: Row) -> GpuProfile:
    try:
        return gpu_profile(row.gpu)
    except InputError:
        raise NotScoredError(f"GPU {row.gpu} is not in the catalogue") from None


def profile_of(gpu: GpuProfile, released: str | None) -> str:
    """Name of the software profile for a date."""
    by_date = sorted(gpu.profiles.values(), key=lambda profile: profile.date)
    if released is None:
        return by_date[-1].name
    older = [profile for profile in by_date if (profile.since or profile.date) <= released]
    return (older[-1] if older else by_date[0]).name


def _with_entries(row: Row) -> Row:
    """The row with the date and the GPU part of its framework's entries where nothing else gives them."""
    entries = [entry for entry in settings_table() if entry.holds(row, None)]
    dates, parts = [entry.released for entry in entries if entry.released], [entry.part for entry in entries if entry.part]
    found = {"released": row.released or (dates[-1] if dates else None), "part": row.part or (parts[-1] if parts else None)}
    return row.model_copy(update=found)


def _built(draft: Draft, found: FoundModel) -> tuple[Architecture, TrainingConfig]:
    """Primus builds its model from preset and overrides; the others train the catalogue's architecture."""
    shape = dict(draft.shape)
    if draft.presets and found.name is not None and has_preset(found.name):
        presets, _ = bundled_presets(found.name, found.name)
        arguments = presets | draft.arguments | split_arguments(draft, found.architecture)
        workload = workload_from_arguments(arguments, found.name, vocab="tokenizer")
        arch, config = workload.architecture, workload.baseline
        if arch.num_layers > found.architecture.num_layers:
            shape["num_layers"], shape["moe_layers"] = found.architecture.num_layers, arch.moe_layers[: found.architecture.num_layers]
        return replace(arch, **shape), replace(config, **draft.config)
    arch = found.architecture
    layout = draft.arguments.get("pipeline_model_parallel_layout")
    if layout is not None:
        shape["mtp_num_layers"] = sum(chunk.mtp_layers for chunk in parse_layout(layout))
    shape["vocab_size"] = arch.vocab_size + draft.vocabulary_extra
    arch = replace(arch, **shape)
    arguments = complete_arguments(draft.arguments | split_arguments(draft, arch))
    return arch, replace(read_training(arguments, arch), **draft.config)


def _fit_micro_batch(draft: Draft, found: FoundModel, cluster: Cluster) -> None:
    """A micro-batch that only the example states: halved until the model fits under 1F1B, as it must have under some schedule."""
    plain = {"patch_primus_pipeline": False, "num_virtual_stages_per_pipeline_rank": None, "pipeline_model_parallel_layout": None}
    plain |= recompute_over(draft.arguments, chunks_a_rank(draft.arguments), 1)
    while True:
        arch, config = _built(replace(draft, arguments=draft.arguments | plain, assumptions=[]), found)
        if project_memory(arch, config, cluster).fits(cluster.hbm_bytes) != "does_not_fit" or not halve_micro_batch(draft):
            draft.assumptions.append(f"micro-batch {draft.arguments['micro_batch_size']}: the example's, halved until 1F1B fits")
            return


def resolve(row: Row, flags: str, *, profile: str | None = None) -> Case:
    """The case of a row; `flags` are its own and the inherited ones. Raises NotScoredError, InputError with the reason."""
    row = _with_entries(row)
    _gpu(row)
    if row.n_gpus is None:
        raise NotScoredError("number of GPUs not stated")
    found = find_architecture(row, row.seq or _PLACEHOLDER_SEQ)
    draft = Draft()
    entries = _apply_table(draft, row, found.name)
    draft.assumptions += found.assumptions
    if found.name is not None and any(entry.examples for entry in entries):
        _apply_example(draft, row, found.name, entries)
    if found.name is not None and any(entry.recipes for entry in entries):
        _apply_recipe(draft, row, found.name)
    _apply_texts(draft, row, flags)
    if row.seq is None and "seq_length" not in draft.arguments:
        raise NotScoredError("sequence length not stated")
    apply_batch(draft, row, flags)
    cluster, other = _cluster(row, draft, profile)
    if draft.guessed_micro_batch:
        _fit_micro_batch(draft, found, cluster)
    arch, config = _built(draft, found)
    arch = replace(arch, seq_length=draft.arguments["seq_length"])
    return Case(arch=arch, config=config, cluster=cluster, counter=draft.counter, other_part=other, assumptions=tuple(draft.assumptions))
