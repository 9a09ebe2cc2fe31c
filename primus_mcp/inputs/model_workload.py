"""A catalogue model's name to a complete Primus workload, so that "Llama 70B on 8 nodes" needs no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from primus_mcp.errors import InputError
from primus_mcp.inputs.architecture import Architecture, GatedDeltaNet, MixtureOfExperts, ShortConvolution
from primus_mcp.inputs.argument_values import MAX_COUNT, complete_arguments
from primus_mcp.inputs.findings import NOT_CARRIED, Finding
from primus_mcp.inputs.presets import PresetReader, bundled_root, config_roots, deep_merge
from primus_mcp.inputs.published import find_model
from primus_mcp.inputs.workload import Workload, workload_from_arguments
from primus_mcp.inputs.workload_file import PRETRAIN_MODULE

FRAMEWORK = "megatron"
TRAINER_CONFIG = "pre_trainer.yaml"
PLAIN_MODEL = "language_model.yaml"
_RUN: Mapping[str, Any] = {
    "mock_data": True,
    "overlap_grad_reduce": True,
    "overlap_param_gather": True,
    "gradient_accumulation_fusion": True,
    "cross_entropy_loss_fusion": True,
    "cross_entropy_fusion_impl": "te",
}
"""Settings that Primus's own example workloads share (AMD-AGI/Primus@fd1eeabb examples/megatron/configs/MI355X)."""


def _mask(values: tuple[bool, ...]) -> str:
    """A per-layer pattern as Megatron reads it: runs of equal values, for example `([0]*3+[1]*58)`."""
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([int(value), 1])
    return "(" + "+".join(f"[{value}]*{count}" for value, count in runs) + ")"


def _sinks_and_windows(arch: Architecture) -> dict[str, Any]:
    """Sinks are Primus-Turbo's, over whole rows, as in Primus's own examples of such models (gpt_oss_20B-BF16-pretrain.yaml): Transformer
    Engine on ROCm runs a learned softmax unfused, and Turbo's kernel takes no window, which `differs-from-published` says.
    """
    if arch.attention_sinks:
        turbo = ("enable_primus_turbo", "use_turbo_attention", "use_sink_attention")
        return {"softmax_type": "vanilla", **dict.fromkeys(turbo, True), "sink_sliding_window": 0}
    if arch.sliding_window is None:
        return {"softmax_type": "vanilla"}
    local = [int(local) for local in arch.windowed_layers]
    return {"softmax_type": "vanilla", "window_size": [arch.sliding_window, 0], "window_attn_skip_freq": local}


def _attention_arguments(arch: Architecture) -> dict[str, Any]:
    latent = arch.latent_attention
    keys: dict[str, Any] = {
        "group_query_attention": latent is None and arch.num_query_groups != arch.num_attention_heads,
        "num_query_groups": arch.num_query_groups,
        "kv_channels": arch.head_dim,
        "multi_latent_attention": latent is not None,
        "qk_layernorm": arch.qk_norm and arch.qk_norm_scope != "unweighted",
        "add_qkv_bias": arch.qkv_bias,
        **_sinks_and_windows(arch),
    }
    if arch.attention_output_gate:
        keys["attention_output_gate"] = True
    if arch.activation_clamp is not None:
        keys["activation_func_clamp_value"] = arch.activation_clamp
    if latent is not None:
        keys |= {
            "q_lora_rank": latent.q_lora_rank,
            "kv_lora_rank": latent.kv_lora_rank,
            "qk_head_dim": latent.qk_nope_head_dim,
            "qk_pos_emb_head_dim": latent.qk_rope_head_dim,
            "v_head_dim": latent.v_head_dim,
        }
    return keys


def _mixer_arguments(arch: Architecture) -> dict[str, Any]:
    if isinstance(arch.mixer, ShortConvolution):
        kinds = ["full_attention" if kind == "attention" else "conv" for kind in arch.layer_kinds]
        return {"lfm_layer_types": kinds, "conv_L_cache": arch.mixer.kernel, "conv_bias": False}
    if isinstance(arch.mixer, GatedDeltaNet):
        return {
            "experimental_attention_variant": "gated_delta_net",
            "linear_attention_freq": [int(kind == "mixer") for kind in arch.layer_kinds],
            "linear_conv_kernel_dim": arch.mixer.kernel,
            "linear_key_head_dim": arch.mixer.key_head_dim,
            "linear_value_head_dim": arch.mixer.value_head_dim,
            "linear_num_key_heads": arch.mixer.key_heads,
            "linear_num_value_heads": arch.mixer.value_heads,
        }
    return {}


