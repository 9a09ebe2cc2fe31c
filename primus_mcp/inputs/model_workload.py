"""A catalogue model's name to a complete Primus workload, so that "Llama 70B on 8 nodes" needs no file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from primus_mcp.errors import InputError
from primus_mcp.inputs.architecture import Architecture, GatedDeltaNet, MixtureOfExperts, ShortConvolution
from primus_mcp.inputs.argument_values import MAX_COUNT, complete_arguments
from primus_mcp.inputs.findings import Finding
from primus_mcp.inputs.presets import PresetReader, bundled_root, config_roots, deep_merge
from primus_mcp.inputs.published import PublishedModel, find_model
from primus_mcp.inputs.workload import PRETRAIN_MODULE, Workload, workload_from_arguments

_FRAMEWORK = "megatron"
_CONFIG = "pre_trainer.yaml"
_PLAIN_MODEL = "language_model.yaml"
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


def _attention_arguments(arch: Architecture) -> dict[str, Any]:
    latent = arch.latent_attention
    keys: dict[str, Any] = {
        "group_query_attention": latent is None and arch.num_query_groups != arch.num_attention_heads,
        "num_query_groups": arch.num_query_groups,
        "kv_channels": arch.head_dim,
        "multi_latent_attention": latent is not None,
        "qk_layernorm": arch.qk_norm and arch.qk_norm_scope != "unweighted",
        "add_qkv_bias": arch.qkv_bias,
        "softmax_type": "learnable" if arch.attention_sinks else "vanilla",
    }
    if arch.attention_output_gate:
        keys["attention_output_gate"] = True
    if latent is not None:
        keys |= {
            "q_lora_rank": latent.q_lora_rank,
            "kv_lora_rank": latent.kv_lora_rank,
            "qk_head_dim": latent.qk_nope_head_dim,
            "qk_pos_emb_head_dim": latent.qk_rope_head_dim,
            "v_head_dim": latent.v_head_dim,
        }
    if arch.sliding_window is not None:
        keys |= {"window_size": [arch.sliding_window, 0], "window_attn_skip_freq": [int(local) for local in arch.windowed_layers]}
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
    return {
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


def _positive(value: int | None, default: int, where: str) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_COUNT:
        raise InputError(f"is {value!r}", where=where, remedy="write a whole number of at least 1")
    return value


def _overrides(model: PublishedModel, presets: Mapping[str, Any], seq_length: int, gbs: int, mbs: int) -> dict[str, Any]:
    """What the preset does not already say: the published architecture, the run, and a mock vocabulary of the model's own size.

    Under mock_data the vocabulary is `vocab_size` + 1 (the end-of-document token), hence one less here.
    """
    arch = model.architecture
    known = complete_arguments(presets)
    positions = max(seq_length, arch.max_position_embeddings or 0)
    wanted = {**architecture_arguments(arch), "max_position_embeddings": positions}
    if presets.get("tokenizer_model") is None and model.hf_id is not None:
        wanted |= {"tokenizer_type": "HuggingFaceTokenizer", "tokenizer_model": model.hf_id}
    run = {"micro_batch_size": mbs, "global_batch_size": gbs, "seq_length": seq_length}
    vocab = (model.tokenizer_length or model.vocab_size) - 1
    moe = {"moe_grouped_gemm": True, "moe_permute_fusion": True, "moe_token_dispatcher_type": "alltoall"} if arch.experts else {}
    changed = {key: value for key, value in (wanted | moe).items() if key not in known or known[key] != value}
    return {**run, **_RUN, "vocab_size": vocab, **changed, "expert_model_parallel_size": 1}


def _document(model: PublishedModel, preset: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "work_group": "${PRIMUS_TEAM:amd}",
        "user_name": "${PRIMUS_USER:root}",
        "exp_name": f"${{PRIMUS_EXP_NAME:{model.name}}}",
        "workspace": "${PRIMUS_WORKSPACE:./output}",
        "modules": {
            PRETRAIN_MODULE: {
                "framework": _FRAMEWORK,
                "config": _CONFIG,
                "model": preset,
                "overrides": {"train_iters": 50, **overrides},
            }
        },
    }


def workload_from_model(name: str, *, seq_length: int | None = None, gbs: int | None = None, mbs: int | None = None) -> Workload:
    """A catalogue model as a workload on one GPU's worth of parallelism; what is None is the catalogue's default for it.

    The document is a complete Primus workload that resolves to the same model and settings again: it names the model's own preset, or
    the plain language model where Primus has none, and overrides what the published architecture has otherwise. Raises InputError.
    """
    model = find_model(name)
    length = _positive(seq_length, model.run.seq_length, "seq_length")
    batch, micro = _positive(gbs, model.run.gbs, "gbs"), _positive(mbs, model.run.mbs, "mbs")
    learned = model.architecture.position_embedding == "learned"
    if learned and length > (limit := model.architecture.max_position_embeddings or length):
        raise InputError(f"is {length}, {model.name} has {limit} learned positions", where="seq_length", remedy=f"write at most {limit}")
    own = bundled_root().path / "models" / _FRAMEWORK / f"{model.name}.yaml"
    preset = own.name if own.is_file() else _PLAIN_MODEL
    reader = PresetReader(roots=config_roots(None, None), environment={})
    trainer = reader.flatten(_CONFIG, "modules", _FRAMEWORK, f"{model.name}: config")
    presets = deep_merge(trainer, reader.flatten(preset, "models", _FRAMEWORK, f"{model.name}: model"))
    overrides = _overrides(model, presets, length, batch, micro)
    taken = [("sequence", length, seq_length), ("GBS", batch, gbs), ("MBS", micro, mbs)]
    defaults = ", ".join(f"{label} {value:,}" for label, value, given in taken if given is None)
    text = f"{model.name} is priced with {defaults} ({model.run.source}); change them with --seq-length, --gbs and --pin mbs=N"
    findings = (Finding(code="model-defaults", text=text),) if defaults else ()
    return workload_from_arguments(
        deep_merge(presets, overrides),
        PurePosixPath(model.name).name,
        document=_document(model, preset, overrides),
        read=tuple(reader.read),
        findings=(*reader.findings, *findings),
    )
