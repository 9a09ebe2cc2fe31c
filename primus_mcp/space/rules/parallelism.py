"""Rules on tensor, expert and context parallelism and on the world size."""

from __future__ import annotations

from math import prod

from primus_mcp.inputs.architecture import GatedDeltaNet
from primus_mcp.inputs.built_model import turbo_sinks
from primus_mcp.space.rules.base import Case, RuleBook, engine, megatron, primus, turbo, whole_numbers

book = RuleBook()


@book.hard("W1", megatron("training/arguments.py:318"), "world size is a multiple of TP x PP x CP")
def _world(case: Case) -> str | None:
    c = case.config
    if case.dp == 0:
        return f"{case.world} GPUs are not a multiple of TP {c.tp} x PP {c.pp} x CP {c.cp} = {c.tp * c.pp * c.cp}"
    return None


@book.hard("W2", megatron("core/parallel_state.py:797"), "world size is a multiple of ETP x EP x PP")
def _expert_world(case: Case) -> str | None:
    """Asked of a dense model too, where its file sets expert_tensor_parallel_size."""
    c = case.config
    etp = c.etp if case.arch.is_moe else case.arguments.get("expert_tensor_parallel_size") or c.tp
    if case.world % (etp * c.ep * c.pp):
        return f"{case.world} GPUs are not a multiple of ETP {etp} x EP {c.ep} x PP {c.pp} = {etp * c.ep * c.pp}"
    return None


@book.hard("W4", megatron("core/parallel_state.py:813"), "use_tp_pp_dp_mapping with PP > 1: expert replicas = dense replicas")
def _mapping(case: Case) -> str | None:
    c = case.config
    if not case.arguments.get("use_tp_pp_dp_mapping") or c.pp == 1 or not case.dp:
        return None
    replicas = case.world // (c.etp * c.ep * c.pp)
    if replicas != case.dp:
        return (
            f"use_tp_pp_dp_mapping at PP {c.pp} needs as many replicas of experts ({case.world} / (ETP {c.etp} x EP {c.ep} x PP) ="
            f" {replicas}) as of the rest ({case.dp}); set use_tp_pp_dp_mapping false"
        )
    return None


@book.hard("T1", megatron("core/transformer/transformer_config.py:1019"), "attention heads are a multiple of TP")
def _heads(case: Case) -> str | None:
    if case.arch.num_attention_heads % case.config.tp:
        return f"{case.arch.num_attention_heads} attention heads are not a multiple of TP {case.config.tp}"
    return None


@book.hard("T2", megatron("core/transformer/transformer_config.py:1034"), "query groups divide over TP or are replicated evenly")
def _query_groups(case: Case) -> str | None:
    groups, tp = case.arch.num_query_groups, case.config.tp
    if case.arch.latent_attention is None and groups % tp and tp % groups:
        return f"{groups} query groups are neither a multiple nor a divisor of TP {tp}"
    return None


@book.hard("T6", megatron("core/tensor_parallel/layers.py:822,1150"), "FFN widths are multiples of TP")
def _ffn(case: Case) -> str | None:
    arch, tp = case.arch, case.config.tp
    if arch.ffn_hidden_size % tp and not (arch.is_moe and all(arch.moe_layers)):
        return f"FFN width {arch.ffn_hidden_size} is not a multiple of TP {tp}"
    shared = arch.experts.shared_expert_ffn_hidden_size if arch.experts else 0
    return f"shared-expert width {shared} is not a multiple of TP {tp}" if shared % tp else None


@book.hard("T7", megatron("core/extensions/transformer_engine.py:1544"), "expert FFN width is a multiple of ETP")
def _expert_ffn(case: Case) -> str | None:
    experts = case.arch.experts
    if experts is not None and experts.expert_ffn_hidden_size % case.config.etp:
        return f"expert FFN width {experts.expert_ffn_hidden_size} is not a multiple of ETP {case.config.etp}"
    return None


@book.hard("T11", megatron("core/transformer/moe/moe_layer.py:484"), "MoE with TP > 1 needs sequence parallelism")
def _moe_sequence_parallel(case: Case) -> str | None:
    if case.arch.is_moe and case.config.tp > 1 and not case.config.sequence_parallel:
        return f"TP {case.config.tp} on an MoE model needs sequence_parallel true"
    return None


