"""Rules on models whose layers are not all attention and MLP, and on adapters."""

from __future__ import annotations

from primus_mcp.inputs.architecture import Architecture, Mamba2
from primus_mcp.space.rules.base import Case, RuleBook, megatron, primus

book = RuleBook()
_ROW_PARALLEL = frozenset({"linear_proj", "linear_fc2"})


def is_stacked(arch: Architecture) -> bool:
    """Whether attention, mixers and MLPs are layers of their own, as in Primus's hybrid stacks."""
    return "mlp_alone" in arch.layer_kinds or "mixer_alone" in arch.layer_kinds


@book.hard("L20", primus("backends/megatron/core/models/hybrid/hybrid_block.py:249"), "a hybrid stack has no virtual stages")
def _no_virtual_stages(case: Case) -> str | None:
    return f"a hybrid stack needs VPP 1, VPP is {case.config.vpp}" if is_stacked(case.arch) and case.config.vpp > 1 else None


@book.policy("mamba-tp", "Mamba-2: heads and groups are multiples of TP")
def _mamba_heads(case: Case) -> str | None:
    mixer, tp = case.arch.mixer, case.config.tp
    if isinstance(mixer, Mamba2) and (mixer.heads % tp or mixer.groups % tp):
        return f"{mixer.heads} heads and {mixer.groups} groups of Mamba-2 are not multiples of TP {tp}"
    return None


@book.policy("mixer-cp", "layers without attention are priced at CP 1")
def _context_parallel(case: Case) -> str | None:
    return f"how a mixer splits a sequence is not priced: CP 1, not {case.config.cp}" if case.arch.mixer and case.config.cp > 1 else None


@book.policy("lora-fsdp2", "LoRA is priced with weights whole on every rank")
def _sharded_adapters(case: Case) -> str | None:
    both = case.config.finetune == "lora" and case.config.use_torch_fsdp2
    return "LoRA under FSDP2 is not priced: use_torch_fsdp2 false, not true" if both else None


@book.hard("LR1", megatron("core/tensor_parallel/layers.py:822"), "LoRA: the rank of column-parallel adapters is a multiple of TP (ETP)")
def _adapter_rank(case: Case) -> str | None:
    c = case.config
    if c.finetune != "lora" or not set(c.lora_targets) - _ROW_PARALLEL:
        return None
    if c.lora_rank % c.tp:
        return f"lora.dim {c.lora_rank} is no multiple of TP {c.tp}"
    grouped = case.arch.is_moe and c.grouped_gemm != "legacy" and "linear_fc1" in c.lora_targets
    return f"lora.dim {c.lora_rank} is no multiple of ETP {c.etp}" if grouped and c.lora_rank % c.etp else None


@book.hard("LR2", primus("backends/megatron/peft/utils.py:129-178"), "LoRA: Turbo's grouped linear has no adapter")
def _adapters_of_turbo_experts(case: Case) -> str | None:
    c = case.config
    wanted = [target for target in ("linear_fc1", "linear_fc2") if target in c.lora_targets]
    if c.finetune == "lora" and case.arch.is_moe and c.grouped_gemm == "turbo" and wanted:
        return f"{' and '.join(wanted)} match Turbo's grouped linear, which Primus cannot adapt; use another grouped GEMM or other targets"
    return None