def _expert_arguments(arch: Architecture, experts: MixtureOfExperts) -> dict[str, Any]:
    """An expert bias goes with sigmoid scores only (Megatron-LM core/transformer/transformer_config.py:1769), biases of grouped experts
    without fused dropout (core/transformer/moe/experts.py:171).
    """
    score = {"moe_router_score_function": "sigmoid"} if experts.router_expert_bias else {}
    biased = {"bias_dropout_fusion": False} if arch.linear_bias else {}
    return (
        score
        | biased
        | {
            "num_experts": experts.num_experts,
            "moe_layer_freq": _mask(arch.moe_layers),
            "moe_router_topk": experts.top_k,
            "moe_ffn_hidden_size": experts.expert_ffn_hidden_size,
            "moe_shared_expert_intermediate_size": experts.shared_expert_ffn_hidden_size or None,
            "moe_shared_expert_gate": experts.shared_expert_gate,
            "moe_router_num_groups": experts.router_num_groups,
            "moe_router_group_topk": experts.router_group_topk,
            "moe_router_enable_expert_bias": experts.router_expert_bias,
        }
    )


def architecture_arguments(arch: Architecture) -> dict[str, Any]:
    """The Megatron arguments that build an architecture, as far as Megatron has them.

    It has none for norms behind attention and MLP, a norm over all heads together, a dense MLP beside experts, attention in chunks and a
    sparse indexer: those are left out, and `differs-from-published` says so.
    """
    keys: dict[str, Any] = {
        "num_layers": arch.num_layers,
        "hidden_size": arch.hidden_size,
        "ffn_hidden_size": arch.ffn_hidden_size,
        "num_attention_heads": arch.num_attention_heads,
        "normalization": arch.normalization,
        "swiglu": arch.gated_mlp,
        "squared_relu": arch.activation == "squared_relu",
        "quick_geglu": False,
        "add_bias_linear": arch.linear_bias,
        "position_embedding_type": {"learned": "learned_absolute"}.get(arch.position_embedding, arch.position_embedding),
        "untie_embeddings_and_output_weights": not arch.tied_embeddings,
        "mtp_num_layers": arch.mtp_num_layers or None,
        "hidden_dropout": arch.hidden_dropout,
        "attention_dropout": arch.attention_dropout,
        **_attention_arguments(arch),
        **_mixer_arguments(arch),
    }
    return keys | (_expert_arguments(arch, arch.experts) if arch.experts else {"num_experts": None})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRun:
    """A model and how it is run. `vocab_size`: entries of its tokenizer; `tokenizer`: its Hugging Face id, None where unknown.

    `numbers`: arguments of the model that change neither memory nor time, as far as they are known.
    """

    name: str
    architecture: Architecture
    vocab_size: int
    tokenizer: str | None
    seq_length: int
    gbs: int
    mbs: int
    numbers: Mapping[str, Any] = field(default_factory=dict)


def _overrides(run: ModelRun, presets: Mapping[str, Any]) -> dict[str, Any]:
    """What the preset does not already say: the architecture, the run, and a mock vocabulary of the model's own size.

    Under mock_data the vocabulary is `vocab_size` + 1 (the end-of-document token), hence one less here.
    """
    arch = run.architecture
    known = complete_arguments(presets)
    positions = max(run.seq_length, arch.max_position_embeddings or 0)
    wanted = {**architecture_arguments(arch), "max_position_embeddings": positions}
    if presets.get("tokenizer_model") is None and run.tokenizer is not None:
        wanted |= {"tokenizer_type": "HuggingFaceTokenizer", "tokenizer_model": run.tokenizer}
    sizes = {"micro_batch_size": run.mbs, "global_batch_size": run.gbs, "seq_length": run.seq_length}
    moe = {"moe_grouped_gemm": True, "moe_permute_fusion": True, "moe_token_dispatcher_type": "alltoall"} if arch.experts else {}
    changed = {key: value for key, value in (wanted | moe).items() if key not in known or known[key] != value}
    return {**sizes, **_RUN, "vocab_size": run.vocab_size - 1, **changed, **run.numbers, "expert_model_parallel_size": 1}


