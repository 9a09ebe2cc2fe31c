"""What of a Hugging Face `config.json` makes it the model that it is, though it changes neither memory nor time, as trainer arguments.

Constants of norms, rotary embedding, router and initialisation. What the trainer has no argument for is named, so that nobody trains
another model by mistake. source: NVIDIA/Megatron-LM@d3528a21 megatron/training/arguments.py, core/transformer/moe/moe_utils.py and
core/models/common/embeddings; huggingface/transformers@v4.57.1 src/transformers/modeling_rope_utils.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.findings import NOT_CARRIED, RESCALED, Finding
from primus_mcp.inputs.huggingface_config import HfConfig, model_classes, shown

_EPSILONS = ("rms_norm_eps", "layer_norm_eps", "norm_eps", "layer_norm_epsilon")
_LLAMA3: Mapping[str, float] = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""What Megatron-LM's --use-rope-scaling has in code (core/models/common/embeddings/rotary_pos_embedding.py)."""
_YARN_BETAS: Mapping[str, float] = {"beta_fast": 32.0, "beta_slow": 1.0}
"""What Primus's model files leave to Megatron-LM's MLATransformerConfig."""
_NAMES = ("rope_type", "type", "factor", "rope_theta", "partial_rotary_factor")
_OFF: tuple[Any, ...] = (None, False, 0, 0.0, "", [], {})


@dataclass(frozen=True, slots=True, kw_only=True)
class HfNumbers:
    """`arguments`: trainer key -> value. `carried`: the config's key -> trainer key. `not_carried`: sentences, each with the key first.
    `rescaled`: what a key became that weighs something else in the trainer.
    """

    arguments: Mapping[str, Any]
    carried: Mapping[str, str]
    not_carried: tuple[str, ...]
    rescaled: tuple[str, ...] = ()

    def findings(self, others: tuple[str, ...] = ()) -> tuple[Finding, ...]:
        """What was taken over, and what the user has to set. `others`: what further has no place in the trainer's arguments."""
        found = []
        if self.carried:
            said = ", ".join(f"{key} -> {argument} {self.arguments[argument]}" for key, argument in self.carried.items())
            found.append(Finding(code="hf-carried", text=f"keys that change neither memory nor time, taken over: {said}"))
        found += [Finding(code=RESCALED, text=text) for text in self.rescaled]
        if left := (*self.not_carried, *others):
            text = "".join(c if c.isprintable() else " " for c in "; ".join(left))
            found.append(Finding(code=NOT_CARRIED, text=f"not carried over from config.json, set it yourself: {text}"))
        return tuple(found)


class _Collector:
    """Takes one key after the other."""

    def __init__(self, config: HfConfig) -> None:
        self.config = config
        self.taken: dict[str, Any] = {}
        self.carried: dict[str, str] = {}
        self.left: list[str] = []
        self.rescaled: list[str] = []

    def has(self, key: str) -> bool:
        return key in self.config.document or key in self.config.family.numbers

    def carry(self, key: str, argument: str, value: Any) -> None:
        self.taken[argument] = value
        if self.has(key):
            self.carried[key] = argument

    def leave(self, key: str, value: Any, why: str) -> None:
        self.left.append(f"{key} {shown(value)} ({why})")

    def number(self, key: str, argument: str) -> None:
        """A number above 0 as it is."""
        if self.has(key) and (value := self.config.number(key)) is not None:
            self.carry(key, argument, value)

    def weight(self, key: str, argument: str) -> float:
        """The weight of a loss term or noise, which may be 0."""
        if key not in self.config.document or (value := self.config.raw(key)) in _OFF:
            return 0.0
        self.carry(key, argument, found := self.config.as_number(key, value))
        return found


def _rope_parameters(config: HfConfig) -> tuple[Mapping[str, Any], str]:
    """The scaling of the rotary embedding as the file has it, under the key of today or the newer one. Raises InputError."""
    key = "rope_parameters" if config.document.get("rope_parameters") is not None else "rope_scaling"
    scaling = config.raw(key)
    if scaling is None:
        return {}, key
    kinds = [scaling[name] for name in ("rope_type", "type") if name in scaling] if isinstance(scaling, Mapping) else []
    if not isinstance(scaling, Mapping) or (key == "rope_scaling" and not kinds) or not all(isinstance(kind, str) for kind in kinds):
        raise config.refuse(key, f"is {shown(scaling)}", "write a mapping with its rope_type, or null")
    return scaling, key


