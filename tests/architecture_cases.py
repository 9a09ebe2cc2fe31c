"""How every test builds the architecture of a decoder that no catalogue file can change."""

from __future__ import annotations

from typing import Any

from primus_mcp.inputs.architecture import Architecture


def decoder(layers: int, hidden: int, ffn: int, heads: int, groups: int, vocab: int, seq: int, **more: Any) -> Architecture:
    """A Llama-like decoder, dense unless `more` says otherwise."""
    return Architecture(
        **{
            "name": "decoder",
            "num_layers": layers,
            "hidden_size": hidden,
            "ffn_hidden_size": ffn,
            "num_attention_heads": heads,
            "num_query_groups": groups,
            "head_dim": hidden // heads,
            "seq_length": seq,
            "vocab_size": vocab,
            "vocab_source": "explicit",
            "moe_layers": (False,) * layers,
            **more,
        }
    )