@book.hard("T12", megatron("core/tensor_parallel/mappings.py:68"), "sequence parallelism: sequence / CP is a multiple of TP")
def _sequence_parallel(case: Case) -> str | None:
    c, seq = case.config, case.arch.seq_length
    if c.sequence_parallel and c.tp > 1 and seq % c.cp == 0 and (seq // c.cp) % c.tp:
        return f"sequence {seq} / CP {c.cp} = {seq // c.cp} is not a multiple of TP {c.tp} (sequence parallelism)"
    return None


@book.hard("T13", megatron("training/arguments.py:1153"), "overlapped TP communication needs sequence parallelism")
def _overlapped_tp(case: Case) -> str | None:
    """Off at TP 1 as well: the trainer turns sequence parallelism off there before it asks."""
    c = case.config
    if not case.arguments.get("tp_comm_overlap") or c.sequence_parallel:
        return None
    remedy = "set tp_comm_overlap false" if c.tp == 1 else "set sequence_parallel true"
    return f"tp_comm_overlap at TP {c.tp} needs sequence parallelism, it is off; {remedy}"


@book.hard("T16", primus("backends/megatron/core/extensions/primus_turbo.py:1036"), "use_turbo_gemm needs TP 1")
def _turbo_gemm(case: Case) -> str | None:
    """Above TP 1 Primus leaves Primus-Turbo out; where the legacy grouped GEMM brings its classes back in, they stop."""
    a, tp = case.arguments, case.config.tp
    if a.get("enable_primus_turbo") and a.get("use_turbo_gemm") and tp > 1:
        return f"use_turbo_gemm needs TP 1, TP is {tp}; set use_turbo_gemm false"
    return None


@book.hard("T18", megatron("core/transformer/transformer_config.py:1764"), "MoE with linear biases needs ETP 1 and no shared experts")
def _biased_experts(case: Case) -> str | None:
    arch, etp = case.arch, case.config.etp
    if not arch.is_moe or arch.experts is None or not arch.linear_bias:
        return None
    if (width := arch.experts.shared_expert_ffn_hidden_size) > 0:
        return f"shared experts (width {width}) need add_bias_linear false, it is true"
    return f"experts with biases (add_bias_linear) need expert_tensor_parallel_size 1, it is {etp}" if etp > 1 else None


@book.hard("C1", megatron("training/arguments.py:1055"), "sequence is a multiple of 2 x CP")
def _sequence(case: Case) -> str | None:
    cp, seq = case.config.cp, case.arch.seq_length
    return f"sequence {seq} is not a multiple of 2 x CP {cp} = {2 * cp}" if cp > 1 and seq % (2 * cp) else None


@book.hard("C2", megatron("training/arguments.py:445-450"), "a2a+p2p needs hierarchical sizes")
def _hierarchical(case: Case) -> str | None:
    cp, sizes = case.config.cp, case.arguments.get("hierarchical_context_parallel_sizes")
    if cp > 1 and not case.config.turbo_attention and case.config.cp_comm_type == "a2a+p2p" and prod(whole_numbers(sizes) or [0]) != cp:
        return f"cp_comm_type a2a+p2p needs hierarchical_context_parallel_sizes with product CP {cp}, they are {str(sizes)[:80]}"
    return None


@book.hard("C4", engine("attention/dot_product_attention/context_parallel.py:5138"), "cp_comm_type is one that TransformerEngine knows")
def _comm_type(case: Case) -> str | None:
    """Turbo attention does not read it (C13)."""
    c, known = case.config, ("p2p", "a2a", "all_gather", "a2a+p2p")
    if c.cp > 1 and not c.turbo_attention and c.cp_comm_type not in known:
        return f"cp_comm_type {c.cp_comm_type!r} at CP {c.cp} is none of {', '.join(known)}"
    return None


def _ulysses(case: Case, why: str) -> str | None:
    c, arch = case.config, case.arch
    heads, groups = arch.num_attention_heads // c.tp, max(1, arch.num_query_groups // c.tp)
    if heads % c.cp or groups % c.cp:
        return f"{heads} heads and {groups} query groups per TP rank are not multiples of CP {c.cp} ({why})"
    return None


@book.hard("C5", engine("attention/dot_product_attention/context_parallel.py:4246"), "a2a context parallelism splits heads by CP")
def _a2a(case: Case) -> str | None:
    c = case.config
    return _ulysses(case, "cp_comm_type a2a") if c.cp > 1 and c.cp_comm_type == "a2a" and not c.turbo_attention else None


@book.hard("C6", engine("attention/dot_product_attention/context_parallel.py:5057"), "a sliding window needs a2a or all_gather")
def _window(case: Case) -> str | None:
    window, c = case.arch.sliding_window, case.config
    if c.cp > 1 and window is not None and not c.turbo_attention and c.cp_comm_type not in ("a2a", "all_gather"):
        return f"sliding window {window} with CP {c.cp} needs cp_comm_type a2a or all_gather, it is {c.cp_comm_type}"
    return None


@book.hard("C13", turbo("ops/attention/flash_attn_usp_interface.py:104,555"), "Turbo attention with CP splits heads by CP")
def _turbo_attention(case: Case) -> str | None:
    return _ulysses(case, "use_turbo_attention runs Ulysses") if case.config.cp > 1 and case.config.turbo_attention else None


@book.hard("C15", primus("backends/megatron/core/extensions/primus_turbo.py:785"), "Turbo's attention sinks need CP 1 and TP 1")
def _sinks(case: Case) -> str | None:
    """The workload's own keys tell: a trial above CP 1 turns Turbo's attention off, and above TP 1 Primus does (rule turbo-tp)."""
    c = case.config
    if turbo_sinks(case.workload.arguments) and (c.cp > 1 or c.tp > 1):
        return f"attention sinks are dropped silently at CP {c.cp} and TP {c.tp}: another model would be trained; use CP 1 and TP 1"
    return None


@book.hard("C10", megatron("core/transformer/transformer_config.py:2160"), "sparse latent attention needs CP 1")
def _sparse_attention(case: Case) -> str | None:
    indexer, cp = case.arch.sparse_indexer, case.config.cp
    return f"sparse attention (top {indexer.top_k}) needs CP 1, CP is {cp}" if indexer is not None and cp > 1 else None


@book.hard("T19", megatron("core/transformer/transformer_config.py:1064-1078"), "gated delta net: heads are multiples of TP, CP 1")
def _delta_net(case: Case) -> str | None:
    mixer, c = case.arch.mixer, case.config
    if not isinstance(mixer, GatedDeltaNet):
        return None
    if mixer.key_heads % c.tp or mixer.value_heads % c.tp:
        return f"{mixer.key_heads} key and {mixer.value_heads} value heads of the gated delta net are not multiples of TP {c.tp}"
    return f"the gated delta net needs CP 1, CP is {c.cp}" if c.cp > 1 else None


@book.policy("tp-divides-hidden", "TP divides the hidden size")
def _hidden(case: Case) -> str | None:
    if case.arch.hidden_size % case.config.tp:
        return f"hidden size {case.arch.hidden_size} is not a multiple of TP {case.config.tp}"
    return None


@book.policy("tp-within-node", "TP stays within a node (or the NVLink domain)")
def _within_node(case: Case) -> str | None:
    limit = case.cluster.tightly_linked_gpus
    return f"TP {case.config.tp} exceeds the {limit} GPUs of a node" if case.config.tp > limit else None


@book.policy("etp-one-or-tp", "ETP is 1 or TP")
def _etp(case: Case) -> str | None:
    c = case.config
    if case.arch.is_moe and c.etp not in (1, c.tp):
        return f"expert_tensor_parallel_size {c.etp} is neither 1 nor TP {c.tp}"
    return None


@book.policy("cp-within-node", "dense: CP <= GPUs per node; MoE: CP <= EP and EP % CP == 0")
def _context(case: Case) -> str | None:
    c = case.config
    if c.cp == 1:
        return None
    if case.arch.is_moe:
        return f"CP {c.cp} does not divide EP {c.ep} (parallel folding)" if c.ep % c.cp else None
    return f"CP {c.cp} exceeds the {case.cluster.gpus_per_node} GPUs of a node" if c.cp > case.cluster.gpus_per_node else None