def primus_document(name: str, preset: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A complete Primus workload file as plain data."""
    return {
        "work_group": "${PRIMUS_TEAM:amd}",
        "user_name": "${PRIMUS_USER:root}",
        "exp_name": f"${{PRIMUS_EXP_NAME:{name}}}",
        "workspace": "${PRIMUS_WORKSPACE:./output}",
        "modules": {
            PRETRAIN_MODULE: {
                "framework": FRAMEWORK,
                "config": TRAINER_CONFIG,
                "model": preset,
                "overrides": {"train_iters": 50, **overrides},
            }
        },
    }


def bundled_presets(name: str, preset: str = PLAIN_MODEL) -> tuple[dict[str, Any], PresetReader]:
    """The trainer's arguments under a bundled model preset before any override, and the reader that knows which files they came from."""
    reader = PresetReader(roots=config_roots(None, None), environment={})
    trainer = reader.flatten(TRAINER_CONFIG, "modules", FRAMEWORK, f"{name}: config")
    return deep_merge(trainer, reader.flatten(preset, "models", FRAMEWORK, f"{name}: model")), reader


def has_preset(name: str) -> bool:
    """Whether Primus has a preset of this name, which is bundled."""
    return (bundled_root().path / "models" / FRAMEWORK / f"{name}.yaml").is_file()


def workload_of(run: ModelRun, *, preset: str, findings: tuple[Finding, ...]) -> Workload:
    """A model's run as a workload on one GPU's worth of parallelism, with its complete document. Raises InputError."""
    learned = run.architecture.position_embedding == "learned"
    if learned and run.seq_length > (limit := run.architecture.max_position_embeddings or run.seq_length):
        problem = f"is {run.seq_length}, {run.name} has {limit} learned positions"
        raise InputError(problem, where="seq_length", remedy=f"write at most {limit}")
    presets, reader = bundled_presets(run.name, preset)
    overrides = _overrides(run, presets)
    return workload_from_arguments(
        deep_merge(presets, overrides),
        PurePosixPath(run.name).name,
        document=primus_document(run.name, preset, overrides),
        read=tuple(reader.read),
        findings=(*reader.findings, *findings),
    )


def positive(value: int | None, default: int, where: str) -> int:
    """A size that was given, else the default. Raises InputError."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_COUNT:
        raise InputError(f"is {value!r}", where=where, remedy="write a whole number of at least 1")
    return value


def workload_from_model(name: str, *, seq_length: int | None = None, gbs: int | None = None, mbs: int | None = None) -> Workload:
    """A catalogue model as a workload on one GPU's worth of parallelism; what is None is the catalogue's default for it.

    The document is a complete Primus workload that resolves to the same model and settings again: it names the model's own preset, or
    the plain language model where Primus has none, and overrides what the published architecture has otherwise. Raises InputError.
    """
    model = find_model(name)
    run = ModelRun(
        name=model.name,
        architecture=model.architecture,
        vocab_size=model.tokenizer_length or model.vocab_size,
        tokenizer=model.hf_id,
        seq_length=positive(seq_length, model.run.seq_length, "seq_length"),
        gbs=positive(gbs, model.run.gbs, "gbs"),
        mbs=positive(mbs, model.run.mbs, "mbs"),
    )
    own = has_preset(model.name)
    taken = [("sequence", run.seq_length, seq_length), ("GBS", run.gbs, gbs), ("MBS", run.mbs, mbs)]
    findings = (*default_findings(model.name, taken, model.run.source), *(() if own else _unknown_numbers(model.name, model.architecture)))
    return workload_of(run, preset=f"{model.name}.yaml" if own else PLAIN_MODEL, findings=findings)


def _unknown_numbers(name: str, arch: Architecture) -> tuple[Finding, ...]:
    """What a published model without a file of Primus's own would run with: the plain language model's numbers."""
    rotary = ["rotary_base"] if arch.position_embedding == "rope" else []
    router = ["moe_router_score_function", "moe_router_pre_softmax"] if arch.experts else []
    keys = ", ".join((*rotary, "norm_epsilon", "init_method_std", *router))
    text = (
        f"{keys} of {name} are not in the catalogue and Primus has no model file of it: set them yourself, or start from --hf config.json"
    )
    return (Finding(code=NOT_CARRIED, text=text),)


def default_findings(name: str, taken: Sequence[tuple[str, int, int | None]], source: str) -> tuple[Finding, ...]:
    """Which sizes the caller did not give: (label, what was taken, what was given)."""
    defaults = ", ".join(f"{label} {value:,}" for label, value, given in taken if given is None)
    text = f"{name} is priced with {defaults} ({source}); change them with --seq-length, --gbs and --pin mbs=N"
    return (Finding(code="model-defaults", text=text),) if defaults else ()
