"""The `lora` block of Primus's SFT trainer: rank, targets and dropout of its adapters."""

from __future__ import annotations

from typing import Any

from primus_mcp.errors import InputError, UnsupportedFeatureError
from primus_mcp.inputs.argument_values import Arguments, count, flag, fraction
from primus_mcp.inputs.training import LORA_TARGETS

_PRICED = frozenset({*LORA_TARGETS, "linear_q_proj", "linear_q_down_proj", "linear_q_up_proj", "linear_kv_down_proj", "linear_kv_up_proj"})
_UNPRICED_KEYS = ("a2a_experimental", "exclude_modules", "canonical_mapping")


def lora_settings(arguments: Arguments) -> dict[str, Any]:
    """Adapters of the SFT trainer; `lora` does nothing under another trainer. `alpha` costs nothing: its product always runs.

    Raises InputError for values that are none, UnsupportedFeatureError for adapters that are not priced: modules other than linears of
    attention and MLP, patterns with `*` (of single layers), dropout after the adapter, all-to-all instead of gathers.
    """
    lora = arguments["lora"]
    if lora is None:
        return {}
    if not isinstance(lora, dict):
        raise InputError(f"is {lora!r}", where="lora", remedy="write enabled, dim and target_modules below it")
    if not flag({"lora.enabled": lora.get("enabled")}, "lora.enabled"):
        return {}
    if arguments["stage"] != "sft":
        raise UnsupportedFeatureError("is true outside of the SFT trainer", where="lora.enabled", remedy="use config: sft_trainer.yaml")
    dropout = fraction({"lora.dropout": lora.get("dropout", 0.0)}, "lora.dropout")
    _check_keys(lora, dropout)
    return {
        "finetune": "lora",
        "lora_rank": count({"lora.dim": lora.get("dim", 32)}, "lora.dim"),
        "lora_targets": _targets(lora.get("target_modules", list(LORA_TARGETS))),
        "lora_dropout": dropout,
    }


def _targets(targets: object) -> tuple[str, ...]:
    if not isinstance(targets, list) or not targets or not all(isinstance(target, str) for target in targets):
        raise InputError(f"is {targets!r}", where="lora.target_modules", remedy="write a list such as [linear_qkv, linear_proj]")
    unpriced = [target for target in targets if target not in _PRICED]
    if unpriced:
        remedy = f"name whole modules among {', '.join(sorted(_PRICED))}"
        raise UnsupportedFeatureError(f"{', '.join(unpriced)}: not priced", where="lora.target_modules", remedy=remedy)
    return tuple(dict.fromkeys(targets))


def _check_keys(lora: dict[str, Any], dropout: float) -> None:
    for key in _UNPRICED_KEYS:
        if lora.get(key):
            raise UnsupportedFeatureError("is not priced", where=f"lora.{key}", remedy="leave it out")
    position = lora.get("dropout_position", "pre")
    if position not in ("pre", "post"):
        raise InputError(f"is {position!r}", where="lora.dropout_position", remedy="write pre or post")
    if position == "post" and dropout:
        raise UnsupportedFeatureError("post is not priced", where="lora.dropout_position", remedy="use pre, or dropout 0")
