"""Rules on captured graphs: which of the three switches, and which parts of a layer."""

from __future__ import annotations

from primus_mcp.space.rules.base import Case, RuleBook, megatron

book = RuleBook()
_SWITCHES = ("enable_cuda_graph", "external_cuda_graph")
_CONFIG = "core/transformer/transformer_config.py"


def _implementation(case: Case) -> str | None:
    """The implementation (local or transformer_engine), None without graphs; the old switches are names for them."""
    a = case.arguments
    if a.get("enable_cuda_graph"):
        return "local"
    if a.get("external_cuda_graph"):
        return "transformer_engine"
    written = a.get("cuda_graph_impl")
    return None if written in (None, "none") else str(written)


def _scope(case: Case) -> list[str]:
    """The named parts of a layer; `full` and an empty list both mean all of it. Local graphs capture router and preprocessing together."""
    written = case.arguments.get("cuda_graph_scope")
    named = [str(part) for part in (written if isinstance(written, list) else str(written or "").replace(",", " ").split())]
    if _implementation(case) == "local" and {"moe_router", "moe_preprocess"} & set(named):
        named += [part for part in ("moe_router", "moe_preprocess") if part not in named]
    return named


@book.hard("G1", megatron("training/arguments.py:476"), "one switch turns CUDA graphs on")
def _one_switch(case: Case) -> str | None:
    a = case.arguments
    on = [key for key in _SWITCHES if a.get(key)]
    if a.get("cuda_graph_impl") not in (None, "none"):
        on.append(f"cuda_graph_impl {a['cuda_graph_impl']}")
    return f"{len(on)} switches of CUDA graphs are on, 1 is allowed: {', '.join(on)}" if len(on) > 1 else None


@book.hard("G2", megatron(_CONFIG + ":1913-1939"), "the parts that are captured exist and do not overlap")
def _parts(case: Case) -> str | None:
    impl = _implementation(case)
    if impl is None:
        return None
    scope, arch = _scope(case), case.arch
    if impl == "transformer_engine" and "full_iteration" in scope:
        return "cuda_graph_scope full_iteration needs cuda_graph_impl local, it is transformer_engine (1 of the 2 must change)"
    if "moe" in scope and "moe_router" in scope:
        return "cuda_graph_scope has moe and moe_router, 1 of the 2 is allowed"
    if "moe_preprocess" in scope and "moe_router" not in scope:
        return f"cuda_graph_scope {', '.join(scope)} ({len(scope)} parts): moe_preprocess needs moe_router"
    named = [part for part in ("moe", "moe_router") if part in scope]
    if named and not arch.is_moe:
        return f"cuda_graph_scope {', '.join(named)} needs experts, the model has 0"
    if "mlp" in scope and arch.is_moe and all(arch.moe_layers):
        return f"cuda_graph_scope mlp needs a dense layer, all {arch.num_layers} layers have experts"
    return None


@book.hard("G3", megatron(_CONFIG + ":1940-1954"), "captured experts need a fixed capacity")
def _capacity(case: Case) -> str | None:
    if _implementation(case) is None or not case.arch.is_moe:
        return None
    a, scope = case.arguments, _scope(case)
    factor, padded = a.get("moe_expert_capacity_factor"), bool(a.get("moe_pad_expert_input_to_capacity"))
    if factor is not None and padded:
        return None
    if "moe" in scope:
        return (
            f"cuda_graph_scope moe ({len(scope)} parts) needs moe_expert_capacity_factor and moe_pad_expert_input_to_capacity true,"
            f" they are {factor} and {str(padded).lower()}"
        )
    padding = a.get("moe_router_padding_for_fp8")
    if "moe_preprocess" in scope and case.config.dispatcher == "alltoall" and (factor is not None or padding):
        key = f"moe_expert_capacity_factor {factor}" if factor is not None else "moe_router_padding_for_fp8 true"
        return f"cuda_graph_scope moe_preprocess ({len(scope)} parts) excludes {key} with the alltoall dispatcher"
    return None


