"""Layers that are not attention plus MLP: which, and with what instead of attention, from the trainer's arguments.

Sources: NVIDIA/Megatron-LM@d3528a21 (gated delta net, Mamba-2), AMD-AGI/Primus@fd1eeabb configs/models/megatron (LFM2, hybrid stacks).
"""

from __future__ import annotations

from primus_mcp.errors import InputError, UnsupportedFeatureError
from primus_mcp.inputs.architecture import GatedDeltaNet, LayerKind, Mamba2, Mixer, ShortConvolution
from primus_mcp.inputs.argument_values import Arguments, count, flag, fraction, layer_pattern, optional_count, optional_text

_LFM_KINDS: dict[str, LayerKind] = {"conv": "mixer", "full_attention": "attention"}
_PATTERN_KINDS: dict[str, LayerKind] = {"M": "mixer_alone", "*": "attention_alone", "-": "mlp_alone"}
_STACKS = {"mamba_stack_spec": "mamba", "hybrid_stack_spec": "mamba", "gdn_hybrid_stack_spec": "gdn"}
"""Layer specifications of Primus's hybrid models that are priced, and what their mixers are."""


def hybrid_layers(arguments: Arguments, layers: int) -> tuple[tuple[LayerKind, ...], Mixer | None]:
    """(kind of every layer, mixer), or ((), None) for a plain transformer. Raises InputError or UnsupportedFeatureError."""
    if arguments["model_type"] == "mamba":
        return _stack(arguments, layers)
    if arguments["spec"] not in (None, "", []):
        raise UnsupportedFeatureError(f"a custom layer specification (spec: {str(arguments['spec'])[:80]}) cannot be priced")
    if arguments["lfm_layer_types"] is not None:
        return _short_convolutions(arguments, layers)
    if arguments["experimental_attention_variant"] == "gated_delta_net":
        return _delta_layers(arguments, layers), _delta_net(arguments)
    return (), None


def _short_convolutions(arguments: Arguments, layers: int) -> tuple[tuple[LayerKind, ...], Mixer | None]:
    types = arguments["lfm_layer_types"]
    wanted = f"{layers} entries of {' or '.join(_LFM_KINDS)}"
    if not isinstance(types, list) or len(types) != layers or not all(isinstance(kind, str) and kind in _LFM_KINDS for kind in types):
        raise InputError(f"is {str(types)[:200]}", where="lfm_layer_types", remedy=f"write {wanted}")
    if flag(arguments, "conv_bias"):
        raise UnsupportedFeatureError("is true, which is not priced", where="conv_bias")
    return tuple(_LFM_KINDS[kind] for kind in types), ShortConvolution(kernel=count(arguments, "conv_L_cache"))


def _delta_layers(arguments: Arguments, layers: int) -> tuple[LayerKind, ...]:
    """linear_attention_freq: N makes every Nth layer attend, a list says 1 for linear attention."""
    pattern = layer_pattern(arguments, "linear_attention_freq", layers)
    if isinstance(pattern, int):
        return tuple("attention" if (layer + 1) % pattern == 0 else "mixer" for layer in range(layers))
    return tuple("mixer" if linear else "attention" for linear in pattern)


def _delta_net(arguments: Arguments) -> GatedDeltaNet:
    return GatedDeltaNet(
        key_heads=count(arguments, "linear_num_key_heads"),
        key_head_dim=count(arguments, "linear_key_head_dim"),
        value_heads=count(arguments, "linear_num_value_heads"),
        value_head_dim=count(arguments, "linear_value_head_dim"),
        kernel=count(arguments, "linear_conv_kernel_dim"),
    )


def _mamba2(arguments: Arguments) -> Mamba2:
    head_dim = count(arguments, "mamba_head_dim")
    inner = count(arguments, "mamba_expand") * count(arguments, "hidden_size")
    heads = optional_count(arguments, "mamba_num_heads") or inner // head_dim
    if heads < 1:
        raise InputError(f"is {head_dim}, wider than the {inner} channels", where="mamba_head_dim", remedy=f"write a divisor of {inner}")
    return Mamba2(
        heads=heads,
        head_dim=head_dim,
        state_dim=count(arguments, "mamba_state_dim"),
        groups=count(arguments, "mamba_num_groups"),
        kernel=count(arguments, "mamba_d_conv"),
    )


def _stack(arguments: Arguments, layers: int) -> tuple[tuple[LayerKind, ...], Mixer | None]:
    """A stack in which mixers, attention and MLPs are layers of their own."""
    spec = arguments["spec"]
    name = spec[-1] if isinstance(spec, list) and spec else spec
    if not isinstance(name, str) or name not in _STACKS:
        problem = f"a stack of {str(name)[:60]!r} layers (model_type: mamba, spec) cannot be priced"
        raise UnsupportedFeatureError(problem, remedy=f"priced: {', '.join(_STACKS)}")
    mixer = _delta_net(arguments) if _STACKS[name] == "gdn" else _mamba2(arguments)
    pattern = optional_text(arguments, "hybrid_override_pattern")
    if pattern is not None:
        if len(pattern) != layers or not set(pattern) <= set(_PATTERN_KINDS):
            wanted = f"write {layers} of {' '.join(_PATTERN_KINDS)}"
            raise InputError(f"is {pattern[:200]!r}", where="hybrid_override_pattern", remedy=wanted)
        return tuple(_PATTERN_KINDS[letter] for letter in pattern), mixer
    if not flag(arguments, "is_hybrid_model"):
        alone: LayerKind = "mixer_alone"
        return (alone,) * layers, mixer
    return _pairs(layers, fraction(arguments, "hybrid_attention_ratio")), mixer


def _pairs(layers: int, attention_ratio: float) -> tuple[LayerKind, ...]:
    """Primus's hybrid stack: layers / 2 pairs of a mixer and an MLP; that share of the mixers is attention, spread evenly."""
    if layers % 2:
        raise InputError(f"is {layers}; a hybrid stack is made of pairs", where="num_layers", remedy="write an even number")
    pairs = layers // 2
    attending = round(pairs * attention_ratio)
    places = {index * pairs // attending for index in range(attending)} if attending else set()
    kinds: list[LayerKind] = []
    for pair in range(pairs):
        kinds += ["attention_alone" if pair in places else "mixer_alone", "mlp_alone"]
    return tuple(kinds)