def _rotation(numbers: _Collector, scaling: Mapping[str, Any], where: str, latent: bool) -> None:
    """rotary_base (a whole number in Megatron-LM) and the share of the head that turns."""
    config = numbers.config
    key = "rope_theta"
    theta = config.as_number(f"{where}.rope_theta", scaling[key]) if key in scaling else config.number(key)
    if theta is not None and theta.is_integer():
        numbers.carry(key, "rotary_base", int(theta))
    elif theta is not None:
        numbers.leave(key, theta, "Megatron-LM takes whole numbers")
    key = "partial_rotary_factor"
    share = config.as_number(f"{where}.{key}", scaling[key]) if key in scaling else config.number(key)
    if share is not None and not latent:
        numbers.carry(key, "rotary_percent", share)


def _rope_scaling(numbers: _Collector, scaling: Mapping[str, Any], where: str, latent: bool) -> None:
    """llama3, yarn under latent attention and linear by a whole factor; every other scaling is named.

    Megatron-LM refuses the fused rotation of latent attention without yarn (core/transformer/transformer_config.py:2256).
    """
    config = numbers.config
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if latent:
        numbers.taken |= {"rope_type": "yarn"} if kind == "yarn" else {"rope_type": "rope", "apply_rope_fusion": False}
    if kind == "default":
        return
    if kind == "yarn" and latent:
        _yarn(numbers, scaling, where)
        return
    factor = config.as_number(f"{where}.factor", scaling["factor"]) if "factor" in scaling else None
    if kind == "llama3" and factor is not None and not latent:
        numbers.taken["use_rope_scaling"] = True
        numbers.carry(where, "rope_scaling_factor", factor)
        _others(numbers, scaling, where, _LLAMA3)
    elif kind == "linear" and factor is not None and factor.is_integer() and not latent and not numbers.has("rope_local_base_freq"):
        numbers.carry(where, "rotary_seq_len_interpolation_factor", int(factor))
        _others(numbers, scaling, where, {})
    else:
        numbers.leave(where, kind, "the trainer has no such scaling for this attention: it would run without")


def _yarn(numbers: _Collector, scaling: Mapping[str, Any], where: str) -> None:
    """Yarn of latent attention; without mscale the scale of the scores is the factor's own (mscale 1) and attention's is left alone (0)."""
    config = numbers.config
    if "factor" not in scaling:
        raise config.refuse(f"{where}.factor", "is missing", "write the factor of yarn")
    numbers.carry(where, "rotary_scaling_factor", config.as_number(f"{where}.factor", scaling["factor"]))
    key = "original_max_position_embeddings"
    length = config.as_number(f"{where}.{key}", scaling.get(key, config.document["max_position_embeddings"]))
    numbers.taken[key] = int(length)
    numbers.taken["mscale"] = config.as_number(f"{where}.mscale", scaling.get("mscale", 1.0), zero=True)
    numbers.taken["mscale_all_dim"] = config.as_number(f"{where}.mscale_all_dim", scaling.get("mscale_all_dim", 0.0), zero=True)
    _others(
        numbers,
        scaling,
        where,
        {**_YARN_BETAS, key: length, "mscale": scaling.get("mscale"), "mscale_all_dim": scaling.get("mscale_all_dim")},
    )


def _others(numbers: _Collector, scaling: Mapping[str, Any], where: str, fixed: Mapping[str, Any]) -> None:
    """Names what the scaling says beyond what the trainer does in code."""
    for key, value in scaling.items():
        if key not in _NAMES and not (key in fixed and fixed[key] == value):
            numbers.leave(f"{where}.{shown(key)[1:-1]}", value, f"the trainer has {fixed[key]:g}" if key in fixed else "no argument")