@book.hard("G4", megatron("training/arguments.py:958,1402"), "local graphs: no check for NaN inside, experts padded at EP > 1")
def _nan_check(case: Case) -> str | None:
    if _implementation(case) != "local":
        return None
    a = case.arguments
    if "full_iteration" in _scope(case) and a.get("check_for_nan_in_loss_and_grad", True):
        return "cuda_graph_scope full_iteration needs check_for_nan_in_loss_and_grad false (1 graph holds the whole step)"
    if case.config.ep > 1 and not a.get("moe_pad_experts_for_cuda_graph_inference"):
        return f"cuda_graph_impl local at EP {case.config.ep} needs moe_pad_experts_for_cuda_graph_inference true, it is false"
    return None


@book.hard("G5", megatron(_CONFIG + ":1962-2001"), "recomputation inside a graph takes no random numbers")
def _graphed_recompute(case: Case) -> str | None:
    c, a, impl = case.config, case.arguments, _implementation(case)
    if impl is None or c.recompute.granularity != "selective":
        return None
    scope, modules = [part for part in _scope(case) if part != "full"], c.recompute.modules
    if impl == "transformer_engine" and "moe" in modules and "moe_router" in scope:
        return f"recompute_modules moe excludes cuda_graph_scope moe_router ({len(scope)} parts are captured)"
    whole = not scope or "full_iteration" in scope
    attention, hidden = a.get("attention_dropout") or 0, a.get("hidden_dropout") or 0
    if attention and "core_attn" in modules and (whole or "attn" in scope):
        return f"recompute_modules core_attn inside a CUDA graph needs attention_dropout 0, it is {attention}"
    for module in ("mlp", "moe"):
        if hidden and module in modules and (whole or module in scope):
            return f"recompute_modules {module} inside a CUDA graph needs hidden_dropout 0, it is {hidden}"
    jitter = a.get("moe_input_jitter_eps")
    if jitter is not None and "moe" in modules and (whole or "moe" in scope):
        return f"recompute_modules moe inside a CUDA graph needs moe_input_jitter_eps null, it is {jitter}"
    return None


@book.hard("R13", megatron(_CONFIG + ":1957"), "full recompute excludes partial graphs")
def _full_recompute(case: Case) -> str | None:
    """Also with 0 layers to recompute; ids of layers (recompute_layer_ids) hide the granularity from the trainer's check (R11)."""
    a = case.arguments
    if _implementation(case) is None or a.get("recompute_granularity") != "full" or a.get("recompute_layer_ids") is not None:
        return None
    if _scope(case) != ["full_iteration"]:
        layers = a.get("recompute_num_layers")
        return f"recompute_granularity full ({layers} layers) with CUDA graphs needs cuda_graph_scope full_iteration, or no graphs"
    return None


@book.hard(
    "E13-graphs", megatron(_CONFIG + ":2074-2082"), "the overlapped expert exchange under graphs: Transformer Engine's, not of moe or mlp"
)
def _overlapped_exchange(case: Case) -> str | None:
    impl, scope = _implementation(case), _scope(case)
    if impl is None or not case.arguments.get("overlap_moe_expert_parallel_comm"):
        return None
    wrong = [] if impl == "transformer_engine" else ["cuda_graph_impl transformer_engine"]
    wrong += [f"no {part} in cuda_graph_scope" for part in ("moe", "mlp") if part in scope]
    return f"overlap_moe_expert_parallel_comm at EP {case.config.ep} with CUDA graphs needs {', '.join(wrong)}" if wrong else None


@book.hard("G12", megatron("training/arguments.py:1520"), "the scope full stands alone")
def _full_alone(case: Case) -> str | None:
    scope = _scope(case)
    if len(scope) > 1 and "full" in scope:
        return f"cuda_graph_scope full stands alone, it has {len(scope)} parts: {', '.join(scope)}"
    return None
