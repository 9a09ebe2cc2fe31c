"""Rules on how layers are split over pipeline stages."""

from __future__ import annotations

from primus_mcp.errors import InputError
from primus_mcp.inputs.layout import parse_layout
from primus_mcp.inputs.split import place_chunks
from primus_mcp.inputs.training import V_SCHEDULES
from primus_mcp.space.knobs import schedule_text
from primus_mcp.space.rules.base import Case, RuleBook, megatron, primus

book = RuleBook()
VPP_LIMIT = 8


@book.hard("P1", megatron("core/transformer/transformer_block.py:176"), "every stage gets a layer: PP x VPP <= layers")
def _enough_layers(case: Case) -> str | None:
    c = case.config
    if c.pipeline_layout is None and c.pp * c.vpp > case.arch.num_layers:
        return f"PP {c.pp} x VPP {c.vpp} = {c.pp * c.vpp} stages exceed the {case.arch.num_layers} layers"
    return None


@book.hard("L3", megatron("training/arguments.py:776-789"), "layers divide over the stages")
def _split(case: Case) -> str | None:
    """Without a layout, more stages than layers are P1's; a layout may leave stages empty, but holds every layer."""
    if case.config.pipeline_layout is None and case.config.pp * case.config.vpp > case.arch.num_layers:
        return None
    try:
        place_chunks(case.arch, case.config)
    except InputError as error:
        return f"PP {case.config.pp} VPP {case.config.vpp}: {error}"
    return None


@book.hard("L6", megatron("training/arguments.py:791-800"), "virtual stages need PP > 1")
def _virtual(case: Case) -> str | None:
    c = case.config
    if c.vpp > 1 and c.pp == 1:
        return f"VPP {c.vpp} needs PP > 1, PP is {c.pp}"
    if c.vpp > 1 and c.pp == 2 and case.arguments.get("overlap_p2p_comm") is False:
        return f"VPP {c.vpp} at PP {c.pp} needs overlap_p2p_comm true"
    return None


@book.hard("L8", megatron("core/transformer/transformer_config.py:1414"), "first and last stages are given, or counted with their ends")
def _one_way_to_split(case: Case) -> str | None:
    a = case.arguments
    ends = [key for key in ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers") if a.get(key) is not None]
    others = [key for key in ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split") if a.get(key)]
    if not ends:
        return None
    if others:
        return f"{ends[0]} {a[ends[0]]} excludes {len(others)} keys that are set: {', '.join(others)}"
    per_stage = a.get("num_layers_per_virtual_pipeline_stage")
    if per_stage is not None:
        return (
            f"{ends[0]} {a[ends[0]]} excludes num_layers_per_virtual_pipeline_stage {per_stage}; use num_virtual_stages_per_pipeline_rank"
        )
    return None


@book.hard("B7", megatron("core/model_parallel_config.py:442"), "overlapped warm-up flush needs overlapped stage-to-stage transfer")
def _warmup_flush(case: Case) -> str | None:
    c = case.config
    if case.arguments.get("overlap_p2p_comm_warmup_flush") and not c.overlap_p2p:
        return f"overlap_p2p_comm_warmup_flush needs overlap_p2p_comm true and VPP > 1, VPP is {c.vpp}"
    return None


@book.hard("L12", megatron("core/transformer/transformer_config.py:1427-1444"), "a layout excludes other splits")
def _layout_alone(case: Case) -> str | None:
    if case.config.pipeline_layout is None:
        return None
    others = [
        key
        for key in (
            "decoder_first_pipeline_num_layers",
            "decoder_last_pipeline_num_layers",
            "account_for_embedding_in_pipeline_split",
            "account_for_loss_in_pipeline_split",
        )
        if case.arguments.get(key) not in (None, False)
    ]
    return f"pipeline_model_parallel_layout excludes {len(others)} keys that are set: {', '.join(others)}" if others else None


@book.hard(
    "L15", megatron("core/transformer/pipeline_parallel_layer_layout.py:94-135"), "a layout holds every MTP layer, on the last stages"
)
def _layout_mtp(case: Case) -> str | None:
    if case.config.pipeline_layout is None:
        return None
    try:
        held = [chunk.mtp_layers for chunk in parse_layout(case.config.pipeline_layout)]
    except InputError:
        return None
    wanted = case.arch.mtp_num_layers
    if sum(held) != wanted:
        return f"the layout has {sum(held)} MTP layers (m), mtp_num_layers is {wanted}"
    if max(held) != wanted:
        return f"the layout spreads {wanted} MTP layers over {sum(1 for n in held if n)} stages, 1 is allowed"
    first = case.config.pp * (case.config.vpp - 1)
    if wanted and (stage := next(index for index, n in enumerate(held) if n)) < first:
        return f"the layout has its MTP layers on stage {stage}; only the last virtual stage of a rank, {first} and later, may hold them"
    return None


@book.hard("L22", megatron("core/model_parallel_config.py:417-430"), "deferred embedding gradients need PP > 1")
def _deferred_embedding(case: Case) -> str | None:
    c, a = case.config, case.arguments
    if not a.get("defer_embedding_wgrad_compute"):
        return None
    limit = a.get("wgrad_deferral_limit") or 0
    wrong = [f"PP > 1 (it is {c.pp})"] if c.pp == 1 else []
    wrong += [] if c.gradient_accumulation_fusion else ["gradient_accumulation_fusion true"]
    wrong += [f"wgrad_deferral_limit >= 0 (it is {limit})"] if limit < 0 else []
    return f"defer_embedding_wgrad_compute at PP {c.pp} needs {', '.join(wrong)}" if wrong else None


@book.policy("vpp-limit", f"VPP <= {VPP_LIMIT}")
def _vpp_limit(case: Case) -> str | None:
    if case.config.vpp > VPP_LIMIT and case.config.vpp != case.workload.baseline.vpp:
        return f"VPP {case.config.vpp} exceeds {VPP_LIMIT}"
    return None


@book.policy(
    "v-layout",
    "V schedules with an uneven split: Primus may keep the stock stage order",
    primus("backends/megatron/patches/parallelism/pipeline_parallel_layout_patches.py:35"),
)
def _v_layout(case: Case) -> str | None:
    c = case.config
    if c.schedule in V_SCHEDULES and c.pipeline_layout is not None:
        return (
            f"schedule {schedule_text(c.schedule)} at PP {c.pp} x VPP {c.vpp} needs a layout for {case.arch.num_layers} layers,"
            " and the trainer may place its stages in stock order; use a PP x VPP that divides the layers"
        )
    return None