def _router(numbers: _Collector, top_k: int, moe_layers: int) -> None:
    """The router's numbers. Megatron-LM divides the chosen weights by their sum after sigmoid, and with softmax behind the choice.

    A softmax over the chosen logits is the softmax over all, chosen and divided by its sum: norm_topk_prob is no moe_router_pre_softmax.
    """
    config, normed = numbers.config, True
    score = config.raw("scoring_func") if numbers.has("scoring_func") else "softmax"
    if score in ("softmax", "sigmoid"):
        numbers.carry("scoring_func", "moe_router_score_function", score)
    else:
        numbers.leave("scoring_func", score, "the trainer has softmax and sigmoid")
    if numbers.has("norm_topk_prob"):
        normed = config.flag("norm_topk_prob")
    if score == "sigmoid":
        numbers.carry("norm_topk_prob", "moe_router_pre_softmax", False)
        if normed is (top_k == 1):
            numbers.leave(
                "norm_topk_prob", normed, "after sigmoid the trainer divides the chosen weights by their sum where there are several"
            )
    else:
        numbers.carry("norm_topk_prob", "moe_router_pre_softmax", not normed or top_k == 1)
        if normed and top_k == 1:
            numbers.leave("norm_topk_prob", normed, "with one expert a token the trainer does not divide")
    numbers.number("routed_scaling_factor", "moe_router_topk_scaling_factor")
    _balancing(numbers, top_k, moe_layers)
    numbers.weight("router_z_loss_coef", "moe_z_loss_coeff")
    numbers.weight("router_jitter_noise", "moe_input_jitter_eps")


def _balancing(numbers: _Collector, top_k: int, moe_layers: int) -> None:
    """The weight of the load-balancing loss. With f the share of choices and P the mean score of E experts, Megatron-LM adds, in every MoE
    layer, c E sum(f P): c where all is even. DeepSeek's code (aux_loss_alpha) adds the same, by sequence or not: c is alpha. transformers
    (router_aux_loss_coef) adds once a E sum(f' P) with means over all layers and f' the choices a token: a k where all is even, so
    c = a k / layers. Sources: NVIDIA/Megatron-LM core/transformer/moe/moe_utils.py (switch_load_balancing_loss_func), transformers
    models/mixtral/modeling_mixtral.py (load_balancing_loss_func), deepseek-ai/DeepSeek-V2 modeling_deepseek.py (MoEGate).
    """
    config, argument = numbers.config, "moe_aux_loss_coeff"
    key = next((key for key in ("aux_loss_alpha", "router_aux_loss_coef") if key in config.document), None)
    if key is None or not (weight := numbers.weight(key, argument)):
        return
    sequence = config.flag("seq_aux") if "seq_aux" in config.document else False
    numbers.carry("seq_aux", "moe_router_load_balancing_type", "seq_aux_loss" if sequence else "aux_loss")
    if key == "router_aux_loss_coef" and moe_layers:
        numbers.taken[argument] = value = float(f"{weight * top_k / moe_layers:.6g}")
        numbers.rescaled.append(
            f"{key} {weight:g} is {argument} {value:g}, x {top_k} / {moe_layers}: transformers weighs one mean over the {moe_layers} MoE"
            f" layers that counts each of the {top_k} chosen experts, the trainer a term a layer; a model that was trained in Megatron-LM"
            f" with {weight:g} needs {argument} {weight:g}"
        )


def _without_argument(numbers: _Collector, architecture: Architecture) -> None:
    """Keys that the trainer has no argument for, unless they say what it does anyway."""
    for key, neutral in model_classes().not_carried.items():
        value = numbers.config.document.get(key)
        same = any(value == item and type(value) is not bool for item in neutral)
        if value in _OFF or same or (key == "query_pre_attn_scalar" and value == architecture.head_dim):
            continue
        numbers.leave(key, value, "no argument")
    numbers.left += numbers.config.family.not_carried


def read_numbers(config: HfConfig, architecture: Architecture) -> HfNumbers:
    """The numbers of a config as trainer arguments; a key that the file leaves out is what its class takes for it. Raises InputError."""
    numbers, latent = _Collector(config), architecture.latent_attention is not None
    epsilon = next((key for key in _EPSILONS if key in config.document), None) or next(key for key in _EPSILONS if numbers.has(key))
    numbers.number(epsilon, "norm_epsilon")
    numbers.number("initializer_range", "init_method_std")
    scaling, where = _rope_parameters(config)
    if any(isinstance(value, Mapping) for value in scaling.values()):
        numbers.leave(where, scaling, "one for each kind of layer")
        scaling = {}
    _rotation(numbers, scaling, where, latent)
    _rope_scaling(numbers, scaling, where, latent)
    if architecture.experts is not None:
        _router(numbers, architecture.experts.top_k, sum(map(bool, architecture.moe_layers)))
    _without_argument(numbers, architecture)
    left, rescaled = tuple(numbers.left), tuple(numbers.rescaled)
    return HfNumbers(arguments=numbers.taken, carried=numbers.carried, not_carried=left, rescaled=rescaled)
